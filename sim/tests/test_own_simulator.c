/* SPDX-License-Identifier: Apache-2.0 */
/* What the kit does for a simulator behind a table: opening, time, memory, events, failures. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "check.h"
#include "umakit/simulator.h"

static umakit_host *the_host;
static uint64_t now;
static uint32_t resets;
static uint32_t unmapped;
static uint32_t misused;
static int state;

static void *create(umakit_host *host)
{
    the_host = host;
    return &state;
}

static void *create_nothing(umakit_host *host)
{
    (void)host;
    return NULL;
}

static void reset(void *simulator)
{
    CHECK(simulator == &state);
    now = 0u;
    ++resets;
}

static uint32_t read32(void *simulator, uint32_t offset)
{
    (void)simulator;
    now += 3u;
    return offset + 1u;
}

static void write32(void *simulator, uint32_t offset, uint32_t value)
{
    (void)simulator;
    (void)value;
    now += 5u;
    if (offset == 8u) {
        umakit_host_fail(the_host, "no such command");
        umakit_host_fail(the_host, "a consequence");
    }
}

static bool wait(void *simulator, uint64_t cycles)
{
    (void)simulator;
    now += cycles;
    return cycles > 10u;
}

static void counters(void *simulator, struct umakit_own_counters *counted)
{
    (void)simulator;
    counted->clock = now;
}

static void unmapping(void *simulator, uint32_t address, size_t bytes)
{
    (void)simulator;
    unmapped = address + (uint32_t)bytes;
}

static void misuse(void *simulator, enum umakit_status error, uint32_t address)
{
    (void)simulator;
    (void)address;
    misused = (uint32_t)error;
}

static const struct umakit_own_simulator whole = {.version = UMAKIT_OWN_SIMULATOR_VERSION,
                                                  .map_alignment = 8u,
                                                  .create = create,
                                                  .reset = reset,
                                                  .read32 = read32,
                                                  .write32 = write32,
                                                  .wait = wait,
                                                  .counters = counters,
                                                  .unmapping = unmapping,
                                                  .misuse = misuse};

/* Without what is optional. */
static const struct umakit_own_simulator least = {.version = UMAKIT_OWN_SIMULATOR_VERSION,
                                                  .create = create,
                                                  .read32 = read32,
                                                  .write32 = write32,
                                                  .wait = wait};

static struct umakit_device device;

static void test_time_is_the_simulators(void)
{
    struct umakit_own_counters measured;

    umakit_simulator_open(&device, &whole);
    CHECK_EQUAL(umakit_simulator_failure(&device)[0], 0);
    CHECK_EQUAL(umakit_device_read32(&device, 4u), 5u);
    umakit_device_write32(&device, 0u, 0u);
    CHECK_EQUAL(umakit_device_wait(&device, 10u), UMAKIT_TIMEOUT);
    CHECK_EQUAL(umakit_device_wait(&device, 11u), UMAKIT_OK);
    umakit_simulator_measure(&device, &measured);
    CHECK_EQUAL(measured.clock, 3u + 5u + 10u + 11u);
    CHECK_EQUAL(measured.macs, UMAKIT_UNKNOWN);
    umakit_simulator_measure(NULL, &measured);
    CHECK_EQUAL(measured.clock, UMAKIT_UNKNOWN);
}

