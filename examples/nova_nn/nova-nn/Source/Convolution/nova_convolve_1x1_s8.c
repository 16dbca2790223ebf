/*
 * SPDX-License-Identifier: Apache-2.0
 */
#include "internal/nova_nn_support.h"
#include "nova_nn_functions.h"

nova_status nova_convolve_1x1_s8(const nova_conv_params *params,
                                 const nova_per_channel_quant_params *quant,
                                 const nova_dims *input_dims, const int8_t *input,
                                 const nova_dims *filter_dims, const int8_t *filter,
                                 const int32_t *bias, const nova_dims *output_dims,
                                 int8_t *output)
{
    const int32_t channels = input_dims->c;

    if (filter_dims->h != 1 || filter_dims->w != 1 || filter_dims->c != channels) {
        return NOVA_ARG_ERROR;
    }
    for (int n = 0; n < output_dims->n; n++) {
        for (int y = 0; y < output_dims->h; y++) {
            for (int x = 0; x < output_dims->w; x++) {
                const int32_t iy = y * params->stride.h, ix = x * params->stride.w;
                const int8_t *in =
                    input + ((n * input_dims->h + iy) * input_dims->w + ix) * channels;

                for (int o = 0; o < output_dims->c; o++) {
                    int32_t sum = nova_dot_s8_s8(in, filter + o * channels, channels,
                                                 params->input_offset);
                    if (bias) {
                        sum += bias[o];
                    }
                    sum = nova_requantize(sum, quant->multiplier[o], quant->shift[o]);
                    sum += params->output_offset;
                    *output++ = NOVA_CLAMP(sum, params->activation.max, params->activation.min);
                }
            }
        }
    }
    return NOVA_SUCCESS;
}
