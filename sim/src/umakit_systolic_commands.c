/* SPDX-License-Identifier: Apache-2.0 */
/* The commands of the systolic array that have not ended: which of them may
 * start, and how they leave. systolic_array.h says the rules. */
#include "umakit/systolic_commands.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "umakit/systolic_array.h"
#include "umakit/systolic_command.h"
#include "umakit/systolic_scratchpad.h"

struct umakit_systolic_engine *umakit_systolic_engine_at(struct umakit_systolic_array *array,
                                                         enum umakit_engine name)
{
    return name == UMAKIT_ENGINE_DMA ? &array->dma : &array->array;
}

uint32_t umakit_systolic_commands_left(const struct umakit_systolic_array *array)
{
    uint32_t left = 0u;
    uint32_t i;

    for (i = 0u; i < array->command_count; ++i) {
        left += array->commands[i].is_enqueued ? 1u : 0u;
    }
    return left;
}

bool umakit_systolic_is_busy(const struct umakit_systolic_array *array, enum umakit_engine name)
{
    const struct umakit_systolic_engine *engine =
        name == UMAKIT_ENGINE_DMA ? &array->dma : &array->array;
    uint32_t i;

    for (i = 0u; i < array->command_count; ++i) {
        const struct umakit_systolic_command *command = &array->commands[i];

        if (umakit_systolic_engine_of(command) == name &&
            (!command->is_enqueued || command->state != UMAKIT_SYSTOLIC_WAITING)) {
            return true;
        }
    }
    return engine->is_stuck || engine->is_stopped;
}

bool umakit_systolic_has_commands(const struct umakit_systolic_array *array,
                                  enum umakit_engine name)
{
    uint32_t i;

    for (i = 0u; i < array->command_count; ++i) {
        if (umakit_systolic_engine_of(&array->commands[i]) == name) {
            return true;
        }
    }
    return false;
}

/* ---- Which may start ---- */

static bool conflict(const struct umakit_systolic_command *left,
                     const struct umakit_systolic_command *right)
{
    if (umakit_systolic_engine_of(left) != umakit_systolic_engine_of(right)) {
        return ((left->reads | left->writes) & (right->reads | right->writes)) != 0u;
    }
    if (left->stream != right->stream && left->state != UMAKIT_SYSTOLIC_STOPPED &&
        umakit_systolic_ranges_overlap(&left->transfer.bus, &right->transfer.bus)) {
        return true;
    }
    /* Two that write a bank write it in their order. */
    return ((left->reads & right->writes) | (left->writes & right->reads)) != 0u;
}

/* At most one command is busy on an engine and one in its tail. */
static bool takes_a_command(struct umakit_systolic_array *array, enum umakit_engine name)
{
    const struct umakit_systolic_engine *engine = umakit_systolic_engine_at(array, name);
    uint32_t in_tail = 0u;
    uint32_t i;

    for (i = 0u; i < array->command_count; ++i) {
        const struct umakit_systolic_command *command = &array->commands[i];

        if (umakit_systolic_engine_of(command) == name) {
            if (command->state == UMAKIT_SYSTOLIC_BUSY) {
                return false;
            }
            in_tail += command->state == UMAKIT_SYSTOLIC_TAIL ? 1u : 0u;
        }
    }
    return in_tail <= 1u && !engine->is_stuck && !engine->is_stopped;
}

static bool may_start(struct umakit_systolic_array *array, uint32_t index)
{
    const struct umakit_systolic_command *command = &array->commands[index];
    uint32_t i;

    if (!takes_a_command(array, umakit_systolic_engine_of(command))) {
        return false;
    }
    for (i = 0u; i < index; ++i) {
        const struct umakit_systolic_command *older = &array->commands[i];

        if ((older->stream == command->stream && older->state == UMAKIT_SYSTOLIC_WAITING) ||
            conflict(older, command)) {
            return false;
        }
    }
    return true;
}

void umakit_systolic_start_ready(struct umakit_systolic_array *array)
{
    uint32_t i;

    for (i = 0u; i < array->command_count; ++i) {
        struct umakit_systolic_command *command = &array->commands[i];

        if (command->state == UMAKIT_SYSTOLIC_WAITING && may_start(array, i)) {
            command->state = UMAKIT_SYSTOLIC_BUSY;
            command->left = command->busy;
            command->start = array->now;
        }
    }
}

/* ---- How they leave ---- */

void umakit_systolic_remove(struct umakit_systolic_array *array, uint32_t index)
{
    struct umakit_systolic_command *command = &array->commands[index];

    if (command->stream != UMAKIT_SYSTOLIC_ARRAY &&
        (!command->is_enqueued || command->state != UMAKIT_SYSTOLIC_WAITING)) {
        const uint32_t left = command->transfer.bytes - command->transfer.moved;
        const uint32_t room = UINT32_MAX - array->bytes_left;

        array->bytes_left += left < room ? left : room;
    }
    --array->command_count;
    memmove(command, command + 1, (array->command_count - index) * sizeof(*command));
}

/* Remove a command before its end. */
static void drop(struct umakit_systolic_array *array, uint32_t index)
{
    if (array->commands[index].stream == UMAKIT_SYSTOLIC_ARRAY &&
        array->commands[index].state != UMAKIT_SYSTOLIC_STOPPED) {
        ++array->device.counters.failed_jobs;
    }
    umakit_systolic_remove(array, index);
}

/* What an error does to commands. */
static void drop_enqueued(struct umakit_systolic_array *array)
{
    uint32_t i = 0u;

    while (i < array->command_count) {
        if (array->commands[i].is_enqueued) {
            drop(array, i);
        } else {
            ++i;
        }
    }
    umakit_systolic_start_ready(array);
}

void umakit_systolic_report(struct umakit_systolic_array *array, enum umakit_status error,
                            uint32_t address)
{
    if (array->error == UMAKIT_OK) {
        array->error = error;
        array->error_address = address;
        array->pending_interrupts |= UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_PENDING_ERROR_MASK;
        drop_enqueued(array);
    }
}

void umakit_systolic_stop(struct umakit_systolic_array *array)
{
    while (array->command_count > 0u) {
        drop(array, array->command_count - 1u);
    }
    array->bytes_left = 0u;
    array->dma.is_stopped = false;
    array->dma.is_done = false;
    array->array.is_done = false;
}

void umakit_systolic_unmap(struct umakit_systolic_array *array, uint32_t bus_address,
                           size_t bytes)
{
    uint32_t i = 0u;

    while (i < array->command_count) {
        const struct umakit_systolic_command *command = &array->commands[i];
        const uint32_t used = command->transfer.bus.start;
        const bool is_over =
            array->dma.is_stuck && command->state == UMAKIT_SYSTOLIC_STOPPED;

        if (command->stream != UMAKIT_SYSTOLIC_ARRAY && !is_over && used >= bus_address &&
            used - bus_address < bytes) {
            drop(array, i);
            array->dma.is_stopped = false;
            umakit_systolic_report(array, UMAKIT_BUS_ERROR, used);
            i = 0u; /* an error drops commands */
        } else {
            ++i;
        }
    }
    umakit_systolic_start_ready(array);
}
