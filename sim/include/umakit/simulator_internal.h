/* SPDX-License-Identifier: Apache-2.0 */
/* What the simulator's own files share; nobody else includes it. */
#ifndef UMAKIT_SIMULATOR_INTERNAL_H
#define UMAKIT_SIMULATOR_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "simulator.h"

/* False for NULL and for a device that was never initialised. */
bool umakit_simulator_is_present(const struct umakit_device *device);

/* Keep the first error since the last CLEAR: later ones are often its echo. */
void umakit_simulator_report(struct umakit_device *device, enum umakit_status error);

/* Stop the running job, if any, leaving its result as it was. */
void umakit_simulator_abandon_job(struct umakit_device *device);

/* Find the memory behind `bytes` bytes at a bus address, all of it in one
 * window that allows `direction`. The answer stays valid until unmapped. */
UMAKIT_MUST_USE int umakit_simulator_resolve(const struct umakit_device *device,
                                             uint32_t bus_address, uint64_t bytes,
                                             enum umakit_direction direction,
                                             const void **memory);

/* Compute a convolution. The result overlaps neither operand. */
void umakit_simulator_convolve(const struct umakit_simulator_convolution *convolution);

#endif /* UMAKIT_SIMULATOR_INTERNAL_H */
