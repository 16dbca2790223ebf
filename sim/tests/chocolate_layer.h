/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A convolution cut into tiles by hand, for the Chocolate driver on a simulated
 * array: rows in tiles with halos, input channels in two steps that add up in
 * the accumulator, two buffers for everything; and the result it must have.
 */
#ifndef CHOCOLATE_LAYER_H
#define CHOCOLATE_LAYER_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "check.h"
#include "chocolate_accelerator.h"
#include "umakit/faults.h"
#include "umakit/systolic_array.h"

#define HEIGHT 6
#define WIDTH 5
#define CHANNELS 4
#define FILTERS 6
#define COLUMNS 4
#define BLOCKS 2 /* of COLUMNS filters */
#define STORED (BLOCKS * COLUMNS)
#define SIDE 3 /* of the kernel */

#define TILE_ROWS 2
#define STEP_CHANNELS 2
#define STEP_ROW (STEP_CHANNELS * COLUMNS)

#define INPUT_ZERO_POINT 7
#define OUTPUT_ZERO_POINT (-3)

#define BANK_BYTES 256u
#define BANKS 16u
#define LAYER_SCRATCHPAD_BYTES (BANKS * BANK_BYTES)
#define SUMS (TILE_ROWS * WIDTH * FILTERS)

/* Where the buffers lie: two tiles of data, of weights and of the result. */
#define DATA_BUFFER 0u
#define WEIGHTS_BUFFER (2u * BANK_BYTES)
#define RESULT_BUFFER (4u * BANK_BYTES)
#define PARAMETERS_BUFFER (6u * BANK_BYTES)

static struct umakit_systolic_array array;
static umakit_device *device;
static uint32_t scratchpad[LAYER_SCRATCHPAD_BYTES / 4u];
static int32_t accumulator[SUMS];

static int8_t data[HEIGHT][WIDTH][CHANNELS];
static int8_t weights[FILTERS][SIDE][SIDE][CHANNELS];
static int8_t blocked[BLOCKS][SIDE][SIDE][CHANNELS][COLUMNS];
static int32_t bias[STORED];
static int32_t multipliers[STORED];
static int8_t shifts[STORED];
static int8_t result[HEIGHT][WIDTH][FILTERS];

/* Called after each call of the driver, with its number. */
static void (*after_call)(uint32_t number);
static uint32_t call_count;

umakit_device *chocolate_accelerator_device(void)
{
    return device;
}

static void set_up(uint32_t depth)
{
    const struct umakit_systolic_array_config config = {
        .array_rows = 4u,
        .array_columns = COLUMNS,
        .drain_cycles_per_fold = 4u,
        .output_stationary = true,
        .preload = true,
        .scratchpad = scratchpad,
        .scratchpad_bytes = LAYER_SCRATCHPAD_BYTES,
        .scratchpad_banks = BANKS,
        .dma_bytes_per_cycle = 4u,
        .dma_latency_cycles = 5u,
        .dma_alignment = 1u,
        .dma_outstanding = true,
        .accumulator = accumulator,
        .accumulator_bytes = sizeof(accumulator),
        .command_queue_depth = depth,
    };

    CHECK_EQUAL(umakit_systolic_array_init(&array, &config), UMAKIT_OK);
    device = &array.device;
}

static int8_t random_byte(uint32_t *state)
{
    return (int8_t)((int)(random_number(state) >> 24) - 128);
}

static void fill_operands(void)
{
    uint32_t state = 11u;
    int y, x, o, ky, kx, c;

    for (y = 0; y < HEIGHT; ++y) {
        for (x = 0; x < WIDTH; ++x) {
            for (c = 0; c < CHANNELS; ++c) {
                data[y][x][c] = random_byte(&state);
            }
        }
    }
    for (o = 0; o < FILTERS; ++o) {
        bias[o] = (int32_t)(random_number(&state) >> 20) - 2048;
        multipliers[o] = INT32_C(1073741824) + (int32_t)(random_number(&state) >> 3);
        shifts[o] = (int8_t)-7;
        for (ky = 0; ky < SIDE; ++ky) {
            for (kx = 0; kx < SIDE; ++kx) {
                for (c = 0; c < CHANNELS; ++c) {
                    weights[o][ky][kx][c] = random_byte(&state);
                    blocked[o / COLUMNS][ky][kx][c][o % COLUMNS] = weights[o][ky][kx][c];
                }
            }
        }
    }
}

