/* SPDX-License-Identifier: Apache-2.0 */
/* Several devices at once, and devices that are not there. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "check.h"
#include "job.h"
#include "umakit/mac_array.h"

static const struct umakit_mac_array_config small = {2u, 2u, 0u};
static const struct umakit_mac_array_config large = {16u, 16u, 0u};
static const struct job first_job = {2, 6, 5, 3, 3, 3, 1, 1};
static const struct job second_job = {3, 4, 7, 2, 2, 5, 0, 2};

static float values[256];
static float results[2][128];
static float expected[128];
static struct umakit_mac_array devices[2];

static void prepare(umakit_device *device, const struct job *job, float *result)
{
    uint32_t addresses[3] = {0u, 0u, 0u};

    CHECK_EQUAL(umakit_device_map(device, values, ifmap_count(job) * 4u, UMAKIT_TO_DEVICE,
                                  &addresses[0]), UMAKIT_OK);
    CHECK_EQUAL(umakit_device_map(device, values + 100, weights_count(job) * 4u,
                                  UMAKIT_TO_DEVICE, &addresses[1]), UMAKIT_OK);
    CHECK_EQUAL(umakit_device_map(device, result, result_count(job) * 4u, UMAKIT_FROM_DEVICE,
                                  &addresses[2]), UMAKIT_OK);
    write_addresses(device, addresses[0], addresses[1], addresses[2]);
    write_sizes(device, job);
}

static void test_two_devices(void)
{
    struct umakit_simulator_counters counters[2];
    uint32_t state = 3u;

    fill_random(values, 256u, &state);
    CHECK_EQUAL(umakit_mac_array_init(&devices[0], &small), UMAKIT_OK);
    CHECK_EQUAL(umakit_mac_array_init(&devices[1], &large), UMAKIT_OK);
    prepare(&devices[0].device, &first_job, results[0]);
    prepare(&devices[1].device, &second_job, results[1]);
    write_control(&devices[0].device, START);
    write_control(&devices[1].device, START);
    CHECK_EQUAL(umakit_device_wait(&devices[1].device, UINT32_MAX), UMAKIT_OK);
    CHECK_EQUAL(read_status(&devices[1].device), IDLE | DONE);
    CHECK_EQUAL(read_status(&devices[0].device), BUSY);
    umakit_device_write32(&devices[1].device, UMAKIT_MAC_ARRAY_ID_OFFSET, 0u);
    CHECK_EQUAL(umakit_device_wait(&devices[0].device, UINT32_MAX), UMAKIT_OK);
    CHECK_EQUAL(read_status(&devices[0].device), IDLE | DONE); /* not the other one's error */
    CHECK_EQUAL(read_error(&devices[1].device), UMAKIT_INVALID_REGISTER);

    reference_convolution(&first_job, values, values + 100, expected);
    CHECK(memcmp(results[0], expected, result_count(&first_job) * 4u) == 0);
    reference_convolution(&second_job, values, values + 100, expected);
    CHECK(memcmp(results[1], expected, result_count(&second_job) * 4u) == 0);

    umakit_simulator_read_counters(&devices[0].device, &counters[0]);
    umakit_simulator_read_counters(&devices[1].device, &counters[1]);
    CHECK_EQUAL(counters[0].useful_macs, 30u * 3u * 18u);
    CHECK_EQUAL(counters[1].useful_macs, 28u * 2u * 30u);
    CHECK_EQUAL(counters[0].compute_cycles, 15u * 2u * (2u + 2u + 18u - 2u));
    CHECK_EQUAL(counters[1].compute_cycles, 2u * 1u * (16u + 16u + 30u - 2u));
}

static void test_init(void)
{
    static const struct umakit_mac_array_config no_rows = {0u, 1u, 0u};
    static const struct umakit_mac_array_config no_columns = {1u, 0u, 0u};
    struct umakit_simulator_counters counters;

    CHECK_EQUAL(umakit_mac_array_init(NULL, &small), UMAKIT_INVALID_ARGUMENT);
    CHECK_EQUAL(umakit_mac_array_init(&devices[0], NULL), UMAKIT_INVALID_ARGUMENT);
    CHECK_EQUAL(umakit_mac_array_init(&devices[0], &no_rows), UMAKIT_INVALID_ARGUMENT);
    CHECK_EQUAL(umakit_mac_array_init(&devices[0], &no_columns), UMAKIT_INVALID_ARGUMENT);

    /* From any content, such as a device's that was in use. */
    memset(&devices[0], 0xA5, sizeof(devices[0]));
    CHECK_EQUAL(umakit_mac_array_init(&devices[0], &small), UMAKIT_OK);
    umakit_simulator_read_counters(&devices[0].device, &counters);
    CHECK_EQUAL(counters.jobs, 0u);
    CHECK_EQUAL(counters.register_reads, 0u);
    CHECK_EQUAL(read_status(&devices[0].device), IDLE);
    CHECK_EQUAL(umakit_mac_array_init(&devices[0], &devices[0].config), UMAKIT_OK);
    CHECK_EQUAL(umakit_device_read32(&devices[0].device, UMAKIT_MAC_ARRAY_ARRAY_ROWS_OFFSET), 2u);
}

static void expect_absent(umakit_device *device)
{
    struct umakit_simulator_counters counters;
    uint32_t address = 42u;

    CHECK_EQUAL(umakit_device_read32(device, UMAKIT_MAC_ARRAY_ID_OFFSET), UINT32_MAX);
    umakit_device_write32(device, UMAKIT_MAC_ARRAY_CONTROL_OFFSET, START);
    CHECK_EQUAL(umakit_device_wait(device, 1u), UMAKIT_NO_DEVICE);
    CHECK_EQUAL(umakit_device_map(device, values, 4u, UMAKIT_TO_DEVICE, &address),
                UMAKIT_NO_DEVICE);
    CHECK_EQUAL(address, 42u);
    umakit_device_unmap(device, 0x10000000u);
    umakit_device_barrier(device);
    memset(&counters, 0xA5, sizeof(counters));
    umakit_simulator_read_counters(device, &counters);
    CHECK_EQUAL(counters.register_reads, 0u);
    CHECK_EQUAL(counters.bytes_written, 0u);
    umakit_simulator_read_counters(device, NULL);
}

int main(void)
{
    static struct umakit_mac_array never_initialised;

    test_two_devices();
    test_init();
    expect_absent(NULL);
    expect_absent(&never_initialised.device);
    return check_result();
}
