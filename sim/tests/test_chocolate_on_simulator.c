/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Chocolate driver's object on the simulator. What is recorded of a layer is
 * what the mock expects, and buffers whose addresses have the same low 32 bits
 * are not mixed up, as no register holds an address of the host.
 */
#include "high_memory.h"

#include <stdbool.h>
#include <string.h>

#include "check.h"
#include "chocolate_accelerator.h"
#include "chocolate_pool.h"
#include "umakit/systolic_array.h"

#define BANKS 4u
#define RECORDED (POOL_CALLS + 1u)

static uint32_t scratchpad[256];
static struct umakit_systolic_array array;
static struct umakit_trace_entry recorded[RECORDED];

umakit_device *chocolate_accelerator_device(void)
{
    return &array.device;
}

/* The device that the layer was compiled for. */
static const struct umakit_systolic_array_config compiled_for = {
    .array_rows = 1u,
    .array_columns = POOL_COLUMNS,
    .output_stationary = true,
    .pooling_lanes = 1u,
    .scratchpad = scratchpad,
    .scratchpad_bytes = sizeof(scratchpad),
    .scratchpad_banks = BANKS,
    .dma_bytes_per_cycle = 4u,
    .dma_alignment = 1u,
    .command_queue_depth = POOL_DEPTH,
};

static void set_up(void)
{
    CHECK_EQUAL(umakit_systolic_array_init(&array, &compiled_for), UMAKIT_OK);
    umakit_simulator_record(&array.device, recorded, RECORDED);
}

/* Of 4 x 8 x 2 values that grow, the last one of each window is the largest. */
static void expect_result(const int8_t *data, const int8_t *result)
{
    uint32_t y;
    uint32_t x;
    uint32_t c;

    for (y = 0u; y < 2u; ++y) {
        for (x = 0u; x < 4u; ++x) {
            for (c = 0u; c < 2u; ++c) {
                CHECK_EQUAL(result[(y * 4u + x) * 2u + c],
                            data[((2u * y + 1u) * 8u + 2u * x + 1u) * 2u + c]);
            }
        }
    }
}

static void run(int8_t *data, int8_t *result)
{
    uint32_t i;

    for (i = 0u; i < POOL_INPUTS; ++i) {
        data[i] = (int8_t)i;
    }
    set_up();
    CHECK_EQUAL(run_pool(data, result, CHOCOLATE_ACCELERATOR_INTERRUPT), UMAKIT_OK);
    expect_result(data, result);
    CHECK_EQUAL(umakit_simulator_recorded(&array.device), POOL_CALLS);
}

static void test_layer_is_the_one_that_the_mock_expects(void)
{
    static int8_t data[POOL_INPUTS];
    static int8_t result[POOL_RESULTS];
    size_t i;

    run(data, result);
    for (i = 0u; i < POOL_CALLS; ++i) {
        CHECK_EQUAL(recorded[i].access, pool_calls[i].access);
        CHECK_EQUAL(recorded[i].offset, pool_calls[i].offset);
        CHECK_EQUAL(recorded[i].value, pool_calls[i].value);
        CHECK_EQUAL(recorded[i].direction, pool_calls[i].direction);
        CHECK_EQUAL(recorded[i].status, pool_calls[i].status);
    }
}

static bool test_buffers_beyond_32_bits(void)
{
    int8_t *data = (int8_t *)memory_at(HIGH_ADDRESS, POOL_INPUTS);
    int8_t *result = (int8_t *)memory_at(HIGH_ADDRESS + FOUR_GIB, POOL_INPUTS);
    size_t i;

    if (data == NULL || result == NULL) {
        return false;
    }
    run(data, result);
    for (i = 0u; i < POOL_CALLS; ++i) {
        CHECK(recorded[i].access != UMAKIT_ACCESS_WRITE ||
              recorded[i].value == pool_calls[i].value);
    }
    return true;
}

/* On a device of another configuration a run has the right result or fails, as the driver's
 * header says. */
static void expect_on(struct umakit_systolic_array_config config, int status)
{
    static int8_t data[POOL_INPUTS];
    static int8_t result[POOL_RESULTS];
    uint32_t i;

    for (i = 0u; i < POOL_INPUTS; ++i) {
        data[i] = (int8_t)i;
    }
    memset(result, 0, sizeof(result));
    CHECK_EQUAL(umakit_systolic_array_init(&array, &config), UMAKIT_OK);
    CHECK_EQUAL(run_pool(data, result, CHOCOLATE_ACCELERATOR_INTERRUPT), status);
    if (status == UMAKIT_OK) {
        expect_result(data, result);
    }
}

static void test_other_configurations(void)
{
    struct umakit_systolic_array_config other = compiled_for;

    other.array_columns = POOL_COLUMNS + 1u;
    expect_on(other, UMAKIT_UNSUPPORTED);
    other = compiled_for;
    other.scratchpad_bytes = POOL_RESULT_AT;
    expect_on(other, UMAKIT_OUT_OF_RANGE);
    other = compiled_for;
    other.dma_alignment = 2u * POOL_RESULT_AT;
    expect_on(other, UMAKIT_MISALIGNED);
    other = compiled_for;
    other.pooling_lanes = 0u;
    expect_on(other, UMAKIT_UNSUPPORTED);
    other = compiled_for;
    other.array_rows = 3u;
    other.scratchpad_banks = 1u;
    other.dma_bytes_per_cycle = 1u;
    other.dma_alignment = 4u;
    expect_on(other, UMAKIT_OK);
}

int main(void)
{
    test_other_configurations();
    test_layer_is_the_one_that_the_mock_expects();
    if (!test_buffers_beyond_32_bits()) {
        printf("no memory at %#llx\n", (unsigned long long)HIGH_ADDRESS);
        return check_result() == 0 ? SKIPPED : 1;
    }
    return check_result();
}
