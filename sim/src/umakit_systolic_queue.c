/* SPDX-License-Identifier: Apache-2.0 */
/* START and ENQUEUE: how the systolic array is given commands. */
#include "umakit/systolic_engines.h"

#include <stdbool.h>
#include <stdint.h>

#include "umakit/systolic_array.h"
#include "umakit/systolic_command.h"
#include "umakit/systolic_commands.h"
#include "umakit/systolic_jobs.h"

#define INTERRUPT(name) UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_PENDING_##name##_MASK

/* Append a command with what the registers say. */
static bool append(struct umakit_systolic_array *array, enum umakit_engine name,
                   bool is_enqueued)
{
    struct umakit_systolic_command *command = &array->commands[array->command_count];
    uint32_t address = 0u;
    int status;

    *command = (struct umakit_systolic_command){.is_enqueued = is_enqueued};
    status = name == UMAKIT_ENGINE_DMA ? umakit_systolic_prepare_dma(array, command, &address)
                                       : umakit_systolic_prepare_job(array, command, &address);
    if (status != UMAKIT_OK) {
        umakit_systolic_report(array, (enum umakit_status)status, address);
        return false;
    }
    if (name == UMAKIT_ENGINE_DMA && !is_enqueued) {
        array->bytes_left = 0u;
    }
    command->number = array->command_number;
    command->issued = array->now;
    ++array->command_number;
    ++array->command_count;
    umakit_systolic_start_ready(array);
    return true;
}

static void refuse(struct umakit_systolic_array *array)
{
    umakit_systolic_report(array, UMAKIT_BUSY, UMAKIT_SYSTOLIC_ARRAY_CONTROL_OFFSET);
}

static bool try_start(struct umakit_systolic_array *array, enum umakit_engine name)
{
    if (umakit_systolic_is_busy(array, name) || umakit_systolic_has_commands(array, name)) {
        refuse(array);
        return false;
    }
    /* The registers may be wrong after an earlier error. */
    if (array->error != UMAKIT_OK) {
        return false;
    }
    umakit_systolic_engine_at(array, name)->is_done = false;
    array->pending_interrupts &=
        ~(name == UMAKIT_ENGINE_DMA ? INTERRUPT(DMA_DONE) : INTERRUPT(ARRAY_DONE));
    return append(array, name, false);
}

/* ENQUEUE: a full queue is an error; while an error is pending nothing is appended. */
static bool try_enqueue(struct umakit_systolic_array *array, enum umakit_engine name)
{
    if (umakit_systolic_commands_left(array) == array->config.command_queue_depth) {
        refuse(array);
        return false;
    }
    if (array->error != UMAKIT_OK) {
        return false;
    }
    array->pending_interrupts &= ~INTERRUPT(QUEUE_DONE);
    return append(array, name, true);
}

void umakit_systolic_start(struct umakit_systolic_array *array, enum umakit_engine name)
{
    if (!try_start(array, name) && name == UMAKIT_ENGINE_ARRAY) {
        ++array->device.counters.failed_jobs;
    }
}

void umakit_systolic_enqueue(struct umakit_systolic_array *array, enum umakit_engine name)
{
    if (!try_enqueue(array, name) && name == UMAKIT_ENGINE_ARRAY) {
        ++array->device.counters.failed_jobs;
    }
}
