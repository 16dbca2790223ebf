/*
 * SPDX-License-Identifier: Apache-2.0
 */
#include "internal/nova_nn_support.h"

int32_t nova_dot_s16_s8(const int16_t *column, const int8_t *weights, int32_t n)
{
    int32_t sum = 0;

    for (int i = 0; i < n; i++) {
        sum += column[i] * weights[i];
    }
    return sum;
}

int32_t nova_dot_s8_s8(const int8_t *column, const int8_t *weights, int32_t n, int32_t offset)
{
    int32_t sum = 0;

    for (int i = 0; i < n; i++) {
        sum += (column[i] + offset) * weights[i];
    }
    return sum;
}
