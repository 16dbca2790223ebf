/* SPDX-License-Identifier: Apache-2.0 */
/* Transfers between the bus and the scratchpad of the systolic array. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "umakit/simulator_internal.h"
#include "umakit/static_assert.h"
#include "umakit/systolic_array_internal.h"

UMAKIT_STATIC_ASSERT(sizeof(size_t) >= 4u, size_t_holds_an_offset);

#define REGISTER(name) \
    umakit_systolic_register(array, UMAKIT_SYSTOLIC_ARRAY_DMA_##name##_OFFSET)

/* The transfer as its registers say it: planes of rows of bytes, on both sides. */
struct pattern {
    struct umakit_systolic_region bus;
    struct umakit_systolic_region scratchpad;
    uint32_t planes;
    uint32_t rows;
    uint32_t row_bytes;
    bool is_out;
};

static void read_pattern(const struct umakit_systolic_array *array, struct pattern *pattern)
{
    pattern->planes = REGISTER(PLANES);
    pattern->rows = REGISTER(ROWS);
    pattern->row_bytes = REGISTER(ROW_BYTES);
    pattern->is_out = REGISTER(DIRECTION) == UMAKIT_SYSTOLIC_ARRAY_DMA_DIRECTION_OUT;
    pattern->bus = (struct umakit_systolic_region){
        REGISTER(BUS_ADDRESS),
        {pattern->planes, pattern->rows, pattern->row_bytes},
        {REGISTER(BUS_PLANE_STRIDE), REGISTER(BUS_ROW_STRIDE), 1u}};
    pattern->scratchpad = (struct umakit_systolic_region){
        REGISTER(SCRATCHPAD_START),
        {pattern->planes, pattern->rows, pattern->row_bytes},
        {REGISTER(SCRATCHPAD_PLANE_STRIDE), REGISTER(SCRATCHPAD_ROW_STRIDE), 1u}};
}

/* A stride that is not used may be anything. */
static bool is_aligned(const struct umakit_systolic_region *region, uint32_t alignment)
{
    return region->start % alignment == 0u &&
           (region->sizes[0] == 1u || region->strides[0] % alignment == 0u) &&
           (region->sizes[1] == 1u || region->strides[1] % alignment == 0u);
}

static uint64_t divide_rounding_up(uint32_t dividend, uint32_t divisor)
{
    return dividend / divisor + (dividend % divisor != 0u ? 1u : 0u);
}

static uint64_t transfer_cycles(const struct umakit_systolic_array_config *config,
                                const struct pattern *pattern)
{
    const uint32_t burst_bytes =
        config->dma_burst_bytes == 0u ? pattern->row_bytes : config->dma_burst_bytes;
    const uint64_t row_cycles =
        divide_rounding_up(pattern->row_bytes, burst_bytes) * config->dma_latency_cycles +
        divide_rounding_up(pattern->row_bytes, config->dma_bytes_per_cycle);

    return umakit_systolic_product((uint64_t)pattern->planes * pattern->rows, row_cycles);
}

static int check_pattern(const struct umakit_systolic_array *array,
                         const struct pattern *pattern, const void **memory,
                         uint32_t *address)
{
    const uint64_t rows = (uint64_t)pattern->planes * pattern->rows;
    const uint32_t alignment = array->config.dma_alignment;
    int status;

    *address = UMAKIT_SYSTOLIC_ARRAY_DMA_ROW_BYTES_OFFSET;
    if (rows == 0u || pattern->row_bytes == 0u) {
        return UMAKIT_INVALID_ARGUMENT;
    }
    if (rows > UINT32_MAX / pattern->row_bytes) {
        return UMAKIT_OUT_OF_RANGE;
    }
    *address = UMAKIT_SYSTOLIC_ARRAY_DMA_DIRECTION_OFFSET;
    if (REGISTER(DIRECTION) > UMAKIT_SYSTOLIC_ARRAY_DMA_DIRECTION_OUT) {
        return UMAKIT_INVALID_ARGUMENT;
    }
    *address = pattern->scratchpad.start;
    if (!is_aligned(&pattern->scratchpad, alignment)) {
        return UMAKIT_MISALIGNED;
    }
    if (!umakit_systolic_is_in_scratchpad(array, &pattern->scratchpad)) {
        return UMAKIT_OUT_OF_RANGE;
    }
    *address = pattern->bus.start;
    if (!is_aligned(&pattern->bus, alignment)) {
        return UMAKIT_MISALIGNED;
    }
    status = umakit_simulator_resolve(
        &array->device, pattern->bus.start, umakit_systolic_extent(&pattern->bus),
        pattern->is_out ? UMAKIT_FROM_DEVICE : UMAKIT_TO_DEVICE, memory);
    return status;
}

