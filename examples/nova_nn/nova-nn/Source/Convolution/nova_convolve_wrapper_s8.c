/*
 * SPDX-License-Identifier: Apache-2.0
 */
#include "nova_nn_functions.h"
#include "util.h"

nova_status nova_convolve_wrapper_s8(const nova_context *ctx, const nova_conv_params *params,
                                     const nova_per_channel_quant_params *quant,
                                     const nova_dims *input_dims, const int8_t *input,
                                     const nova_dims *filter_dims, const int8_t *filter,
                                     const int32_t *bias, const nova_dims *output_dims,
                                     int8_t *output)
{
    if (nova_is_1x1(params, input_dims, filter_dims, output_dims)) {
        return nova_convolve_1x1_s8(params, quant, input_dims, input, filter_dims, filter, bias,
                                    output_dims, output);
    }
    return nova_convolve_s8(ctx, params, quant, input_dims, input, filter_dims, filter, bias,
                            output_dims, output);
}