static void test_memory(void)
{
    static uint64_t aligned[2];
    unsigned char *const bytes = (unsigned char *)aligned;
    unsigned char copy[4] = {0u, 0u, 0u, 0u};
    uint32_t in;
    uint32_t out;

    umakit_simulator_open(&device, &whole);
    CHECK_EQUAL(umakit_device_map(&device, bytes + 4, 4u, UMAKIT_TO_DEVICE, &in),
                UMAKIT_MISALIGNED);
    bytes[2] = 7u;
    CHECK_EQUAL(umakit_device_map(&device, bytes, 4u, UMAKIT_TO_DEVICE, &in), UMAKIT_OK);
    CHECK_EQUAL(umakit_device_map(&device, bytes + 8, 4u, UMAKIT_FROM_DEVICE, &out), UMAKIT_OK);
    CHECK_EQUAL(umakit_host_read(the_host, in + 2u, 2u, copy), UMAKIT_OK);
    CHECK_EQUAL(copy[0], 7u);
    CHECK_EQUAL(umakit_host_read(the_host, in + 2u, 3u, copy), UMAKIT_OUT_OF_RANGE);
    CHECK_EQUAL(umakit_host_read(the_host, out, 1u, copy), UMAKIT_WRONG_DIRECTION);
    CHECK_EQUAL(umakit_host_write(the_host, in, 1u, copy), UMAKIT_WRONG_DIRECTION);
    CHECK_EQUAL(umakit_host_write(the_host, out + 1u, 2u, copy), UMAKIT_OK);
    CHECK_EQUAL(bytes[9], 7u);
    umakit_device_unmap(&device, in);
    CHECK_EQUAL(unmapped, in + 4u);
    CHECK_EQUAL(umakit_host_read(the_host, in, 1u, copy), UMAKIT_OUT_OF_RANGE);
    umakit_device_unmap(&device, in);
    CHECK_EQUAL(misused, UMAKIT_OUT_OF_RANGE);
}

static void test_events(void)
{
    static const char longest[] = "a label of more than the thirty-one bytes";
    struct umakit_event_entry kept[1];
    struct umakit_event event = {"an\nengine", longest, 0u, 0u, 0u};

    umakit_simulator_open(&device, &whole);
    now = 100u;
    umakit_simulator_record_events(&device, kept, 1u);
    event.begin = 99u; /* before the recording */
    event.end_of_busy = event.end = 120u;
    umakit_host_event(the_host, &event);
    CHECK_EQUAL(umakit_simulator_events(&device), 0u);
    event.begin = 104u;
    event.end_of_busy = 110u;
    umakit_host_event(the_host, &event);
    event.end = 109u; /* before its engine is free */
    umakit_host_event(the_host, &event);
    event.end = 130u;
    event.label = NULL;
    umakit_host_event(the_host, &event);
    CHECK_EQUAL(umakit_simulator_events(&device), 2u);
    CHECK_EQUAL(kept[0].begin, 4u);
    CHECK_EQUAL(kept[0].end_of_busy, 10u);
    CHECK_EQUAL(kept[0].end, 20u);
    CHECK(strcmp(kept[0].engine, "an engine") == 0);
    CHECK_EQUAL(strlen(kept[0].label), UMAKIT_LABEL_BYTES - 1u);
    CHECK(strncmp(kept[0].label, longest, strlen(kept[0].label)) == 0);
    /* Without a clock there is no time to record. */
    umakit_simulator_open(&device, &least);
    umakit_simulator_record_events(&device, kept, 1u);
    umakit_host_event(the_host, &event);
    CHECK_EQUAL(umakit_simulator_events(&device), 0u);
}

static void test_reset(void)
{
    struct umakit_own_counters measured;
    uint32_t address;
    uint32_t before;

    umakit_simulator_open(&device, &whole);
    before = resets;
    CHECK_EQUAL(umakit_device_map(&device, &now, 8u, UMAKIT_TO_DEVICE, &address), UMAKIT_OK);
    (void)umakit_device_read32(&device, 0u);
    CHECK_EQUAL(umakit_simulator_reset(&device), UMAKIT_OK);
    CHECK_EQUAL(resets, before + 1u);
    umakit_simulator_measure(&device, &measured);
    CHECK_EQUAL(measured.clock, 0u);
    CHECK_EQUAL(umakit_host_read(the_host, address, 1u, &before), UMAKIT_OUT_OF_RANGE);
    CHECK_EQUAL(umakit_simulator_reset(NULL), UMAKIT_NO_DEVICE);
    umakit_simulator_open(&device, &least);
    CHECK_EQUAL(umakit_simulator_reset(&device), UMAKIT_UNSUPPORTED);
}

