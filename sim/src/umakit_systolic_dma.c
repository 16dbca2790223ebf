/* SPDX-License-Identifier: Apache-2.0 */
/* Transfers between the bus and the scratchpad of the systolic array. */
#include "umakit/systolic_jobs.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "umakit/simulator_faults.h"
#include "umakit/simulator_windows.h"
#include "umakit/static_assert.h"
#include "umakit/systolic_array.h"
#include "umakit/systolic_command.h"
#include "umakit/systolic_register_file.h"
#include "umakit/systolic_scratchpad.h"

UMAKIT_STATIC_ASSERT(sizeof(size_t) >= 4u, size_t_holds_an_offset);

#define REGISTER(name) \
    umakit_systolic_register(array, UMAKIT_SYSTOLIC_ARRAY_DMA_##name##_OFFSET)

/* Planes of rows of bytes, on both sides. */
static void read_registers(const struct umakit_systolic_array *array,
                           struct umakit_systolic_transfer *transfer)
{
    const uint32_t planes = REGISTER(PLANES);
    const uint32_t rows = REGISTER(ROWS);
    const uint32_t row_bytes = REGISTER(ROW_BYTES);

    transfer->is_out = REGISTER(DIRECTION) == UMAKIT_SYSTOLIC_ARRAY_DMA_DIRECTION_OUT;
    transfer->bus = (struct umakit_systolic_region){
        REGISTER(BUS_ADDRESS),
        {planes, rows, row_bytes},
        {REGISTER(BUS_PLANE_STRIDE), REGISTER(BUS_ROW_STRIDE), 1u}};
    transfer->scratchpad = (struct umakit_systolic_region){
        REGISTER(SCRATCHPAD_START),
        {planes, rows, row_bytes},
        {REGISTER(SCRATCHPAD_PLANE_STRIDE), REGISTER(SCRATCHPAD_ROW_STRIDE), 1u}};
}

/* A stride that is not used may be anything. */
static bool is_aligned(const struct umakit_systolic_region *region, uint32_t alignment)
{
    return region->start % alignment == 0u &&
           (region->sizes[0] == 1u || region->strides[0] % alignment == 0u) &&
           (region->sizes[1] == 1u || region->strides[1] % alignment == 0u);
}

static int check_registers(const struct umakit_systolic_array *array,
                           const struct umakit_systolic_transfer *transfer,
                           const void **memory, uint32_t *address)
{
    const uint32_t *sizes = transfer->bus.sizes;
    const uint64_t rows = (uint64_t)sizes[0] * sizes[1];
    const uint32_t alignment = array->config.dma_alignment;

    *address = UMAKIT_SYSTOLIC_ARRAY_DMA_ROW_BYTES_OFFSET;
    if (rows == 0u || sizes[2] == 0u) {
        return UMAKIT_INVALID_ARGUMENT;
    }
    if (rows > UINT32_MAX / sizes[2]) {
        return UMAKIT_OUT_OF_RANGE;
    }
    *address = UMAKIT_SYSTOLIC_ARRAY_DMA_DIRECTION_OFFSET;
    if (REGISTER(DIRECTION) > UMAKIT_SYSTOLIC_ARRAY_DMA_DIRECTION_OUT) {
        return UMAKIT_INVALID_ARGUMENT;
    }
    *address = transfer->scratchpad.start;
    if (!is_aligned(&transfer->scratchpad, alignment)) {
        return UMAKIT_MISALIGNED;
    }
    if (!umakit_systolic_is_in_scratchpad(array, &transfer->scratchpad)) {
        return UMAKIT_OUT_OF_RANGE;
    }
    *address = transfer->bus.start;
    if (!is_aligned(&transfer->bus, alignment)) {
        return UMAKIT_MISALIGNED;
    }
    return umakit_simulator_resolve(
        &array->device, transfer->bus.start, umakit_systolic_extent(&transfer->bus),
        transfer->is_out ? UMAKIT_FROM_DEVICE : UMAKIT_TO_DEVICE, memory);
}

int umakit_systolic_prepare_dma(struct umakit_systolic_array *array,
                                struct umakit_systolic_command *command, uint32_t *address)
{
    struct umakit_systolic_transfer *transfer = &command->transfer;
    const uint32_t *sizes = transfer->bus.sizes;
    const struct umakit_fault *fault;
    const void *memory = NULL;
    int status;

    read_registers(array, transfer);
    status = check_registers(array, transfer, &memory, address);
    if (status != UMAKIT_OK) {
        return status;
    }
    /* Written only if mapped for writing, so the caller had a writable buffer. */
    transfer->memory = (unsigned char *)(uintptr_t)memory;
    transfer->bytes = sizes[0] * sizes[1] * sizes[2];
    transfer->moved = 0u;
    transfer->stops_at = UINT32_MAX;
    command->stream = transfer->is_out ? UMAKIT_SYSTOLIC_STORE : UMAKIT_SYSTOLIC_LOAD;
    *(transfer->is_out ? &command->reads : &command->writes) =
        umakit_systolic_banks(array, &transfer->scratchpad);
    umakit_systolic_set_transfer_cycles(&array->config, command);

    fault = umakit_simulator_trigger_fault(&array->device, UMAKIT_FAULT_DMA_STOPS,
                                           UMAKIT_ENGINE_DMA);
    if (fault != NULL && fault->bytes < transfer->bytes) {
        const uint64_t cycles_per_byte = command->busy / transfer->bytes;

        transfer->stops_at = fault->bytes;
        transfer->ending = fault->ending;
        command->busy = 1u + cycles_per_byte * fault->bytes;
    }
    return UMAKIT_OK;
}

/* One row, or as much of it as is moved before the engine stops. */
static int move_row(struct umakit_systolic_array *array,
                    struct umakit_systolic_transfer *transfer, uint64_t bus_offset,
                    uint32_t scratchpad_offset, uint32_t *address)
{
    const uint32_t left = transfer->stops_at - transfer->moved;
    const uint32_t row_bytes = transfer->bus.sizes[2];
    const uint32_t bytes = left < row_bytes ? left : row_bytes;
    const struct umakit_systolic_region row = {
        scratchpad_offset, {1u, 1u, bytes}, {0u, 0u, 1u}};
    unsigned char *scratchpad = (unsigned char *)array->config.scratchpad + scratchpad_offset;
    unsigned char *memory = transfer->memory + (size_t)bus_offset;
    /* No overflow: the whole transfer lies in a window. */
    const uint32_t bus_address = transfer->bus.start + (uint32_t)bus_offset;

    if (bytes == 0u) {
        return UMAKIT_OK;
    }
    if (umakit_simulator_bus_refuses(&array->device, bus_address, bytes, address)) {
        return UMAKIT_BUS_ERROR;
    }
    if (transfer->is_out) {
        if (!umakit_systolic_parity_holds(array, &row, address)) {
            return UMAKIT_PARITY_ERROR;
        }
        memcpy(memory, scratchpad, bytes);
        array->device.counters.bytes_written += bytes;
    } else {
        memcpy(scratchpad, memory, bytes);
        umakit_systolic_set_parity(array, &row);
        array->device.counters.bytes_read += bytes;
    }
    transfer->moved += bytes;
    return UMAKIT_OK;
}

int umakit_systolic_move(struct umakit_systolic_array *array,
                         struct umakit_systolic_transfer *transfer, uint32_t *address)
{
    const uint32_t *bus = transfer->bus.strides;
    const uint32_t *scratchpad = transfer->scratchpad.strides;
    uint32_t plane;
    uint32_t row;

    for (plane = 0u; plane < transfer->bus.sizes[0]; ++plane) {
        for (row = 0u; row < transfer->bus.sizes[1]; ++row) {
            const uint64_t bus_offset = (uint64_t)plane * bus[0] + (uint64_t)row * bus[1];
            const uint32_t scratchpad_offset =
                transfer->scratchpad.start + plane * scratchpad[0] + row * scratchpad[1];
            const int status =
                move_row(array, transfer, bus_offset, scratchpad_offset, address);

            if (status != UMAKIT_OK) {
                return status;
            }
        }
    }
    return UMAKIT_OK;
}
