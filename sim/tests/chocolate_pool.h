/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the Chocolate driver does for a layer of one tile, a pool, call by call.
 * The mock demands it, the simulator must have recorded it, and on a board's
 * registers it leaves the same values.
 */
#ifndef CHOCOLATE_POOL_H
#define CHOCOLATE_POOL_H

#include <stddef.h>
#include <stdint.h>

#include "chocolate_accelerator.h"
#include "umakit/systolic_array_registers.h"
#include "umakit/trace.h"

#define OFFSET(name) UMAKIT_SYSTOLIC_ARRAY_##name##_OFFSET
#define MASK(name) UMAKIT_SYSTOLIC_ARRAY_##name##_MASK

#define POOL_COLUMNS 4
#define POOL_DEPTH 4u
#define POOL_RESULT_AT 512u
#define POOL_INPUTS 64u  /* 4 x 8 x 2 */
#define POOL_RESULTS 16u /* 2 x 4 x 2 */
#define POOL_DATA_WINDOW 0x10000000u /* the simulator's first */
#define POOL_RESULT_WINDOW 0x20000000u
#define POOL_LIMIT 4000000000u

#define POOL_TRANSFER(bus, scratchpad, direction, bytes)                                       \
    UMAKIT_TRACE_WRITE(OFFSET(DMA_BUS_ADDRESS), (bus)),                                        \
        UMAKIT_TRACE_WRITE(OFFSET(DMA_SCRATCHPAD_START), (scratchpad)),                        \
        UMAKIT_TRACE_WRITE(OFFSET(DMA_DIRECTION), (direction)),                                \
        UMAKIT_TRACE_WRITE(OFFSET(DMA_ROW_BYTES), (bytes)),                                    \
        UMAKIT_TRACE_WRITE(OFFSET(DMA_ROWS), 1u), UMAKIT_TRACE_WRITE(OFFSET(DMA_PLANES), 1u),  \
        UMAKIT_TRACE_WRITE(OFFSET(DMA_BUS_ROW_STRIDE), 0u),                                    \
        UMAKIT_TRACE_WRITE(OFFSET(DMA_BUS_PLANE_STRIDE), 0u),                                  \
        UMAKIT_TRACE_WRITE(OFFSET(DMA_SCRATCHPAD_ROW_STRIDE), (bytes)),                        \
        UMAKIT_TRACE_WRITE(OFFSET(DMA_SCRATCHPAD_PLANE_STRIDE), (bytes)),                      \
        UMAKIT_TRACE_WRITE(OFFSET(CONTROL), MASK(CONTROL_ENQUEUE_DMA))

