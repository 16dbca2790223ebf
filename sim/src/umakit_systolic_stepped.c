/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weight and input stationary are one machine: what stays has k along the rows,
 * what moves enters from the left, sums run down and leave at the bottom. With
 * the operands' parts exchanged it computes the transposed product.
 */
#include "umakit/systolic_stepped.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An operand as the array sees it: element (along, across) of a matrix. */
struct operand {
    const int8_t *data;
    size_t along_stride;
    size_t across_stride;
    uint32_t along;
    uint32_t across;
};

/* The array, its state now and in the next cycle, and what it works on. */
struct machine {
    struct umakit_array_size size;
    struct umakit_systolic_cell *now;
    struct umakit_systolic_cell *next;
    uint64_t cycles;
};

/* Beyond the edge of an operand the array works on zeros. */
static int8_t element(const struct operand *operand, uint64_t along, uint64_t across)
{
    if (along >= operand->along || across >= operand->across) {
        return 0;
    }
    return operand->data[(size_t)along * operand->along_stride +
                         (size_t)across * operand->across_stride];
}

static size_t cells_of(const struct machine *machine)
{
    return (size_t)machine->size.rows * machine->size.columns;
}

/* A clock edge: what was computed for the next cycle becomes the present. */
static void tick(struct machine *machine)
{
    struct umakit_systolic_cell *const spare = machine->now;

    machine->now = machine->next;
    machine->next = spare;
    ++machine->cycles;
}

static void clear(struct machine *machine)
{
    const struct umakit_systolic_cell empty = {0, 0, 0, 0u};
    size_t i;

    for (i = 0u; i < cells_of(machine); ++i) {
        machine->now[i] = empty;
        machine->next[i] = empty;
    }
}

/* int8 times int8 fits an int; the sum wraps around. */
static uint32_t multiply_add(uint32_t sum, int8_t left, int8_t right)
{
    return sum + (uint32_t)((int32_t)left * (int32_t)right);
}

static void drain(struct machine *machine)
{
    machine->cycles += machine->size.drain_cycles;
}

/* ---- Output stationary ---- */

/* Row r gets A[top + r][t] in cycle t + r, column c gets B[t][left + c] in cycle
 * t + c; each cell passes its operands on to the right and down. */
static void step_output_stationary(struct machine *machine, const struct operand *a,
                                   const struct operand *b, uint64_t top, uint64_t left,
                                   uint64_t cycle)
{
    const uint32_t columns = machine->size.columns;
    uint32_t row;
    uint32_t column;

    for (row = 0u; row < machine->size.rows; ++row) {
        for (column = 0u; column < columns; ++column) {
            const size_t here = (size_t)row * columns + column;
            struct umakit_systolic_cell *cell = &machine->next[here];

            if (column > 0u) {
                cell->from_left = machine->now[here - 1u].from_left;
            } else {
                cell->from_left = cycle >= row ? element(a, top + row, cycle - row) : 0;
            }
            if (row > 0u) {
                cell->from_above = machine->now[here - columns].from_above;
            } else {
                cell->from_above = cycle >= column ? element(b, cycle - column, left + column) : 0;
            }
            cell->sum =
                multiply_add(machine->now[here].sum, cell->from_left, cell->from_above);
        }
    }
    tick(machine);
}

static void run_output_stationary(struct machine *machine, const struct umakit_product *product)
{
    const struct operand a = {product->a, product->k, 1u, product->m, product->k};
    const struct operand b = {product->b, product->n, 1u, product->k, product->n};
    const uint64_t rows = machine->size.rows;
    const uint64_t columns = machine->size.columns;
    uint64_t top;
    uint64_t left;

    for (top = 0u; top < product->m; top += rows) {
        for (left = 0u; left < product->n; left += columns) {
            const uint64_t height = product->m - top < rows ? product->m - top : rows;
            const uint64_t width = product->n - left < columns ? product->n - left : columns;
            uint64_t cycle;
            uint64_t row;
            uint64_t column;

            clear(machine);
            /* Until the far corner has seen the last pair. */
            for (cycle = 0u; cycle < product->k + rows - 1u + columns - 1u; ++cycle) {
                step_output_stationary(machine, &a, &b, top, left, cycle);
            }
            for (row = 0u; row < height; ++row) {
                for (column = 0u; column < width; ++column) {
                    product->c[(size_t)((top + row) * product->n + left + column)] =
                        (int32_t)machine->now[(size_t)(row * columns + column)].sum;
                }
            }
            drain(machine);
        }
    }
}

/* ---- An operand stays ---- */

/* What stays enters at the top and moves down a row a cycle, last row first. */
static void load_stationary(struct machine *machine, const struct operand *stays, uint64_t top,
                            uint64_t left)
{
    const uint32_t rows = machine->size.rows;
    const uint32_t columns = machine->size.columns;
    uint32_t step;
    uint32_t row;
    uint32_t column;

    for (step = 0u; step < rows; ++step) {
        for (row = 0u; row < rows; ++row) {
            for (column = 0u; column < columns; ++column) {
                const size_t here = (size_t)row * columns + column;

                machine->next[here].stationary =
                    row > 0u ? machine->now[here - columns].stationary
                             : element(stays, top + (rows - 1u - step), left + column);
            }
        }
        tick(machine);
    }
}

