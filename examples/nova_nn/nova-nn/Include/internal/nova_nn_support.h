/*
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef NOVA_NN_SUPPORT_H
#define NOVA_NN_SUPPORT_H

#include "../nova_nn_types.h"
#include "nova_compiler.h"

#ifdef __cplusplus
extern "C" {
#endif

#define NOVA_MAX(A, B) ((A) > (B) ? (A) : (B))
#define NOVA_MIN(A, B) ((A) < (B) ? (A) : (B))
#define NOVA_CLAMP(x, h, l) NOVA_MAX(NOVA_MIN((x), (h)), (l))

/* Keeps loads and stores of the lines before it there. */
NOVA_FORCE_INLINE void nova_barrier(void)
{
    __asm volatile("" ::: "memory");
}

/* The high 32 bits of twice the product, rounded; ties go up. */
NOVA_FORCE_INLINE int32_t nova_doubling_high_mult(const int32_t a, const int32_t b)
{
    const int64_t product = (int64_t)a * b;
    const int64_t nudge = product >= 0 ? 1 << 30 : 1 - (1 << 30);

    return a == INT32_MIN && b == INT32_MIN ? INT32_MAX : (product + nudge) / (1LL << 31);
}

/* Ties go away from zero. */
NOVA_FORCE_INLINE int32_t nova_divide_by_power_of_two(const int32_t dividend,
                                                      const int32_t exponent)
{
    const int32_t mask = (1LL << exponent) - 1;
    const int32_t remainder = dividend & mask;
    const int32_t threshold = (mask >> 1) + (dividend < 0);

    return (dividend >> exponent) + (remainder > threshold);
}

NOVA_FORCE_INLINE int32_t nova_requantize(const int32_t val, const int32_t multiplier,
                                          const int32_t shift)
{
    const int32_t left = NOVA_MAX(shift, 0);
    const int32_t right = NOVA_MAX(-shift, 0);

    return nova_divide_by_power_of_two(nova_doubling_high_mult(val * (1 << left), multiplier),
                                       right);
}

/* Products of n elements of a column and of weights, without offsets. */
int32_t nova_dot_s16_s8(const int16_t *column, const int8_t *weights, int32_t n);
int32_t nova_dot_s8_s8(const int8_t *column, const int8_t *weights, int32_t n, int32_t offset);

#ifdef __cplusplus
}
#endif

#endif /* NOVA_NN_SUPPORT_H */
