/* SPDX-License-Identifier: Apache-2.0 */
/* What writing a register of the simulated systolic array does. */
#include "umakit/systolic_engines.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "umakit/static_assert.h"
#include "umakit/systolic_array.h"
#include "umakit/systolic_commands.h"
#include "umakit/systolic_register_file.h"

#define OFFSET(name) UMAKIT_SYSTOLIC_ARRAY_##name##_OFFSET
#define CONTROL(name) UMAKIT_SYSTOLIC_ARRAY_CONTROL_##name##_MASK
#define INTERRUPT(name) UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_PENDING_##name##_MASK

#define COMMANDS \
    (CONTROL(DMA_START) | CONTROL(ARRAY_START) | CONTROL(CLEAR) | CONTROL(RESET_COUNTERS))
#define INTERRUPTS (INTERRUPT(DMA_DONE) | INTERRUPT(ARRAY_DONE) | INTERRUPT(ERROR))

/* Those of devices with a queue. */
#define QUEUE_COMMANDS (CONTROL(ENQUEUE_DMA) | CONTROL(ENQUEUE_ARRAY))
#define QUEUE_INTERRUPTS (INTERRUPT(QUEUE_DONE) | INTERRUPT(COMMAND_DONE))

UMAKIT_STATIC_ASSERT(UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_ENABLE_DMA_DONE_MASK ==
                             INTERRUPT(DMA_DONE) &&
                         UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_ENABLE_ARRAY_DONE_MASK ==
                             INTERRUPT(ARRAY_DONE) &&
                         UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_ENABLE_ERROR_MASK ==
                             INTERRUPT(ERROR) &&
                         UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_ENABLE_QUEUE_DONE_MASK ==
                             INTERRUPT(QUEUE_DONE) &&
                         UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_ENABLE_COMMAND_DONE_MASK ==
                             INTERRUPT(COMMAND_DONE),
                     enable_and_pending_have_the_same_bits);

static bool has_queue(const struct umakit_systolic_array *array)
{
    return array->config.command_queue_depth != 0u;
}

static void write_control(struct umakit_systolic_array *array, uint32_t commands)
{
    const uint32_t allowed = COMMANDS | (has_queue(array) ? QUEUE_COMMANDS : 0u);

    if ((commands & ~allowed) != 0u) {
        umakit_systolic_report(array, UMAKIT_INVALID_ARGUMENT, OFFSET(CONTROL));
        return;
    }
    if ((commands & CONTROL(CLEAR)) != 0u) {
        umakit_systolic_stop(array);
        array->pending_interrupts = 0u;
        array->error = UMAKIT_OK;
        array->error_address = 0u;
        array->registers[OFFSET(ADD) / 4u] = 0u;
        array->registers[OFFSET(ACCUMULATE) / 4u] = 0u;
    }
    if ((commands & CONTROL(RESET_COUNTERS)) != 0u) {
        size_t i;

        array->at_reset = array->device.counters;
        for (i = 0u; i < UMAKIT_SYSTOLIC_ARRAY_COUNTER_COUNT; ++i) {
            array->captured_high[i] = 0u;
        }
    }
    if ((commands & CONTROL(DMA_START)) != 0u) {
        umakit_systolic_start(array, UMAKIT_ENGINE_DMA);
    }
    if ((commands & CONTROL(ARRAY_START)) != 0u) {
        umakit_systolic_start(array, UMAKIT_ENGINE_ARRAY);
    }
    if ((commands & CONTROL(ENQUEUE_DMA)) != 0u) {
        umakit_systolic_enqueue(array, UMAKIT_ENGINE_DMA);
    }
    if ((commands & CONTROL(ENQUEUE_ARRAY)) != 0u) {
        umakit_systolic_enqueue(array, UMAKIT_ENGINE_ARRAY);
    }
}

static void write_interrupts(struct umakit_systolic_array *array, uint32_t offset,
                             uint32_t value)
{
    const uint32_t allowed = INTERRUPTS | (has_queue(array) ? QUEUE_INTERRUPTS : 0u);

    if ((value & ~allowed) != 0u) {
        umakit_systolic_report(array, UMAKIT_INVALID_ARGUMENT, offset);
    } else if (offset == OFFSET(INTERRUPT_PENDING)) {
        array->pending_interrupts &= ~value;
    } else {
        array->registers[offset / 4u] = value;
    }
}

static bool is_locked(const struct umakit_systolic_array *array, uint32_t offset)
{
    return !has_queue(array) &&
           umakit_systolic_is_busy(array, umakit_systolic_is_dma_register(offset)
                                              ? UMAKIT_ENGINE_DMA
                                              : UMAKIT_ENGINE_ARRAY);
}

void umakit_systolic_write(struct umakit_systolic_array *array, uint32_t offset, uint32_t value)
{
    if (offset == OFFSET(CONTROL)) {
        write_control(array, value);
    } else if (offset == OFFSET(INTERRUPT_ENABLE) || offset == OFFSET(INTERRUPT_PENDING)) {
        write_interrupts(array, offset, value);
    } else if (!umakit_systolic_is_dma_register(offset) &&
               !umakit_systolic_is_job_register(offset)) { /* no register, or read only */
        umakit_systolic_report(array, UMAKIT_INVALID_REGISTER, offset);
    } else if (is_locked(array, offset)) {
        umakit_systolic_report(array, UMAKIT_BUSY, offset);
    } else {
        array->registers[offset / 4u] = value;
    }
}
