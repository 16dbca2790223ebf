/*
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stddef.h>

#include "internal/nova_nn_support.h"
#include "nova_nn_functions.h"
#include "util.h"

int32_t nova_avgpool_s8_get_buffer_size(const nova_dims *output_dims)
{
    return output_dims->c * sizeof(int32_t);
}

nova_status nova_avgpool_s8(const nova_context *ctx, const nova_pool_params *params,
                            const nova_dims *input_dims, const int8_t *input,
                            const nova_dims *filter_dims, const nova_dims *output_dims,
                            int8_t *output)
{
    const int32_t channels = input_dims->c;
    int32_t *sums = ctx->buf;

    if (sums == NULL || ctx->size < nova_avgpool_s8_get_buffer_size(output_dims)) {
        return NOVA_SCRATCH_ERROR;
    }
    for (int n = 0; n < output_dims->n; n++) {
        const int8_t *image = input + n * input_dims->h * input_dims->w * channels;

        for (int y = 0; y < output_dims->h; y++) {
            const nova_span rows = nova_span_within(y * params->stride.h - params->padding.h,
                                                    filter_dims->h, input_dims->h);

            for (int x = 0; x < output_dims->w; x++) {
                const nova_span columns = nova_span_within(
                    x * params->stride.w - params->padding.w, filter_dims->w, input_dims->w);
                const int32_t count = (rows.end - rows.begin) * (columns.end - columns.begin);

                if (count <= 0) {
                    return NOVA_ARG_ERROR;
                }
                for (int c = 0; c < channels; c++) {
                    sums[c] = 0;
                }
                for (int iy = rows.begin; iy < rows.end; iy++) {
                    for (int ix = columns.begin; ix < columns.end; ix++) {
                        for (int c = 0; c < channels; c++) {
                            sums[c] += image[(iy * input_dims->w + ix) * channels + c];
                        }
                    }
                }
                for (int c = 0; c < channels; c++) {
                    const int32_t half = sums[c] > 0 ? count / 2 : -(count / 2);
                    const int32_t mean = (sums[c] + half) / count;

                    *output++ = NOVA_CLAMP(mean, params->activation.max, params->activation.min);
                }
            }
        }
    }
    return NOVA_SUCCESS;
}
