/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the Strawberry driver does to copy 64 bytes into the scratchpad, call by
 * call. The mock demands it, the simulator must have recorded it, and on a
 * board's registers it leaves the same values.
 */
#ifndef STRAWBERRY_COPY_H
#define STRAWBERRY_COPY_H

#include <stddef.h>
#include <stdint.h>

#include "umakit/systolic_array_registers.h"
#include "umakit/trace.h"

#define OFFSET(name) UMAKIT_SYSTOLIC_ARRAY_##name##_OFFSET
#define MASK(name) UMAKIT_SYSTOLIC_ARRAY_##name##_MASK

#define COPY_BYTES 64u
#define COPY_START 128u
#define COPY_SCRATCHPAD_BYTES 1024u
#define COPY_WINDOW 0x10000000u /* the simulator's first */
#define COPY_LIMIT 4000000000u

static const struct umakit_trace_entry copy_calls[] = {
    /* Is it the right device, and is there room? */
    UMAKIT_TRACE_READ(OFFSET(ID), UMAKIT_SYSTOLIC_ARRAY_ID_RESET),
    UMAKIT_TRACE_READ(OFFSET(VERSION), UMAKIT_SYSTOLIC_ARRAY_VERSION_RESET),
    UMAKIT_TRACE_READ(OFFSET(STATUS), MASK(STATUS_IDLE)),
    UMAKIT_TRACE_READ(OFFSET(SCRATCHPAD_BYTES), COPY_SCRATCHPAD_BYTES),
    UMAKIT_TRACE_MAP(COPY_BYTES, UMAKIT_TO_DEVICE, COPY_WINDOW),
    /* The transfer. */
    UMAKIT_TRACE_WRITE(OFFSET(DMA_BUS_ADDRESS), COPY_WINDOW),
    UMAKIT_TRACE_WRITE(OFFSET(DMA_SCRATCHPAD_START), COPY_START),
    UMAKIT_TRACE_WRITE(OFFSET(DMA_DIRECTION), UMAKIT_SYSTOLIC_ARRAY_DMA_DIRECTION_IN),
    UMAKIT_TRACE_WRITE(OFFSET(DMA_ROW_BYTES), COPY_BYTES),
    UMAKIT_TRACE_WRITE(OFFSET(DMA_ROWS), 1u),
    UMAKIT_TRACE_WRITE(OFFSET(DMA_PLANES), 1u),
    UMAKIT_TRACE_WRITE(OFFSET(INTERRUPT_ENABLE),
                       MASK(INTERRUPT_ENABLE_DMA_DONE) | MASK(INTERRUPT_ENABLE_ERROR)),
    UMAKIT_TRACE_BARRIER,
    UMAKIT_TRACE_WRITE(OFFSET(CONTROL), MASK(CONTROL_CLEAR) | MASK(CONTROL_DMA_START)),
    UMAKIT_TRACE_WAIT(COPY_LIMIT, UMAKIT_OK),
    UMAKIT_TRACE_BARRIER,
    /* How it ended. */
    UMAKIT_TRACE_READ(OFFSET(STATUS), MASK(STATUS_IDLE) | MASK(STATUS_DMA_DONE)),
    UMAKIT_TRACE_READ(OFFSET(DMA_BYTES_LEFT), 0u),
    UMAKIT_TRACE_WRITE(OFFSET(INTERRUPT_ENABLE), 0u),
    UMAKIT_TRACE_UNMAP(COPY_WINDOW),
};

#define COPY_CALLS (sizeof(copy_calls) / sizeof(copy_calls[0]))

#endif /* STRAWBERRY_COPY_H */
