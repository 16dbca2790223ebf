/* SPDX-License-Identifier: Apache-2.0 */
/* Results, counters and cycles of whole jobs. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "check.h"
#include "job.h"
#include "umakit/mac_array.h"

#define MOST_VALUES 20000u
#define GUARD 16u

static float ifmap[MOST_VALUES];
static float weights[MOST_VALUES];
static float result[GUARD + MOST_VALUES + GUARD];
static float expected[MOST_VALUES];

static struct umakit_mac_array array;

static void run(const struct job *job, float *to)
{
    uint32_t ifmap_address = 0u;
    uint32_t weights_address = 0u;
    uint32_t result_address = 0u;

    CHECK_EQUAL(umakit_device_map(&array.device, ifmap, ifmap_count(job) * sizeof(float),
                                  UMAKIT_TO_DEVICE, &ifmap_address),
                UMAKIT_OK);
    CHECK_EQUAL(umakit_device_map(&array.device, weights, weights_count(job) * sizeof(float),
                                  UMAKIT_TO_DEVICE, &weights_address),
                UMAKIT_OK);
    CHECK_EQUAL(umakit_device_map(&array.device, to, result_count(job) * sizeof(float),
                                  UMAKIT_FROM_DEVICE, &result_address),
                UMAKIT_OK);
    write_addresses(&array.device, ifmap_address, weights_address, result_address);
    write_sizes(&array.device, job);
    write_control(&array.device, START);
    CHECK_EQUAL(umakit_device_wait(&array.device, UINT32_MAX), UMAKIT_OK);
    CHECK_EQUAL(read_error(&array.device), UMAKIT_OK);
    CHECK_EQUAL(read_status(&array.device), IDLE | DONE);
    umakit_device_unmap(&array.device, result_address);
    umakit_device_unmap(&array.device, weights_address);
    umakit_device_unmap(&array.device, ifmap_address);
}

/* Exact, and not a byte outside the result. */
static void run_and_compare(const struct job *job, uint32_t *state)
{
    float *to = result + GUARD;
    const size_t count = result_count(job);
    size_t i;

    CHECK(ifmap_count(job) <= MOST_VALUES && weights_count(job) <= MOST_VALUES &&
          count <= MOST_VALUES);
    fill_random(ifmap, ifmap_count(job), state);
    fill_random(weights, weights_count(job), state);
    for (i = 0u; i < GUARD + count + GUARD; ++i) {
        result[i] = 12345.0f;
    }
    reference_convolution(job, ifmap, weights, expected);
    run(job, to);
    CHECK(memcmp(to, expected, count * sizeof(float)) == 0);
    for (i = 0u; i < GUARD; ++i) {
        CHECK(result[i] >= 12345.0f && to[count + i] >= 12345.0f);
    }
}

static void test_chosen_shapes(uint32_t *state)
{
    static const struct job jobs[] = {
        /* ic, height, width, oc, kernel height and width, pad top and left */
        {1, 1, 1, 1, 1, 1, 0, 0},     {3, 9, 13, 4, 3, 3, 1, 1},
        {5, 7, 7, 6, 1, 1, 0, 0},     {2, 40, 45, 3, 1, 1, 0, 0},
        {2, 8, 5, 3, 2, 2, 0, 0},     {2, 8, 5, 3, 2, 2, 1, 1},
        {2, 8, 5, 3, 4, 6, 1, 2},     {2, 5, 8, 3, 1, 7, 0, 3},
        {2, 5, 8, 3, 7, 1, 3, 0},     {2, 3, 2, 2, 9, 11, 4, 5},
        {1, 1, 1, 1, 20, 20, 19, 19}, {1, 1, 1, 1, 20, 20, 0, 0},
        {1, 1, 33, 2, 3, 3, 1, 1},    {1, 33, 1, 2, 3, 3, 1, 1},
        {3, 31, 33, 2, 5, 5, 2, 2},   {1, 4, 4, 1, 3, 3, 0, 0},
        {1, 4, 4, 1, 3, 3, 2, 2},
    };
    size_t i;

    for (i = 0u; i < sizeof(jobs) / sizeof(jobs[0]); ++i) {
        run_and_compare(&jobs[i], state);
    }
}

static void test_random_shapes(uint32_t *state)
{
    int i;

    for (i = 0; i < 600; ++i) {
        struct job job;

        job.input_channels = random_size(state, 6u);
        job.height = random_size(state, 24u);
        job.width = random_size(state, 40u);
        job.output_channels = random_size(state, 6u);
        job.kernel_height = random_size(state, 8u);
        job.kernel_width = random_size(state, 8u);
        job.pad_top = random_number(state) % job.kernel_height;
        job.pad_left = random_number(state) % job.kernel_width;
        run_and_compare(&job, state);
    }
}

/* The documented order, bit for bit, with values whose sum depends on it. */
static void test_order_of_additions(void)
{
    static const struct job job = {3, 1, 1, 1, 1, 1, 0, 0};
    static const struct job row = {1, 1, 3, 1, 1, 3, 0, 1};
    float *to = result + GUARD;

    ifmap[0] = 1.0f;
    ifmap[1] = 1.0e8f;
    ifmap[2] = -1.0e8f;
    weights[0] = 1.0f;
    weights[1] = 1.0f;
    weights[2] = 1.0f;
    run(&job, to);
    CHECK(to[0] <= 0.0f && to[0] >= 0.0f); /* 1 is lost in 1e8; backwards it is kept */
    run(&row, to);
    CHECK(to[1] <= 0.0f && to[1] >= 0.0f);
}

