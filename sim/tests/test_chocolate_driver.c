/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Chocolate driver on the simulated systolic array: results, what it refuses
 * before it touches the device, and for each fault at each moment a status of
 * its own in bounded time, after which the device works again. COMPLETION says
 * how the driver learns that the device is done; with polling it was built with
 * few of them.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "check.h"
#include "chocolate_accelerator.h"
#include "chocolate_layer.h"
#include "random_fault.h"
#include "umakit/faults.h"
#include "umakit/systolic_array.h"

#ifndef COMPLETION
#define COMPLETION CHOCOLATE_ACCELERATOR_INTERRUPT
#endif

static const uint32_t depths[] = {0u, 1u, 2u, 16u};

#define DEPTHS (sizeof(depths) / sizeof(depths[0]))

static int run(void)
{
    memset(result, 0x55, sizeof(result));
    return run_layer(COMPLETION);
}

/* ---- Results ---- */

static void test_results(void)
{
    uint64_t clock = UINT64_MAX;
    size_t i;

    for (i = 0u; i < DEPTHS; ++i) {
        set_up(depths[i]);
        expect_right_result(COMPLETION);
        CHECK(array.device.counters.clock <= clock); /* a longer queue does no harm */
        clock = array.device.counters.clock;
        expect_right_result(COMPLETION); /* and a second layer */
    }
}

/* Modes, an error or a job that another driver of the same device, or the same one before a
 * reset of the processor alone, has left. */
static void test_what_others_left(void)
{
    size_t i;

    for (i = 0u; i < DEPTHS; ++i) {
        set_up(depths[i]);
        expect_right_result(COMPLETION);
        umakit_device_write32(device, UMAKIT_SYSTOLIC_ARRAY_ADD_OFFSET, 1u);
        umakit_device_write32(device, UMAKIT_SYSTOLIC_ARRAY_ACCUMULATE_OFFSET,
                              UMAKIT_SYSTOLIC_ARRAY_ACCUMULATE_KEEP_MASK);
        expect_right_result(COMPLETION);
        umakit_device_write32(device, UMAKIT_SYSTOLIC_ARRAY_ID_OFFSET, 0u);
        expect_right_result(COMPLETION);
        umakit_device_write32(device, UMAKIT_SYSTOLIC_ARRAY_CONTROL_OFFSET,
                              UMAKIT_SYSTOLIC_ARRAY_CONTROL_ARRAY_START_MASK);
        CHECK((umakit_device_read32(device, UMAKIT_SYSTOLIC_ARRAY_STATUS_OFFSET) &
               UMAKIT_SYSTOLIC_ARRAY_STATUS_ARRAY_BUSY_MASK) != 0u);
        expect_right_result(COMPLETION);
    }
}

/* ---- Refusals ---- */

#define DATA CHOCOLATE_ACCELERATOR_DATA
#define RESULT CHOCOLATE_ACCELERATOR_RESULT

static int load(int32_t tensor, uint32_t buffer, int32_t offset, int32_t place, int32_t planes,
                int32_t rows, int32_t row_bytes, int32_t plane_stride, int32_t row_stride)
{
    return chocolate_accelerator_load((enum chocolate_accelerator_tensor)tensor, buffer, offset,
                                      place, planes, rows, row_bytes,
                                      plane_stride, row_stride);
}

static int compute(uint32_t data_buffer, int32_t place, int32_t height, int32_t outputs,
                   int32_t pad, int32_t scales)
{
    return chocolate_accelerator_compute(data_buffer, 0u, 0u, 0u, 0u, place, 0, 0, 0, 0, 0, 0,
                                         height, WIDTH, CHANNELS, 1, 1, outputs, pad, 0, scales,
                                         0, 0);
}

static int configure(int32_t operation, int32_t kernel, int32_t stride, int32_t dilation,
                     int32_t lowest)
{
    return chocolate_accelerator_configure((enum chocolate_accelerator_operation)operation, 0, 0,
                                           kernel, 1, 1, stride, dilation, 1, 0,
                                           0, lowest, 100, 0);
}

static int configure_add(int32_t lowest)
{
    return chocolate_accelerator_configure_add(0, 20, 1, 0, 1, 0, 1, 0, 0, lowest, 100);
}

