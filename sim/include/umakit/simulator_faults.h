/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the simulator: the faults that are pending on a device. */
#ifndef UMAKIT_SIMULATOR_FAULTS_H
#define UMAKIT_SIMULATOR_FAULTS_H

#include <stdbool.h>
#include <stdint.h>

#include "faults.h"
#include "simulator.h"
#include "status.h"

/* Whether the fields are those that the fault's kind allows. */
bool umakit_simulator_fault_is_valid(const struct umakit_fault *fault);

/* UMAKIT_TABLE_FULL, as umakit_simulator_inject. */
UMAKIT_MUST_USE int umakit_simulator_add_fault(struct umakit_device *device,
                                               const struct umakit_fault *fault);
void umakit_simulator_clear_faults(struct umakit_device *device);

/* The pending fault of this kind and engine that takes effect now, or NULL. Each
 * call is an event. */
const struct umakit_fault *umakit_simulator_trigger_fault(struct umakit_device *device,
                                                          enum umakit_fault_kind kind,
                                                          enum umakit_engine engine);

/* The same for UMAKIT_FAULT_BUS_ERROR: whether the bus refuses one of `bytes`
 * bytes, and the first that it does. */
bool umakit_simulator_bus_refuses(struct umakit_device *device, uint32_t bus_address,
                                  uint64_t bytes, uint32_t *refused);

#endif /* UMAKIT_SIMULATOR_FAULTS_H */
