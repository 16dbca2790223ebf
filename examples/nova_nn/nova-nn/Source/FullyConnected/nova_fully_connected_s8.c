/*
 * SPDX-License-Identifier: Apache-2.0
 */
#include "internal/nova_nn_support.h"
#include "nova_nn_functions.h"

nova_status nova_fully_connected_s8(const nova_fc_params *params,
                                    const nova_per_tensor_quant_params *quant,
                                    const nova_dims *input_dims, const int8_t *input,
                                    const nova_dims *filter_dims, const int8_t *filter,
                                    const int32_t *weight_sums, const int32_t *bias,
                                    int8_t *output)
{
    const int32_t size = filter_dims->c;

    if (input_dims->h * input_dims->w * input_dims->c != size) {
        return NOVA_ARG_ERROR;
    }
    for (int n = 0; n < input_dims->n; n++) {
        for (int o = 0; o < filter_dims->n; o++) {
            int32_t sum = nova_dot_s8_s8(input + n * size, filter + o * size, size, 0);

            sum += params->input_offset * weight_sums[o] + (bias ? bias[o] : 0);
            sum = nova_requantize(sum, quant->multiplier, quant->shift) + params->output_offset;
            *output++ = NOVA_CLAMP(sum, params->activation.max, params->activation.min);
        }
    }
    return NOVA_SUCCESS;
}
