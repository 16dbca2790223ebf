/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to the simulator: the seam between umakit_simulator.c, which calls
 * these functions, and the kinds of devices, each of which fills one table. No
 * other function of the simulator is called through a pointer.
 */
#ifndef UMAKIT_SIMULATOR_OPERATIONS_H
#define UMAKIT_SIMULATOR_OPERATIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "faults.h"
#include "simulator.h"
#include "status.h"

/* The device is the first member of the kind's own struct, so a pointer to one
 * is a pointer to the other. */
struct umakit_simulator_operations {
    uint32_t (*read32)(struct umakit_device *device, uint32_t offset);
    void (*write32)(struct umakit_device *device, uint32_t offset, uint32_t value);
    /* Advance by `cycles`, at least 1. `counters.clock` has been advanced already. */
    void (*advance)(struct umakit_device *device, uint64_t cycles);
    /* Cycles until an engine may end, at least 1; UINT64_MAX: none runs. */
    uint64_t (*next_event)(const struct umakit_device *device);
    bool (*interrupt_is_raised)(const struct umakit_device *device);
    /* Stop what uses a bus address that is about to be unmapped. */
    void (*unmapping)(struct umakit_device *device, uint32_t bus_address, size_t bytes);
    /* Keep the first error since the last CLEAR: later ones are often its
     * consequences. */
    void (*report)(struct umakit_device *device, enum umakit_status error, uint32_t address);
    /* Refuse a fault, or carry it out if it is one that happens at once. */
    int (*inject)(struct umakit_device *device, const struct umakit_fault *fault);
    void (*free_engines)(struct umakit_device *device);
};

#endif /* UMAKIT_SIMULATOR_OPERATIONS_H */
