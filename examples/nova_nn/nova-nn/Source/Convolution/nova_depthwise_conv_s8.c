/*
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stddef.h>

#include "internal/nova_nn_support.h"
#include "nova_nn_functions.h"

int32_t nova_depthwise_conv_s8_get_buffer_size(const nova_dims *output_dims)
{
#if NOVA_DSP
    return output_dims->c * sizeof(int32_t); /* the sums of all channels */
#else
    (void)output_dims;
    return 0;
#endif
}

#if NOVA_DSP
#define SUM sums[o]
#else
#define SUM sum
#endif

/* Add the products of one element of the window to the sum of a channel. */
#define ACCUMULATE(in, weight)                                                                    \
    do {                                                                                          \
        SUM += ((in) + params->input_offset) * (weight);                                          \
    } while (0)

nova_status nova_depthwise_conv_s8(const nova_context *ctx, const nova_dw_conv_params *params,
                                   const nova_per_channel_quant_params *quant,
                                   const nova_dims *input_dims, const int8_t *input,
                                   const nova_dims *filter_dims, const int8_t *filter,
                                   const int32_t *bias, const nova_dims *output_dims,
                                   int8_t *output)
{
    const int32_t channels = output_dims->c;
#if NOVA_DSP
    int32_t *sums = ctx->buf;
#endif

    if (input_dims->c * params->ch_mult != channels) {
        return NOVA_ARG_ERROR;
    }
    if (ctx->size < nova_depthwise_conv_s8_get_buffer_size(output_dims)) {
        return NOVA_SCRATCH_ERROR;
    }
    for (int n = 0; n < output_dims->n; n++) {
        const int8_t *image = input + n * input_dims->h * input_dims->w * input_dims->c;

        for (int y = 0; y < output_dims->h; y++) {
            for (int x = 0; x < output_dims->w; x++) {
                const int32_t top = y * params->stride.h - params->padding.h;
                const int32_t left = x * params->stride.w - params->padding.w;

                for (int o = 0; o < channels; o++) {
#if NOVA_DSP
                    sums[o] = bias ? bias[o] : 0;
#else
                    int32_t sum = bias ? bias[o] : 0;
#endif
                    for (int ky = 0; ky < filter_dims->h; ky++) {
                        const int32_t iy = top + ky * params->dilation.h;

                        if (iy < 0 || iy >= input_dims->h) {
                            continue;
                        }
                        for (int kx = 0; kx < filter_dims->w; kx++) {
                            const int32_t ix = left + kx * params->dilation.w;

                            if (ix < 0 || ix >= input_dims->w) {
                                continue;
                            }
                            ACCUMULATE(image[(iy * input_dims->w + ix) * input_dims->c +
                                             o / params->ch_mult],
                                       filter[(ky * filter_dims->w + kx) * channels + o]);
                        }
                    }
#if NOVA_DSP
                }
                for (int o = 0; o < channels; o++) {
#endif
                    int32_t value = nova_requantize(SUM, quant->multiplier[o], quant->shift[o]);

                    value += params->output_offset;
                    *output++ = NOVA_CLAMP(value, params->activation.max, params->activation.min);
                }
            }
        }
    }
    return NOVA_SUCCESS;
}
