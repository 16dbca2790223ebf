/*
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef NOVA_CONVOLUTION_UTIL_H
#define NOVA_CONVOLUTION_UTIL_H

#include "nova_nn_types.h"

int nova_is_1x1(const nova_conv_params *params, const nova_dims *input_dims,
                const nova_dims *filter_dims, const nova_dims *output_dims);

#endif
