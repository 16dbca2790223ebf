/*
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stddef.h>

#include "internal/nova_nn_support.h"
#include "nova_nn_functions.h"

#if NOVA_DSP
typedef int16_t column_t;
#else
typedef int8_t column_t;
#endif

/* Copy the window of one result and one group; outside of the input stands its zero point. */
static void im2col(column_t *column, const int8_t *input, const nova_conv_params *params,
                   const nova_dims *input_dims, const nova_dims *filter_dims, int32_t y, int32_t x)
{
    for (int ky = 0; ky < filter_dims->h; ky++) {
        for (int kx = 0; kx < filter_dims->w; kx++) {
            const int32_t iy = y + ky * params->dilation.h;
            const int32_t ix = x + kx * params->dilation.w;
            const int inside = iy >= 0 && iy < input_dims->h && ix >= 0 && ix < input_dims->w;

            for (int c = 0; c < filter_dims->c; c++) {
#if NOVA_DSP
                *column++ = inside ? input[(iy * input_dims->w + ix) * input_dims->c + c] +
                                         params->input_offset
                                   : 0;
#else
                *column++ = inside ? input[(iy * input_dims->w + ix) * input_dims->c + c]
                                   : -params->input_offset;
#endif
            }
        }
    }
}

nova_status nova_convolve_s8(const nova_context *ctx, const nova_conv_params *params,
                             const nova_per_channel_quant_params *quant,
                             const nova_dims *input_dims, const int8_t *input,
                             const nova_dims *filter_dims, const int8_t *filter,
                             const int32_t *bias, const nova_dims *output_dims, int8_t *output)
{
    const int32_t size = filter_dims->h * filter_dims->w * filter_dims->c;
    column_t *column = ctx->buf;

    if (ctx->buf == NULL || ctx->size < nova_convolve_s8_get_buffer_size(filter_dims)) {
        return NOVA_SCRATCH_ERROR;
    }
    if (input_dims->c % filter_dims->c) {
        return NOVA_ARG_ERROR;
    }
    const int32_t groups = input_dims->c / filter_dims->c;
    const int32_t outputs = output_dims->c / groups;

    if (outputs * groups != output_dims->c) {
        return NOVA_ARG_ERROR;
    }
    for (int n = 0; n < output_dims->n; n++) {
        const int8_t *image = input + n * input_dims->h * input_dims->w * input_dims->c;

        for (int y = 0; y < output_dims->h; y++) {
            for (int x = 0; x < output_dims->w; x++) {
                for (int g = 0; g < groups; g++) {
                    im2col(column, image + g * filter_dims->c, params, input_dims, filter_dims,
                           y * params->stride.h - params->padding.h,
                           x * params->stride.w - params->padding.w);
                    for (int o = g * outputs; o < (g + 1) * outputs; o++) {
#if NOVA_DSP
                        int32_t sum = nova_dot_s16_s8(column, filter + o * size, size);
#else
                        int32_t sum =
                            nova_dot_s8_s8(column, filter + o * size, size, params->input_offset);
#endif
                        sum += bias ? bias[o] : 0;
                        sum = nova_requantize(sum, quant->multiplier[o], quant->shift[o]);
                        sum += params->output_offset;
                        *output++ =
                            NOVA_CLAMP(sum, params->activation.max, params->activation.min);
                    }
                }
            }
        }
    }
    return NOVA_SUCCESS;
}
