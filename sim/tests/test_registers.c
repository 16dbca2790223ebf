/* SPDX-License-Identifier: Apache-2.0 */
/* The register file: reset values, access rights, and each way to misuse it. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "check.h"
#include "job.h"
#include "umakit/mac_array.h"

#define VALUES 256u
#define UNTOUCHED 77.0f

static float ifmap[VALUES];
static float weights[VALUES];
static float result[VALUES];

static struct umakit_mac_array array;
static uint32_t ifmap_address;
static uint32_t weights_address;
static uint32_t result_address;

/* Takes 3 * 2 folds of 2 + 2 + 18 - 2 cycles, 120 in all, on a 2 x 2 array. */
static const struct job good_job = {2, 3, 2, 3, 3, 3, 1, 1};

static void set_up(void)
{
    static const struct umakit_mac_array_config config = {2u, 2u, 0u};
    size_t i;

    for (i = 0u; i < VALUES; ++i) {
        ifmap[i] = 1.0f;
        weights[i] = 1.0f;
        result[i] = UNTOUCHED;
    }
    CHECK_EQUAL(umakit_mac_array_init(&array, &config), UMAKIT_OK);
    CHECK_EQUAL(umakit_device_map(&array.device, ifmap, ifmap_count(&good_job) * 4u,
                                  UMAKIT_TO_DEVICE, &ifmap_address), UMAKIT_OK);
    CHECK_EQUAL(umakit_device_map(&array.device, weights, weights_count(&good_job) * 4u,
                                  UMAKIT_TO_DEVICE, &weights_address), UMAKIT_OK);
    CHECK_EQUAL(umakit_device_map(&array.device, result, result_count(&good_job) * 4u,
                                  UMAKIT_FROM_DEVICE, &result_address), UMAKIT_OK);
    write_addresses(&array.device, ifmap_address, weights_address, result_address);
    write_sizes(&array.device, &good_job);
}

static bool result_is_untouched(void)
{
    size_t i;

    for (i = 0u; i < VALUES; ++i) {
        if (result[i] < UNTOUCHED || result[i] > UNTOUCHED) {
            return false;
        }
    }
    return true;
}

/* An error is pending, nothing runs and nothing was written; after CLEAR and
 * with good registers the device works again. */
static void expect_error(enum umakit_status error)
{
    struct umakit_simulator_counters counters;

    CHECK_EQUAL(umakit_device_wait(&array.device, UINT32_MAX), UMAKIT_OK);
    CHECK_EQUAL(read_status(&array.device), IDLE | ERROR);
    CHECK_EQUAL(read_error(&array.device), error);
    CHECK(result_is_untouched());
    umakit_simulator_read_counters(&array.device, &counters);
    CHECK_EQUAL(counters.jobs, 0u);
    CHECK_EQUAL(counters.macs, 0u);

    write_control(&array.device, CLEAR);
    CHECK_EQUAL(read_status(&array.device), IDLE);
    CHECK_EQUAL(read_error(&array.device), UMAKIT_OK);
    write_addresses(&array.device, ifmap_address, weights_address, result_address);
    write_sizes(&array.device, &good_job);
    write_control(&array.device, START);
    CHECK_EQUAL(umakit_device_wait(&array.device, UINT32_MAX), UMAKIT_OK);
    CHECK_EQUAL(read_status(&array.device), IDLE | DONE);
    CHECK(!result_is_untouched());
}

/* START with one register off must fail with this error. */
static void expect_refused(uint32_t offset, uint32_t value, enum umakit_status error)
{
    struct umakit_simulator_counters counters;

    set_up();
    umakit_device_write32(&array.device, offset, value);
    CHECK_EQUAL(umakit_device_read32(&array.device, offset), value);
    write_control(&array.device, START);
    umakit_simulator_read_counters(&array.device, &counters);
    CHECK_EQUAL(counters.failed_jobs, 1u);
    expect_error(error);
}

