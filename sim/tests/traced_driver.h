/* SPDX-License-Identifier: Apache-2.0 */
/* A driver that fills a scratchpad, and the calls that it makes: the trace of
 * the simulator and the mock must agree with the same table. */
#ifndef TRACED_DRIVER_H
#define TRACED_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#include "umakit/device.h"
#include "umakit/systolic_array_registers.h"
#include "umakit/trace.h"

#define OFFSET(name) UMAKIT_SYSTOLIC_ARRAY_##name##_OFFSET
#define FIRST_WINDOW 0x10000000u

static uint32_t traced_memory[4];

static inline int traced_driver(umakit_device *device)
{
    uint32_t address;
    int status;

    if (umakit_device_read32(device, OFFSET(ID)) != UMAKIT_SYSTOLIC_ARRAY_ID_RESET) {
        return UMAKIT_NO_DEVICE;
    }
    status = umakit_device_map(device, traced_memory, 16u, UMAKIT_TO_DEVICE, &address);
    if (status != UMAKIT_OK) {
        return status;
    }
    umakit_device_write32(device, OFFSET(INTERRUPT_ENABLE),
                          UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_ENABLE_DMA_DONE_MASK);
    umakit_device_write32(device, OFFSET(DMA_BUS_ADDRESS), address);
    umakit_device_write32(device, OFFSET(DMA_ROW_BYTES), 16u);
    umakit_device_barrier(device);
    umakit_device_write32(device, OFFSET(CONTROL),
                          UMAKIT_SYSTOLIC_ARRAY_CONTROL_DMA_START_MASK);
    status = umakit_device_wait(device, 1000u);
    if (status == UMAKIT_OK && umakit_device_read32(device, OFFSET(DMA_BYTES_LEFT)) != 0u) {
        status = UMAKIT_DMA_STOPPED;
    }
    umakit_device_unmap(device, address);
    return status;
}

static const struct umakit_trace_entry traced_calls[] = {
    UMAKIT_TRACE_READ(OFFSET(ID), UMAKIT_SYSTOLIC_ARRAY_ID_RESET),
    UMAKIT_TRACE_MAP(16u, UMAKIT_TO_DEVICE, FIRST_WINDOW),
    UMAKIT_TRACE_WRITE(OFFSET(INTERRUPT_ENABLE), 1u),
    UMAKIT_TRACE_WRITE(OFFSET(DMA_BUS_ADDRESS), FIRST_WINDOW),
    UMAKIT_TRACE_WRITE(OFFSET(DMA_ROW_BYTES), 16u),
    UMAKIT_TRACE_BARRIER,
    UMAKIT_TRACE_WRITE(OFFSET(CONTROL), UMAKIT_SYSTOLIC_ARRAY_CONTROL_DMA_START_MASK),
    UMAKIT_TRACE_WAIT(1000u, UMAKIT_OK),
    UMAKIT_TRACE_READ(OFFSET(DMA_BYTES_LEFT), 0u),
    UMAKIT_TRACE_UNMAP(FIRST_WINDOW),
};

#define TRACED_CALLS (sizeof(traced_calls) / sizeof(traced_calls[0]))

#endif /* TRACED_DRIVER_H */
