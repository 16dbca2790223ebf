/* SPDX-License-Identifier: Apache-2.0 */
/* The driver on a device that fails in every way a device can: this file
 * implements umakit/device.h and keeps count of what the driver does. */
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "check.h"
#include "conv2dnchw.h"
#include "umakit/device.h"
#include "umakit/mac_array_registers.h"

#define BUFFERS 3u
#define FIRST_ADDRESS 0x1000u

/* How the device behaves, and what happened to it. */
struct umakit_device {
    uint32_t id;
    uint32_t version;
    uint32_t idle_status; /* before START */
    uint32_t status; /* after START */
    unsigned int early_wakes; /* waits that return while the job still runs */
    uint32_t cleared_status; /* after CLEAR stops a job */
    uint32_t error;
    int wait_result;
    int map_result; /* of the map call number failing_map */
    unsigned int failing_map;

    bool is_absent;
    bool is_mapped[BUFFERS];
    size_t bytes[BUFFERS];
    enum umakit_direction directions[BUFFERS];
    bool is_running;
    bool ran_without_buffers; /* unmapped before it was stopped */
    bool was_started_before_barrier;
    bool barrier_since_write;
    unsigned int maps;
    unsigned int unmaps;
    unsigned int reads;
    unsigned int writes;
    unsigned int starts;
    unsigned int waits;
    uint32_t values[UMAKIT_MAC_ARRAY_REGISTER_BYTES / 4u];
};

static struct umakit_device device;

umakit_device *vanilla_accelerator_device(void)
{
    return device.is_absent ? NULL : &device;
}

uint32_t umakit_device_read32(umakit_device *fake, uint32_t offset)
{
    ++fake->reads;
    switch (offset) {
    case UMAKIT_MAC_ARRAY_ID_OFFSET:
        return fake->id;
    case UMAKIT_MAC_ARRAY_VERSION_OFFSET:
        return fake->version;
    case UMAKIT_MAC_ARRAY_STATUS_OFFSET:
        if (fake->starts == 0u) {
            return fake->idle_status;
        }
        return fake->is_running && fake->early_wakes > 0u ? UMAKIT_MAC_ARRAY_STATUS_BUSY_MASK
                                                          : fake->status;
    case UMAKIT_MAC_ARRAY_ERROR_OFFSET:
        return fake->error;
    default:
        CHECK_EQUAL(offset, UMAKIT_MAC_ARRAY_STATUS_OFFSET); /* reads nothing else */
        return 0u;
    }
}

void umakit_device_write32(umakit_device *fake, uint32_t offset, uint32_t value)
{
    ++fake->writes;
    CHECK(offset % 4u == 0u && offset < UMAKIT_MAC_ARRAY_REGISTER_BYTES);
    if (offset == UMAKIT_MAC_ARRAY_CONTROL_OFFSET) {
        if ((value & UMAKIT_MAC_ARRAY_CONTROL_CLEAR_MASK) != 0u) {
            fake->is_running = false;
            fake->idle_status = fake->cleared_status;
            if (fake->starts > 0u) {
                fake->status = fake->cleared_status;
            }
        }
        if ((value & UMAKIT_MAC_ARRAY_CONTROL_START_MASK) != 0u) {
            ++fake->starts;
            fake->is_running = true;
            if (!fake->barrier_since_write) {
                fake->was_started_before_barrier = true;
            }
        }
    } else {
        fake->values[offset / 4u] = value;
    }
    fake->barrier_since_write = false;
}

int umakit_device_map(umakit_device *fake, const void *memory, size_t bytes,
                      enum umakit_direction direction, uint32_t *bus_address)
{
    const unsigned int number = fake->maps++;

    CHECK(memory != NULL && bus_address != NULL && number < BUFFERS);
    if (number == fake->failing_map) {
        return fake->map_result;
    }
    fake->is_mapped[number] = true;
    fake->bytes[number] = bytes;
    fake->directions[number] = direction;
    *bus_address = FIRST_ADDRESS * (number + 1u);
    return UMAKIT_OK;
}

void umakit_device_unmap(umakit_device *fake, uint32_t bus_address)
{
    const uint32_t number = bus_address / FIRST_ADDRESS - 1u;

    ++fake->unmaps;
    CHECK(number < BUFFERS);
    CHECK(fake->is_mapped[number]); /* not what was never mapped, nor twice */
    fake->is_mapped[number] = false;
    if (fake->is_running) {
        fake->ran_without_buffers = true;
    }
}

