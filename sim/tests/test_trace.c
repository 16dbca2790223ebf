/* SPDX-License-Identifier: Apache-2.0 */
/* The simulator records what a driver does. */
#include <string.h>

#include "check.h"
#include "traced_driver.h"
#include "umakit/systolic_array.h"

static uint32_t scratchpad[16];
static struct umakit_systolic_array array;
static struct umakit_trace_entry entries[TRACED_CALLS];

static void set_up(void)
{
    static const struct umakit_systolic_array_config config = {
        .array_rows = 1u,
        .array_columns = 1u,
        .output_stationary = true,
        .scratchpad = scratchpad,
        .scratchpad_bytes = sizeof(scratchpad),
        .scratchpad_banks = 1u,
        .dma_bytes_per_cycle = 1u,
        .dma_alignment = 4u,
    };

    CHECK_EQUAL(umakit_systolic_array_init(&array, &config), UMAKIT_OK);
    memset(entries, 0, sizeof(entries));
}

static void expect_entries(size_t count)
{
    size_t i;

    for (i = 0u; i < count; ++i) {
        CHECK_EQUAL(entries[i].access, traced_calls[i].access);
        CHECK_EQUAL(entries[i].offset, traced_calls[i].offset);
        CHECK_EQUAL(entries[i].value, traced_calls[i].value);
        CHECK_EQUAL(entries[i].direction, traced_calls[i].direction);
        CHECK_EQUAL(entries[i].status, traced_calls[i].status);
    }
    for (; i < TRACED_CALLS; ++i) {
        CHECK_EQUAL(entries[i].access, 0);
    }
}

int main(void)
{
    const struct umakit_fault fault = {
        .kind = UMAKIT_FAULT_DMA_STOPS, .bytes = 3u, .ending = UMAKIT_FAULT_ENDS_DONE};
    uint32_t address;

    set_up();
    CHECK_EQUAL(traced_driver(&array.device), UMAKIT_OK);
    CHECK_EQUAL(umakit_simulator_recorded(&array.device), 0u);
    umakit_simulator_record(&array.device, entries, TRACED_CALLS);
    CHECK_EQUAL(traced_driver(&array.device), UMAKIT_OK);
    CHECK_EQUAL(umakit_simulator_recorded(&array.device), TRACED_CALLS);
    expect_entries(TRACED_CALLS);
    umakit_simulator_record(&array.device, NULL, TRACED_CALLS);
    CHECK_EQUAL(traced_driver(&array.device), UMAKIT_OK);
    CHECK_EQUAL(umakit_simulator_recorded(&array.device), 0u);

    /* What does not fit is counted, and nothing behind the table is written. */
    set_up();
    umakit_simulator_record(&array.device, entries, 3u);
    CHECK_EQUAL(traced_driver(&array.device), UMAKIT_OK);
    CHECK_EQUAL(umakit_simulator_recorded(&array.device), TRACED_CALLS);
    expect_entries(3u);

    /* Failures are recorded as they are answered. */
    set_up();
    CHECK_EQUAL(umakit_simulator_inject(&array.device, &fault), UMAKIT_OK);
    umakit_simulator_record(&array.device, entries, TRACED_CALLS);
    CHECK_EQUAL(traced_driver(&array.device), UMAKIT_DMA_STOPPED);
    CHECK_EQUAL(entries[8].value, 13u);
    umakit_simulator_record(&array.device, entries, TRACED_CALLS);
    CHECK_EQUAL(umakit_device_map(&array.device, NULL, 8u, UMAKIT_BIDIRECTIONAL, &address),
                UMAKIT_INVALID_ARGUMENT);
    CHECK_EQUAL(umakit_device_wait(&array.device, 5u), UMAKIT_OK);
    umakit_device_write32(&array.device, OFFSET(INTERRUPT_PENDING), 7u);
    CHECK_EQUAL(umakit_device_wait(&array.device, 5u), UMAKIT_TIMEOUT);
    CHECK_EQUAL(entries[0].status, UMAKIT_INVALID_ARGUMENT);
    CHECK_EQUAL(entries[0].value, 8u);
    CHECK_EQUAL(entries[0].direction, 3u);
    CHECK_EQUAL(entries[3].status, UMAKIT_TIMEOUT);

    umakit_simulator_record(NULL, entries, 1u);
    CHECK_EQUAL(umakit_simulator_recorded(NULL), 0u);
    return check_result();
}
