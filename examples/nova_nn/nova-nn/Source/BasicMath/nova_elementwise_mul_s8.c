/*
 * SPDX-License-Identifier: Apache-2.0
 */
#include "internal/nova_nn_support.h"
#include "nova_nn_functions.h"

nova_status nova_elementwise_mul_s8(const int8_t *input_1, const int8_t *input_2,
                                    int32_t input_1_offset, int32_t input_2_offset,
                                    int8_t *output, int32_t out_offset, int32_t out_mult,
                                    int32_t out_shift, int32_t out_min, int32_t out_max,
                                    int32_t block_size)
{
    for (int i = 0; i < block_size; i++) {
        const int32_t product = (input_1[i] + input_1_offset) * (input_2[i] + input_2_offset);
        const int32_t value = nova_requantize(product, out_mult, out_shift) + out_offset;

        output[i] = NOVA_CLAMP(value, out_max, out_min);
    }
    return NOVA_SUCCESS;
}
