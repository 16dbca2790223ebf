/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>

#include "umakit/simulator.h"

static uint64_t saturating_product(uint64_t left, uint64_t right)
{
    if (left != 0u && right > UINT64_MAX / left) {
        return UINT64_MAX;
    }
    return left * right;
}

static uint64_t divide_rounding_up(uint64_t dividend, uint64_t divisor)
{
    /* Not (dividend + divisor - 1) / divisor, which can overflow. */
    return dividend / divisor + (dividend % divisor != 0u ? 1u : 0u);
}

uint64_t umakit_output_stationary_cycles(uint64_t m, uint64_t n, uint64_t k, uint32_t rows,
                                         uint32_t columns, uint32_t drain)
{
    uint64_t folds;
    uint64_t overhead;

    if (m == 0u || n == 0u || k == 0u || rows == 0u || columns == 0u) {
        return 0u;
    }
    folds = saturating_product(divide_rounding_up(m, rows), divide_rounding_up(n, columns));
    /* Operands reach the far corner of the array this much after the near one. */
    overhead = (uint64_t)(rows - 1u) + (columns - 1u) + drain;
    if (k > UINT64_MAX - overhead) {
        return UINT64_MAX;
    }
    return saturating_product(folds, k + overhead);
}