/* Row r gets element (t, top + r) of what moves in cycle t + r. Sums enter the
 * top row as 0 and run down; each cell adds its product. */
static void step_stationary(struct machine *machine, const struct operand *moves, uint64_t top,
                            uint64_t cycle)
{
    const uint32_t columns = machine->size.columns;
    uint32_t row;
    uint32_t column;

    for (row = 0u; row < machine->size.rows; ++row) {
        for (column = 0u; column < columns; ++column) {
            const size_t here = (size_t)row * columns + column;
            struct umakit_systolic_cell *cell = &machine->next[here];

            if (column > 0u) {
                cell->from_left = machine->now[here - 1u].from_left;
            } else {
                cell->from_left = cycle >= row ? element(moves, cycle - row, top + row) : 0;
            }
            cell->stationary = machine->now[here].stationary;
            cell->sum = multiply_add(row > 0u ? machine->now[here - columns].sum : 0u,
                                     cell->from_left, cell->stationary);
        }
    }
    tick(machine);
}

/* The sum for element t of what moves leaves column c in cycle t + rows - 1 + c;
 * it belongs to result (t, left + c), or to its transpose. */
static void collect(const struct machine *machine, const struct umakit_product *product,
                    bool transposed, uint64_t left, uint64_t cycle)
{
    const uint64_t rows = machine->size.rows;
    const uint64_t columns = machine->size.columns;
    const uint64_t moving = transposed ? product->n : product->m;
    const uint64_t staying = transposed ? product->m : product->n;
    uint64_t column;

    for (column = 0u; column < columns && left + column < staying; ++column) {
        const uint64_t first = rows - 1u + column;
        const uint64_t line = cycle - first;
        const uint64_t across = left + column;
        size_t place;

        if (cycle < first || line >= moving) {
            continue;
        }
        place = (size_t)(transposed ? across * product->n + line : line * product->n + across);
        /* Folds along k add up outside the array. */
        product->c[place] =
            (int32_t)((uint32_t)product->c[place] +
                      machine->now[(size_t)((rows - 1u) * columns + column)].sum);
    }
}

static void run_stationary(struct machine *machine, const struct umakit_product *product,
                           bool transposed)
{
    /* Element (i of k, j) of what stays, element (line, i of k) of what moves. */
    const struct operand weights = {product->b, product->n, 1u, product->k, product->n};
    const struct operand inputs = {product->a, 1u, product->k, product->k, product->m};
    const struct operand moving_inputs = {product->a, product->k, 1u, product->m, product->k};
    const struct operand moving_weights = {product->b, 1u, product->n, product->n, product->k};
    const struct operand *stays = transposed ? &inputs : &weights;
    const struct operand *moves = transposed ? &moving_weights : &moving_inputs;
    const uint64_t rows = machine->size.rows;
    const uint64_t columns = machine->size.columns;
    uint64_t top;
    uint64_t left;
    size_t i;

    for (i = 0u; i < (size_t)product->m * product->n; ++i) {
        product->c[i] = 0;
    }
    for (top = 0u; top < product->k; top += rows) {
        for (left = 0u; left < stays->across; left += columns) {
            uint64_t cycle;

            clear(machine);
            load_stationary(machine, stays, top, left);
            /* Until the last line has left the last column. */
            for (cycle = 0u; cycle < moves->along + rows - 1u + columns - 1u; ++cycle) {
                step_stationary(machine, moves, top, cycle);
                collect(machine, product, transposed, left, cycle);
            }
            drain(machine);
        }
    }
}

/* ---- The call ---- */

int umakit_systolic_step(enum umakit_dataflow dataflow, const struct umakit_product *product,
                         struct umakit_array_size array, struct umakit_systolic_cell *cells,
                         size_t cell_count, uint64_t *cycles)
{
    struct machine machine = {array, cells, NULL, 0u};
    const uint64_t needed = (uint64_t)array.rows * array.columns;

    if (product == NULL || cells == NULL || cycles == NULL || product->a == NULL ||
        product->b == NULL || product->c == NULL) {
        return UMAKIT_INVALID_ARGUMENT;
    }
    if (product->m == 0u || product->n == 0u || product->k == 0u || needed == 0u) {
        return UMAKIT_INVALID_ARGUMENT;
    }
    if (needed > cell_count / 2u) {
        return UMAKIT_OUT_OF_RANGE;
    }
    machine.next = cells + cells_of(&machine);
    switch (dataflow) {
    case UMAKIT_OUTPUT_STATIONARY:
        run_output_stationary(&machine, product);
        break;
    case UMAKIT_WEIGHT_STATIONARY:
        run_stationary(&machine, product, false);
        break;
    case UMAKIT_INPUT_STATIONARY:
        run_stationary(&machine, product, true);
        break;
    default:
        return UMAKIT_INVALID_ARGUMENT;
    }
    *cycles = machine.cycles;
    return UMAKIT_OK;
}
