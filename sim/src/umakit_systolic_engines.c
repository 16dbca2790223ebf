/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The DMA engine and the array on one clock: who runs, who waits for a bank,
 * and what happens when a job ends. Every cycle is the array's compute, drain,
 * stall or idle cycle; DMA cycles are counted beside them.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "umakit/simulator_internal.h"
#include "umakit/systolic_array_internal.h"

uint64_t umakit_systolic_product(uint64_t left, uint64_t right)
{
    return left != 0u && right > UINT64_MAX / left ? UINT64_MAX : left * right;
}

static bool runs(const struct umakit_systolic_engine *engine)
{
    return engine->is_busy && !engine->waits && !engine->is_stopped && !engine->is_stuck;
}

static struct umakit_systolic_engine *other_of(struct umakit_systolic_array *array,
                                               const struct umakit_systolic_engine *engine)
{
    return engine == &array->dma ? &array->array : &array->dma;
}

/* ---- Start ---- */

static void start(struct umakit_systolic_array *array, struct umakit_systolic_engine *engine)
{
    const struct umakit_systolic_engine *other = other_of(array, engine);

    engine->is_busy = true;
    engine->waits = runs(other) && (engine->banks & other->banks) != 0u;
}

/* What START does for either engine; true if it may start. */
static bool may_start(struct umakit_systolic_array *array,
                      const struct umakit_systolic_engine *engine)
{
    if (engine->is_busy) {
        umakit_systolic_report(array, UMAKIT_BUSY, UMAKIT_SYSTOLIC_ARRAY_CONTROL_OFFSET);
        return false;
    }
    /* What went wrong before may have spoiled the registers. */
    return array->error == UMAKIT_OK;
}

void umakit_systolic_start_dma(struct umakit_systolic_array *array)
{
    uint32_t address = 0u;
    int status;

    if (!may_start(array, &array->dma)) {
        return;
    }
    array->dma.is_done = false;
    array->pending_interrupts &= ~UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_PENDING_DMA_DONE_MASK;
    status = umakit_systolic_prepare_dma(array, &address);
    if (status != UMAKIT_OK) {
        umakit_systolic_report(array, (enum umakit_status)status, address);
        return;
    }
    start(array, &array->dma);
}

void umakit_systolic_start_array(struct umakit_systolic_array *array)
{
    uint32_t address = 0u;
    int status;

    if (!may_start(array, &array->array)) {
        ++array->device.counters.failed_jobs;
        return;
    }
    array->array.is_done = false;
    array->pending_interrupts &= ~UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_PENDING_ARRAY_DONE_MASK;
    status = umakit_systolic_prepare_job(array, &address);
    if (status != UMAKIT_OK) {
        ++array->device.counters.failed_jobs;
        umakit_systolic_report(array, (enum umakit_status)status, address);
        return;
    }
    start(array, &array->array);
}

/* ---- Stop ---- */

/* The engine is free, and so are its banks. */
static void release(struct umakit_systolic_array *array, struct umakit_systolic_engine *engine)
{
    engine->is_busy = false;
    engine->is_stopped = false;
    engine->waits = false;
    other_of(array, engine)->waits = false;
}

void umakit_systolic_stop_dma(struct umakit_systolic_array *array)
{
    if (array->dma.is_busy && !array->dma.is_stuck) {
        release(array, &array->dma);
    }
}

void umakit_systolic_stop(struct umakit_systolic_array *array)
{
    umakit_systolic_stop_dma(array);
    if (array->array.is_busy && !array->array.is_stuck) {
        release(array, &array->array);
        ++array->device.counters.failed_jobs;
    }
    array->dma.is_done = false;
    array->array.is_done = false;
}

/* ---- End ---- */

/* DONE, unless a fault keeps the engine busy, and its interrupt, unless a fault
 * swallows it. */
static void end(struct umakit_systolic_array *array, struct umakit_systolic_engine *engine,
                enum umakit_engine name, uint32_t interrupt)
{
    const uint32_t enabled =
        umakit_systolic_register(array, UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_ENABLE_OFFSET);

