/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Strawberry driver on the simulated systolic array: results, what it
 * refuses before it touches the device, and a status of its own for each fault,
 * after which the device works again.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "check.h"
#include "random_fault.h"
#include "strawberry_accelerator.h"
#include "umakit/faults.h"
#include "umakit/systolic_array.h"

#define HEIGHT 5
#define WIDTH 4
#define CHANNELS 3
#define FILTERS 6
#define COLUMNS 4
#define BLOCKS 2 /* of COLUMNS filters */
#define SCRATCHPAD_BYTES 2048u

/* Where operands lie in the scratchpad. */
#define IFMAP 0u
#define WEIGHTS 64u
#define BIAS 320u
#define MULTIPLIERS 352u
#define SHIFTS 384u
#define OFMAP 400u

#define INPUT_ZERO_POINT 7
#define OUTPUT_ZERO_POINT (-3)

static struct umakit_systolic_array array;
static umakit_device *device;
static uint32_t scratchpad[SCRATCHPAD_BYTES / 4u];

static int8_t ifmap[HEIGHT * WIDTH * CHANNELS];
static int8_t weights[FILTERS][3][3][CHANNELS];
static int8_t blocked[BLOCKS][3][3][CHANNELS][COLUMNS];
static int32_t bias[BLOCKS * COLUMNS];
static int32_t multipliers[BLOCKS * COLUMNS];
static int8_t shifts[BLOCKS * COLUMNS];
static int8_t ofmap[HEIGHT * WIDTH * FILTERS];

umakit_device *strawberry_accelerator_device(void)
{
    return device;
}

static void set_up(void)
{
    const struct umakit_systolic_array_config config = {
        .array_rows = 4u,
        .array_columns = COLUMNS,
        .drain_cycles_per_fold = 4u,
        .output_stationary = true,
        .depthwise = true,
        .scratchpad = scratchpad,
        .scratchpad_bytes = SCRATCHPAD_BYTES,
        .scratchpad_banks = 1u,
        .dma_bytes_per_cycle = 4u,
        .dma_latency_cycles = 5u,
        .dma_burst_bytes = 64u,
        .dma_alignment = 1u,
    };

    CHECK_EQUAL(umakit_systolic_array_init(&array, &config), UMAKIT_OK);
    device = &array.device;
}