static void test_reset_values(void)
{
    static const struct umakit_mac_array_config config = {5u, 7u, 0u};
    uint32_t offset;

    CHECK_EQUAL(umakit_mac_array_init(&array, &config), UMAKIT_OK);
    CHECK_EQUAL(umakit_device_read32(&array.device, UMAKIT_MAC_ARRAY_ID_OFFSET), 0x554D4131u);
    CHECK_EQUAL(umakit_device_read32(&array.device, UMAKIT_MAC_ARRAY_VERSION_OFFSET), 0x00010000u);
    CHECK_EQUAL(read_status(&array.device), IDLE);
    CHECK_EQUAL(umakit_device_read32(&array.device, UMAKIT_MAC_ARRAY_ARRAY_ROWS_OFFSET), 5u);
    CHECK_EQUAL(umakit_device_read32(&array.device, UMAKIT_MAC_ARRAY_ARRAY_COLUMNS_OFFSET), 7u);
    for (offset = UMAKIT_MAC_ARRAY_ERROR_OFFSET; offset < UMAKIT_MAC_ARRAY_ARRAY_ROWS_OFFSET;
         offset += 4u) {
        CHECK_EQUAL(umakit_device_read32(&array.device, offset), 0u);
    }
    CHECK_EQUAL(read_error(&array.device), UMAKIT_OK);
}

static void test_access_rights(void)
{
    static const uint32_t read_only[] = {
        UMAKIT_MAC_ARRAY_ID_OFFSET,          UMAKIT_MAC_ARRAY_VERSION_OFFSET,
        UMAKIT_MAC_ARRAY_STATUS_OFFSET,      UMAKIT_MAC_ARRAY_ERROR_OFFSET,
        UMAKIT_MAC_ARRAY_CYCLES_LOW_OFFSET,  UMAKIT_MAC_ARRAY_CYCLES_HIGH_OFFSET,
        UMAKIT_MAC_ARRAY_MACS_LOW_OFFSET,    UMAKIT_MAC_ARRAY_MACS_HIGH_OFFSET,
        UMAKIT_MAC_ARRAY_ARRAY_ROWS_OFFSET,  UMAKIT_MAC_ARRAY_ARRAY_COLUMNS_OFFSET,
    };
    static const uint32_t nowhere[] = {
        UMAKIT_MAC_ARRAY_REGISTER_BYTES, 1u, 2u, 3u, UMAKIT_MAC_ARRAY_CONTROL_OFFSET + 1u,
        UMAKIT_MAC_ARRAY_INPUT_WIDTH_OFFSET + 2u, 0x80000000u, UINT32_MAX,
    };
    uint32_t offset;
    size_t i;

    for (i = 0u; i < sizeof(read_only) / sizeof(read_only[0]); ++i) {
        set_up();
        umakit_device_write32(&array.device, read_only[i], 1u);
        expect_error(UMAKIT_INVALID_REGISTER);
    }
    for (i = 0u; i < sizeof(nowhere) / sizeof(nowhere[0]); ++i) {
        set_up();
        umakit_device_write32(&array.device, nowhere[i], START);
        expect_error(UMAKIT_INVALID_REGISTER);
        set_up();
        CHECK_EQUAL(umakit_device_read32(&array.device, nowhere[i]), 0u);
        expect_error(UMAKIT_INVALID_REGISTER);
    }
    set_up();
    CHECK_EQUAL(umakit_device_read32(&array.device, UMAKIT_MAC_ARRAY_CONTROL_OFFSET), 0u);
    expect_error(UMAKIT_INVALID_REGISTER);

    set_up();
    for (offset = UMAKIT_MAC_ARRAY_IFMAP_ADDRESS_OFFSET;
         offset <= UMAKIT_MAC_ARRAY_PAD_LEFT_OFFSET; offset += 4u) {
        umakit_device_write32(&array.device, offset, ~offset);
    }
    for (offset = UMAKIT_MAC_ARRAY_IFMAP_ADDRESS_OFFSET;
         offset <= UMAKIT_MAC_ARRAY_PAD_LEFT_OFFSET; offset += 4u) {
        CHECK_EQUAL(umakit_device_read32(&array.device, offset), ~offset);
    }
    CHECK_EQUAL(read_error(&array.device), UMAKIT_OK);
}

