/* SPDX-License-Identifier: Apache-2.0 */
/* Mapping buffers: refusals, a full table, and unmapping at the wrong time. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "check.h"
#include "job.h"
#include "umakit/mac_array.h"
#include "umakit/own_simulator.h"

#define SLOTS UMAKIT_SIMULATOR_WINDOW_COUNT

static const struct umakit_mac_array_config config = {4u, 4u, 0u};
static const struct job job = {1, 4, 4, 1, 3, 3, 1, 1};

static float ifmap[16];
static float weights[9];
static float result[16];
static struct umakit_mac_array array;

static void test_refusals(void)
{
    const void *misaligned = (const char *)ifmap + 2;
    const uint32_t unchanged = 42u;
    uint32_t address = unchanged;

    CHECK_EQUAL(umakit_mac_array_init(&array, &config), UMAKIT_OK);
    CHECK_EQUAL(umakit_device_map(NULL, ifmap, 64u, UMAKIT_TO_DEVICE, &address),
                UMAKIT_NO_DEVICE);
    CHECK_EQUAL(umakit_device_map(&array.device, NULL, 64u, UMAKIT_TO_DEVICE, &address),
                UMAKIT_INVALID_ARGUMENT);
    CHECK_EQUAL(umakit_device_map(&array.device, ifmap, 0u, UMAKIT_TO_DEVICE, &address),
                UMAKIT_INVALID_ARGUMENT);
    CHECK_EQUAL(umakit_device_map(&array.device, ifmap, 64u, UMAKIT_TO_DEVICE, NULL),
                UMAKIT_INVALID_ARGUMENT);
    CHECK_EQUAL(umakit_device_map(&array.device, ifmap, 64u, (enum umakit_direction)0, &address),
                UMAKIT_INVALID_ARGUMENT);
    CHECK_EQUAL(umakit_device_map(&array.device, misaligned, 4u, UMAKIT_TO_DEVICE, &address),
                UMAKIT_MISALIGNED);
    CHECK_EQUAL(umakit_device_map(&array.device, ifmap, UMAKIT_SIMULATOR_WINDOW_BYTES + 1u,
                                  UMAKIT_TO_DEVICE, &address),
                UMAKIT_OUT_OF_RANGE);
    CHECK_EQUAL(umakit_device_map(&array.device, ifmap, SIZE_MAX, UMAKIT_TO_DEVICE, &address),
                UMAKIT_OUT_OF_RANGE);
    CHECK_EQUAL(address, unchanged);
    CHECK_EQUAL(read_error(&array.device), UMAKIT_OK);
}

static void test_full_table(void)
{
    uint32_t addresses[SLOTS];
    uint32_t another = 42u;
    uint32_t i;
    uint32_t j;

    CHECK_EQUAL(umakit_mac_array_init(&array, &config), UMAKIT_OK);
    for (i = 0u; i < SLOTS; ++i) {
        CHECK_EQUAL(umakit_device_map(&array.device, ifmap, UMAKIT_SIMULATOR_WINDOW_BYTES,
                                      UMAKIT_TO_DEVICE, &addresses[i]),
                    UMAKIT_OK);
        for (j = 0u; j < i; ++j) { /* the ranges are disjoint */
            CHECK(addresses[i] - addresses[j] >= UMAKIT_SIMULATOR_WINDOW_BYTES &&
                  addresses[j] - addresses[i] >= UMAKIT_SIMULATOR_WINDOW_BYTES);
        }
    }
    CHECK_EQUAL(umakit_device_map(&array.device, ifmap, 4u, UMAKIT_TO_DEVICE, &another),
                UMAKIT_TABLE_FULL);
    CHECK_EQUAL(another, 42u);
    umakit_device_unmap(&array.device, addresses[3]);
    CHECK_EQUAL(umakit_device_map(&array.device, ifmap, 4u, UMAKIT_TO_DEVICE, &another), UMAKIT_OK);
    CHECK_EQUAL(another, addresses[3]);
    CHECK_EQUAL(read_error(&array.device), UMAKIT_OK);
}

static void test_unmap_of_what_is_not_mapped(void)
{
    static const uint32_t wrong[] = {0u, 4u, 0x10000004u, 0x20000000u, 0x90000000u, UINT32_MAX};
    uint32_t address = 0u;
    size_t i;

    for (i = 0u; i < sizeof(wrong) / sizeof(wrong[0]); ++i) {
        CHECK_EQUAL(umakit_mac_array_init(&array, &config), UMAKIT_OK);
        CHECK_EQUAL(umakit_device_map(&array.device, ifmap, 64u, UMAKIT_TO_DEVICE, &address),
                    UMAKIT_OK);
        CHECK_EQUAL(address, 0x10000000u);
        umakit_device_unmap(&array.device, wrong[i]);
        CHECK_EQUAL(read_error(&array.device), UMAKIT_OUT_OF_RANGE);
    }
    umakit_device_unmap(&array.device, address);
    write_control(&array.device, CLEAR);
    umakit_device_unmap(&array.device, address); /* a second time */
    CHECK_EQUAL(read_error(&array.device), UMAKIT_OUT_OF_RANGE);
    umakit_device_unmap(NULL, address);
}

