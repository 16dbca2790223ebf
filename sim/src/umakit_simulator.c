/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of device.h, and those with which tests inject faults, for all
 * simulated devices: they count and record accesses, and leave the rest to the
 * operations of the device's kind.
 */
#include "umakit/simulator.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "umakit/device.h"
#include "umakit/faults.h"
#include "umakit/own_simulator.h"
#include "umakit/simulator_faults.h"
#include "umakit/simulator_windows.h"
#include "umakit/static_assert.h"
#include "umakit/trace.h"

UMAKIT_STATIC_ASSERT(CHAR_BIT == 8, bytes_have_8_bits);
UMAKIT_STATIC_ASSERT(sizeof(size_t) >= 4u, size_t_holds_a_window);

/* The simulator itself cannot go on, or could not begin. */
static bool has_failed(const struct umakit_device *device)
{
    return device->failure[0] != '\0';
}

/* False for NULL and for a device that was never initialised. */
static bool is_present(const struct umakit_device *device)
{
    return device != NULL && (device->operations != NULL || has_failed(device));
}

const char *umakit_simulator_failure(const umakit_device *device)
{
    return is_present(device) ? device->failure : "";
}

/* ---- Counters ---- */

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

void umakit_simulator_measure(const umakit_device *device,
                              struct umakit_own_counters *counters)
{
    if (counters == NULL) {
        return;
    }
    *counters = (struct umakit_own_counters){
        .clock = UMAKIT_UNKNOWN,
        .busy_cycles = UMAKIT_UNKNOWN,
        .compute_cycles = UMAKIT_UNKNOWN,
        .dma_cycles = UMAKIT_UNKNOWN,
        .macs = UMAKIT_UNKNOWN,
        .bytes_read = UMAKIT_UNKNOWN,
        .bytes_written = UMAKIT_UNKNOWN,
    };
    if (is_present(device) && !has_failed(device) && device->operations->counters != NULL) {
        device->operations->counters(device->simulator, counters);
    }
}

void umakit_simulator_memories(const umakit_device *device,
                               struct umakit_memory_counters counters[UMAKIT_MEMORY_COUNT])
{
    static const struct umakit_memory_counters none = {.reads = 0u};
    const bool is_known = is_present(device) && !has_failed(device);
    size_t i;

    for (i = 0u; counters != NULL && i < UMAKIT_MEMORY_COUNT; ++i) {
        counters[i] = is_known ? device->memories[i] : none;
    }
}

/* ---- Events ---- */

void umakit_simulator_record_events(umakit_device *device, struct umakit_event_entry *entries,
                                    size_t capacity)
{
    struct umakit_own_counters counters;

    if (!is_present(device)) {
        return;
    }
    umakit_simulator_measure(device, &counters);
    device->events = (struct umakit_simulator_event_record){
        .entries = entries,
        .capacity = entries == NULL || counters.clock == UMAKIT_UNKNOWN ? 0u : capacity,
        .first_cycle = counters.clock,
    };
}

size_t umakit_simulator_events(const umakit_device *device)
{
    return is_present(device) ? device->events.count : 0u;
}

/* ---- A simulator of your own ---- */

static bool is_complete(const struct umakit_own_simulator *table)
{
    return table->create != NULL && table->read32 != NULL && table->write32 != NULL &&
           table->wait != NULL;
}

void umakit_simulator_open(umakit_device *device, const struct umakit_own_simulator *table)
{
    if (device == NULL) {
        return;
    }
    *device = (struct umakit_device){.map_alignment = 1u};
    if (table == NULL) {
        umakit_host_fail(device, "the simulator has no table of functions");
    } else if (table->version != UMAKIT_OWN_SIMULATOR_VERSION) {
        umakit_host_fail(device, "the version of the simulator's table is not "
                                 "UMAKIT_OWN_SIMULATOR_VERSION");
    } else if (!is_complete(table)) {
        umakit_host_fail(device, "the simulator's table lacks create, read32, write32 or wait");
    } else if ((table->map_alignment & (table->map_alignment - 1u)) != 0u) {
        umakit_host_fail(device, "map_alignment of the simulator's table is no power of two");
    } else {
        device->operations = table;
        device->map_alignment = table->map_alignment == 0u ? 1u : table->map_alignment;
        device->simulator = table->create(device);
        if (device->simulator == NULL) {
            umakit_host_fail(device, "the simulator could not be created");
        } else if (table->reset != NULL && !has_failed(device)) {
            table->reset(device->simulator);
        }
    }
}

