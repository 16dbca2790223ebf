/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cycles of a systolic array, in closed form.
 *
 * A matrix product C[m x n] = A[m x k] * B[k x n] is cut into folds of the
 * array's size. With R rows and C columns a fold takes
 *
 *     output stationary   sums stay:     R + C + k - 2      ceil(m/R) * ceil(n/C) folds
 *     weight stationary   B stays:   2 * R + C + m - 2      ceil(k/R) * ceil(n/C) folds
 *     input stationary    A stays:   2 * R + C + n - 2      ceil(k/R) * ceil(m/C) folds
 *
 * cycles: R to bring in what stays, if it is an operand; then operands enter a
 * row or column one cycle after its neighbour, and the far corner sees the last
 * ones R + C - 2 cycles after the near corner. Folds do not overlap, and one at
 * an edge costs as much as a full one. That is the model of SCALE-Sim (A.
 * Samajdar et al., "A systematic methodology for characterizing scalability of
 * DNN accelerators using SCALE-Sim", ISPASS 2020), whose counts it equals.
 * Moving results out costs nothing there; where it does, drain cycles are added
 * to each fold.
 *
 * A convolution is the product with m = rows * columns of its result, n = output
 * channels, k = kernel rows * kernel columns * input channels.
 */
#ifndef UMAKIT_SYSTOLIC_CYCLES_H
#define UMAKIT_SYSTOLIC_CYCLES_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What stays in the array; the values are those of registers. */
enum umakit_dataflow {
    UMAKIT_OUTPUT_STATIONARY = 0,
    UMAKIT_WEIGHT_STATIONARY = 1,
    UMAKIT_INPUT_STATIONARY = 2
};

struct umakit_product_size {
    uint64_t m;
    uint64_t n;
    uint64_t k;
};

struct umakit_array_size {
    uint32_t rows;
    uint32_t columns;
    uint32_t drain_cycles; /* of a fold */
};

/* All 0 where a size is 0 or there is no such dataflow; a count that does not
 * fit 64 bits is UINT64_MAX. */
struct umakit_product_cycles {
    uint64_t folds;
    uint64_t compute; /* cycles, without the drain */
    uint64_t drain;
    uint64_t slots; /* multiply-accumulates that the folds have room for */
};

struct umakit_product_cycles umakit_systolic_cycles(enum umakit_dataflow dataflow,
                                                    struct umakit_product_size product,
                                                    struct umakit_array_size array);

#ifdef __cplusplus
}
#endif

#endif /* UMAKIT_SYSTOLIC_CYCLES_H */