int umakit_device_wait(umakit_device *fake, uint32_t timeout_cycles)
{
    ++fake->waits;
    CHECK(timeout_cycles > 0u);
    if (fake->early_wakes > 0u && fake->waits <= fake->early_wakes) {
        return UMAKIT_OK;
    }
    fake->early_wakes = 0u;
    if (fake->wait_result == UMAKIT_OK) {
        fake->is_running = false;
    }
    return fake->wait_result;
}

void umakit_device_barrier(umakit_device *fake)
{
    fake->barrier_since_write = true;
}

/* A device that does everything right. */
static void set_up(void)
{
    device = (struct umakit_device){
        .id = UMAKIT_MAC_ARRAY_ID_RESET,
        .version = UMAKIT_MAC_ARRAY_VERSION_RESET,
        .idle_status = UMAKIT_MAC_ARRAY_STATUS_IDLE_MASK,
        .cleared_status = UMAKIT_MAC_ARRAY_STATUS_IDLE_MASK,
        .status = UMAKIT_MAC_ARRAY_STATUS_IDLE_MASK | UMAKIT_MAC_ARRAY_STATUS_DONE_MASK,
        .wait_result = UMAKIT_OK,
        .failing_map = BUFFERS, /* none */
    };
}

static float buffer[3][1024];

static int call(void)
{
    return vanilla_accelerator_conv2dnchw(buffer[0], buffer[1], buffer[2], 4, 7, 5, 3, 2, 6);
}

/* What holds on every path. */
static void expect_clean(unsigned int mapped)
{
    size_t i;

    for (i = 0u; i < BUFFERS; ++i) {
        CHECK(!device.is_mapped[i]);
    }
    CHECK_EQUAL(device.unmaps, mapped);
    CHECK(!device.is_running);
    CHECK(!device.ran_without_buffers);
    CHECK(!device.was_started_before_barrier);
}

static void expect_value(uint32_t offset, uint32_t expected)
{
    CHECK_EQUAL(device.values[offset / 4u], expected);
}

static void test_programming(void)
{
    set_up();
    CHECK_EQUAL(call(), UMAKIT_OK);
    expect_clean(3u);
    CHECK_EQUAL(device.starts, 1u);
    CHECK_EQUAL(device.waits, 1u);
    CHECK_EQUAL(device.status, UMAKIT_MAC_ARRAY_STATUS_IDLE_MASK); /* the line is low */
    expect_value(UMAKIT_MAC_ARRAY_IFMAP_ADDRESS_OFFSET, 0x1000u);
    expect_value(UMAKIT_MAC_ARRAY_WEIGHTS_ADDRESS_OFFSET, 0x2000u);
    expect_value(UMAKIT_MAC_ARRAY_RESULT_ADDRESS_OFFSET, 0x3000u);
    expect_value(UMAKIT_MAC_ARRAY_INPUT_CHANNELS_OFFSET, 3u);
    expect_value(UMAKIT_MAC_ARRAY_INPUT_HEIGHT_OFFSET, 5u);
    expect_value(UMAKIT_MAC_ARRAY_INPUT_WIDTH_OFFSET, 7u);
    expect_value(UMAKIT_MAC_ARRAY_OUTPUT_CHANNELS_OFFSET, 4u);
    expect_value(UMAKIT_MAC_ARRAY_KERNEL_HEIGHT_OFFSET, 2u);
    expect_value(UMAKIT_MAC_ARRAY_KERNEL_WIDTH_OFFSET, 6u);
    expect_value(UMAKIT_MAC_ARRAY_PAD_TOP_OFFSET, 0u);
    expect_value(UMAKIT_MAC_ARRAY_PAD_LEFT_OFFSET, 2u);
    CHECK_EQUAL(device.bytes[0], 4u * 3u * 5u * 7u);
    CHECK_EQUAL(device.bytes[1], 4u * 4u * 3u * 2u * 6u);
    CHECK_EQUAL(device.bytes[2], 4u * 4u * 5u * 7u);
    CHECK_EQUAL(device.directions[0], UMAKIT_TO_DEVICE);
    CHECK_EQUAL(device.directions[1], UMAKIT_TO_DEVICE);
    CHECK_EQUAL(device.directions[2], UMAKIT_FROM_DEVICE);
}

