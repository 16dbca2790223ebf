/* SPDX-License-Identifier: Apache-2.0 */
/* The closed form against figures measured elsewhere and against a walk over
 * the array that moves operands one cell a cycle. */
#include <stddef.h>
#include <stdint.h>

#include "check.h"
#include "umakit/simulator.h"

struct figure {
    uint64_t m;
    uint64_t n;
    uint64_t k;
    uint32_t rows;
    uint32_t columns;
    uint64_t cycles;
};

/* Output-stationary cycles as SCALE-Sim 3.0.0 reports them. */
static const struct figure scale_sim[] = {
    {8, 8, 8, 8, 8, 22},          {64, 64, 64, 8, 8, 4992},
    {1, 64, 128, 8, 8, 1136},     {7, 9, 5, 8, 8, 38},
    {196, 32, 72, 8, 8, 8600},    {1024, 16, 27, 8, 8, 10496},
    {256, 16, 72, 8, 8, 5504},    {196, 64, 32, 8, 8, 9200},
    {8, 8, 8, 16, 16, 38},        {64, 64, 64, 16, 16, 1504},
    {1, 64, 128, 16, 16, 632},    {7, 9, 5, 16, 16, 35},
    {196, 32, 72, 16, 16, 2652},  {1024, 16, 27, 16, 16, 3648},
    {256, 16, 72, 16, 16, 1632},  {196, 64, 32, 16, 16, 3224},
};

/* Step a fold until the last cell has seen its k-th pair of operands. Cell
 * (row, column) sees pair t in cycle t + row + column, so follow the diagonal
 * wavefront instead of computing where it ends. */
static uint64_t walk_fold(uint32_t rows, uint32_t columns, uint64_t k)
{
    uint64_t cycle = 0u;
    uint64_t pairs_in_last_cell = 0u;
    uint64_t wavefront = 0u; /* diagonals that the first pair has reached */
    const uint64_t last_diagonal = (uint64_t)rows + columns - 1u;

    while (pairs_in_last_cell < k) {
        ++cycle;
        if (wavefront < last_diagonal) {
            ++wavefront;
        }
        if (wavefront == last_diagonal) {
            ++pairs_in_last_cell;
        }
    }
    return cycle;
}

static uint64_t walk(uint64_t m, uint64_t n, uint64_t k, uint32_t rows, uint32_t columns,
                     uint32_t drain)
{
    uint64_t cycles = 0u;
    uint64_t top;
    uint64_t left;

    for (top = 0u; top < m; top += rows) {
        for (left = 0u; left < n; left += columns) {
            cycles += walk_fold(rows, columns, k);
            cycles += drain;
        }
    }
    return cycles;
}

static void test_scale_sim_figures(void)
{
    size_t i;

    for (i = 0u; i < sizeof(scale_sim) / sizeof(scale_sim[0]); ++i) {
        const struct figure *row = &scale_sim[i];

        CHECK_EQUAL(umakit_output_stationary_cycles(row->m, row->n, row->k, row->rows,
                                                    row->columns, 0u),
                    row->cycles);
    }
}

static void test_walk(void)
{
    uint32_t state = 1u;
    int i;

    for (i = 0; i < 2000; ++i) {
        const uint32_t m = random_size(&state, 60u);
        const uint32_t n = random_size(&state, 60u);
        const uint32_t k = random_size(&state, 60u);
        const uint32_t rows = random_size(&state, 20u);
        const uint32_t columns = random_size(&state, 20u);
        const uint32_t drain = random_size(&state, 4u) - 1u;

        CHECK_EQUAL(umakit_output_stationary_cycles(m, n, k, rows, columns, drain),
                    walk(m, n, k, rows, columns, drain));
    }
}

static void test_extremes(void)
{
    CHECK_EQUAL(umakit_output_stationary_cycles(0u, 1u, 1u, 1u, 1u, 1u), 0u);
    CHECK_EQUAL(umakit_output_stationary_cycles(1u, 0u, 1u, 1u, 1u, 1u), 0u);
    CHECK_EQUAL(umakit_output_stationary_cycles(1u, 1u, 0u, 1u, 1u, 1u), 0u);
    CHECK_EQUAL(umakit_output_stationary_cycles(1u, 1u, 1u, 0u, 1u, 1u), 0u);
    CHECK_EQUAL(umakit_output_stationary_cycles(1u, 1u, 1u, 1u, 0u, 1u), 0u);
    CHECK_EQUAL(umakit_output_stationary_cycles(1u, 1u, 1u, 1u, 1u, 0u), 1u);

    /* Three terms of 2^32 - 1 do not wrap at 32 bits. */
    CHECK_EQUAL(umakit_output_stationary_cycles(1u, 1u, 1u, UINT32_MAX, UINT32_MAX, UINT32_MAX),
                3u * (uint64_t)UINT32_MAX - 1u);
    /* Rounding up does not overflow. */
    CHECK_EQUAL(umakit_output_stationary_cycles(UINT64_MAX, 1u, 1u, 1u, 1u, 0u), UINT64_MAX);
    CHECK_EQUAL(umakit_output_stationary_cycles(UINT64_MAX, 1u, 1u, UINT32_MAX, 1u, 0u),
                (UINT64_MAX / UINT32_MAX) * UINT32_MAX); /* divides without a rest */
    /* What does not fit says so. */
    CHECK_EQUAL(umakit_output_stationary_cycles(UINT64_MAX, 2u, 1u, 1u, 1u, 0u), UINT64_MAX);
    CHECK_EQUAL(umakit_output_stationary_cycles(1u << 31, 1u << 31, 8u, 1u, 1u, 0u),
                UINT64_MAX);
    CHECK_EQUAL(umakit_output_stationary_cycles(1u, 1u, UINT64_MAX, 1u, 1u, 1u), UINT64_MAX);
    CHECK_EQUAL(umakit_output_stationary_cycles(1u, 1u, UINT64_MAX, 1u, 1u, 0u), UINT64_MAX);
}

int main(void)
{
    test_scale_sim_figures();
    test_walk();
    test_extremes();
    return check_result();
}
