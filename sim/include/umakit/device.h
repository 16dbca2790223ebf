/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The only way a driver touches hardware. Which device answers is chosen at
 * link time, by the file that implements these functions:
 *
 *     src/umakit_simulator.c                 the simulator
 *     board/umakit_device_memory_mapped.c    registers of a board
 *     a test's own file                      a device that misbehaves on purpose
 *
 * A device belongs to one thread at a time: nothing here locks. An exported
 * library takes the accelerator before the first driver call of a run and gives
 * it back after the last one, by the functions of umakit_lock_NAME.h, which are
 * the place for a mutex of your operating system. Code of your own that uses a
 * device outside of libraries takes it in the same way.
 */
#ifndef UMAKIT_DEVICE_H
#define UMAKIT_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What it holds is the implementer's business. */
typedef struct umakit_device umakit_device;

/* Which way data moves. A bit each, so that BIDIRECTIONAL is both. */
enum umakit_direction {
    UMAKIT_TO_DEVICE = 1,     /* the device only reads the buffer */
    UMAKIT_FROM_DEVICE = 2,   /* the device only writes the buffer */
    UMAKIT_BIDIRECTIONAL = 3
};

/* Read a register. The offset is in bytes from the first register, a multiple
 * of 4. Without a device all bits read as one, as on an empty bus. */
uint32_t umakit_device_read32(umakit_device *device, uint32_t offset);

/* Write a register. There is no status: the device reports misuse in its own
 * ERROR register, as hardware does. */
void umakit_device_write32(umakit_device *device, uint32_t offset, uint32_t value);

/*
 * Give the device access to a buffer of `bytes` bytes until it is unmapped, and
 * say at which 32-bit bus address it sees it. Host addresses may have 64 bits:
 * write only this bus address into a register. On a board this also cleans the
 * data cache. The host leaves the buffer alone while it is mapped. `memory` is
 * const so that inputs can be mapped; with FROM_DEVICE it must be writable.
 *
 * UMAKIT_INVALID_ARGUMENT  NULL, no bytes or no such direction
 * UMAKIT_MISALIGNED        memory is not at a multiple of what the device asks for
 * UMAKIT_OUT_OF_RANGE      too large for a window, or out of the device's reach
 * UMAKIT_TABLE_FULL        too many buffers are mapped
 * UMAKIT_NO_DEVICE         device is NULL or was not initialised
 *
 * On failure nothing is mapped and *bus_address is unchanged.
 */
UMAKIT_MUST_USE int umakit_device_map(umakit_device *device, const void *memory,
                                      size_t bytes, enum umakit_direction direction,
                                      uint32_t *bus_address);

/* End the access that umakit_device_map gave. On a board this invalidates the
 * data cache, so what the device wrote is seen only after it. Stop a running
 * job first. */
void umakit_device_unmap(umakit_device *device, uint32_t bus_address);

/*
 * Wait until the device raises its interrupt: a job is done or an error is
 * pending, which the STATUS register tells apart. It may return UMAKIT_OK
 * without an event: interrupt lines are shared, and the processor wakes for
 * other reasons too. So a driver looks whether something happened, and waits
 * again, a bounded number of times, if nothing did. The limit is in cycles of
 * the device; a board may count something as long as a cycle or longer.
 *
 * UMAKIT_TIMEOUT    no interrupt within the limit; a running job keeps running
 * UMAKIT_NO_DEVICE  device is NULL or was not initialised
 */
UMAKIT_MUST_USE int umakit_device_wait(umakit_device *device, uint32_t timeout_cycles);

/* Everything written before it, buffers and registers, reaches the device
 * before anything written after it; the same for reads. */
void umakit_device_barrier(umakit_device *device);

#ifdef __cplusplus
}
#endif

#endif /* UMAKIT_DEVICE_H */