/* Padding adds nothing: an infinite weight there leaves no NaN. */
static void test_padding_is_not_multiplied(void)
{
    static const struct job job = {1, 1, 1, 1, 3, 3, 1, 1};
    volatile float huge = 3.0e38f;
    float *to = result + GUARD;
    size_t i;

    for (i = 0u; i < 9u; ++i) {
        weights[i] = huge * huge;
    }
    weights[4] = 2.0f;
    ifmap[0] = 3.0f;
    run(&job, to);
    CHECK(to[0] >= 6.0f && to[0] <= 6.0f);
}

static void test_counters(void)
{
    static const struct umakit_mac_array_config config = {8u, 16u, 8u};
    static const struct job job = {8, 16, 16, 20, 3, 3, 1, 1};
    const uint64_t macs = 256u * 20u * 72u;
    const uint64_t folds = 32u * 2u;
    struct umakit_simulator_counters counters;

    CHECK_EQUAL(umakit_mac_array_init(&array, &config), UMAKIT_OK);
    run(&job, result);
    run(&job, result);
    umakit_simulator_read_counters(&array.device, &counters);
    CHECK_EQUAL(counters.jobs, 2u);
    CHECK_EQUAL(counters.failed_jobs, 0u);
    CHECK_EQUAL(counters.macs, 2u * folds * 8u * 16u * 72u);
    CHECK_EQUAL(counters.useful_macs, 2u * macs);
    CHECK_EQUAL(counters.compute_cycles, 2u * folds * (8u + 16u + 72u - 2u));
    CHECK_EQUAL(counters.drain_cycles, 2u * folds * 8u);
    CHECK_EQUAL(counters.bytes_read, 2u * 4u * (8u * 256u + 20u * 8u * 9u));
    CHECK_EQUAL(counters.bytes_written, 2u * 4u * 20u * 256u);
    CHECK_EQUAL(counters.register_writes, 2u * 12u);
    CHECK_EQUAL(counters.register_reads, 2u * 2u);

    CHECK_EQUAL(umakit_device_read32(&array.device, UMAKIT_MAC_ARRAY_CYCLES_LOW_OFFSET),
                2u * folds * (8u + 16u + 72u - 2u + 8u));
    CHECK_EQUAL(umakit_device_read32(&array.device, UMAKIT_MAC_ARRAY_CYCLES_HIGH_OFFSET), 0u);
    CHECK_EQUAL(umakit_device_read32(&array.device, UMAKIT_MAC_ARRAY_MACS_LOW_OFFSET), 2u * macs);
    write_control(&array.device, RESET_COUNTERS);
    CHECK_EQUAL(umakit_device_read32(&array.device, UMAKIT_MAC_ARRAY_CYCLES_LOW_OFFSET), 0u);
    CHECK_EQUAL(umakit_device_read32(&array.device, UMAKIT_MAC_ARRAY_MACS_LOW_OFFSET), 0u);
    umakit_simulator_read_counters(&array.device, &counters);
    CHECK_EQUAL(counters.useful_macs, 2u * macs);
}

/* More than 32 bits of cycles, which a slow drain gives in few jobs. */
static void test_high_half_of_counters(void)
{
    static const struct umakit_mac_array_config config = {1u, 1u, 0x80000000u};
    static const struct job job = {1, 2, 2, 1, 1, 1, 0, 0};
    uint32_t addresses[3] = {0u, 0u, 0u};

    CHECK_EQUAL(umakit_mac_array_init(&array, &config), UMAKIT_OK);
    CHECK_EQUAL(umakit_device_map(&array.device, ifmap, 16u, UMAKIT_TO_DEVICE, &addresses[0]), 0);
    CHECK_EQUAL(umakit_device_map(&array.device, weights, 4u, UMAKIT_TO_DEVICE, &addresses[1]), 0);
    CHECK_EQUAL(umakit_device_map(&array.device, result, 16u, UMAKIT_FROM_DEVICE, &addresses[2]), 0);
    write_addresses(&array.device, addresses[0], addresses[1], addresses[2]);
    write_sizes(&array.device, &job);
    write_control(&array.device, START);
    /* 4 * (2^31 + 1) cycles: more than one wait can say. */
    CHECK_EQUAL(umakit_device_wait(&array.device, UINT32_MAX), UMAKIT_TIMEOUT);
    CHECK_EQUAL(umakit_device_wait(&array.device, UINT32_MAX), UMAKIT_TIMEOUT);
    CHECK_EQUAL(umakit_device_wait(&array.device, 6u), UMAKIT_OK);
    CHECK_EQUAL(umakit_device_read32(&array.device, UMAKIT_MAC_ARRAY_CYCLES_HIGH_OFFSET), 0u);
    CHECK_EQUAL(umakit_device_read32(&array.device, UMAKIT_MAC_ARRAY_CYCLES_LOW_OFFSET), 4u);
    CHECK_EQUAL(umakit_device_read32(&array.device, UMAKIT_MAC_ARRAY_CYCLES_HIGH_OFFSET), 2u);
}

int main(void)
{
    static const struct umakit_mac_array_config config = {8u, 8u, 0u};
    uint32_t state = 2u;

    CHECK_EQUAL(umakit_mac_array_init(&array, &config), UMAKIT_OK);
    test_chosen_shapes(&state);
    test_random_shapes(&state);
    test_order_of_additions();
    test_padding_is_not_multiplied();
    test_counters();
    test_high_half_of_counters();
    return check_result();
}