/* A guard returns before the device hears anything. */
static void expect_guard(int status, const float *ifmap, const float *weights, float *result,
                         const int sizes[6])
{
    set_up();
    CHECK_EQUAL(vanilla_accelerator_conv2dnchw(ifmap, weights, result, sizes[0], sizes[1],
                                               sizes[2], sizes[3], sizes[4], sizes[5]),
                status);
    CHECK_EQUAL(device.reads + device.writes + device.maps + device.unmaps, 0u);
}

static void test_guards(void)
{
    static const int wrong[] = {0, -1, INT_MIN};
    /* oc, iw, ih, ic, kh, kw: the first three have one tensor each that does
     * not fit, the others wrap at 32 or 64 bits if multiplied carelessly. */
    static const int too_large[][6] = {
        {1, 32768, 32768, 1, 1, 1},
        {32768, 1, 1, 32768, 1, 1},
        {32768, 32768, 1, 1, 1, 1},
        {1, 1, 1, INT_MAX, 1, 1},
        {1, 65536, 65536, 1, 1, 1},
        {65536, 1, 1, 65536, 1, 1},
        {1, 1, 1, 1, 65536, 65536},
        {1, 1 << 30, 1 << 30, 16, 1, 1},
        {1 << 30, 1, 1, 1 << 30, 4, 4},
        {INT_MAX, INT_MAX, INT_MAX, INT_MAX, INT_MAX, INT_MAX},
    };
    static const int good[6] = {1, 1, 1, 1, 1, 1};
    size_t i;
    size_t j;

    expect_guard(UMAKIT_INVALID_ARGUMENT, NULL, buffer[1], buffer[2], good);
    expect_guard(UMAKIT_INVALID_ARGUMENT, buffer[0], NULL, buffer[2], good);
    expect_guard(UMAKIT_INVALID_ARGUMENT, buffer[0], buffer[1], NULL, good);
    for (i = 0u; i < 6u; ++i) {
        for (j = 0u; j < sizeof(wrong) / sizeof(wrong[0]); ++j) {
            int sizes[6] = {1, 1, 1, 1, 1, 1};

            sizes[i] = wrong[j];
            expect_guard(UMAKIT_INVALID_ARGUMENT, buffer[0], buffer[1], buffer[2], sizes);
        }
    }
    for (i = 0u; i < sizeof(too_large) / sizeof(too_large[0]); ++i) {
        expect_guard(UMAKIT_OUT_OF_RANGE, buffer[0], buffer[1], buffer[2], too_large[i]);
    }
}

/* The wrong device is not written to. */
static void test_wrong_device(void)
{
    set_up();
    device.is_absent = true;
    CHECK_EQUAL(call(), UMAKIT_NO_DEVICE);
    CHECK_EQUAL(device.reads + device.writes + device.maps, 0u);

    set_up();
    device.id = UINT32_MAX;
    CHECK_EQUAL(call(), UMAKIT_NO_DEVICE);
    CHECK_EQUAL(device.writes + device.maps, 0u);

    set_up();
    device.version += 1u << UMAKIT_MAC_ARRAY_VERSION_MAJOR_SHIFT;
    CHECK_EQUAL(call(), UMAKIT_NO_DEVICE);
    CHECK_EQUAL(device.writes + device.maps, 0u);

    set_up();
    device.version += 1u << UMAKIT_MAC_ARRAY_VERSION_MINOR_SHIFT;
    CHECK_EQUAL(call(), UMAKIT_OK);
}

static void test_map_failures(void)
{
    unsigned int number;
    int status;

    for (number = 0u; number < BUFFERS; ++number) {
        for (status = UMAKIT_OK + 1; status <= UMAKIT_LAST_STATUS; ++status) {
            set_up();
            device.failing_map = number;
            device.map_result = status;
            CHECK_EQUAL(call(), status);
            expect_clean(number);
            CHECK_EQUAL(device.maps, number + 1u);
            CHECK_EQUAL(device.starts, 0u);
        }
    }
}