/* One call that is wrong, in a layer that is open, and configured from the tenth
 * on. */
static int wrong_call(int number, int *status)
{
    const int32_t all = (int32_t)sizeof(data);

    *status = UMAKIT_INVALID_ARGUMENT;
    switch (number) {
    case 0:
        return chocolate_accelerator_bind(DATA, data, 4); /* twice */
    case 1:
        return chocolate_accelerator_bind(CHOCOLATE_ACCELERATOR_ADDEND, NULL, 4);
    case 2:
        return chocolate_accelerator_bind(CHOCOLATE_ACCELERATOR_ADDEND, data, 0);
    case 3:
        return chocolate_accelerator_bind(CHOCOLATE_ACCELERATOR_TENSORS, data, 4);
    case 4:
        return chocolate_accelerator_bind((enum chocolate_accelerator_tensor)-1, data, 4);
    case 5:
        return configure(-1, 1, 1, 1, 0);
    case 6:
        return configure(0, 0, 1, 1, 0);
    case 7:
        return configure(0, 1, -1, 1, 0);
    case 8:
        return configure(0, 1, 1, 1, 101); /* above the highest */
    case 9:
        return compute(0u, 0, 1, 1, 0, 1); /* not configured */
    case 10:
        return load(CHOCOLATE_ACCELERATOR_ADDEND, 0u, 0, 0, 1, 1, 4, 0, 0); /* not bound */
    case 11:
        return load(CHOCOLATE_ACCELERATOR_TENSORS, 0u, 0, 0, 1, 1, 4, 0, 0);
    case 12:
        return load(RESULT, 0u, 0, 0, 1, 1, 4, 0, 0);
    case 13:
        return chocolate_accelerator_store(DATA, 0u, 0, 0, 1, 1, 4, 0, 0);
    case 14:
        return load(DATA, 0u, -1, 0, 1, 1, 4, 0, 0);
    case 15:
        return load(DATA, 0u, 0, -1, 1, 1, 4, 0, 0);
    case 16:
        return load(DATA, 0u, 0, 0, 0, 1, 4, 0, 0);
    case 17:
        return load(DATA, 0u, 0, 0, 1, 1, 0, 0, 0);
    case 18:
        return load(DATA, 0u, 0, 0, 1, 2, 4, 0, -4);
    case 19:
        return compute(0u, -1, 1, 1, 0, 1);
    case 20:
        return compute(0u, 0, 0, 1, 0, 1);
    case 21:
        return compute(0u, 0, 1, -1, 0, 1);
    case 22:
        return compute(0u, 0, 1, 1, -1, 1);
    case 23:
        return compute(0u, 0, 1, 1, 0, 0);
    case 24:
        return configure_add(101);
    default:
        break;
    }
    *status = UMAKIT_OUT_OF_RANGE;
    switch (number) {
    case 25: /* beyond the end of the tensor */
        return load(DATA, 0u, 1, 0, 1, 1, all, 0, 0);
    case 26:
        return load(DATA, 0u, 0, 0, 1, 2, 4, 0, all - 3);
    case 27:
        return load(DATA, 0u, 0, 0, INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX);
    case 28: /* within it, but too much to lie close together */
        return load(DATA, 0u, 0, 0, INT32_MAX, INT32_MAX, 1, 0, 0);
    case 29: /* beyond 32 bits, which must not become a place that exists */
        return load(DATA, UINT32_MAX - 7u, 0, 8, 1, 1, 4, 0, 0);
    case 30:
        return compute(UINT32_MAX - 7u, 8, 1, 1, 0, 1);
    case 31:
        return compute(0u, 0, INT32_MAX, 1, 0, 1);
    default:
        return -1;
    }
}

/* What is refused ends the layer, and nothing else is written than CLEAR and INTERRUPT_ENABLE. */
static void test_refusals(void)
{
    int number;

    for (number = 0; number <= 31; ++number) {
        int expected;
        int status;
        uint64_t writes;

        set_up(2u);
        CHECK_EQUAL(open_layer(COMPLETION), UMAKIT_OK);
        if (number > 9) {
            CHECK_EQUAL(configure(0, SIDE, 1, 1, -100), UMAKIT_OK);
        }
        writes = array.device.counters.register_writes;
        status = wrong_call(number, &expected);
        CHECK_EQUAL(status, expected);
        CHECK_EQUAL(array.device.counters.register_writes, writes + 2u);
        expect_closed();
        expect_right_result(COMPLETION);
    }
}