static void test_sizes(void)
{
    static const struct job wraps_at_32_bits = {1, 1, 1, 1, 0x10000u, 0x10000u, 0, 0};
    static const struct job wraps_at_64_bits = {8, 1, 1, 1, 0x80000000u, 0x40000000u, 0, 0};
    static const uint32_t sizes[] = {
        UMAKIT_MAC_ARRAY_INPUT_CHANNELS_OFFSET,  UMAKIT_MAC_ARRAY_INPUT_HEIGHT_OFFSET,
        UMAKIT_MAC_ARRAY_INPUT_WIDTH_OFFSET,     UMAKIT_MAC_ARRAY_OUTPUT_CHANNELS_OFFSET,
        UMAKIT_MAC_ARRAY_KERNEL_HEIGHT_OFFSET,   UMAKIT_MAC_ARRAY_KERNEL_WIDTH_OFFSET,
    };
    size_t i;
    size_t j;

    for (i = 0u; i < sizeof(sizes) / sizeof(sizes[0]); ++i) {
        expect_refused(sizes[i], 0u, UMAKIT_INVALID_ARGUMENT);
        expect_refused(sizes[i], 4u, UMAKIT_OUT_OF_RANGE); /* one more than mapped */
        expect_refused(sizes[i], 0x40000000u, UMAKIT_OUT_OF_RANGE);
        expect_refused(sizes[i], 0x80000001u, UMAKIT_OUT_OF_RANGE);
        expect_refused(sizes[i], UINT32_MAX, UMAKIT_OUT_OF_RANGE);
    }
    /* Pairs whose product wraps to something small at 32 or 64 bits. */
    for (i = 0u; i < sizeof(sizes) / sizeof(sizes[0]); ++i) {
        for (j = 0u; j < i; ++j) {
            set_up();
            umakit_device_write32(&array.device, sizes[i], 0x80000000u);
            umakit_device_write32(&array.device, sizes[j], 0x80000000u);
            write_control(&array.device, START);
            expect_error(UMAKIT_OUT_OF_RANGE);
        }
    }
    set_up();
    for (i = 0u; i < sizeof(sizes) / sizeof(sizes[0]); ++i) {
        umakit_device_write32(&array.device, sizes[i], 0x80000000u);
    }
    write_control(&array.device, START);
    expect_error(UMAKIT_OUT_OF_RANGE);
    /* Weights alone: 2^32 and 2^64 elements, next to small operands. */
    set_up();
    write_sizes(&array.device, &wraps_at_32_bits);
    write_control(&array.device, START);
    expect_error(UMAKIT_OUT_OF_RANGE);
    set_up();
    write_sizes(&array.device, &wraps_at_64_bits);
    write_control(&array.device, START);
    expect_error(UMAKIT_OUT_OF_RANGE);

    expect_refused(UMAKIT_MAC_ARRAY_PAD_TOP_OFFSET, 3u, UMAKIT_INVALID_ARGUMENT);
    expect_refused(UMAKIT_MAC_ARRAY_PAD_LEFT_OFFSET, 3u, UMAKIT_INVALID_ARGUMENT);
    expect_refused(UMAKIT_MAC_ARRAY_PAD_LEFT_OFFSET, UINT32_MAX, UMAKIT_INVALID_ARGUMENT);
}

static void test_addresses(void)
{
    static const uint32_t offsets[] = {
        UMAKIT_MAC_ARRAY_IFMAP_ADDRESS_OFFSET,
        UMAKIT_MAC_ARRAY_WEIGHTS_ADDRESS_OFFSET,
        UMAKIT_MAC_ARRAY_RESULT_ADDRESS_OFFSET,
    };
    size_t i;

    for (i = 0u; i < 3u; ++i) {
        uint32_t address;

        set_up();
        address = umakit_device_read32(&array.device, offsets[i]);
        expect_refused(offsets[i], 0u, UMAKIT_OUT_OF_RANGE);
        expect_refused(offsets[i], address + 1u, UMAKIT_MISALIGNED);
        expect_refused(offsets[i], address + 2u, UMAKIT_MISALIGNED);
        expect_refused(offsets[i], address - 4u, UMAKIT_OUT_OF_RANGE);
        expect_refused(offsets[i], address + 4u, UMAKIT_OUT_OF_RANGE); /* end sticks out */
        expect_refused(offsets[i], address + 0x8000u, UMAKIT_OUT_OF_RANGE);
        expect_refused(offsets[i], 0x50000000u, UMAKIT_OUT_OF_RANGE); /* a free slot */
        expect_refused(offsets[i], 0xFFFFFFFCu, UMAKIT_OUT_OF_RANGE);
    }
    expect_refused(UMAKIT_MAC_ARRAY_IFMAP_ADDRESS_OFFSET, result_address,
                   UMAKIT_WRONG_DIRECTION);
    expect_refused(UMAKIT_MAC_ARRAY_RESULT_ADDRESS_OFFSET, weights_address,
                   UMAKIT_WRONG_DIRECTION);
}