int umakit_systolic_prepare_dma(struct umakit_systolic_array *array, uint32_t *address)
{
    struct umakit_systolic_transfer *transfer = &array->transfer;
    const struct umakit_fault *fault;
    const void *memory = NULL;
    struct pattern pattern;
    int status;

    read_pattern(array, &pattern);
    status = check_pattern(array, &pattern, &memory, address);
    if (status != UMAKIT_OK) {
        return status;
    }
    /* Written only if mapped for writing, so the caller had a writable buffer. */
    transfer->memory = (unsigned char *)(uintptr_t)memory;
    transfer->bytes = pattern.planes * pattern.rows * pattern.row_bytes;
    transfer->moved = 0u;
    transfer->stops_at = UINT32_MAX;
    array->dma = (struct umakit_systolic_engine){
        .banks = umakit_systolic_banks(array, &pattern.scratchpad),
        .cycles = transfer_cycles(&array->config, &pattern)};

    fault = umakit_simulator_strike(&array->device, UMAKIT_FAULT_DMA_STOPS,
                                    UMAKIT_ENGINE_DMA);
    if (fault != NULL && fault->bytes < transfer->bytes) {
        const uint64_t cycles_per_byte = array->dma.cycles / transfer->bytes;

        transfer->stops_at = fault->bytes;
        transfer->ending = fault->ending;
        array->dma.cycles = 1u + cycles_per_byte * fault->bytes;
    }
    return UMAKIT_OK;
}

/* One row, or as much of it as is moved before the engine stops. */
static int move_row(struct umakit_systolic_array *array, const struct pattern *pattern,
                    uint64_t bus_offset, uint32_t scratchpad_offset, uint32_t *address)
{
    struct umakit_systolic_transfer *transfer = &array->transfer;
    const uint32_t left = transfer->stops_at - transfer->moved;
    const uint32_t bytes = left < pattern->row_bytes ? left : pattern->row_bytes;
    const struct umakit_systolic_region row = {scratchpad_offset, {1u, 1u, bytes}, {0u, 0u, 1u}};
    unsigned char *scratchpad = (unsigned char *)array->config.scratchpad + scratchpad_offset;
    unsigned char *memory = transfer->memory + (size_t)bus_offset;
    /* No overflow: the whole transfer lies in a window. */
    const uint32_t bus_address = pattern->bus.start + (uint32_t)bus_offset;

    if (bytes == 0u) {
        return UMAKIT_OK;
    }
    if (umakit_simulator_bus_refuses(&array->device, bus_address, bytes, address)) {
        return UMAKIT_BUS_ERROR;
    }
    if (pattern->is_out) {
        if (!umakit_systolic_parity_holds(array, &row, address)) {
            return UMAKIT_PARITY_ERROR;
        }
        memcpy(memory, scratchpad, bytes);
        array->device.counters.bytes_written += bytes;
    } else {
        memcpy(scratchpad, memory, bytes);
        umakit_systolic_heal(array, &row);
        array->device.counters.bytes_read += bytes;
    }
    transfer->moved += bytes;
    return UMAKIT_OK;
}

int umakit_systolic_move(struct umakit_systolic_array *array, uint32_t *address)
{
    struct pattern pattern;
    uint32_t plane;
    uint32_t row;

    read_pattern(array, &pattern);
    for (plane = 0u; plane < pattern.planes; ++plane) {
        for (row = 0u; row < pattern.rows; ++row) {
            const uint64_t bus_offset = (uint64_t)plane * pattern.bus.strides[0] +
                                        (uint64_t)row * pattern.bus.strides[1];
            const uint32_t scratchpad_offset = pattern.scratchpad.start +
                                               plane * pattern.scratchpad.strides[0] +
                                               row * pattern.scratchpad.strides[1];
            const int status =
                move_row(array, &pattern, bus_offset, scratchpad_offset, address);

            if (status != UMAKIT_OK) {
                return status;
            }
        }
    }
    return UMAKIT_OK;
}
