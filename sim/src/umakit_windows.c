/* SPDX-License-Identifier: Apache-2.0 */
/* The table that gives host memory a 32-bit bus address. */
#include "umakit/simulator_windows.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "umakit/device.h"
#include "umakit/simulator.h"
#include "umakit/static_assert.h"

UMAKIT_STATIC_ASSERT((UMAKIT_SIMULATOR_WINDOW_COUNT + 1u) <=
                         UINT32_MAX / UMAKIT_SIMULATOR_WINDOW_BYTES,
                     windows_fit_the_bus);
UMAKIT_STATIC_ASSERT(UMAKIT_SIMULATOR_WINDOW_BYTES % 4u == 0u, windows_are_aligned);

static uint32_t slot_address(uint32_t slot)
{
    return (slot + 1u) * UMAKIT_SIMULATOR_WINDOW_BYTES;
}

/* Where the buffer of a slot begins: for each slot and seed elsewhere in a page. */
static uint32_t scattered(const struct umakit_device *device, uint32_t slot)
{
    const uint32_t place =
        (device->scatter + slot) * 2654435761u >> 20u; /* Knuth's multiplicative hash */

    return device->scatter == 0u ? 0u : place & ~(device->map_alignment - 1u);
}

uint32_t umakit_simulator_window_address(const struct umakit_device *device, uint32_t slot)
{
    return slot_address(slot) + device->windows[slot].place;
}

/* The slot that a bus address falls into, mapped or not. */
static bool find_slot(uint32_t bus_address, uint32_t *slot)
{
    uint32_t number = bus_address / UMAKIT_SIMULATOR_WINDOW_BYTES;

    if (number == 0u || number > UMAKIT_SIMULATOR_WINDOW_COUNT) {
        return false;
    }
    *slot = number - 1u;
    return true;
}

static bool is_direction(enum umakit_direction direction)
{
    return direction == UMAKIT_TO_DEVICE || direction == UMAKIT_FROM_DEVICE ||
           direction == UMAKIT_BIDIRECTIONAL;
}

int umakit_simulator_map_window(struct umakit_device *device, const void *memory, size_t bytes,
                                enum umakit_direction direction, uint32_t *bus_address)
{
    uint32_t slot;

    if (memory == NULL || bytes == 0u || bus_address == NULL || !is_direction(direction)) {
        return UMAKIT_INVALID_ARGUMENT;
    }
    if ((uintptr_t)memory % device->map_alignment != 0u) {
        return UMAKIT_MISALIGNED;
    }
    if (bytes > UMAKIT_SIMULATOR_WINDOW_BYTES -
                    (device->scatter == 0u ? 0u : UMAKIT_SIMULATOR_PAGE_BYTES)) {
        return UMAKIT_OUT_OF_RANGE;
    }
    for (slot = 0u; slot < UMAKIT_SIMULATOR_WINDOW_COUNT; ++slot) {
        struct umakit_simulator_window *window = &device->windows[slot];

        if (window->memory == NULL) {
            window->memory = memory;
            window->bytes = bytes;
            window->direction = direction;
            window->place = scattered(device, slot);
            *bus_address = umakit_simulator_window_address(device, slot);
            return UMAKIT_OK;
        }
    }
    return UMAKIT_TABLE_FULL;
}

size_t umakit_simulator_window_bytes(const struct umakit_device *device, uint32_t bus_address)
{
    uint32_t slot;

    if (!find_slot(bus_address, &slot) ||
        umakit_simulator_window_address(device, slot) != bus_address) {
        return 0u;
    }
    return device->windows[slot].bytes;
}

void umakit_simulator_free_window(struct umakit_device *device, uint32_t bus_address)
{
    uint32_t slot;

    if (find_slot(bus_address, &slot)) {
        device->windows[slot].memory = NULL;
        device->windows[slot].bytes = 0u;
        device->windows[slot].place = 0u;
    }
}

int umakit_simulator_resolve(const struct umakit_device *device, uint32_t bus_address,
                             uint64_t bytes, enum umakit_direction direction,
                             const void **memory)
{
    uint32_t slot;
    uint32_t offset;
    const struct umakit_simulator_window *window;

    if (!find_slot(bus_address, &slot)) {
        return UMAKIT_OUT_OF_RANGE;
    }
    window = &device->windows[slot];
    /* In front of the buffer it is above all sizes. */
    offset = bus_address - umakit_simulator_window_address(device, slot);
    if (window->memory == NULL || offset >= window->bytes || bytes > window->bytes - offset) {
        return UMAKIT_OUT_OF_RANGE;
    }
    if (((unsigned int)window->direction & (unsigned int)direction) !=
        (unsigned int)direction) {
        return UMAKIT_WRONG_DIRECTION;
    }
    *memory = (const unsigned char *)window->memory + offset;
    return UMAKIT_OK;
}
