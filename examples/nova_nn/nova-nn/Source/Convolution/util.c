/*
 * SPDX-License-Identifier: Apache-2.0
 */
#include "util.h"

int nova_is_1x1(const nova_conv_params *params, const nova_dims *input_dims,
                const nova_dims *filter_dims, const nova_dims *output_dims)
{
    /* Padding below and on the right shows in the size of the result alone. */
    return filter_dims->h == 1 && filter_dims->w == 1 && params->padding.h == 0 &&
           params->padding.w == 0 && input_dims->c == filter_dims->c &&
           (output_dims->h - 1) * params->stride.h < input_dims->h &&
           (output_dims->w - 1) * params->stride.w < input_dims->w;
}