static const struct umakit_trace_entry pool_calls[] = {
    /* begin: is it the right device? */
    UMAKIT_TRACE_READ(OFFSET(ID), UMAKIT_SYSTOLIC_ARRAY_ID_RESET),
    UMAKIT_TRACE_READ(OFFSET(VERSION), UMAKIT_SYSTOLIC_ARRAY_VERSION_RESET),
    UMAKIT_TRACE_READ(OFFSET(ARRAY_COLUMNS), POOL_COLUMNS),
    UMAKIT_TRACE_READ(OFFSET(STATUS), MASK(STATUS_IDLE)),
    UMAKIT_TRACE_READ(OFFSET(QUEUE_DEPTH), POOL_DEPTH),
    UMAKIT_TRACE_WRITE(OFFSET(INTERRUPT_ENABLE),
                       MASK(INTERRUPT_ENABLE_COMMAND_DONE) | MASK(INTERRUPT_ENABLE_ERROR)),
    /* bind: all the host wrote is in memory before the device is told to read it. */
    UMAKIT_TRACE_MAP(POOL_INPUTS, UMAKIT_TO_DEVICE, POOL_DATA_WINDOW),
    UMAKIT_TRACE_BARRIER,
    UMAKIT_TRACE_MAP(POOL_RESULTS, UMAKIT_FROM_DEVICE, POOL_RESULT_WINDOW),
    UMAKIT_TRACE_BARRIER,
    /* load */
    POOL_TRANSFER(POOL_DATA_WINDOW, 0u, UMAKIT_SYSTOLIC_ARRAY_DMA_DIRECTION_IN, POOL_INPUTS),
    /* configure */
    UMAKIT_TRACE_WRITE(OFFSET(OPERATION), UMAKIT_SYSTOLIC_ARRAY_OPERATION_MAX_POOL),
    UMAKIT_TRACE_WRITE(OFFSET(DATAFLOW), 0u),
    UMAKIT_TRACE_WRITE(OFFSET(KERNEL_HEIGHT), 2u),
    UMAKIT_TRACE_WRITE(OFFSET(KERNEL_WIDTH), 2u),
    UMAKIT_TRACE_WRITE(OFFSET(STRIDE_HEIGHT), 2u),
    UMAKIT_TRACE_WRITE(OFFSET(STRIDE_WIDTH), 2u),
    UMAKIT_TRACE_WRITE(OFFSET(DILATION_HEIGHT), 1u),
    UMAKIT_TRACE_WRITE(OFFSET(DILATION_WIDTH), 1u),
    UMAKIT_TRACE_WRITE(OFFSET(INPUT_ZERO_POINT), 0u),
    UMAKIT_TRACE_WRITE(OFFSET(OUTPUT_ZERO_POINT), 0u),
    UMAKIT_TRACE_WRITE(OFFSET(CLIP_LOWEST), (uint32_t)-128),
    UMAKIT_TRACE_WRITE(OFFSET(CLIP_HIGHEST), 127u),
    UMAKIT_TRACE_WRITE(OFFSET(ROUNDING), 0u),
    UMAKIT_TRACE_WRITE(OFFSET(ADD), 0u),
    UMAKIT_TRACE_WRITE(OFFSET(ACCUMULATOR_START), 0u),
    /* compute */
    UMAKIT_TRACE_WRITE(OFFSET(IFMAP_START), 0u),
    UMAKIT_TRACE_WRITE(OFFSET(WEIGHTS_START), 0u),
    UMAKIT_TRACE_WRITE(OFFSET(BIAS_START), 0u),
    UMAKIT_TRACE_WRITE(OFFSET(MULTIPLIERS_START), 0u),
    UMAKIT_TRACE_WRITE(OFFSET(SHIFTS_START), 0u),
    UMAKIT_TRACE_WRITE(OFFSET(OFMAP_START), POOL_RESULT_AT),
    UMAKIT_TRACE_WRITE(OFFSET(INPUT_HEIGHT), 4u),
    UMAKIT_TRACE_WRITE(OFFSET(INPUT_WIDTH), 8u),
    UMAKIT_TRACE_WRITE(OFFSET(INPUT_CHANNELS), 2u),
    UMAKIT_TRACE_WRITE(OFFSET(OUTPUT_HEIGHT), 2u),
    UMAKIT_TRACE_WRITE(OFFSET(OUTPUT_WIDTH), 4u),
    UMAKIT_TRACE_WRITE(OFFSET(OUTPUT_CHANNELS), 2u),
    UMAKIT_TRACE_WRITE(OFFSET(PAD_TOP), 0u),
    UMAKIT_TRACE_WRITE(OFFSET(PAD_LEFT), 0u),
    UMAKIT_TRACE_WRITE(OFFSET(IFMAP_ROW_STRIDE), 16u),
    UMAKIT_TRACE_WRITE(OFFSET(IFMAP_COLUMN_STRIDE), 2u),
    UMAKIT_TRACE_WRITE(OFFSET(IFMAP_CHANNEL_STRIDE), 1u),
    UMAKIT_TRACE_WRITE(OFFSET(OFMAP_ROW_STRIDE), 8u),
    UMAKIT_TRACE_WRITE(OFFSET(OFMAP_COLUMN_STRIDE), 2u),
    UMAKIT_TRACE_WRITE(OFFSET(OFMAP_CHANNEL_STRIDE), 1u),
    UMAKIT_TRACE_WRITE(OFFSET(SCALE_COUNT), 1u),
    UMAKIT_TRACE_WRITE(OFFSET(ACCUMULATE), 0u),
    UMAKIT_TRACE_WRITE(OFFSET(ADDEND_START), 0u),
    UMAKIT_TRACE_WRITE(OFFSET(CONTROL), MASK(CONTROL_ENQUEUE_ARRAY)),
    /* store */
    POOL_TRANSFER(POOL_RESULT_WINDOW, POOL_RESULT_AT, UMAKIT_SYSTOLIC_ARRAY_DMA_DIRECTION_OUT,
                  POOL_RESULTS),
    /* finish: how it ended, and the device is left idle and silent. */
    UMAKIT_TRACE_WRITE(OFFSET(INTERRUPT_ENABLE),
                       MASK(INTERRUPT_ENABLE_QUEUE_DONE) | MASK(INTERRUPT_ENABLE_ERROR)),
    UMAKIT_TRACE_WAIT(POOL_LIMIT, UMAKIT_OK),
    UMAKIT_TRACE_READ(OFFSET(INTERRUPT_PENDING),
                      MASK(INTERRUPT_PENDING_COMMAND_DONE) |
                          MASK(INTERRUPT_PENDING_QUEUE_DONE)),
    UMAKIT_TRACE_READ(OFFSET(DMA_BYTES_LEFT), 0u),
    UMAKIT_TRACE_BARRIER,
    UMAKIT_TRACE_WRITE(OFFSET(INTERRUPT_ENABLE), 0u),
    UMAKIT_TRACE_UNMAP(POOL_DATA_WINDOW),
    UMAKIT_TRACE_UNMAP(POOL_RESULT_WINDOW),
};

