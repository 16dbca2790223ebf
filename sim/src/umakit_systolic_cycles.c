/* SPDX-License-Identifier: Apache-2.0 */
#include "umakit/systolic_cycles.h"

#include <stdint.h>

static uint64_t saturating_product(uint64_t left, uint64_t right)
{
    if (left != 0u && right > UINT64_MAX / left) {
        return UINT64_MAX;
    }
    return left * right;
}

static uint64_t saturating_sum(uint64_t left, uint64_t right)
{
    return right > UINT64_MAX - left ? UINT64_MAX : left + right;
}

static uint64_t divide_rounding_up(uint64_t dividend, uint64_t divisor)
{
    /* Not (dividend + divisor - 1) / divisor, which can overflow. */
    return dividend / divisor + (dividend % divisor != 0u ? 1u : 0u);
}

struct umakit_product_cycles umakit_systolic_cycles(enum umakit_dataflow dataflow,
                                                    struct umakit_product_size product,
                                                    struct umakit_array_size array)
{
    struct umakit_product_cycles cycles = {0u, 0u, 0u, 0u};
    uint64_t along_rows;    /* what is spread over the rows of the array ... */
    uint64_t along_columns; /* ... over its columns ... */
    uint64_t through;       /* ... and what moves through it */
    uint64_t overhead;

    switch (dataflow) {
    case UMAKIT_OUTPUT_STATIONARY:
        along_rows = product.m;
        along_columns = product.n;
        through = product.k;
        break;
    case UMAKIT_WEIGHT_STATIONARY:
        along_rows = product.k;
        along_columns = product.n;
        through = product.m;
        break;
    case UMAKIT_INPUT_STATIONARY:
        along_rows = product.k;
        along_columns = product.m;
        through = product.n;
        break;
    default:
        return cycles;
    }
    if (product.m == 0u || product.n == 0u || product.k == 0u || array.rows == 0u ||
        array.columns == 0u) {
        return cycles;
    }
    cycles.folds = saturating_product(divide_rounding_up(along_rows, array.rows),
                                      divide_rounding_up(along_columns, array.columns));
    overhead = (uint64_t)(array.rows - 1u) + (array.columns - 1u);
    if (dataflow != UMAKIT_OUTPUT_STATIONARY) {
        overhead += array.rows;
    }
    cycles.compute = saturating_product(cycles.folds, saturating_sum(through, overhead));
    cycles.drain = saturating_product(cycles.folds, array.drain_cycles);
    cycles.slots = saturating_product(
        cycles.folds, saturating_product((uint64_t)array.rows * array.columns, through));
    return cycles;
}