static void test_wait_failures(void)
{
    int status;

    for (status = UMAKIT_OK + 1; status <= UMAKIT_LAST_STATUS; ++status) {
        set_up();
        device.wait_result = status;
        device.status = UMAKIT_MAC_ARRAY_STATUS_BUSY_MASK; /* counts after a timeout */
        CHECK_EQUAL(call(), status);
        expect_clean(3u);
        CHECK_EQUAL(device.waits, 1u);
    }
    /* Not busy any more: the interrupt went missing, or it was one of an error. */
    set_up();
    device.wait_result = UMAKIT_TIMEOUT;
    CHECK_EQUAL(call(), UMAKIT_LOST_INTERRUPT);
    expect_clean(3u);
    set_up();
    device.wait_result = UMAKIT_TIMEOUT;
    device.status = UMAKIT_MAC_ARRAY_STATUS_IDLE_MASK | UMAKIT_MAC_ARRAY_STATUS_ERROR_MASK;
    device.error = UMAKIT_BUS_ERROR;
    CHECK_EQUAL(call(), UMAKIT_BUS_ERROR);
    expect_clean(3u);
    /* Busy, and nothing stops it. */
    set_up();
    device.wait_result = UMAKIT_TIMEOUT;
    device.status = UMAKIT_MAC_ARRAY_STATUS_BUSY_MASK;
    device.cleared_status = UMAKIT_MAC_ARRAY_STATUS_BUSY_MASK;
    CHECK_EQUAL(call(), UMAKIT_STUCK_BUSY);
    expect_clean(3u);
}

static void test_device_errors(void)
{
    int status;

    for (status = UMAKIT_OK + 1; status <= UMAKIT_LAST_STATUS; ++status) {
        set_up();
        device.status |= UMAKIT_MAC_ARRAY_STATUS_ERROR_MASK;
        device.error = (uint32_t)status;
        CHECK_EQUAL(call(), status);
        expect_clean(3u);
    }
    /* An error that says it is none, or nothing that fits an int. */
    set_up();
    device.status |= UMAKIT_MAC_ARRAY_STATUS_ERROR_MASK;
    CHECK_EQUAL(call(), UMAKIT_DEVICE_ERROR);
    expect_clean(3u);
    set_up();
    device.status |= UMAKIT_MAC_ARRAY_STATUS_ERROR_MASK;
    device.error = UINT32_MAX;
    CHECK_EQUAL(call(), UMAKIT_DEVICE_ERROR);
    expect_clean(3u);
    /* An interrupt without a reason. */
    set_up();
    device.status = UMAKIT_MAC_ARRAY_STATUS_IDLE_MASK;
    CHECK_EQUAL(call(), UMAKIT_DEVICE_ERROR);
    expect_clean(3u);
    /* The device went away: all bits read as one. */
    set_up();
    device.status = UINT32_MAX;
    device.cleared_status = UINT32_MAX;
    device.error = UINT32_MAX;
    CHECK_EQUAL(call(), UMAKIT_STUCK_BUSY);
    expect_clean(3u);
    /* It fails and does not stop. */
    set_up();
    device.status = UMAKIT_MAC_ARRAY_STATUS_BUSY_MASK | UMAKIT_MAC_ARRAY_STATUS_ERROR_MASK;
    device.cleared_status = UMAKIT_MAC_ARRAY_STATUS_BUSY_MASK;
    device.error = UMAKIT_BUS_ERROR;
    CHECK_EQUAL(call(), UMAKIT_STUCK_BUSY);
    expect_clean(3u);
}

/* The processor may wake while the job runs. */
static void test_woken_early(void)
{
    set_up();
    device.early_wakes = 3u;
    CHECK_EQUAL(call(), UMAKIT_OK);
    expect_clean(3u);
    CHECK_EQUAL(device.waits, 4u);
    CHECK_EQUAL(device.starts, 1u);
}

/* A job of a program that ran before a reset of the processor: it is stopped before anything is
 * programmed, and a device that does not stop is refused. */
static void test_device_that_is_busy(void)
{
    set_up();
    device.idle_status = UMAKIT_MAC_ARRAY_STATUS_BUSY_MASK;
    CHECK_EQUAL(call(), UMAKIT_OK);
    expect_clean(3u);
    set_up();
    device.idle_status = UMAKIT_MAC_ARRAY_STATUS_BUSY_MASK;
    device.cleared_status = UMAKIT_MAC_ARRAY_STATUS_BUSY_MASK;
    CHECK_EQUAL(call(), UMAKIT_STUCK_BUSY);
    CHECK_EQUAL(device.maps + device.starts, 0u);
}

int main(void)
{
    test_programming();
    test_guards();
    test_wrong_device();
    test_map_failures();
    test_wait_failures();
    test_device_errors();
    test_woken_early();
    test_device_that_is_busy();
    return check_result();
}
