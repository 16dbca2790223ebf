/* SPDX-License-Identifier: Apache-2.0 */
/* Cycles of a product of matrices, in closed form: systolic_cycles.h says how. */
#include "umakit/systolic_cycles.h"

#include <stdint.h>

#include "umakit/saturating.h"

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
    cycles.folds =
        umakit_saturating_product(umakit_divide_rounding_up(along_rows, array.rows),
                                  umakit_divide_rounding_up(along_columns, array.columns));
    overhead = (uint64_t)(array.rows - 1u) + (array.columns - 1u);
    if (dataflow != UMAKIT_OUTPUT_STATIONARY) {
        overhead += array.rows;
    }
    cycles.compute =
        umakit_saturating_product(cycles.folds, umakit_saturating_sum(through, overhead));
    cycles.drain = umakit_saturating_product(cycles.folds, array.drain_cycles);
    cycles.slots = umakit_saturating_product(
        cycles.folds,
        umakit_saturating_product((uint64_t)array.rows * array.columns, through));
    return cycles;
}