/* Without an open layer the device is left alone. */
static void test_calls_out_of_order(void)
{
    int number;
    int ignored;

    set_up(2u);
    CHECK_EQUAL(chocolate_accelerator_finish(), UMAKIT_INVALID_ARGUMENT);
    for (number = 0; number <= 24; ++number) {
        CHECK_EQUAL(wrong_call(number, &ignored), UMAKIT_INVALID_ARGUMENT);
    }
    CHECK_EQUAL(chocolate_accelerator_configure(0, 0, 0, 1, 1, 1, 1, 1, 1, 0, 0, -1, 1, 0),
                UMAKIT_INVALID_ARGUMENT);
    CHECK_EQUAL(configure_add(0), UMAKIT_INVALID_ARGUMENT);
    CHECK_EQUAL(chocolate_accelerator_begin(0, COMPLETION), UMAKIT_INVALID_ARGUMENT);
    CHECK_EQUAL(chocolate_accelerator_begin(COLUMNS, (enum chocolate_accelerator_completion)-1),
                UMAKIT_INVALID_ARGUMENT);
    CHECK_EQUAL(chocolate_accelerator_begin(COLUMNS, 2), UMAKIT_INVALID_ARGUMENT);
    CHECK_EQUAL(array.device.counters.clock, 0u);

    /* A layer without commands is over at once. */
    CHECK_EQUAL(open_layer(COMPLETION), UMAKIT_OK);
    CHECK_EQUAL(chocolate_accelerator_finish(), UMAKIT_OK);
    expect_closed();

    /* One that was left open is closed by the next. */
    CHECK_EQUAL(open_layer(COMPLETION), UMAKIT_OK);
    CHECK_EQUAL(configure_layer(), UMAKIT_OK);
    expect_right_result(COMPLETION);
}

static void test_another_device(void)
{
    uint64_t writes;

    set_up(2u);
    writes = array.device.counters.register_writes;
    CHECK_EQUAL(chocolate_accelerator_begin(COLUMNS + 1, COMPLETION), UMAKIT_UNSUPPORTED);
    CHECK_EQUAL(array.device.counters.register_writes, writes);
    device = NULL;
    CHECK_EQUAL(run(), UMAKIT_NO_DEVICE);
}

/* ---- Faults ---- */

/* What only the device can know, it refuses by itself. */
static void test_programming_out_of_range(void)
{
    size_t i;

    for (i = 0u; i < DEPTHS; ++i) {
        int status;

        set_up(depths[i]);
        CHECK_EQUAL(open_layer(COMPLETION), UMAKIT_OK);
        status = load(DATA, LAYER_SCRATCHPAD_BYTES - 4u, 0, 1, 1, 1, 4, 0, 0);
        if (status == UMAKIT_OK) {
            status = chocolate_accelerator_finish();
        }
        CHECK_EQUAL(status, UMAKIT_OUT_OF_RANGE);
        expect_closed();

        CHECK_EQUAL(open_layer(COMPLETION), UMAKIT_OK);
        CHECK_EQUAL(configure(1, SIDE, 1, 1, -100), UMAKIT_OK); /* it has no depthwise mode */
        status = compute(0u, 0, 1, 1, 0, 1);
        if (status == UMAKIT_OK) {
            status = chocolate_accelerator_finish();
        }
        CHECK_EQUAL(status, UMAKIT_UNSUPPORTED);
        expect_right_result(COMPLETION);
    }
}

struct fault_case {
    struct umakit_fault fault;
    int expected;
    bool is_told; /* at every event; a lost interrupt may not be missed */
};

/* After a layer that ended with `status`: no interrupt is enabled, no tensor is mapped, and
 * however long the host waits, the result stays as it is. A device that is busy after CLEAR is
 * refused, and left as it is; others are idle. */
