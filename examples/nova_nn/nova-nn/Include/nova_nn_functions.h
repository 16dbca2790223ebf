/*
 * SPDX-License-Identifier: Apache-2.0
 *
 * Kernels of 8-bit networks. Data are NHWC, weights OHWI. Functions that need working memory have
 * a companion `*_get_buffer_size`, which depends on the core that the library is built for.
 */
#ifndef NOVA_NN_FUNCTIONS_H
#define NOVA_NN_FUNCTIONS_H

#include "nova_nn_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Chooses the fastest kernel. Groups are input channels of the data / those of the filter. */
nova_status nova_convolve_wrapper_s8(const nova_context *ctx, const nova_conv_params *params,
                                     const nova_per_channel_quant_params *quant,
                                     const nova_dims *input_dims, const int8_t *input,
                                     const nova_dims *filter_dims, const int8_t *filter,
                                     const int32_t *bias, const nova_dims *output_dims,
                                     int8_t *output);
int32_t nova_convolve_wrapper_s8_get_buffer_size(const nova_conv_params *params,
                                                 const nova_dims *input_dims,
                                                 const nova_dims *filter_dims,
                                                 const nova_dims *output_dims);

nova_status nova_convolve_s8(const nova_context *ctx, const nova_conv_params *params,
                             const nova_per_channel_quant_params *quant,
                             const nova_dims *input_dims, const int8_t *input,
                             const nova_dims *filter_dims, const int8_t *filter,
                             const int32_t *bias, const nova_dims *output_dims, int8_t *output);
int32_t nova_convolve_s8_get_buffer_size(const nova_dims *filter_dims);

/* Windows of one element without padding, with any stride. */
nova_status nova_convolve_1x1_s8(const nova_conv_params *params,
                                 const nova_per_channel_quant_params *quant,
                                 const nova_dims *input_dims, const int8_t *input,
                                 const nova_dims *filter_dims, const int8_t *filter,
                                 const int32_t *bias, const nova_dims *output_dims,
                                 int8_t *output);

/* Filters are [1, h, w, output channels]. */
nova_status nova_depthwise_conv_s8(const nova_context *ctx, const nova_dw_conv_params *params,
                                   const nova_per_channel_quant_params *quant,
                                   const nova_dims *input_dims, const int8_t *input,
                                   const nova_dims *filter_dims, const int8_t *filter,
                                   const int32_t *bias, const nova_dims *output_dims,
                                   int8_t *output);
int32_t nova_depthwise_conv_s8_get_buffer_size(const nova_dims *output_dims);

/* weight_sums: the sum of each row of weights. */
nova_status nova_fully_connected_s8(const nova_fc_params *params,
                                    const nova_per_tensor_quant_params *quant,
                                    const nova_dims *input_dims, const int8_t *input,
                                    const nova_dims *filter_dims, const int8_t *filter,
                                    const int32_t *weight_sums, const int32_t *bias,
                                    int8_t *output);

nova_status nova_avgpool_s8(const nova_context *ctx, const nova_pool_params *params,
                            const nova_dims *input_dims, const int8_t *input,
                            const nova_dims *filter_dims, const nova_dims *output_dims,
                            int8_t *output);
int32_t nova_avgpool_s8_get_buffer_size(const nova_dims *output_dims);

nova_status nova_max_pool_s8(const nova_pool_params *params, const nova_dims *input_dims,
                             const int8_t *input, const nova_dims *filter_dims,
                             const nova_dims *output_dims, int8_t *output);

/* Differences below diff_min, to the largest of a row, count as 0. */
nova_status nova_softmax_s8(const int8_t *input, int32_t num_rows, int32_t row_size, int32_t mult,
                            int32_t shift, int32_t diff_min, int8_t *output);

nova_status nova_elementwise_add_s8(const int8_t *input_1, const int8_t *input_2,
                                    int32_t input_1_offset, int32_t input_1_mult,
                                    int32_t input_1_shift, int32_t input_2_offset,
                                    int32_t input_2_mult, int32_t input_2_shift,
                                    int32_t left_shift, int8_t *output, int32_t out_offset,
                                    int32_t out_mult, int32_t out_shift, int32_t out_min,
                                    int32_t out_max, int32_t block_size);

nova_status nova_elementwise_mul_s8(const int8_t *input_1, const int8_t *input_2,
                                    int32_t input_1_offset, int32_t input_2_offset,
                                    int8_t *output, int32_t out_offset, int32_t out_mult,
                                    int32_t out_shift, int32_t out_min, int32_t out_max,
                                    int32_t block_size);

#ifdef __cplusplus
}
#endif

#endif /* NOVA_NN_FUNCTIONS_H */
