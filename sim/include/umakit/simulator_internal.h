/* SPDX-License-Identifier: Apache-2.0 */
/* What the simulator's own files share; nobody else includes it. */
#ifndef UMAKIT_SIMULATOR_INTERNAL_H
#define UMAKIT_SIMULATOR_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "simulator.h"

/* One table for each kind of device. The device is the first member of the
 * kind's own struct, so a pointer to one is a pointer to the other. */
struct umakit_simulator_operations {
    uint32_t (*read32)(struct umakit_device *device, uint32_t offset);
    void (*write32)(struct umakit_device *device, uint32_t offset, uint32_t value);
    /* Let `cycles` go by, at least 1. The clock has been put forward. */
    void (*advance)(struct umakit_device *device, uint64_t cycles);
    /* Cycles until an engine may end, at least 1; UINT64_MAX: none runs. */
    uint64_t (*next_event)(const struct umakit_device *device);
    bool (*interrupt_is_raised)(const struct umakit_device *device);
    /* Stop what uses a bus address that is about to be unmapped. */
    void (*unmapping)(struct umakit_device *device, uint32_t bus_address, size_t bytes);
    /* Keep the first error since the last CLEAR: later ones are often its echo. */
    void (*report)(struct umakit_device *device, enum umakit_status error, uint32_t address);
    /* Refuse a fault, or carry it out if it is one that happens at once. */
    int (*inject)(struct umakit_device *device, const struct umakit_fault *fault);
    void (*free_engines)(struct umakit_device *device);
};

/* False for NULL and for a device that was never initialised. */
bool umakit_simulator_is_present(const struct umakit_device *device);

/* A device in its reset state; memory to map must be a multiple of alignment. */
void umakit_simulator_reset(struct umakit_device *device,
                            const struct umakit_simulator_operations *operations,
                            uint32_t map_alignment);

void umakit_simulator_add_trace(struct umakit_device *device, struct umakit_trace_entry entry);

/* Find the memory behind `bytes` bytes at a bus address, all of it in one
 * window that allows `direction`. The answer stays valid until unmapped. */
UMAKIT_MUST_USE int umakit_simulator_resolve(const struct umakit_device *device,
                                             uint32_t bus_address, uint64_t bytes,
                                             enum umakit_direction direction,
                                             const void **memory);

/* The pending fault of this kind and engine that strikes now, or NULL. Each
 * call is an event. */
const struct umakit_fault *umakit_simulator_strike(struct umakit_device *device,
                                                   enum umakit_fault_kind kind,
                                                   enum umakit_engine engine);

/* The same for UMAKIT_FAULT_BUS_ERROR: whether the bus refuses one of `bytes`
 * bytes, and the first that it does. */
bool umakit_simulator_bus_refuses(struct umakit_device *device, uint32_t bus_address,
                                  uint64_t bytes, uint32_t *refused);

#endif /* UMAKIT_SIMULATOR_INTERNAL_H */
