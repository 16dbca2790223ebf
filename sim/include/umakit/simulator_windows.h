/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the simulator: the table that gives host memory a bus address. */
#ifndef UMAKIT_SIMULATOR_WINDOWS_H
#define UMAKIT_SIMULATOR_WINDOWS_H

#include <stddef.h>
#include <stdint.h>

#include "device.h"
#include "simulator.h"
#include "status.h"

/* As umakit_device_map, of a device that is there. */
UMAKIT_MUST_USE int umakit_simulator_map_window(struct umakit_device *device,
                                                const void *memory, size_t bytes,
                                                enum umakit_direction direction,
                                                uint32_t *bus_address);

/* Bus address at which the buffer of a slot begins. */
uint32_t umakit_simulator_window_address(const struct umakit_device *device, uint32_t slot);

/* Bytes of the buffer that is mapped at this bus address, its first; 0: none. */
size_t umakit_simulator_window_bytes(const struct umakit_device *device, uint32_t bus_address);

/* Free the window of a buffer that is mapped at this bus address. */
void umakit_simulator_free_window(struct umakit_device *device, uint32_t bus_address);

/* Find the memory of `bytes` bytes at a bus address, all of it in one
 * window that allows `direction`. The answer stays valid until unmapped. */
UMAKIT_MUST_USE int umakit_simulator_resolve(const struct umakit_device *device,
                                             uint32_t bus_address, uint64_t bytes,
                                             enum umakit_direction direction,
                                             const void **memory);

#endif /* UMAKIT_SIMULATOR_WINDOWS_H */
