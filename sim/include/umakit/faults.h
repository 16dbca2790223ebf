/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Faults of simulated hardware, on request: a driver must answer each with a
 * status of its own, in bounded time and without a wrong result that it calls
 * right. Without an injected fault a device does not fail.
 */
#ifndef UMAKIT_FAULTS_H
#define UMAKIT_FAULTS_H

#include <stdbool.h>
#include <stdint.h>

#include "device.h"
#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Faults that a device can hold at once. */
#define UMAKIT_FAULT_COUNT 8u

enum umakit_fault_kind {
    /* The bus refuses accesses to the bytes `address` to `address + bytes - 1`.
     * An event is a row of a transfer, or an operand of a job of the MAC array,
     * that touches them. */
    UMAKIT_FAULT_BUS_ERROR = 1,
    /* The DMA engine moves `bytes` bytes and stops; `ending` is what the driver
     * gets to see. An event is a transfer; one of no more bytes is not harmed. */
    UMAKIT_FAULT_DMA_STOPS = 2,
    /* A transfer or job ends and sets DONE, but no interrupt comes. An event is
     * an interrupt that DONE would have raised. */
    UMAKIT_FAULT_LOST_INTERRUPT = 3,
    /* A transfer or job ends and its engine stays busy, without DONE and
     * interrupt, until the fault is removed: CLEAR does not help. An event is
     * the end of a job of `engine`. */
    UMAKIT_FAULT_STUCK_BUSY = 4,
    /* Flips bit `bit` of the byte at scratchpad offset `address`, once and now.
     * Parity finds it when the byte is read; writing the byte restores it. */
    UMAKIT_FAULT_SCRATCHPAD_BIT = 5
};

enum umakit_fault_ending {
    UMAKIT_FAULT_ENDS_BUSY = 0, /* busy for good, BYTES_LEFT above 0, no interrupt */
    UMAKIT_FAULT_ENDS_IN_ERROR = 1, /* error UMAKIT_DMA_STOPPED and its interrupt */
    UMAKIT_FAULT_ENDS_DONE = 2 /* DONE and its interrupt: only BYTES_LEFT tells */
};

enum umakit_engine {
    UMAKIT_ENGINE_ARRAY = 0, /* of the MAC array its only one */
    UMAKIT_ENGINE_DMA = 1
};

struct umakit_fault {
    enum umakit_fault_kind kind;
    uint32_t skip;  /* events that pass unharmed before the first that does not */
    uint32_t count; /* events that are harmed then; 0: all */
    uint32_t address;
    uint32_t bytes;
    uint32_t bit; /* 0 to 7 */
    enum umakit_engine engine;
    enum umakit_fault_ending ending;
};

/*
 * Let a fault happen. Several may be pending.
 *
 * UMAKIT_NO_DEVICE         device is NULL or was not initialised
 * UMAKIT_INVALID_ARGUMENT  NULL, or a field that its kind does not allow
 * UMAKIT_OUT_OF_RANGE      a scratchpad offset outside the scratchpad
 * UMAKIT_UNSUPPORTED       the device has no such part: the MAC array has no DMA
 *                          engine and no scratchpad
 * UMAKIT_TABLE_FULL        UMAKIT_FAULT_COUNT faults are pending
 */
UMAKIT_MUST_USE int umakit_simulator_inject(umakit_device *device,
                                            const struct umakit_fault *fault);

/* Remove all faults and free engines that are stuck. A flipped bit stays. */
void umakit_simulator_remove_faults(umakit_device *device);

/* From here on: the simulator's own. */

struct umakit_fault_slot {
    struct umakit_fault fault;
    uint32_t events;
    bool is_used;
};

#ifdef __cplusplus
}
#endif

#endif /* UMAKIT_FAULTS_H */