static void fill_operands(void)
{
    uint32_t state = 11u;
    size_t i;
    int o, ky, kx, c;

    for (i = 0u; i < sizeof(ifmap); ++i) {
        ifmap[i] = (int8_t)((int)(random_number(&state) >> 24) - 128);
    }
    for (o = 0; o < FILTERS; ++o) {
        bias[o] = (int32_t)(random_number(&state) >> 20) - 2048;
        multipliers[o] = INT32_C(1073741824) + (int32_t)(random_number(&state) >> 3);
        shifts[o] = (int8_t)-6;
        for (ky = 0; ky < 3; ++ky) {
            for (kx = 0; kx < 3; ++kx) {
                for (c = 0; c < CHANNELS; ++c) {
                    const int8_t value = (int8_t)((int)(random_number(&state) >> 24) - 128);

                    weights[o][ky][kx][c] = value;
                    blocked[o / COLUMNS][ky][kx][c][o % COLUMNS] = value;
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
    int64_t result;
    int ky, kx, c;

    for (ky = 0; ky < 3; ++ky) {
        for (kx = 0; kx < 3; ++kx) {
            const int iy = y + ky - 1;
            const int ix = x + kx - 1;

            if (iy < 0 || iy >= HEIGHT || ix < 0 || ix >= WIDTH) {
                continue;
            }
            for (c = 0; c < CHANNELS; ++c) {
                sum += (ifmap[(iy * WIDTH + ix) * CHANNELS + c] - INPUT_ZERO_POINT) *
                       (int64_t)weights[o][ky][kx][c];
            }
        }
    }
    product = sum * multipliers[o] + INT64_C(1073741824);
    high = product / INT64_C(2147483648);
    if (product % INT64_C(2147483648) < 0) {
        --high; /* division truncates, this has to be a floor */
    }
    result = (high < 0 ? -((-high + 32) / 64) : (high + 32) / 64) + OUTPUT_ZERO_POINT;
    return (int8_t)(result < -100 ? -100 : result > 100 ? 100 : result);
}

static int load(void)
{
    const struct {
        const void *source;
        uint32_t offset;
        size_t bytes;
    } operands[] = {
        {ifmap, IFMAP, sizeof(ifmap)},
        {blocked, WEIGHTS, sizeof(blocked)},
        {bias, BIAS, sizeof(bias)},
        {multipliers, MULTIPLIERS, sizeof(multipliers)},
        {shifts, SHIFTS, sizeof(shifts)},
    };
    size_t i;

    for (i = 0u; i < sizeof(operands) / sizeof(operands[0]); ++i) {
        const int status = strawberry_accelerator_dma_in(
            operands[i].source, operands[i].offset, (int32_t)operands[i].bytes);

        if (status != UMAKIT_OK) {
            return status;
        }
    }
    return UMAKIT_OK;
}

static int calculate_with(int32_t columns, uint32_t ofmap_offset, int32_t height)
{
    return strawberry_accelerator_calculate(
        IFMAP, WEIGHTS, BIAS, MULTIPLIERS, SHIFTS, ofmap_offset, columns, 0, 0, 0, height, WIDTH,
        CHANNELS, HEIGHT, WIDTH, FILTERS, 3, 3, 1, 1, 1, 1, 1, 1, FILTERS, INPUT_ZERO_POINT,
        OUTPUT_ZERO_POINT, -100, 100, 0);
}

static int calculate(void)
{
    return calculate_with(COLUMNS, OFMAP, HEIGHT);
}

static int store(void)
{
    return strawberry_accelerator_dma_out(OFMAP, ofmap, (int32_t)sizeof(ofmap));
}

static int run(void)
{
    int status = load();

    if (status == UMAKIT_OK) {
        status = calculate();
    }
    return status == UMAKIT_OK ? store() : status;
}

static uint32_t wrong_results(void)
{
    uint32_t wrong = 0u;
    int y, x, o;

    for (y = 0; y < HEIGHT; ++y) {
        for (x = 0; x < WIDTH; ++x) {
            for (o = 0; o < FILTERS; ++o) {
                wrong += ofmap[(y * WIDTH + x) * FILTERS + o] != expected_at(y, x, o) ? 1u : 0u;
            }
        }
    }
    return wrong;
}

static void check_result_is_right(void)
{
    memset(ofmap, 0x55, sizeof(ofmap));
    CHECK_EQUAL(run(), UMAKIT_OK);
    CHECK_EQUAL(wrong_results(), 0u);
    CHECK_EQUAL(umakit_device_wait(device, 0u), UMAKIT_TIMEOUT); /* the line is low */
}

static void expect_nothing_mapped(void)
{
    size_t i;

    for (i = 0u; i < UMAKIT_SIMULATOR_WINDOW_COUNT; ++i) {
        CHECK(array.device.windows[i].memory == NULL);
    }
}

static void test_results(void)
{
    set_up();
    check_result_is_right();
    expect_nothing_mapped();
}

/* Modes that this driver does not use, and an error, as another driver of the same device may
 * have left them: no calculation starts with them. */
static void test_modes_of_another_driver(void)
{
    set_up();
    CHECK_EQUAL(load(), UMAKIT_OK);
    umakit_device_write32(device, UMAKIT_SYSTOLIC_ARRAY_ADD_OFFSET, 1u);
    CHECK_EQUAL(calculate(), UMAKIT_OK);
    CHECK_EQUAL(store(), UMAKIT_OK);
    CHECK_EQUAL(wrong_results(), 0u);
    umakit_device_write32(device, UMAKIT_SYSTOLIC_ARRAY_ACCUMULATE_OFFSET,
                          UMAKIT_SYSTOLIC_ARRAY_ACCUMULATE_KEEP_MASK);
    umakit_device_write32(device, UMAKIT_SYSTOLIC_ARRAY_ID_OFFSET, 0u); /* an error */
    CHECK_EQUAL(calculate(), UMAKIT_OK);
    check_result_is_right();
}

/* A job of another program runs, because only the processor was reset. */
static void test_running_job(void)
{
    set_up();
    CHECK_EQUAL(load(), UMAKIT_OK);
    CHECK_EQUAL(calculate(), UMAKIT_OK);
    umakit_device_write32(device, UMAKIT_SYSTOLIC_ARRAY_CONTROL_OFFSET,
                          UMAKIT_SYSTOLIC_ARRAY_CONTROL_ARRAY_START_MASK);
    CHECK((umakit_device_read32(device, UMAKIT_SYSTOLIC_ARRAY_STATUS_OFFSET) &
           UMAKIT_SYSTOLIC_ARRAY_STATUS_ARRAY_BUSY_MASK) != 0u);
    check_result_is_right();
}

/* Nothing is written to the device before the arguments are known to be sound. */
static void test_refusals(void)
{
    static int8_t large[SCRATCHPAD_BYTES + 1u];
    struct umakit_simulator_counters counters;

    set_up();
    CHECK_EQUAL(strawberry_accelerator_dma_in(NULL, 0u, 4), UMAKIT_INVALID_ARGUMENT);
    CHECK_EQUAL(strawberry_accelerator_dma_in(ifmap, 0u, 0), UMAKIT_INVALID_ARGUMENT);
    CHECK_EQUAL(strawberry_accelerator_dma_in(ifmap, 0u, -1), UMAKIT_INVALID_ARGUMENT);
    CHECK_EQUAL(strawberry_accelerator_dma_out(0u, NULL, 4), UMAKIT_INVALID_ARGUMENT);
    CHECK_EQUAL(strawberry_accelerator_dma_in(large, 0u, (int32_t)sizeof(large)),
                UMAKIT_OUT_OF_RANGE);
    CHECK_EQUAL(strawberry_accelerator_dma_out(SCRATCHPAD_BYTES - 3u, large, 4),
                UMAKIT_OUT_OF_RANGE);
    CHECK_EQUAL(strawberry_accelerator_dma_out(UINT32_MAX, large, 4), UMAKIT_OUT_OF_RANGE);
    CHECK_EQUAL(calculate_with(COLUMNS, OFMAP, 0), UMAKIT_INVALID_ARGUMENT);
    CHECK_EQUAL(calculate_with(COLUMNS + 1, OFMAP, HEIGHT), UMAKIT_UNSUPPORTED);
    umakit_simulator_read_counters(device, &counters);
    CHECK_EQUAL(counters.register_writes, 0u);
    expect_nothing_mapped();

    device = NULL;
    CHECK_EQUAL(strawberry_accelerator_dma_in(ifmap, 0u, 4), UMAKIT_NO_DEVICE);
    CHECK_EQUAL(calculate(), UMAKIT_NO_DEVICE);
}

/* What only the device can know, it refuses by itself. */
static void test_programming_out_of_range(void)
{
    set_up();
    CHECK_EQUAL(load(), UMAKIT_OK);
    CHECK_EQUAL(calculate_with(COLUMNS, SCRATCHPAD_BYTES - 8u, HEIGHT), UMAKIT_OUT_OF_RANGE);
    check_result_is_right();
}

/* After a failure no interrupt is enabled, and a device that is busy after CLEAR is refused
 * until it has stopped. */
static void expect_left_alone(bool is_busy)
{
    static const uint32_t busy = UMAKIT_SYSTOLIC_ARRAY_STATUS_DMA_BUSY_MASK |
                                 UMAKIT_SYSTOLIC_ARRAY_STATUS_ARRAY_BUSY_MASK;

    CHECK_EQUAL(umakit_device_read32(device, UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_ENABLE_OFFSET), 0u);
    CHECK_EQUAL(umakit_device_wait(device, UINT32_MAX), UMAKIT_TIMEOUT);
    CHECK_EQUAL((umakit_device_read32(device, UMAKIT_SYSTOLIC_ARRAY_STATUS_OFFSET) & busy) != 0u,
                is_busy);
    if (is_busy) {
        CHECK_EQUAL(load(), UMAKIT_STUCK_BUSY);
        CHECK_EQUAL(calculate(), UMAKIT_STUCK_BUSY);
        expect_nothing_mapped();
    }
}

struct fault_case {
    struct umakit_fault fault;
    int expected;
};

/* Transfers 0 to 4 load, the array works, transfer 5 stores. */
static void test_faults(void)
{
    static const struct fault_case cases[] = {
        {{.kind = UMAKIT_FAULT_DMA_STOPS, .bytes = 3u, .ending = UMAKIT_FAULT_ENDS_BUSY},
         UMAKIT_DMA_STOPPED},
        {{.kind = UMAKIT_FAULT_DMA_STOPS, .bytes = 3u, .ending = UMAKIT_FAULT_ENDS_DONE},
         UMAKIT_DMA_STOPPED},
        {{.kind = UMAKIT_FAULT_DMA_STOPS, .bytes = 3u, .ending = UMAKIT_FAULT_ENDS_IN_ERROR},
         UMAKIT_DMA_STOPPED},
        {{.kind = UMAKIT_FAULT_DMA_STOPS, .bytes = 3u, .skip = 5u, .ending = UMAKIT_FAULT_ENDS_DONE},
         UMAKIT_DMA_STOPPED},
        {{.kind = UMAKIT_FAULT_DMA_STOPS, .bytes = 0u, .ending = UMAKIT_FAULT_ENDS_BUSY},
         UMAKIT_DMA_STOPPED},
        {{.kind = UMAKIT_FAULT_LOST_INTERRUPT}, UMAKIT_LOST_INTERRUPT},
        {{.kind = UMAKIT_FAULT_LOST_INTERRUPT, .skip = 5u, .count = 1u}, UMAKIT_LOST_INTERRUPT},
        {{.kind = UMAKIT_FAULT_LOST_INTERRUPT, .skip = 6u, .count = 1u}, UMAKIT_LOST_INTERRUPT},
        {{.kind = UMAKIT_FAULT_STUCK_BUSY, .engine = UMAKIT_ENGINE_DMA}, UMAKIT_STUCK_BUSY},
        {{.kind = UMAKIT_FAULT_STUCK_BUSY, .engine = UMAKIT_ENGINE_ARRAY}, UMAKIT_STUCK_BUSY},
    };
    size_t i;

    for (i = 0u; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        set_up();
        CHECK_EQUAL(umakit_simulator_inject(device, &cases[i].fault), UMAKIT_OK);
        CHECK_EQUAL(run(), cases[i].expected);
        expect_nothing_mapped();
        expect_left_alone(cases[i].expected == UMAKIT_STUCK_BUSY);
        umakit_simulator_remove_faults(device);
        check_result_is_right();
    }
}

static void test_bus_error(void)
{
    /* A range that everything mapped lies in. */
    const struct umakit_fault fault = {
        .kind = UMAKIT_FAULT_BUS_ERROR, .address = 0u, .bytes = UINT32_MAX};

    set_up();
    CHECK_EQUAL(load(), UMAKIT_OK);
    CHECK_EQUAL(calculate(), UMAKIT_OK);
    CHECK_EQUAL(umakit_simulator_inject(device, &fault), UMAKIT_OK);
    CHECK_EQUAL(load(), UMAKIT_BUS_ERROR);
    CHECK_EQUAL(store(), UMAKIT_BUS_ERROR);
    CHECK_EQUAL(calculate(), UMAKIT_OK); /* which needs no bus */
    expect_nothing_mapped();
    umakit_simulator_remove_faults(device);
    check_result_is_right();
}

/* A bit that flips in an operand stops the calculation, one in the result the
 * copy out; neither is ever reported as right. */
static void test_flipped_bits(void)
{
    const uint32_t operands[] = {IFMAP + 5u, WEIGHTS + 100u, BIAS + 9u, MULTIPLIERS + 3u,
                                 SHIFTS + 2u};
    struct umakit_fault fault = {.kind = UMAKIT_FAULT_SCRATCHPAD_BIT, .bit = 6u};
    size_t i;

    for (i = 0u; i < sizeof(operands) / sizeof(operands[0]); ++i) {
        set_up();
        CHECK_EQUAL(load(), UMAKIT_OK);
        fault.address = operands[i];
        CHECK_EQUAL(umakit_simulator_inject(device, &fault), UMAKIT_OK);
        CHECK_EQUAL(calculate(), UMAKIT_PARITY_ERROR);
        check_result_is_right(); /* loading again heals it */
    }
    CHECK_EQUAL(calculate(), UMAKIT_OK);
    fault.address = OFMAP + 50u;
    CHECK_EQUAL(umakit_simulator_inject(device, &fault), UMAKIT_OK);
    CHECK_EQUAL(store(), UMAKIT_PARITY_ERROR);
    check_result_is_right();
}

/* Whatever fails, and when: what is reported as right is right, and the driver
 * gets the device to work again. */
static void test_random_faults(void)
{
    uint32_t state = 5u;
    uint32_t failures = 0u;
    int i;

    for (i = 0; i < 500; ++i) {
        uint32_t count = random_size(&state, 3u);
        int status;

        set_up();
        CHECK_EQUAL(load(), UMAKIT_OK);
        for (; count > 0u; --count) {
            const struct umakit_fault fault = random_fault(&state, SCRATCHPAD_BYTES);

            CHECK_EQUAL(umakit_simulator_inject(device, &fault), UMAKIT_OK);
        }
        memset(ofmap, 0x55, sizeof(ofmap));
        status = random_size(&state, 2u) == 1u ? UMAKIT_OK : load();
        if (status == UMAKIT_OK) {
            status = calculate();
        }
        if (status == UMAKIT_OK) {
            status = store();
        }
        failures += status != UMAKIT_OK ? 1u : 0u;
        CHECK(status == UMAKIT_OK || status == UMAKIT_BUS_ERROR ||
              status == UMAKIT_DMA_STOPPED || status == UMAKIT_PARITY_ERROR ||
              status == UMAKIT_LOST_INTERRUPT || status == UMAKIT_STUCK_BUSY);
        CHECK(status != UMAKIT_OK || wrong_results() == 0u);
        expect_nothing_mapped();
        umakit_simulator_remove_faults(device);
        check_result_is_right();
    }
    CHECK(failures > 100u);
}

int main(void)
{
    fill_operands();
    test_results();
    test_modes_of_another_driver();
    test_running_job();
    test_refusals();
    test_programming_out_of_range();
    test_faults();
    test_bus_error();
    test_flipped_bits();
    test_random_faults();
    return check_result();
}
