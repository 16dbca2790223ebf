/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of device.h for all simulated devices: they keep time, count
 * and record, and leave the rest to the operations of the device's kind. */
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "umakit/device.h"
#include "umakit/simulator.h"
#include "umakit/simulator_internal.h"
#include "umakit/static_assert.h"

UMAKIT_STATIC_ASSERT(CHAR_BIT == 8, bytes_have_8_bits);
UMAKIT_STATIC_ASSERT(sizeof(size_t) >= 4u, size_t_holds_a_window);

bool umakit_simulator_is_present(const struct umakit_device *device)
{
    return device != NULL && device->operations != NULL;
}

void umakit_simulator_reset(struct umakit_device *device,
                            const struct umakit_simulator_operations *operations,
                            uint32_t map_alignment)
{
    *device = (struct umakit_device){.operations = operations, .map_alignment = map_alignment};
}

void umakit_simulator_read_counters(const umakit_device *device,
                                    struct umakit_simulator_counters *counters)
{
    if (counters == NULL) {
        return;
    }
    if (umakit_simulator_is_present(device)) {
        *counters = device->counters;
    } else {
        *counters = (struct umakit_simulator_counters){.jobs = 0u};
    }
}

/* ---- The trace ---- */

void umakit_simulator_record(umakit_device *device, struct umakit_trace_entry *entries,
                             size_t capacity)
{
    if (umakit_simulator_is_present(device)) {
        device->trace.entries = entries;
        device->trace.capacity = entries == NULL ? 0u : capacity;
        device->trace.count = 0u;
    }
}

size_t umakit_simulator_recorded(const umakit_device *device)
{
    return umakit_simulator_is_present(device) ? device->trace.count : 0u;
}

void umakit_simulator_add_trace(struct umakit_device *device, struct umakit_trace_entry entry)
{
    struct umakit_simulator_trace *trace = &device->trace;

    if (trace->capacity == 0u) {
        return;
    }
    if (trace->count < trace->capacity) {
        trace->entries[trace->count] = entry;
    }
    ++trace->count;
}

/* ---- Registers and time ---- */

static void advance(struct umakit_device *device, uint64_t cycles)
{
    device->counters.clock += cycles;
    device->operations->advance(device, cycles);
}

uint32_t umakit_device_read32(umakit_device *device, uint32_t offset)
{
    uint32_t value;

    if (!umakit_simulator_is_present(device)) {
        return UINT32_MAX;
    }
    ++device->counters.register_reads;
    advance(device, 1u);
    value = device->operations->read32(device, offset);
    umakit_simulator_add_trace(device,
                               (struct umakit_trace_entry)UMAKIT_TRACE_READ(offset, value));
    return value;
}

void umakit_device_write32(umakit_device *device, uint32_t offset, uint32_t value)
{
    if (!umakit_simulator_is_present(device)) {
        return;
    }
    ++device->counters.register_writes;
    advance(device, 1u);
    umakit_simulator_add_trace(device,
                               (struct umakit_trace_entry)UMAKIT_TRACE_WRITE(offset, value));
    device->operations->write32(device, offset, value);
}

/* Goes from event to event, so a long wait costs no more than a short one. */
static int wait_for_interrupt(struct umakit_device *device, uint32_t timeout_cycles)
{
    uint64_t left = timeout_cycles;

    while (!device->operations->interrupt_is_raised(device)) {
        uint64_t cycles = device->operations->next_event(device);

        if (left == 0u) {
            return UMAKIT_TIMEOUT;
        }
        if (cycles > left) {
            cycles = left;
        }
        advance(device, cycles);
        left -= cycles;
    }
    return UMAKIT_OK;
}

int umakit_device_wait(umakit_device *device, uint32_t timeout_cycles)
{
    int status;

    if (!umakit_simulator_is_present(device)) {
        return UMAKIT_NO_DEVICE;
    }
    status = wait_for_interrupt(device, timeout_cycles);
    umakit_simulator_add_trace(
        device, (struct umakit_trace_entry)UMAKIT_TRACE_WAIT(timeout_cycles, status));
    return status;
}

void umakit_device_barrier(umakit_device *device)
{
    /* The simulator does everything in order. */
    if (umakit_simulator_is_present(device)) {
        umakit_simulator_add_trace(device, (struct umakit_trace_entry)UMAKIT_TRACE_BARRIER);
    }
}
