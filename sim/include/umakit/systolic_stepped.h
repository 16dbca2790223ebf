/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A systolic array cycle by cycle: operands move from cell to cell, each cell
 * multiplies and adds once a cycle. It is slow, and there to check the closed
 * form of systolic_cycles.h and the fast loops of the simulator.
 */
#ifndef UMAKIT_SYSTOLIC_STEPPED_H
#define UMAKIT_SYSTOLIC_STEPPED_H

#include <stddef.h>
#include <stdint.h>

#include "status.h"
#include "systolic_cycles.h"

#ifdef __cplusplus
extern "C" {
#endif

/* C[m x n] = A[m x k] * B[k x n], all row by row without gaps. Sums wrap around
 * at 32 bits. */
struct umakit_product {
    const int8_t *a;
    const int8_t *b;
    int32_t *c;
    uint32_t m;
    uint32_t n;
    uint32_t k;
};

/* One cell of the array: its registers. */
struct umakit_systolic_cell {
    int8_t from_left;  /* operand that moves to the right neighbour next */
    int8_t from_above; /* operand that moves down next */
    int8_t stationary; /* operand that stays, if one does */
    uint32_t sum;      /* of this cell, or on its way down */
};

/*
 * Compute a product and count its cycles.
 *
 * cells       2 * rows * columns of them, anything in them
 * cell_count  how many there are
 * cycles      all cycles, drain included
 *
 * UMAKIT_INVALID_ARGUMENT  NULL, a size of 0, no such dataflow
 * UMAKIT_OUT_OF_RANGE      too few cells
 *
 * On failure nothing is written.
 */
UMAKIT_MUST_USE int umakit_systolic_step(enum umakit_dataflow dataflow,
                                         const struct umakit_product *product,
                                         struct umakit_array_size array,
                                         struct umakit_systolic_cell *cells, size_t cell_count,
                                         uint64_t *cycles);

#ifdef __cplusplus
}
#endif

#endif /* UMAKIT_SYSTOLIC_STEPPED_H */
