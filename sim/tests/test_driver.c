/* SPDX-License-Identifier: Apache-2.0 */
/* The driver on the simulator: results, padding, and what it leaves behind. */
#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "check.h"
#include "conv2dnchw.h"
#include "job.h"
#include "random_fault.h"
#include "umakit/mac_array.h"

#define MOST_VALUES 20000u

static float ifmap[MOST_VALUES];
static float weights[MOST_VALUES];
static float result[MOST_VALUES];
static float expected[MOST_VALUES];

static struct umakit_mac_array array;

umakit_device *vanilla_accelerator_device(void)
{
    return &array.device;
}

static void expect_nothing_mapped(void)
{
    size_t i;

    for (i = 0u; i < UMAKIT_SIMULATOR_WINDOW_COUNT; ++i) {
        CHECK(array.device.windows[i].memory == NULL);
    }
}

static int call(const struct job *job)
{
    return vanilla_accelerator_conv2dnchw(
        ifmap, weights, result, (int)job->output_channels, (int)job->width, (int)job->height,
        (int)job->input_channels, (int)job->kernel_height, (int)job->kernel_width);
}

static void test_random_shapes(void)
{
    uint32_t state = 4u;
    int i;

    for (i = 0; i < 400; ++i) {
        struct job job;

        job.input_channels = random_size(&state, 6u);
        job.height = random_size(&state, 20u);
        job.width = random_size(&state, 30u);
        job.output_channels = random_size(&state, 6u);
        job.kernel_height = random_size(&state, 7u);
        job.kernel_width = random_size(&state, 7u);
        job.pad_top = (job.kernel_height - 1u) / 2u;
        job.pad_left = (job.kernel_width - 1u) / 2u;
        fill_random(ifmap, ifmap_count(&job), &state);
        fill_random(weights, weights_count(&job), &state);
        reference_convolution(&job, ifmap, weights, expected);
        memset(result, 0xA5, result_count(&job) * sizeof(float));
        CHECK_EQUAL(call(&job), UMAKIT_OK);
        CHECK(memcmp(result, expected, result_count(&job) * sizeof(float)) == 0);
        expect_nothing_mapped();
        CHECK_EQUAL(umakit_device_wait(&array.device, 0u), UMAKIT_TIMEOUT); /* the line is low */
    }
}

/* Spelt out, so that a wrong convention is not hidden by a shared formula: of
 * an even kernel's padding the larger half is below and right. */
static void test_even_kernel(void)
{
    static const struct job job = {1, 2, 2, 1, 2, 2, 0, 0};
    static const float by_hand[4] = {4321.0f, 402.0f, 43.0f, 4.0f};

    ifmap[0] = 1.0f;
    ifmap[1] = 2.0f;
    ifmap[2] = 3.0f;
    ifmap[3] = 4.0f;
    weights[0] = 1.0f;
    weights[1] = 10.0f;
    weights[2] = 100.0f;
    weights[3] = 1000.0f;
    CHECK_EQUAL(call(&job), UMAKIT_OK);
    CHECK(memcmp(result, by_hand, sizeof(by_hand)) == 0);
}

/* An error that somebody left behind does not fail the next job. */
static void test_stale_error(void)
{
    static const struct job job = {1, 2, 2, 1, 1, 1, 0, 0};

    umakit_device_write32(&array.device, UMAKIT_MAC_ARRAY_ID_OFFSET, 0u);
    CHECK_EQUAL(read_status(&array.device) & ERROR, ERROR);
    CHECK_EQUAL(call(&job), UMAKIT_OK);
}

static void test_refused_by_the_device(void)
{
    static const struct job job = {1, 2, 2, 1, 1, 1, 0, 0};
    uint32_t addresses[UMAKIT_SIMULATOR_WINDOW_COUNT];
    uint32_t i;
    uint32_t occupied;

    /* In place. */
    CHECK_EQUAL(vanilla_accelerator_conv2dnchw(ifmap, weights, ifmap, 1, 2, 2, 1, 1, 1),
                UMAKIT_INVALID_ARGUMENT);
    expect_nothing_mapped();

    /* Larger than a window of the simulator, though not than the bus. */
    CHECK_EQUAL(vanilla_accelerator_conv2dnchw(ifmap, weights, result, 1, 16384, 8192, 1, 1, 1),
                UMAKIT_OUT_OF_RANGE);
    expect_nothing_mapped();

    /* No slot for the first, the second, the third buffer. */
    for (occupied = 6u; occupied <= 8u; ++occupied) {
        for (i = 0u; i < occupied; ++i) {
            CHECK_EQUAL(umakit_device_map(&array.device, expected, 4u, UMAKIT_TO_DEVICE,
                                          &addresses[i]), UMAKIT_OK);
        }
        CHECK_EQUAL(call(&job), UMAKIT_TABLE_FULL);
        for (i = 0u; i < occupied; ++i) {
            umakit_device_unmap(&array.device, addresses[i]);
        }
        expect_nothing_mapped();
    }
    CHECK_EQUAL(call(&job), UMAKIT_OK);
}

