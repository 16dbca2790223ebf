/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The DMA engine and the array on one clock: how far each command is, and what
 * happens when it completes. Every cycle is the array's compute, drain, stall or
 * idle cycle; DMA cycles are counted in addition.
 */
#include "umakit/systolic_engines.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "umakit/simulator_faults.h"
#include "umakit/systolic_array.h"
#include "umakit/systolic_command.h"
#include "umakit/systolic_commands.h"
#include "umakit/systolic_jobs.h"
#include "umakit/systolic_register_file.h"

#define INTERRUPT(name) UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_PENDING_##name##_MASK

/* Whether a command progresses with time. */
static bool runs(const struct umakit_systolic_array *array,
                 const struct umakit_systolic_command *command)
{
    const struct umakit_systolic_engine *engine =
        command->stream == UMAKIT_SYSTOLIC_ARRAY ? &array->array : &array->dma;

    return (command->state == UMAKIT_SYSTOLIC_BUSY ||
            command->state == UMAKIT_SYSTOLIC_TAIL) &&
           !engine->is_stopped && !engine->is_stuck;
}

/* ---- End ---- */

/* Keep an engine busy with a command that has had its effect. The command that it
 * took after that one waits again, as if it had not begun. */
static void get_stuck(struct umakit_systolic_array *array,
                      struct umakit_systolic_command *command)
{
    const enum umakit_engine name = umakit_systolic_engine_of(command);
    uint32_t i;

    for (i = 0u; i < array->command_count; ++i) {
        struct umakit_systolic_command *other = &array->commands[i];

        if (umakit_systolic_engine_of(other) == name && runs(array, other)) {
            other->state = UMAKIT_SYSTOLIC_WAITING;
        }
    }
    command->state = UMAKIT_SYSTOLIC_STOPPED;
    command->reads = 0u;
    command->writes = 0u;
    umakit_systolic_engine_at(array, name)->is_stuck = true;
}

/* DONE, unless a fault keeps the engine busy, and its interrupt, unless a fault
 * suppresses it. */
static void end(struct umakit_systolic_array *array, uint32_t index)
{
    struct umakit_systolic_command *command = &array->commands[index];
    const enum umakit_engine name = umakit_systolic_engine_of(command);
    const bool is_enqueued = command->is_enqueued;
    const uint32_t enabled =
        umakit_systolic_register(array, UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_ENABLE_OFFSET);
    uint32_t interrupts =
        name == UMAKIT_ENGINE_DMA ? INTERRUPT(DMA_DONE) : INTERRUPT(ARRAY_DONE);

    if (umakit_simulator_trigger_fault(&array->device, UMAKIT_FAULT_STUCK_BUSY, name) != NULL) {
        get_stuck(array, command);
        return;
    }
    umakit_systolic_record(array, command);
    umakit_systolic_remove(array, index);
    if (is_enqueued) {
        interrupts = INTERRUPT(COMMAND_DONE);
        interrupts |= umakit_systolic_commands_left(array) == 0u ? INTERRUPT(QUEUE_DONE) : 0u;
    } else {
        umakit_systolic_engine_at(array, name)->is_done = true;
    }
    if ((enabled & interrupts) != 0u &&
        umakit_simulator_trigger_fault(&array->device, UMAKIT_FAULT_LOST_INTERRUPT, name) !=
            NULL) {
        return;
    }
    array->pending_interrupts |= interrupts;
}

/* A transfer stopped without an error. That of a START releases its banks; that of
 * an ENQUEUE keeps them, so that commands that depend on it do not run. */
static void halt(struct umakit_systolic_array *array, struct umakit_systolic_command *command)
{
    command->state = UMAKIT_SYSTOLIC_STOPPED;
    array->dma.is_stopped = true;
    if (!command->is_enqueued) {
        command->reads = 0u;
        command->writes = 0u;
    }
}

static void complete_transfer(struct umakit_systolic_array *array, uint32_t index)
{
    struct umakit_systolic_transfer *transfer = &array->commands[index].transfer;
    uint32_t address = 0u;
    int status = umakit_systolic_move(array, transfer, &address);

    umakit_systolic_count_transfer(array, transfer);
    if (status == UMAKIT_OK && transfer->moved < transfer->bytes) {
        if (transfer->ending == UMAKIT_FAULT_ENDS_BUSY) {
            halt(array, &array->commands[index]);
            return;
        }
        if (transfer->ending == UMAKIT_FAULT_ENDS_IN_ERROR) {
            address = 0u;
            status = UMAKIT_DMA_STOPPED;
        }
    }
    if (status != UMAKIT_OK) {
        umakit_systolic_remove(array, index);
        umakit_systolic_report(array, (enum umakit_status)status, address);
        return;
    }
    end(array, index);
}

static void complete_job(struct umakit_systolic_array *array, uint32_t index)
{
    struct umakit_simulator_counters *counters = &array->device.counters;
    const struct umakit_systolic_job *job = &array->commands[index].job;
    uint32_t address = 0u;
    const int status = umakit_systolic_run_job(array, job, &address);

    if (status != UMAKIT_OK) {
        ++counters->failed_jobs;
        umakit_systolic_remove(array, index);
        umakit_systolic_report(array, (enum umakit_status)status, address);
        return;
    }
    ++counters->jobs;
    counters->macs += job->macs;
    counters->useful_macs += job->useful_macs;
    umakit_systolic_count_job(array, job);
    end(array, index);
}

