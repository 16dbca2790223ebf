/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the simulator: unsigned arithmetic that does not overflow. */
#ifndef UMAKIT_SATURATING_H
#define UMAKIT_SATURATING_H

#include <stdint.h>

/* UINT64_MAX where the result does not fit 64 bits. */
static inline uint64_t umakit_saturating_product(uint64_t left, uint64_t right)
{
    return left != 0u && right > UINT64_MAX / left ? UINT64_MAX : left * right;
}

static inline uint64_t umakit_saturating_sum(uint64_t left, uint64_t right)
{
    return right > UINT64_MAX - left ? UINT64_MAX : left + right;
}

/* Not (dividend + divisor - 1) / divisor, which can overflow. */
static inline uint64_t umakit_divide_rounding_up(uint64_t dividend, uint64_t divisor)
{
    return dividend / divisor + (dividend % divisor != 0u ? 1u : 0u);
}

#endif /* UMAKIT_SATURATING_H */
