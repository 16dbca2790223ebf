/* SPDX-License-Identifier: Apache-2.0 */
/* The faults that are pending on a device, and when they take effect. */
#include "umakit/simulator_faults.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "umakit/faults.h"
#include "umakit/simulator.h"

bool umakit_simulator_fault_is_valid(const struct umakit_fault *fault)
{
    switch (fault->kind) {
    case UMAKIT_FAULT_BUS_ERROR:
        return fault->bytes != 0u && fault->address <= UINT32_MAX - (fault->bytes - 1u);
    case UMAKIT_FAULT_DMA_STOPS:
        return fault->ending == UMAKIT_FAULT_ENDS_BUSY ||
               fault->ending == UMAKIT_FAULT_ENDS_IN_ERROR ||
               fault->ending == UMAKIT_FAULT_ENDS_DONE;
    case UMAKIT_FAULT_LOST_INTERRUPT:
        return true;
    case UMAKIT_FAULT_STUCK_BUSY:
        return fault->engine == UMAKIT_ENGINE_ARRAY || fault->engine == UMAKIT_ENGINE_DMA;
    case UMAKIT_FAULT_SCRATCHPAD_BIT:
        return fault->bit < 8u;
    default:
        return false;
    }
}

int umakit_simulator_add_fault(struct umakit_device *device, const struct umakit_fault *fault)
{
    size_t i;

    for (i = 0u; i < UMAKIT_FAULT_COUNT; ++i) {
        struct umakit_fault_slot *slot = &device->faults[i];

        if (!slot->is_used) {
            *slot = (struct umakit_fault_slot){.fault = *fault, .is_used = true};
            return UMAKIT_OK;
        }
    }
    return UMAKIT_TABLE_FULL;
}

void umakit_simulator_clear_faults(struct umakit_device *device)
{
    size_t i;

    for (i = 0u; i < UMAKIT_FAULT_COUNT; ++i) {
        device->faults[i].is_used = false;
    }
}

/* One more event for a fault; whether it is one that does harm. */
static bool takes_effect(struct umakit_fault_slot *slot)
{
    const struct umakit_fault *fault = &slot->fault;
    const uint32_t number = slot->events;

    if (slot->events < UINT32_MAX) {
        ++slot->events;
    }
    return number >= fault->skip &&
           (fault->count == 0u || number - fault->skip < fault->count);
}

const struct umakit_fault *umakit_simulator_trigger_fault(struct umakit_device *device,
                                                          enum umakit_fault_kind kind,
                                                          enum umakit_engine engine)
{
    const struct umakit_fault *found = NULL;
    size_t i;

    for (i = 0u; i < UMAKIT_FAULT_COUNT; ++i) {
        struct umakit_fault_slot *slot = &device->faults[i];
        const bool concerns_engine =
            kind != UMAKIT_FAULT_STUCK_BUSY || slot->fault.engine == engine;

        if (slot->is_used && slot->fault.kind == kind && concerns_engine &&
            takes_effect(slot) && found == NULL) {
            found = &slot->fault;
        }
    }
    return found;
}

bool umakit_simulator_bus_refuses(struct umakit_device *device, uint32_t bus_address,
                                  uint64_t bytes, uint32_t *refused)
{
    bool is_refused = false;
    size_t i;

    for (i = 0u; i < UMAKIT_FAULT_COUNT; ++i) {
        struct umakit_fault_slot *slot = &device->faults[i];
        const uint64_t fault_end = (uint64_t)slot->fault.address + slot->fault.bytes;
        const uint64_t end = (uint64_t)bus_address + bytes;

        if (slot->is_used && slot->fault.kind == UMAKIT_FAULT_BUS_ERROR &&
            bus_address < fault_end && slot->fault.address < end && takes_effect(slot)) {
            *refused = bus_address > slot->fault.address ? bus_address : slot->fault.address;
            is_refused = true;
        }
    }
    return is_refused;
}