static void expect_left_alone(int status)
{
    const uint32_t busy = UMAKIT_SYSTOLIC_ARRAY_STATUS_DMA_BUSY_MASK |
                          UMAKIT_SYSTOLIC_ARRAY_STATUS_ARRAY_BUSY_MASK;
    static int8_t before[sizeof(result)];
    size_t i;

    CHECK_EQUAL(umakit_device_read32(device, UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_ENABLE_OFFSET), 0u);
    CHECK_EQUAL(umakit_device_wait(device, 1000u), UMAKIT_TIMEOUT);
    for (i = 0u; i < UMAKIT_SIMULATOR_WINDOW_COUNT; ++i) {
        CHECK(array.device.windows[i].memory == NULL);
    }
    memcpy(before, result, sizeof(before));
    CHECK_EQUAL(umakit_device_wait(device, UINT32_MAX), UMAKIT_TIMEOUT);
    if ((umakit_device_read32(device, UMAKIT_SYSTOLIC_ARRAY_STATUS_OFFSET) & busy) != 0u) {
        CHECK_EQUAL(status, UMAKIT_STUCK_BUSY);
        CHECK_EQUAL(chocolate_accelerator_begin(COLUMNS, COMPLETION), UMAKIT_STUCK_BUSY);
        CHECK_EQUAL(chocolate_accelerator_finish(), UMAKIT_INVALID_ARGUMENT);
    } else {
        CHECK(status != UMAKIT_STUCK_BUSY);
    }
    CHECK_EQUAL(memcmp(before, result, sizeof(before)), 0);
}

/* How often a fault was answered at the events of a layer. */
static uint32_t sweep(uint32_t depth, const struct fault_case *fault_case)
{
    struct umakit_fault fault = fault_case->fault;
    uint32_t answers = 0u;

    fault.count = 1u;
    for (fault.skip = 0u; fault.skip < 60u; ++fault.skip) {
        int status;

        set_up(depth);
        CHECK_EQUAL(umakit_simulator_inject(device, &fault), UMAKIT_OK);
        status = run();
        CHECK(status == UMAKIT_OK || status == fault_case->expected);
        CHECK(status != UMAKIT_OK || wrong_results() == 0u);
        /* Polling is bounded; sleeping is bounded by the device's clock. */
        CHECK(array.device.counters.register_reads < 20000u);
        expect_left_alone(status);
        answers += status != UMAKIT_OK ? 1u : 0u;
        if (fault_case->is_told) {
            CHECK_EQUAL(answers, status == UMAKIT_OK ? answers : fault.skip + 1u);
        }
        umakit_simulator_remove_faults(device);
        expect_right_result(COMPLETION);
    }
    return answers;
}

static void test_faults(void)
{
    static const struct fault_case cases[] = {
        {{.kind = UMAKIT_FAULT_BUS_ERROR, .bytes = UINT32_MAX}, UMAKIT_BUS_ERROR, true},
        {{.kind = UMAKIT_FAULT_DMA_STOPS, .bytes = 3u, .ending = UMAKIT_FAULT_ENDS_BUSY},
         UMAKIT_DMA_STOPPED, true},
        {{.kind = UMAKIT_FAULT_DMA_STOPS, .bytes = 3u, .ending = UMAKIT_FAULT_ENDS_DONE},
         UMAKIT_DMA_STOPPED, true},
        {{.kind = UMAKIT_FAULT_DMA_STOPS, .bytes = 3u, .ending = UMAKIT_FAULT_ENDS_IN_ERROR},
         UMAKIT_DMA_STOPPED, true},
        {{.kind = UMAKIT_FAULT_STUCK_BUSY, .engine = UMAKIT_ENGINE_DMA},
         UMAKIT_STUCK_BUSY, true},
        {{.kind = UMAKIT_FAULT_STUCK_BUSY, .engine = UMAKIT_ENGINE_ARRAY},
         UMAKIT_STUCK_BUSY, true},
        {{.kind = UMAKIT_FAULT_LOST_INTERRUPT}, UMAKIT_LOST_INTERRUPT, false},
    };
    /* 18 transfers, of 60 rows or more; 6 jobs. */
    static const uint32_t least[] = {60u, 18u, 18u, 18u, 18u, 6u, 0u};
    size_t i;
    size_t depth;

    for (depth = 0u; depth < DEPTHS; ++depth) {
        for (i = 0u; i < sizeof(cases) / sizeof(cases[0]); ++i) {
            const uint32_t answers = sweep(depths[depth], &cases[i]);

            CHECK(answers >= least[i]);
        }
        /* Polling needs no interrupt; otherwise that of the end at least. */
        if (COMPLETION == CHOCOLATE_ACCELERATOR_INTERRUPT) {
            CHECK(sweep(depths[depth], &cases[6]) >= 1u);
        } else {
            CHECK_EQUAL(sweep(depths[depth], &cases[6]), 0u);
        }
    }
}