/* Unmap buffer number `which` of three under a running job; 3 is a buffer that
 * the job does not use. */
static void unmap_while_running(size_t which)
{
    uint32_t addresses[4] = {0u, 0u, 0u, 0u};
    struct umakit_simulator_counters counters;

    result[0] = 77.0f;
    CHECK_EQUAL(umakit_mac_array_init(&array, &config), UMAKIT_OK);
    CHECK_EQUAL(umakit_device_map(&array.device, ifmap, 64u, UMAKIT_TO_DEVICE, &addresses[0]), 0);
    CHECK_EQUAL(umakit_device_map(&array.device, weights, 36u, UMAKIT_TO_DEVICE, &addresses[1]), 0);
    CHECK_EQUAL(umakit_device_map(&array.device, result, 64u, UMAKIT_FROM_DEVICE, &addresses[2]), 0);
    CHECK_EQUAL(umakit_device_map(&array.device, ifmap, 64u, UMAKIT_TO_DEVICE, &addresses[3]), 0);
    write_addresses(&array.device, addresses[0], addresses[1], addresses[2]);
    write_sizes(&array.device, &job);
    write_control(&array.device, START);
    umakit_device_unmap(&array.device, addresses[which]);
    CHECK_EQUAL(umakit_device_wait(&array.device, UINT32_MAX), UMAKIT_OK);
    umakit_simulator_read_counters(&array.device, &counters);
    if (which == 3u) {
        CHECK_EQUAL(read_status(&array.device), IDLE | DONE);
        CHECK_EQUAL(counters.jobs, 1u);
        CHECK_EQUAL(counters.failed_jobs, 0u);
    } else {
        CHECK_EQUAL(read_status(&array.device), IDLE | ERROR);
        CHECK_EQUAL(read_error(&array.device), UMAKIT_BUS_ERROR);
        CHECK(result[0] >= 77.0f); /* not written */
        CHECK_EQUAL(counters.jobs, 0u);
        CHECK_EQUAL(counters.failed_jobs, 1u);
        /* And it stays unmapped. */
        write_control(&array.device, CLEAR | START);
        CHECK_EQUAL(read_error(&array.device), UMAKIT_OUT_OF_RANGE);
    }
}

/* The bytes of a buffer are found, those in front of it and behind it are not. */
static void check_ends(uint32_t address)
{
    unsigned char bytes[64];

    CHECK_EQUAL(umakit_host_read(&array.device, address, 64u, bytes), UMAKIT_OK);
    CHECK(memcmp(bytes, ifmap, 64u) == 0);
    CHECK_EQUAL(umakit_host_read(&array.device, address + 60u, 4u, bytes), UMAKIT_OK);
    CHECK(memcmp(bytes, ifmap + 15, 4u) == 0);
    CHECK_EQUAL(umakit_host_read(&array.device, address - 4u, 4u, bytes), UMAKIT_OUT_OF_RANGE);
    CHECK_EQUAL(umakit_host_read(&array.device, address + 61u, 4u, bytes), UMAKIT_OUT_OF_RANGE);
}

/* Buffers begin somewhere in a page, where the seed says. */
static void test_scattered(void)
{
    uint32_t i;
    uint32_t seed;
    uint32_t others = 0u;
    uint32_t address;
    uint32_t first = 0u;
    uint32_t first_bytes;

    for (i = 0u; i < 16u; ++i) {
        ifmap[i] = (float)i;
    }
    for (seed = 0u; seed < 50u; ++seed) {
        CHECK_EQUAL(umakit_mac_array_init(&array, &config), UMAKIT_OK);
        umakit_simulator_scatter(&array.device, seed);
        CHECK_EQUAL(umakit_device_map(&array.device, ifmap, 64u, UMAKIT_TO_DEVICE, &address),
                    UMAKIT_OK);
        first = seed == 0u ? address : first;
        CHECK_EQUAL(address % 4u, 0u); /* what the device needs */
        CHECK(address >= first && address - first < UMAKIT_SIMULATOR_PAGE_BYTES);
        others += address != first ? 1u : 0u;
        check_ends(address);
        umakit_device_unmap(&array.device, address);
        CHECK_EQUAL(umakit_host_read(&array.device, address, 4u, &first_bytes),
                    UMAKIT_OUT_OF_RANGE);
    }
    CHECK(others > 45u);
    umakit_simulator_scatter(NULL, 1u);
}

int main(void)
{
    size_t which;

    test_refusals();
    test_full_table();
    test_scattered();
    test_unmap_of_what_is_not_mapped();
    for (which = 0u; which < 4u; ++which) {
        unmap_while_running(which);
    }
    return check_result();
}