    release(array, engine);
    if (umakit_simulator_strike(&array->device, UMAKIT_FAULT_STUCK_BUSY, name) != NULL) {
        engine->is_busy = true;
        engine->is_stuck = true;
        return;
    }
    engine->is_done = true;
    if ((enabled & interrupt) != 0u &&
        umakit_simulator_strike(&array->device, UMAKIT_FAULT_LOST_INTERRUPT, name) != NULL) {
        return;
    }
    array->pending_interrupts |= interrupt;
}

static void end_dma(struct umakit_systolic_array *array)
{
    const struct umakit_systolic_transfer *transfer = &array->transfer;
    uint32_t address = 0u;
    const int status = umakit_systolic_move(array, &address);

    if (status != UMAKIT_OK) {
        release(array, &array->dma);
        umakit_systolic_report(array, (enum umakit_status)status, address);
        return;
    }
    if (transfer->moved < transfer->bytes && transfer->ending != UMAKIT_FAULT_ENDS_DONE) {
        release(array, &array->dma);
        if (transfer->ending == UMAKIT_FAULT_ENDS_BUSY) {
            array->dma.is_busy = true;
            array->dma.is_stopped = true;
        } else {
            umakit_systolic_report(array, UMAKIT_DMA_STOPPED, 0u);
        }
        return;
    }
    end(array, &array->dma, UMAKIT_ENGINE_DMA,
        UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_PENDING_DMA_DONE_MASK);
}

static void end_array(struct umakit_systolic_array *array)
{
    struct umakit_simulator_counters *counters = &array->device.counters;
    uint32_t address = 0u;
    const int status = umakit_systolic_run_job(array, &address);

    if (status != UMAKIT_OK) {
        release(array, &array->array);
        ++counters->failed_jobs;
        umakit_systolic_report(array, (enum umakit_status)status, address);
        return;
    }
    ++counters->jobs;
    counters->macs += array->job.macs;
    counters->useful_macs += array->job.useful_macs;
    end(array, &array->array, UMAKIT_ENGINE_ARRAY,
        UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_PENDING_ARRAY_DONE_MASK);
}

/* ---- Time ---- */

/* Of the first `elapsed` cycles of a job, those before the drain of a fold. */
static uint64_t compute_part(const struct umakit_systolic_array *array, uint64_t elapsed)
{
    const uint64_t compute = array->job.fold_cycles;
    const uint64_t fold = array->array.cycles / array->job.folds;
    const uint64_t rest = elapsed % fold;

    return elapsed / fold * compute + (rest < compute ? rest : compute);
}

static void count(struct umakit_systolic_array *array, uint64_t cycles)
{
    struct umakit_simulator_counters *counters = &array->device.counters;
    const uint64_t elapsed = array->array.elapsed;

    if (runs(&array->dma)) {
        counters->dma_cycles += cycles;
    }
    if (runs(&array->array)) {
        const uint64_t compute =
            compute_part(array, elapsed + cycles) - compute_part(array, elapsed);

        counters->compute_cycles += compute;
        counters->drain_cycles += cycles - compute;
    } else if (runs(&array->dma)) {
        counters->stall_cycles += cycles;
    } else {
        counters->idle_cycles += cycles;
    }
}

static uint64_t cycles_left(const struct umakit_systolic_engine *engine)
{
    return runs(engine) ? engine->cycles - engine->elapsed : UINT64_MAX;
}

uint64_t umakit_systolic_next_event(const struct umakit_systolic_array *array)
{
    const uint64_t dma = cycles_left(&array->dma);
    const uint64_t job = cycles_left(&array->array);

    return dma < job ? dma : job;
}

void umakit_systolic_advance(struct umakit_systolic_array *array, uint64_t cycles)
{
    while (cycles > 0u) {
        const bool dma_runs = runs(&array->dma);
        const bool array_runs = runs(&array->array);
        uint64_t step = umakit_systolic_next_event(array);

        if (step > cycles) {
            step = cycles;
        }
        count(array, step);
        cycles -= step;
        array->dma.elapsed += dma_runs ? step : 0u;
        array->array.elapsed += array_runs ? step : 0u;
        if (dma_runs && array->dma.elapsed == array->dma.cycles) {
            end_dma(array);
        }
        if (array_runs && array->array.elapsed == array->array.cycles) {
            end_array(array);
        }
    }
}