static void test_failure(void)
{
    struct umakit_own_counters measured;
    uint32_t address;

    umakit_simulator_open(&device, &whole);
    umakit_device_write32(&device, 8u, 0u);
    CHECK(strcmp(umakit_simulator_failure(&device), "no such command") == 0);
    now = 40u;
    CHECK_EQUAL(umakit_device_read32(&device, 0u), UINT32_MAX);
    umakit_device_write32(&device, 0u, 0u);
    CHECK_EQUAL(umakit_device_wait(&device, 1u), UMAKIT_DEVICE_ERROR);
    CHECK_EQUAL(now, 40u); /* it was not called */
    umakit_simulator_measure(&device, &measured);
    CHECK_EQUAL(measured.clock, UMAKIT_UNKNOWN);
    CHECK_EQUAL(umakit_simulator_reset(&device), UMAKIT_DEVICE_ERROR);
    CHECK_EQUAL(umakit_device_map(&device, &now, 8u, UMAKIT_TO_DEVICE, &address), UMAKIT_OK);
    umakit_device_unmap(&device, address);
}

/* Those of the bus and of the interrupt's line; the simulator offers none itself. */
static void test_faults(void)
{
    struct umakit_fault fault = {.kind = UMAKIT_FAULT_DMA_STOPS};
    static uint64_t memory = 1u;
    unsigned char byte = 0u;
    uint32_t address;

    umakit_simulator_open(&device, &whole);
    CHECK_EQUAL(umakit_simulator_inject(&device, &fault), UMAKIT_UNSUPPORTED);
    fault.kind = UMAKIT_FAULT_LOST_INTERRUPT;
    fault.count = 1u;
    CHECK_EQUAL(umakit_simulator_inject(&device, &fault), UMAKIT_OK);
    CHECK_EQUAL(umakit_device_wait(&device, 10u), UMAKIT_TIMEOUT); /* none is raised yet */
    CHECK_EQUAL(umakit_device_wait(&device, 11u), UMAKIT_TIMEOUT);
    CHECK_EQUAL(umakit_device_wait(&device, 11u), UMAKIT_OK);
    fault.kind = UMAKIT_FAULT_BUS_ERROR;
    fault.skip = 1u;
    fault.bytes = UINT32_MAX;
    CHECK_EQUAL(umakit_simulator_inject(&device, &fault), UMAKIT_OK);
    CHECK_EQUAL(umakit_device_map(&device, &memory, 8u, UMAKIT_TO_DEVICE, &address), UMAKIT_OK);
    CHECK_EQUAL(umakit_host_read(the_host, address, 1u, &byte), UMAKIT_OK);
    byte = 7u;
    CHECK_EQUAL(umakit_host_read(the_host, address, 1u, &byte), UMAKIT_BUS_ERROR);
    CHECK_EQUAL(byte, 7u);
    CHECK_EQUAL(umakit_host_read(the_host, address, 1u, &byte), UMAKIT_OK);
    fault.skip = 0u;
    fault.count = 0u;
    CHECK_EQUAL(umakit_simulator_inject(&device, &fault), UMAKIT_OK);
    CHECK_EQUAL(umakit_host_read(the_host, address, 1u, &byte), UMAKIT_BUS_ERROR);
    umakit_simulator_remove_faults(&device);
    CHECK_EQUAL(umakit_host_read(the_host, address, 1u, &byte), UMAKIT_OK);
    umakit_device_unmap(&device, address);
}

static void test_tables_that_are_wrong(void)
{
    struct umakit_own_simulator wrong[3];
    size_t i;

    for (i = 0u; i < 3u; ++i) {
        wrong[i] = whole;
    }
    wrong[0].version += 1u;
    wrong[1].wait = NULL;
    wrong[2].create = create_nothing;
    for (i = 0u; i < 4u; ++i) {
        umakit_simulator_open(&device, i < 3u ? &wrong[i] : NULL);
        CHECK(umakit_simulator_failure(&device)[0] != '\0');
        CHECK_EQUAL(umakit_device_read32(&device, 0u), UINT32_MAX);
        CHECK_EQUAL(umakit_device_wait(&device, 1u), UMAKIT_DEVICE_ERROR);
    }
}

int main(void)
{
    test_time_is_the_simulators();
    test_memory();
    test_events();
    test_reset();
    test_failure();
    test_faults();
    test_tables_that_are_wrong();
    return check_result();
}