static void test_overlap(void)
{
    uint32_t alias = 0u;

    /* The result on top of the input, by another window. */
    set_up();
    CHECK_EQUAL(umakit_device_map(&array.device, ifmap + 4, 18u * 4u, UMAKIT_BIDIRECTIONAL, &alias),
                UMAKIT_OK);
    write_addresses(&array.device, ifmap_address, weights_address, alias);
    write_control(&array.device, START);
    expect_error(UMAKIT_INVALID_ARGUMENT);

    set_up();
    CHECK_EQUAL(umakit_device_map(&array.device, weights, 18u * 4u, UMAKIT_BIDIRECTIONAL, &alias),
                UMAKIT_OK);
    write_addresses(&array.device, ifmap_address, weights_address, alias);
    write_control(&array.device, START);
    expect_error(UMAKIT_INVALID_ARGUMENT);

    /* The result first, the input inside it. */
    set_up();
    CHECK_EQUAL(umakit_device_map(&array.device, result + 8, 12u * 4u, UMAKIT_TO_DEVICE, &alias),
                UMAKIT_OK);
    write_addresses(&array.device, alias, weights_address, result_address);
    write_control(&array.device, START);
    expect_error(UMAKIT_INVALID_ARGUMENT);
    set_up();
    CHECK_EQUAL(umakit_device_map(&array.device, result + 18, 12u * 4u, UMAKIT_TO_DEVICE, &alias),
                UMAKIT_OK);
    write_addresses(&array.device, alias, weights_address, result_address);
    write_control(&array.device, START);
    CHECK_EQUAL(umakit_device_wait(&array.device, UINT32_MAX), UMAKIT_OK);
    CHECK_EQUAL(read_status(&array.device), IDLE | DONE);

    /* One float after the input is not on top of it. */
    set_up();
    CHECK_EQUAL(umakit_device_map(&array.device, ifmap + 12, 18u * 4u, UMAKIT_FROM_DEVICE, &alias),
                UMAKIT_OK);
    write_addresses(&array.device, ifmap_address, weights_address, alias);
    write_control(&array.device, START);
    CHECK_EQUAL(umakit_device_wait(&array.device, UINT32_MAX), UMAKIT_OK);
    CHECK_EQUAL(read_status(&array.device), IDLE | DONE);
}

static void test_control(void)
{
    struct umakit_simulator_counters counters;

    set_up();
    write_control(&array.device, 8u);
    expect_error(UMAKIT_INVALID_ARGUMENT);
    set_up();
    write_control(&array.device, 0x80000000u | START);
    expect_error(UMAKIT_INVALID_ARGUMENT);
    set_up();
    write_control(&array.device, 0u);
    CHECK_EQUAL(read_status(&array.device), IDLE);

    /* START does not get past a pending error, CLEAR with START does. */
    set_up();
    umakit_device_write32(&array.device, UMAKIT_MAC_ARRAY_ID_OFFSET, 0u);
    write_control(&array.device, START);
    CHECK_EQUAL(read_status(&array.device), IDLE | ERROR);
    CHECK(result_is_untouched());
    umakit_simulator_read_counters(&array.device, &counters);
    CHECK_EQUAL(counters.failed_jobs, 1u);
    write_control(&array.device, CLEAR | RESET_COUNTERS | START);
    CHECK_EQUAL(read_status(&array.device), BUSY);
    CHECK_EQUAL(umakit_device_wait(&array.device, UINT32_MAX), UMAKIT_OK);
    CHECK_EQUAL(read_status(&array.device), IDLE | DONE);
    /* START clears DONE by itself. */
    write_control(&array.device, START);
    CHECK_EQUAL(read_status(&array.device), BUSY);

    /* The first error stays. */
    set_up();
    umakit_device_write32(&array.device, UMAKIT_MAC_ARRAY_INPUT_WIDTH_OFFSET, 0u);
    write_control(&array.device, START);
    umakit_device_write32(&array.device, UMAKIT_MAC_ARRAY_ID_OFFSET, 0u);
    expect_error(UMAKIT_INVALID_ARGUMENT);
}