/* A bus error while the array hangs: the status says that the device did not stop. */
static void test_two_failures(void)
{
    const struct umakit_fault stuck = {
        .kind = UMAKIT_FAULT_STUCK_BUSY, .engine = UMAKIT_ENGINE_ARRAY, .count = 1u};
    struct umakit_fault refused = {
        .kind = UMAKIT_FAULT_BUS_ERROR, .bytes = UINT32_MAX, .count = 1u};
    uint32_t both = 0u;
    size_t i;

    for (i = 0u; i < DEPTHS; ++i) {
        for (refused.skip = 0u; refused.skip < 160u; refused.skip += 5u) {
            int status;

            set_up(depths[i]);
            CHECK_EQUAL(umakit_simulator_inject(device, &stuck), UMAKIT_OK);
            CHECK_EQUAL(umakit_simulator_inject(device, &refused), UMAKIT_OK);
            status = run();
            CHECK(status == UMAKIT_BUS_ERROR || status == UMAKIT_STUCK_BUSY);
            CHECK(chocolate_accelerator_failure() == status ||
                  (status == UMAKIT_STUCK_BUSY &&
                   chocolate_accelerator_failure() == UMAKIT_BUS_ERROR));
            both += chocolate_accelerator_failure() != status ? 1u : 0u;
            expect_left_alone(status);
            umakit_simulator_remove_faults(device);
            expect_right_result(COMPLETION);
        }
    }
    CHECK(both > 0u);
}

static struct umakit_fault flip = {.kind = UMAKIT_FAULT_SCRATCHPAD_BIT, .bit = 6u};
static uint32_t flips_after;

static void flip_bit(uint32_t number)
{
    if (number == flips_after) {
        CHECK_EQUAL(umakit_simulator_inject(device, &flip), UMAKIT_OK);
    }
}

/* A bit that flips is found by who reads it next, or written over. */
static void test_flipped_bits(void)
{
    uint32_t found = 0u;
    size_t depth;

    for (depth = 0u; depth < DEPTHS; ++depth) {
        for (flips_after = 0u; flips_after < 31u; ++flips_after) {
            for (flip.address = 1u; flip.address < 7u * BANK_BYTES; flip.address += 37u) {
                int status;

                set_up(depths[depth]);
                after_call = flip_bit;
                status = run();
                after_call = NULL;
                found += status == UMAKIT_PARITY_ERROR ? 1u : 0u;
                CHECK(status == UMAKIT_PARITY_ERROR || status == UMAKIT_OK);
                CHECK(status == UMAKIT_PARITY_ERROR || wrong_results() == 0u);
                expect_closed();
            }
        }
    }
    CHECK(found > 200u);
    set_up(2u);
    expect_right_result(COMPLETION);
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

        set_up(depths[random_size(&state, DEPTHS) - 1u]);
        for (; count > 0u; --count) {
            const struct umakit_fault fault = random_fault(&state, LAYER_SCRATCHPAD_BYTES);

            CHECK_EQUAL(umakit_simulator_inject(device, &fault), UMAKIT_OK);
        }
        status = run();
        failures += status != UMAKIT_OK ? 1u : 0u;
        CHECK(status == UMAKIT_OK || status == UMAKIT_BUS_ERROR ||
              status == UMAKIT_DMA_STOPPED || status == UMAKIT_PARITY_ERROR ||
              status == UMAKIT_LOST_INTERRUPT || status == UMAKIT_STUCK_BUSY);
        CHECK(status != UMAKIT_OK || wrong_results() == 0u);
        umakit_simulator_remove_faults(device);
        expect_right_result(COMPLETION);
    }
    CHECK(failures > 100u);
}

int main(void)
{
    fill_operands();
    test_results();
    test_what_others_left();
    test_refusals();
    test_calls_out_of_order();
    test_another_device();
    test_programming_out_of_range();
    test_faults();
    test_two_failures();
    test_flipped_bits();
    test_random_faults();
    return check_result();
}