/* Index of the command that an engine took first among those that it runs, or the
 * number of commands. A load may have started before an older store. */
static uint32_t first_taken(const struct umakit_systolic_array *array, enum umakit_engine name)
{
    uint32_t first = array->command_count;
    uint32_t i;

    for (i = 0u; i < array->command_count; ++i) {
        const struct umakit_systolic_command *command = &array->commands[i];

        if (umakit_systolic_engine_of(command) == name && runs(array, command) &&
            (first == array->command_count || command->start < array->commands[first].start)) {
            first = i;
        }
    }
    return first;
}

/* Complete what has no cycles left, in order. */
static void complete(struct umakit_systolic_array *array, enum umakit_engine name)
{
    uint32_t index = first_taken(array, name);

    while (index < array->command_count) {
        const struct umakit_systolic_command *command = &array->commands[index];

        if (command->state != UMAKIT_SYSTOLIC_TAIL || command->left != 0u) {
            break;
        }
        if (name == UMAKIT_ENGINE_DMA) {
            complete_transfer(array, index);
        } else {
            complete_job(array, index);
        }
        index = first_taken(array, name);
    }
}

void umakit_systolic_free_engine(struct umakit_systolic_array *array, enum umakit_engine name)
{
    struct umakit_systolic_engine *engine = umakit_systolic_engine_at(array, name);
    uint32_t i = 0u;

    if (!engine->is_stuck) {
        return;
    }
    engine->is_stuck = false;
    while (i < array->command_count) {
        if (umakit_systolic_engine_of(&array->commands[i]) == name &&
            array->commands[i].state == UMAKIT_SYSTOLIC_STOPPED) {
            umakit_systolic_remove(array, i);
        } else {
            ++i;
        }
    }
    umakit_systolic_start_ready(array);
}

/* ---- Time ---- */

/* Of the first `elapsed` busy cycles of a job, those before the drain of a fold. */
static uint64_t compute_part(const struct umakit_systolic_command *command, uint64_t elapsed)
{
    const uint64_t compute = command->job.fold_cycles;
    const uint64_t fold = (command->busy - command->setup) / command->job.folds;
    uint64_t in_folds;
    uint64_t rest;

    if (elapsed <= command->setup) {
        return elapsed;
    }
    in_folds = elapsed - command->setup;
    rest = in_folds % fold;
    return command->setup + in_folds / fold * compute + (rest < compute ? rest : compute);
}

/* Add cycles, in which no command starts or ends, to the counters. */
static void count(struct umakit_systolic_array *array, uint64_t cycles)
{
    struct umakit_simulator_counters *counters = &array->device.counters;
    const struct umakit_systolic_command *job = NULL;
    bool drains = false;
    bool moves = false;
    uint32_t i;

    for (i = 0u; i < array->command_count; ++i) {
        const struct umakit_systolic_command *command = &array->commands[i];

        if (!runs(array, command)) {
            continue;
        }
        if (command->stream != UMAKIT_SYSTOLIC_ARRAY) {
            moves = true;
        } else if (command->state == UMAKIT_SYSTOLIC_BUSY) {
            job = command;
        } else {
            drains = true;
        }
    }
    counters->dma_cycles += moves ? cycles : 0u;
    if (job != NULL) {
        const uint64_t elapsed = job->busy - job->left;
        const uint64_t compute =
            compute_part(job, elapsed + cycles) - compute_part(job, elapsed);

        counters->compute_cycles += compute;
        counters->drain_cycles += cycles - compute;
    } else if (drains) {
        counters->drain_cycles += cycles;
    } else if (moves) {
        counters->stall_cycles += cycles;
    } else {
        counters->idle_cycles += cycles;
    }
}

/* Commands without cycles left are blocked by the one before, whose event comes
 * first. */
uint64_t umakit_systolic_next_event(const struct umakit_systolic_array *array)
{
    uint64_t next = UINT64_MAX;
    uint32_t i;

    for (i = 0u; i < array->command_count; ++i) {
        const struct umakit_systolic_command *command = &array->commands[i];

        if (runs(array, command) && command->left != 0u && command->left < next) {
            next = command->left;
        }
    }
    return next;
}

/* Advance the clock, at most to the next event. */
static void elapse(struct umakit_systolic_array *array, uint64_t cycles)
{
    uint32_t i;

    array->now += cycles;
    for (i = 0u; i < array->command_count; ++i) {
        struct umakit_systolic_command *command = &array->commands[i];

        if (!runs(array, command) || command->left == 0u) {
            continue;
        }
        command->left -= cycles;
        if (command->left == 0u && command->state == UMAKIT_SYSTOLIC_BUSY) {
            command->state = UMAKIT_SYSTOLIC_TAIL;
            command->end_of_busy = array->now;
            command->left = command->tail;
        }
    }
}

void umakit_systolic_advance(struct umakit_systolic_array *array, uint64_t cycles)
{
    while (cycles > 0u) {
        uint64_t step = umakit_systolic_next_event(array);

        if (step > cycles) {
            step = cycles;
        }
        count(array, step);
        cycles -= step;
        elapse(array, step);
        complete(array, UMAKIT_ENGINE_DMA);
        complete(array, UMAKIT_ENGINE_ARRAY);
        umakit_systolic_start_ready(array);
    }
}