#define POOL_CALLS (sizeof(pool_calls) / sizeof(pool_calls[0]))
#define POOL_ENDING 4u /* of them come behind the last read */

/* Run it; the status of the call that failed, or 0. */
static inline int run_pool(const void *data, void *result, int32_t completion)
{
    int status = chocolate_accelerator_begin(
        POOL_COLUMNS, (enum chocolate_accelerator_completion)completion);

    if (status == UMAKIT_OK) {
        status = chocolate_accelerator_bind(CHOCOLATE_ACCELERATOR_DATA, data,
                                            (int32_t)POOL_INPUTS);
    }
    if (status == UMAKIT_OK) {
        status = chocolate_accelerator_bind(CHOCOLATE_ACCELERATOR_RESULT, result,
                                            (int32_t)POOL_RESULTS);
    }
    if (status == UMAKIT_OK) {
        status = chocolate_accelerator_load(CHOCOLATE_ACCELERATOR_DATA, 0u, 0, 0, 1, 1,
                                            (int32_t)POOL_INPUTS, 0, 0);
    }
    if (status == UMAKIT_OK) {
        status = chocolate_accelerator_configure(UMAKIT_SYSTOLIC_ARRAY_OPERATION_MAX_POOL, 0, 0,
                                                 2, 2, 2, 2, 1, 1, 0, 0, -128, 127, 0);
    }
    if (status == UMAKIT_OK) {
        status = chocolate_accelerator_compute(0u, 0u, 0u, POOL_RESULT_AT, 0u, 0, 0, 0, 0, 0, 0,
                                               0, 4, 8, 2, 2, 4, 2, 0, 0, 1, 0, 0);
    }
    if (status == UMAKIT_OK) {
        status = chocolate_accelerator_store(CHOCOLATE_ACCELERATOR_RESULT, POOL_RESULT_AT, 0, 0,
                                             1, 1, (int32_t)POOL_RESULTS, 0, 0);
    }
    return status == UMAKIT_OK ? chocolate_accelerator_finish() : status;
}

#endif /* CHOCOLATE_POOL_H */
