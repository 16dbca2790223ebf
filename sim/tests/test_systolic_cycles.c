/* SPDX-License-Identifier: Apache-2.0 */
/* The closed form against an array that is stepped cycle by cycle, and the
 * stepped array against plain loops. Figures of SCALE-Sim are checked in
 * tests/test_systolic.py. */
#include <stddef.h>
#include <stdint.h>

#include "check.h"
#include "umakit/systolic_cycles.h"
#include "umakit/systolic_stepped.h"

#define LARGEST 24u
#define LARGEST_ARRAY 9u

static int8_t a[LARGEST * LARGEST];
static int8_t b[LARGEST * LARGEST];
static int32_t c[LARGEST * LARGEST];
static struct umakit_systolic_cell cells[2u * LARGEST_ARRAY * LARGEST_ARRAY];

static void check_product(const struct umakit_product *product)
{
    uint32_t row;
    uint32_t column;
    uint32_t i;
    uint32_t wrong = 0u;

    for (row = 0u; row < product->m; ++row) {
        for (column = 0u; column < product->n; ++column) {
            int32_t sum = 0;

            for (i = 0u; i < product->k; ++i) {
                sum += product->a[row * product->k + i] * product->b[i * product->n + column];
            }
            wrong += product->c[row * product->n + column] != sum ? 1u : 0u;
        }
    }
    CHECK_EQUAL(wrong, 0u);
}

static void check_one_shape(enum umakit_dataflow dataflow, uint32_t *state)
{
    const struct umakit_array_size array = {random_size(state, LARGEST_ARRAY),
                                            random_size(state, LARGEST_ARRAY),
                                            random_size(state, 4u) - 1u};
    const struct umakit_product product = {a, b, c, random_size(state, LARGEST),
                                           random_size(state, LARGEST),
                                           random_size(state, LARGEST)};
    const struct umakit_product_size size = {product.m, product.n, product.k};
    struct umakit_product_cycles expected;
    uint64_t cycles = 0u;
    size_t i;

    for (i = 0u; i < sizeof(a); ++i) {
        a[i] = (int8_t)((int32_t)(random_number(state) >> 24) - 128);
        b[i] = (int8_t)((int32_t)(random_number(state) >> 24) - 128);
    }
    CHECK_EQUAL(umakit_systolic_step(dataflow, &product, array, cells,
                                     sizeof(cells) / sizeof(cells[0]), &cycles),
                UMAKIT_OK);
    check_product(&product);
    expected = umakit_systolic_cycles(dataflow, size, array);
    CHECK_EQUAL(cycles, expected.compute + expected.drain);
    CHECK_EQUAL(expected.drain, expected.folds * array.drain_cycles);
    CHECK(expected.slots >= size.m * size.n * size.k);
}

static void test_stepped(void)
{
    uint32_t state = 7u;
    int i;

    for (i = 0; i < 400; ++i) {
        check_one_shape(UMAKIT_OUTPUT_STATIONARY, &state);
        check_one_shape(UMAKIT_WEIGHT_STATIONARY, &state);
        check_one_shape(UMAKIT_INPUT_STATIONARY, &state);
    }
}

static void test_extremes(void)
{
    const struct umakit_array_size one = {1u, 1u, 0u};
    const struct umakit_array_size huge = {UINT32_MAX, UINT32_MAX, UINT32_MAX};
    const struct umakit_product_size unit = {1u, 1u, 1u};
    const struct umakit_product_size most = {UINT64_MAX, 2u, 1u};
    struct umakit_product_size size = unit;
    struct umakit_array_size array = one;

    CHECK_EQUAL(umakit_systolic_cycles(UMAKIT_OUTPUT_STATIONARY, unit, one).compute, 1u);
    CHECK_EQUAL(umakit_systolic_cycles(UMAKIT_WEIGHT_STATIONARY, unit, one).compute, 2u);
    /* Terms of 2^32 - 1 do not wrap at 32 bits. */
    CHECK_EQUAL(umakit_systolic_cycles(UMAKIT_INPUT_STATIONARY, unit, huge).compute,
                3u * (uint64_t)UINT32_MAX - 1u);
    CHECK_EQUAL(umakit_systolic_cycles(UMAKIT_INPUT_STATIONARY, unit, huge).drain, UINT32_MAX);
    /* What does not fit says so. */
    CHECK_EQUAL(umakit_systolic_cycles(UMAKIT_OUTPUT_STATIONARY, most, one).compute, UINT64_MAX);
    CHECK_EQUAL(umakit_systolic_cycles(UMAKIT_OUTPUT_STATIONARY, most, one).slots, UINT64_MAX);
    CHECK_EQUAL(umakit_systolic_cycles(UMAKIT_WEIGHT_STATIONARY, most, huge).compute, UINT64_MAX);
    size.k = 0u;
    CHECK_EQUAL(umakit_systolic_cycles(UMAKIT_OUTPUT_STATIONARY, size, one).compute, 0u);
    array.rows = 0u;
    CHECK_EQUAL(umakit_systolic_cycles(UMAKIT_OUTPUT_STATIONARY, unit, array).folds, 0u);
    CHECK_EQUAL(umakit_systolic_cycles((enum umakit_dataflow)3, unit, one).folds, 0u);
}

static void test_refusals(void)
{
    const struct umakit_array_size array = {3u, 3u, 0u};
    struct umakit_product product = {a, b, c, 2u, 2u, 2u};
    uint64_t cycles = 99u;

    CHECK_EQUAL(umakit_systolic_step(UMAKIT_OUTPUT_STATIONARY, &product, array, cells, 17u, &cycles),
                UMAKIT_OUT_OF_RANGE);
    CHECK_EQUAL(umakit_systolic_step((enum umakit_dataflow)3, &product, array, cells, 18u, &cycles),
                UMAKIT_INVALID_ARGUMENT);
    CHECK_EQUAL(umakit_systolic_step(UMAKIT_OUTPUT_STATIONARY, NULL, array, cells, 18u, &cycles),
                UMAKIT_INVALID_ARGUMENT);
    product.k = 0u;
    CHECK_EQUAL(umakit_systolic_step(UMAKIT_INPUT_STATIONARY, &product, array, cells, 18u, &cycles),
                UMAKIT_INVALID_ARGUMENT);
    CHECK_EQUAL(cycles, 99u);
}

int main(void)
{
    test_stepped();
    test_extremes();
    test_refusals();
    return check_result();
}
