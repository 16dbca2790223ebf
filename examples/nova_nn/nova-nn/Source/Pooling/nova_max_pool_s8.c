/*
 * SPDX-License-Identifier: Apache-2.0
 */
#include "internal/nova_nn_support.h"
#include "nova_nn_functions.h"
#include "util.h"

nova_status nova_max_pool_s8(const nova_pool_params *params, const nova_dims *input_dims,
                             const int8_t *input, const nova_dims *filter_dims,
                             const nova_dims *output_dims, int8_t *output)
{
    const int32_t channels = input_dims->c;

    for (int n = 0; n < output_dims->n; n++) {
        const int8_t *image = input + n * input_dims->h * input_dims->w * channels;

        for (int y = 0; y < output_dims->h; y++) {
            const nova_span rows = nova_span_within(y * params->stride.h - params->padding.h,
                                                    filter_dims->h, input_dims->h);

            for (int x = 0; x < output_dims->w; x++) {
                const nova_span columns = nova_span_within(
                    x * params->stride.w - params->padding.w, filter_dims->w, input_dims->w);

                for (int c = 0; c < channels; c++) {
                    int32_t largest = params->activation.min;

                    for (int iy = rows.begin; iy < rows.end; iy++) {
                        for (int ix = columns.begin; ix < columns.end; ix++) {
                            const int8_t *in = image + (iy * input_dims->w + ix) * channels;

                            largest = NOVA_MAX(largest, in[c]);
                        }
                    }
                    *output++ = NOVA_MIN(largest, params->activation.max);
                }
            }
        }
    }
    return NOVA_SUCCESS;
}