static void test_busy(void)
{
    struct umakit_simulator_counters counters;

    /* A write is refused and reported, the job goes on as it was started. */
    set_up();
    write_control(&array.device, START);
    umakit_device_write32(&array.device, UMAKIT_MAC_ARRAY_INPUT_WIDTH_OFFSET, 1u);
    CHECK_EQUAL(read_status(&array.device), BUSY | ERROR);
    CHECK_EQUAL(read_error(&array.device), UMAKIT_BUSY);
    CHECK_EQUAL(umakit_device_read32(&array.device, UMAKIT_MAC_ARRAY_INPUT_WIDTH_OFFSET), 2u);
    CHECK(result_is_untouched());
    CHECK_EQUAL(umakit_device_wait(&array.device, UINT32_MAX), UMAKIT_OK);
    CHECK_EQUAL(read_status(&array.device), IDLE | DONE | ERROR);
    CHECK_EQUAL(read_error(&array.device), UMAKIT_BUSY);
    CHECK(!result_is_untouched());

    set_up();
    write_control(&array.device, START);
    write_control(&array.device, START);
    CHECK_EQUAL(read_error(&array.device), UMAKIT_BUSY);
    set_up();
    write_control(&array.device, START);
    write_control(&array.device, RESET_COUNTERS);
    CHECK_EQUAL(read_error(&array.device), UMAKIT_BUSY);

    /* CLEAR stops a job. */
    set_up();
    write_control(&array.device, START);
    write_control(&array.device, CLEAR);
    CHECK_EQUAL(read_status(&array.device), IDLE);
    CHECK_EQUAL(umakit_device_wait(&array.device, UINT32_MAX), UMAKIT_TIMEOUT);
    CHECK(result_is_untouched());
    umakit_simulator_read_counters(&array.device, &counters);
    CHECK_EQUAL(counters.jobs, 0u);
    CHECK_EQUAL(counters.failed_jobs, 1u);
    CHECK_EQUAL(counters.compute_cycles, 0u);
}

/* Polling and waiting agree on when a job ends. */
static void test_time(void)
{
    const uint32_t cycles = 120u;
    uint64_t polls = 0u;

    set_up();
    write_control(&array.device, START);
    do {
        ++polls;
    } while ((read_status(&array.device) & BUSY) != 0u && polls < 1000u);
    CHECK_EQUAL(polls, cycles);
    CHECK(!result_is_untouched());

    set_up();
    write_control(&array.device, START);
    CHECK_EQUAL(umakit_device_wait(&array.device, 0u), UMAKIT_TIMEOUT);
    CHECK_EQUAL(umakit_device_wait(&array.device, cycles - 1u), UMAKIT_TIMEOUT);
    CHECK(result_is_untouched());
    CHECK_EQUAL(umakit_device_wait(&array.device, 1u), UMAKIT_OK);
    CHECK_EQUAL(umakit_device_wait(&array.device, 0u), UMAKIT_OK); /* stays until cleared */
    CHECK(!result_is_untouched());

    set_up();
    CHECK_EQUAL(umakit_device_wait(&array.device, UINT32_MAX), UMAKIT_TIMEOUT); /* nothing runs */
    umakit_device_barrier(&array.device);
}

int main(void)
{
    test_reset_values();
    test_access_rights();
    test_sizes();
    test_addresses();
    test_overlap();
    test_control();
    test_busy();
    test_time();
    return check_result();
}
