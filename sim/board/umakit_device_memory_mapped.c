/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device of a board: volatile access to registers at UMAKIT_DEVICE_BASE.
 * Bus addresses are the addresses of the processor. Copy this file and change
 * what your board does differently; the driver stays as it is.
 *
 * Registers may be any words, if the board says when the interrupt is raised:
 * UMAKIT_BOARD_HAS_INTERRUPT, see memory_mapped.h. Without that they are those of
 * systolic_array_registers.h, if UMAKIT_DEVICE_IS_SYSTOLIC_ARRAY is defined, or
 * those of mac_array_registers.h.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "umakit/device.h"
#include "umakit/memory_mapped.h"
#include "umakit/static_assert.h"

#ifdef UMAKIT_BOARD_HAS_INTERRUPT
#define REGISTER_BYTES 4u /* at least */
#elif defined(UMAKIT_DEVICE_IS_SYSTOLIC_ARRAY)
#include "umakit/systolic_array_registers.h"
#define REGISTER_BYTES UMAKIT_SYSTOLIC_ARRAY_REGISTER_BYTES
#else
#include "umakit/mac_array_registers.h"
#define REGISTER_BYTES UMAKIT_MAC_ARRAY_REGISTER_BYTES
#endif

#ifndef UMAKIT_DEVICE_BASE
#error "Define UMAKIT_DEVICE_BASE, the address of the device's first register."
#endif

#define MAPPING_COUNT 8u

struct mapping {
    const void *memory; /* NULL: free */
    size_t bytes;
    enum umakit_direction direction;
};

struct umakit_device {
    /* What unmap has no argument for. */
    struct mapping mappings[MAPPING_COUNT];
};

UMAKIT_STATIC_ASSERT(REGISTER_BYTES % 4u == 0u, registers_are_words);

static struct umakit_device board_device;

umakit_device *umakit_memory_mapped_device(void)
{
    return &board_device;
}

static volatile uint32_t *register_at(uint32_t offset)
{
    return (volatile uint32_t *)((uintptr_t)UMAKIT_DEVICE_BASE + offset);
}

/* The signatures are those of device.h, const or not. */
/* cppcheck-suppress constParameter */
uint32_t umakit_device_read32(umakit_device *device, uint32_t offset)
{
    return device == NULL ? UINT32_MAX : *register_at(offset);
}

/* cppcheck-suppress constParameter */
void umakit_device_write32(umakit_device *device, uint32_t offset, uint32_t value)
{
    if (device != NULL) {
        *register_at(offset) = value;
    }
}

void umakit_device_barrier(umakit_device *device)
{
    (void)device;
    __sync_synchronize(); /* gcc and clang; other compilers have their own name */
}

/* True if every byte of the buffer has an address of at most 32 bits. */
static bool is_in_reach(const void *memory, size_t bytes)
{
    const uint64_t first = (uintptr_t)memory;

    return first <= UINT32_MAX && bytes - 1u <= UINT32_MAX - first;
}

int umakit_device_map(umakit_device *device, const void *memory, size_t bytes,
                      enum umakit_direction direction, uint32_t *bus_address)
{
    size_t i;

    if (device == NULL) {
        return UMAKIT_NO_DEVICE;
    }
    if (memory == NULL || bytes == 0u || bus_address == NULL ||
        (direction != UMAKIT_TO_DEVICE && direction != UMAKIT_FROM_DEVICE &&
         direction != UMAKIT_BIDIRECTIONAL)) {
        return UMAKIT_INVALID_ARGUMENT;
    }
    if ((uintptr_t)memory % 4u != 0u) {
        return UMAKIT_MISALIGNED;
    }
    if (!is_in_reach(memory, bytes)) {
        return UMAKIT_OUT_OF_RANGE;
    }
    for (i = 0u; i < MAPPING_COUNT; ++i) {
        struct mapping *mapping = &device->mappings[i];

        if (mapping->memory == NULL) {
            mapping->memory = memory;
            mapping->bytes = bytes;
            mapping->direction = direction;
#ifdef UMAKIT_BOARD_HAS_CACHE
            /* For a result too: a dirty line written back later would land on
             * top of what the device wrote. */
            umakit_board_cache_clean(memory, bytes);
#endif
            *bus_address = (uint32_t)(uintptr_t)memory;
            return UMAKIT_OK;
        }
    }
    return UMAKIT_TABLE_FULL;
}

void umakit_device_unmap(umakit_device *device, uint32_t bus_address)
{
    size_t i;

    if (device == NULL) {
        return;
    }
    for (i = 0u; i < MAPPING_COUNT; ++i) {
        struct mapping *mapping = &device->mappings[i];

        if (mapping->memory != NULL && (uintptr_t)mapping->memory == bus_address) {
#ifdef UMAKIT_BOARD_HAS_CACHE
            if (mapping->direction != UMAKIT_TO_DEVICE) {
                umakit_board_cache_invalidate(mapping->memory, mapping->bytes);
            }
#endif
            mapping->memory = NULL;
            return;
        }
    }
}

/* The state of the interrupt line, from the registers. */
static bool interrupt_is_raised(umakit_device *device)
{
#ifdef UMAKIT_BOARD_HAS_INTERRUPT
    (void)device;
    return umakit_board_interrupt();
#elif defined(UMAKIT_DEVICE_IS_SYSTOLIC_ARRAY)
    return (umakit_device_read32(device, UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_PENDING_OFFSET) &
            umakit_device_read32(device, UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_ENABLE_OFFSET)) != 0u;
#else
    const uint32_t status = umakit_device_read32(device, UMAKIT_MAC_ARRAY_STATUS_OFFSET);

    return (status & UMAKIT_MAC_ARRAY_STATUS_BUSY_MASK) == 0u &&
           (status & (UMAKIT_MAC_ARRAY_STATUS_DONE_MASK |
                      UMAKIT_MAC_ARRAY_STATUS_ERROR_MASK)) != 0u;
#endif
}

/* Polls, so that it runs without an interrupt controller set up: a turn of the
 * loop takes a cycle of the device or longer. On a board with the interrupt
 * connected, sleep in the loop until it comes. */
int umakit_device_wait(umakit_device *device, uint32_t timeout_cycles)
{
    uint32_t turn = 0u;

    if (device == NULL) {
        return UMAKIT_NO_DEVICE;
    }
    for (;;) {
        if (interrupt_is_raised(device)) {
            return UMAKIT_OK;
        }
        if (turn == timeout_cycles) {
            return UMAKIT_TIMEOUT;
        }
        ++turn;
    }
}