/* The result at one place, with arithmetic that is not umakit's: real division
 * of 64-bit integers, rounded as TensorFlow Lite Micro does it. */
static int8_t expected_at(int y, int x, int o)
{
    int64_t sum = bias[o];
    int64_t product;
    int64_t high;
    int64_t value;
    int ky, kx, c;

    for (ky = 0; ky < SIDE; ++ky) {
        for (kx = 0; kx < SIDE; ++kx) {
            const int iy = y + ky - 1;
            const int ix = x + kx - 1;

            if (iy < 0 || iy >= HEIGHT || ix < 0 || ix >= WIDTH) {
                continue;
            }
            for (c = 0; c < CHANNELS; ++c) {
                sum += (data[iy][ix][c] - INPUT_ZERO_POINT) * (int64_t)weights[o][ky][kx][c];
            }
        }
    }
    product = sum * multipliers[o] + INT64_C(1073741824);
    high = product / INT64_C(2147483648);
    if (product % INT64_C(2147483648) < 0) {
        --high; /* division truncates, this has to be a floor */
    }
    value = (high < 0 ? -((-high + 64) / 128) : (high + 64) / 128) + OUTPUT_ZERO_POINT;
    return (int8_t)(value < -100 ? -100 : value > 100 ? 100 : value);
}

static uint32_t wrong_results(void)
{
    uint32_t wrong = 0u;
    int y, x, o;

    for (y = 0; y < HEIGHT; ++y) {
        for (x = 0; x < WIDTH; ++x) {
            for (o = 0; o < FILTERS; ++o) {
                wrong += result[y][x][o] != expected_at(y, x, o) ? 1u : 0u;
            }
        }
    }
    return wrong;
}

/* ---- The layer ---- */

/* Number the call that returned a status. */
static int called(int status)
{
    if (after_call != NULL) {
        after_call(call_count);
    }
    ++call_count;
    return status;
}

#define TRY(call)                                                                              \
    do {                                                                                       \
        const int try_status = called(call);                                                   \
        if (try_status != UMAKIT_OK) {                                                         \
            return try_status;                                                                 \
        }                                                                                      \
    } while (0)

static int open_layer(int32_t completion)
{
    TRY(chocolate_accelerator_begin(COLUMNS, (enum chocolate_accelerator_completion)completion));
    TRY(chocolate_accelerator_bind(CHOCOLATE_ACCELERATOR_DATA, data, (int32_t)sizeof(data)));
    TRY(chocolate_accelerator_bind(CHOCOLATE_ACCELERATOR_WEIGHTS, blocked,
                                   (int32_t)sizeof(blocked)));
    TRY(chocolate_accelerator_bind(CHOCOLATE_ACCELERATOR_BIAS, bias, (int32_t)sizeof(bias)));
    TRY(chocolate_accelerator_bind(CHOCOLATE_ACCELERATOR_MULTIPLIERS, multipliers,
                                   (int32_t)sizeof(multipliers)));
    TRY(chocolate_accelerator_bind(CHOCOLATE_ACCELERATOR_SHIFTS, shifts,
                                   (int32_t)sizeof(shifts)));
    TRY(chocolate_accelerator_bind(CHOCOLATE_ACCELERATOR_RESULT, result,
                                   (int32_t)sizeof(result)));
    return UMAKIT_OK;
}

static int configure_layer(void)
{
    const int32_t scales = 4 * STORED;

    TRY(chocolate_accelerator_configure(0, 0, 0, SIDE, SIDE, 1, 1, 1, 1, INPUT_ZERO_POINT,
                                        OUTPUT_ZERO_POINT, -100, 100, 0));
    TRY(chocolate_accelerator_load(CHOCOLATE_ACCELERATOR_BIAS, PARAMETERS_BUFFER, 0, 0, 1, 1,
                                   scales, 0, 0));
    TRY(chocolate_accelerator_load(CHOCOLATE_ACCELERATOR_MULTIPLIERS, PARAMETERS_BUFFER, 0,
                                   scales, 1, 1, scales, 0, 0));
    TRY(chocolate_accelerator_load(CHOCOLATE_ACCELERATOR_SHIFTS, PARAMETERS_BUFFER, 0,
                                   2 * scales, 1, 1, STORED, 0, 0));
    return UMAKIT_OK;
}

