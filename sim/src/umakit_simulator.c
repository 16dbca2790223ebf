/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of device.h, and those with which tests inject faults, for all
 * simulated devices: they keep time, count and record, and leave the rest to the
 * operations of the device's kind.
 */
#include "umakit/simulator.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "umakit/device.h"
#include "umakit/faults.h"
#include "umakit/simulator_faults.h"
#include "umakit/simulator_operations.h"
#include "umakit/simulator_windows.h"
#include "umakit/static_assert.h"
#include "umakit/trace.h"

UMAKIT_STATIC_ASSERT(CHAR_BIT == 8, bytes_have_8_bits);
UMAKIT_STATIC_ASSERT(sizeof(size_t) >= 4u, size_t_holds_a_window);

/* False for NULL and for a device that was never initialised. */
static bool is_present(const struct umakit_device *device)
{
    return device != NULL && device->operations != NULL;
}

void umakit_simulator_read_counters(const umakit_device *device,
                                    struct umakit_simulator_counters *counters)
{
    if (counters == NULL) {
        return;
    }
    if (is_present(device)) {
        *counters = device->counters;
    } else {
        *counters = (struct umakit_simulator_counters){.jobs = 0u};
    }
}

/* ---- The trace ---- */

void umakit_simulator_record(umakit_device *device, struct umakit_trace_entry *entries,
                             size_t capacity)
{
    if (is_present(device)) {
        device->trace.entries = entries;
        device->trace.capacity = entries == NULL ? 0u : capacity;
        device->trace.count = 0u;
    }
}

size_t umakit_simulator_recorded(const umakit_device *device)
{
    return is_present(device) ? device->trace.count : 0u;
}

static void add_trace(struct umakit_device *device, struct umakit_trace_entry entry)
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

    if (!is_present(device)) {
        return UINT32_MAX;
    }
    ++device->counters.register_reads;
    advance(device, 1u);
    value = device->operations->read32(device, offset);
    add_trace(device, (struct umakit_trace_entry)UMAKIT_TRACE_READ(offset, value));
    return value;
}

void umakit_device_write32(umakit_device *device, uint32_t offset, uint32_t value)
{
    if (!is_present(device)) {
        return;
    }
    ++device->counters.register_writes;
    advance(device, 1u);
    add_trace(device, (struct umakit_trace_entry)UMAKIT_TRACE_WRITE(offset, value));
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

    if (!is_present(device)) {
        return UMAKIT_NO_DEVICE;
    }
    status = wait_for_interrupt(device, timeout_cycles);
    add_trace(device, (struct umakit_trace_entry)UMAKIT_TRACE_WAIT(timeout_cycles, status));
    return status;
}

void umakit_device_barrier(umakit_device *device)
{
    /* The simulator does everything in order. */
    if (is_present(device)) {
        add_trace(device, (struct umakit_trace_entry)UMAKIT_TRACE_BARRIER);
    }
}

/* ---- Buffers ---- */

int umakit_device_map(umakit_device *device, const void *memory, size_t bytes,
                      enum umakit_direction direction, uint32_t *bus_address)
{
    int status;

    if (!is_present(device)) {
        return UMAKIT_NO_DEVICE;
    }
    status = umakit_simulator_map_window(device, memory, bytes, direction, bus_address);
    add_trace(device,
              (struct umakit_trace_entry){UMAKIT_ACCESS_MAP,
                                          status == UMAKIT_OK ? *bus_address : 0u,
                                          bytes > UINT32_MAX ? UINT32_MAX : (uint32_t)bytes,
                                          (uint32_t)direction, status});
    return status;
}

void umakit_device_unmap(umakit_device *device, uint32_t bus_address)
{
    size_t bytes;

    if (!is_present(device)) {
        return;
    }
    add_trace(device, (struct umakit_trace_entry)UMAKIT_TRACE_UNMAP(bus_address));
    bytes = umakit_simulator_window_bytes(device, bus_address);
    if (bytes == 0u) {
        device->operations->report(device, UMAKIT_OUT_OF_RANGE, bus_address);
        return;
    }
    device->operations->unmapping(device, bus_address, bytes);
    umakit_simulator_free_window(device, bus_address);
}

/* ---- Faults ---- */

int umakit_simulator_inject(umakit_device *device, const struct umakit_fault *fault)
{
    int status;

    if (!is_present(device)) {
        return UMAKIT_NO_DEVICE;
    }
    if (fault == NULL || !umakit_simulator_fault_is_valid(fault)) {
        return UMAKIT_INVALID_ARGUMENT;
    }
    status = device->operations->inject(device, fault);
    if (status != UMAKIT_OK || fault->kind == UMAKIT_FAULT_SCRATCHPAD_BIT) {
        return status;
    }
    return umakit_simulator_add_fault(device, fault);
}

void umakit_simulator_remove_faults(umakit_device *device)
{
    if (is_present(device)) {
        umakit_simulator_clear_faults(device);
        device->operations->free_engines(device);
    }
}