void umakit_simulator_scatter(umakit_device *device, uint32_t seed)
{
    if (is_present(device)) {
        device->scatter = seed;
    }
}

int umakit_simulator_reset(umakit_device *device)
{
    if (!is_present(device)) {
        return UMAKIT_NO_DEVICE;
    }
    if (has_failed(device)) {
        return UMAKIT_DEVICE_ERROR;
    }
    if (device->operations->reset == NULL) {
        return UMAKIT_UNSUPPORTED;
    }
    *device = (struct umakit_device){
        .operations = device->operations,
        .simulator = device->simulator,
        .map_alignment = device->map_alignment,
        .scatter = device->scatter,
    };
    device->operations->reset(device->simulator);
    return has_failed(device) ? UMAKIT_DEVICE_ERROR : UMAKIT_OK;
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

/* ---- Registers ---- */

uint32_t umakit_device_read32(umakit_device *device, uint32_t offset)
{
    uint32_t value;

    if (!is_present(device)) {
        return UINT32_MAX;
    }
    ++device->counters.register_reads;
    value = has_failed(device) ? UINT32_MAX
                               : device->operations->read32(device->simulator, offset);
    add_trace(device, (struct umakit_trace_entry)UMAKIT_TRACE_READ(offset, value));
    return value;
}

void umakit_device_write32(umakit_device *device, uint32_t offset, uint32_t value)
{
    if (!is_present(device)) {
        return;
    }
    ++device->counters.register_writes;
    add_trace(device, (struct umakit_trace_entry)UMAKIT_TRACE_WRITE(offset, value));
    if (!has_failed(device)) {
        device->operations->write32(device->simulator, offset, value);
    }
}

static int wait_for_interrupt(struct umakit_device *device, uint32_t timeout_cycles)
{
    bool is_raised;

    if (has_failed(device)) {
        return UMAKIT_DEVICE_ERROR;
    }
    is_raised = device->operations->wait(device->simulator, timeout_cycles);
    if (has_failed(device)) {
        return UMAKIT_DEVICE_ERROR;
    }
    if (is_raised && device->operations->inject == NULL &&
        umakit_simulator_trigger_fault(device, UMAKIT_FAULT_LOST_INTERRUPT,
                                       UMAKIT_ENGINE_ARRAY) != NULL) {
        is_raised = false;
    }
    return is_raised ? UMAKIT_OK : UMAKIT_TIMEOUT;
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
        if (!has_failed(device) && device->operations->misuse != NULL) {
            device->operations->misuse(device->simulator, UMAKIT_OUT_OF_RANGE, bus_address);
        }
        return;
    }
    if (!has_failed(device) && device->operations->unmapping != NULL) {
        device->operations->unmapping(device->simulator, bus_address, bytes);
    }
    umakit_simulator_free_window(device, bus_address);
}

/* ---- Faults ---- */

int umakit_simulator_inject(umakit_device *device, const struct umakit_fault *fault)
{
    if (!is_present(device)) {
        return UMAKIT_NO_DEVICE;
    }
    if (fault == NULL || !umakit_simulator_fault_is_valid(fault)) {
        return UMAKIT_INVALID_ARGUMENT;
    }
    if (has_failed(device)) {
        return UMAKIT_UNSUPPORTED;
    }
    if (device->operations->inject != NULL) {
        return device->operations->inject(device->simulator, fault);
    }
    /* What happens outside of the simulator: on the bus and on the interrupt's line. */
    if (fault->kind != UMAKIT_FAULT_BUS_ERROR && fault->kind != UMAKIT_FAULT_LOST_INTERRUPT) {
        return UMAKIT_UNSUPPORTED;
    }
    return umakit_simulator_add_fault(device, fault);
}

void umakit_simulator_remove_faults(umakit_device *device)
{
    if (!is_present(device) || has_failed(device)) {
        return;
    }
    if (device->operations->inject == NULL) {
        umakit_simulator_clear_faults(device);
    }
    if (device->operations->remove_faults != NULL) {
        device->operations->remove_faults(device->simulator);
    }
}