/* Some input channels of a tile of rows. */
static int run_step(int32_t tile, int32_t step)
{
    const int32_t top = tile == 0 ? 0 : tile * TILE_ROWS - 1;
    const int32_t end = (tile + 1) * TILE_ROWS == HEIGHT ? HEIGHT : (tile + 1) * TILE_ROWS + 1;
    const int32_t place = (int32_t)BANK_BYTES * step;

    TRY(chocolate_accelerator_load(CHOCOLATE_ACCELERATOR_DATA, DATA_BUFFER,
                                   top * WIDTH * CHANNELS + step * STEP_CHANNELS, place, 1,
                                   (end - top) * WIDTH, STEP_CHANNELS, 0, CHANNELS));
    TRY(chocolate_accelerator_load(CHOCOLATE_ACCELERATOR_WEIGHTS, WEIGHTS_BUFFER,
                                   step * STEP_ROW, place, 1, BLOCKS * SIDE * SIDE, STEP_ROW,
                                   0, CHANNELS * COLUMNS));
    TRY(chocolate_accelerator_compute(
        DATA_BUFFER, WEIGHTS_BUFFER, PARAMETERS_BUFFER, RESULT_BUFFER, 0u, place, place, 0,
        4 * STORED, 8 * STORED, (int32_t)BANK_BYTES * (tile % 2), 0, end - top, WIDTH,
        STEP_CHANNELS, TILE_ROWS, WIDTH, FILTERS, tile == 0 ? 1 : 0, 1, FILTERS, step,
        1 - step));
    return UMAKIT_OK;
}

static int run_layer(int32_t completion)
{
    int32_t tile;

    call_count = 0u;
    TRY(open_layer(completion));
    TRY(configure_layer());
    for (tile = 0; tile < HEIGHT / TILE_ROWS; ++tile) {
        const int32_t bytes = TILE_ROWS * WIDTH * FILTERS;

        TRY(run_step(tile, 0));
        TRY(run_step(tile, 1));
        TRY(chocolate_accelerator_store(CHOCOLATE_ACCELERATOR_RESULT, RESULT_BUFFER,
                                        tile * bytes, (int32_t)BANK_BYTES * (tile % 2), 1, 1,
                                        bytes, 0, 0));
    }
    TRY(chocolate_accelerator_finish());
    return UMAKIT_OK;
}

static void expect_closed(void)
{
    const uint32_t done = UMAKIT_SYSTOLIC_ARRAY_STATUS_DMA_DONE_MASK |
                          UMAKIT_SYSTOLIC_ARRAY_STATUS_ARRAY_DONE_MASK;
    size_t i;

    for (i = 0u; i < UMAKIT_SIMULATOR_WINDOW_COUNT; ++i) {
        CHECK(array.device.windows[i].memory == NULL);
    }
    CHECK_EQUAL(umakit_device_read32(device, UMAKIT_SYSTOLIC_ARRAY_STATUS_OFFSET) & ~done,
                UMAKIT_SYSTOLIC_ARRAY_STATUS_IDLE_MASK);
    CHECK_EQUAL(umakit_device_read32(device, UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_ENABLE_OFFSET), 0u);
    CHECK_EQUAL(umakit_device_read32(device, UMAKIT_SYSTOLIC_ARRAY_COMMANDS_LEFT_OFFSET), 0u);
    CHECK_EQUAL(umakit_device_wait(device, 0u), UMAKIT_TIMEOUT); /* the line is low */
}

static void expect_right_result(int32_t completion)
{
    memset(result, 0x55, sizeof(result));
    CHECK_EQUAL(run_layer(completion), UMAKIT_OK);
    CHECK_EQUAL(wrong_results(), 0u);
    expect_closed();
}

#endif /* CHOCOLATE_LAYER_H */