/* Each fault of the hardware has a status of its own, and does not last. */
static void test_faults(void)
{
    static const struct {
        struct umakit_fault fault;
        int status;
    } faults[] = {
        {{.kind = UMAKIT_FAULT_BUS_ERROR, .address = 0x10000000u, .bytes = 4u},
         UMAKIT_BUS_ERROR},
        {{.kind = UMAKIT_FAULT_BUS_ERROR, .address = 0x20000008u, .bytes = 1u},
         UMAKIT_BUS_ERROR},
        {{.kind = UMAKIT_FAULT_BUS_ERROR, .address = 0x30000000u, .bytes = 1u},
         UMAKIT_BUS_ERROR},
        {{.kind = UMAKIT_FAULT_LOST_INTERRUPT}, UMAKIT_LOST_INTERRUPT},
        {{.kind = UMAKIT_FAULT_STUCK_BUSY, .engine = UMAKIT_ENGINE_ARRAY}, UMAKIT_STUCK_BUSY},
    };
    static const struct umakit_fault of_other_devices[] = {
        {.kind = UMAKIT_FAULT_DMA_STOPS, .bytes = 4u},
        {.kind = UMAKIT_FAULT_SCRATCHPAD_BIT},
        {.kind = UMAKIT_FAULT_STUCK_BUSY, .engine = UMAKIT_ENGINE_DMA},
    };
    static const struct job job = {2, 4, 4, 3, 3, 3, 1, 1};
    size_t i;

    for (i = 0u; i < sizeof(faults) / sizeof(faults[0]); ++i) {
        CHECK_EQUAL(umakit_simulator_inject(&array.device, &faults[i].fault), UMAKIT_OK);
        CHECK_EQUAL(call(&job), faults[i].status);
        expect_nothing_mapped();
        umakit_simulator_remove_faults(&array.device);
        CHECK_EQUAL(call(&job), UMAKIT_OK);
    }
    for (i = 0u; i < sizeof(of_other_devices) / sizeof(of_other_devices[0]); ++i) {
        CHECK_EQUAL(umakit_simulator_inject(&array.device, &of_other_devices[i]),
                    UMAKIT_UNSUPPORTED);
    }
}

/* Whatever fails, and when: what is reported as right is right, and the driver
 * gets the device to work again. */
static void test_random_faults(void)
{
    static const struct job job = {2, 4, 5, 3, 3, 3, 1, 1};
    uint32_t state = 9u;
    uint32_t failures = 0u;
    int i;

    fill_random(ifmap, ifmap_count(&job), &state);
    fill_random(weights, weights_count(&job), &state);
    reference_convolution(&job, ifmap, weights, expected);
    for (i = 0; i < 500; ++i) {
        uint32_t count = random_size(&state, 3u);
        int calls;

        for (; count > 0u; --count) {
            const struct umakit_fault fault = random_fault(&state, 0u);
            const int status = umakit_simulator_inject(&array.device, &fault);

            CHECK(status == UMAKIT_OK || status == UMAKIT_UNSUPPORTED);
        }
        for (calls = 0; calls < 4; ++calls) {
            int status;

            memset(result, 0xA5, result_count(&job) * sizeof(float));
            status = call(&job);
            failures += status != UMAKIT_OK ? 1u : 0u;
            CHECK(status == UMAKIT_OK || status == UMAKIT_BUS_ERROR ||
                  status == UMAKIT_LOST_INTERRUPT || status == UMAKIT_STUCK_BUSY);
            CHECK(status != UMAKIT_OK ||
                  memcmp(result, expected, result_count(&job) * sizeof(float)) == 0);
            expect_nothing_mapped();
        }
        umakit_simulator_remove_faults(&array.device);
        CHECK_EQUAL(call(&job), UMAKIT_OK);
    }
    CHECK(failures > 200u);
}

int main(void)
{
    static const struct umakit_mac_array_config config = {8u, 8u, 0u};

    CHECK_EQUAL(umakit_mac_array_init(&array, &config), UMAKIT_OK);
    test_random_shapes();
    test_even_kernel();
    test_stale_error();
    test_refused_by_the_device();
    test_faults();
    test_random_faults();
    return check_result();
}
