/*
 * SPDX-License-Identifier: Apache-2.0
 */
#include "internal/nova_nn_support.h"
#include "nova_nn_functions.h"
#include "util.h"

int32_t nova_convolve_s8_get_buffer_size(const nova_dims *filter_dims)
{
    const int32_t column = filter_dims->h * filter_dims->w * filter_dims->c;
#if NOVA_DSP
    return 2 * column * sizeof(int16_t);
#else
    return column;
#endif
}

int32_t nova_convolve_wrapper_s8_get_buffer_size(const nova_conv_params *params,
                                                 const nova_dims *input_dims,
                                                 const nova_dims *filter_dims,
                                                 const nova_dims *output_dims)
{
    if (nova_is_1x1(params, input_dims, filter_dims, output_dims)) {
        return 0;
    }
    return nova_convolve_s8_get_buffer_size(filter_dims);
}
