/*
 * SPDX-License-Identifier: Apache-2.0
 */
#include "util.h"

int nova_is_1x1(const nova_conv_params *params, const nova_dims *input_dims,
                const nova_dims *filter_dims)
{
    return filter_dims->h == 1 && filter_dims->w == 1 && params->padding.h == 0 &&
           params->padding.w == 0 && input_dims->c == filter_dims->c;
}
