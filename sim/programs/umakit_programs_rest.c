/* SPDX-License-Identifier: Apache-2.0 */
/* Waits of a program, and when a side has come to rest. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "umakit_programs_internal.h"

/* Cycles in which a counter of busy cycles that grows while there is work does not stand still. */
#define QUIET 32u

/* Of a model without a clock: cycles of a wait, at most. */
#define UNKNOWN_WAIT 20000u
#define WAIT_SLICE 256u

/* Cycles that the RTL may be late by with an interrupt, and for each cycle of the model's. */
#define LATE 20000u
#define MORE 16u

/* The same for a design that differs: it may only be slower than its model. Nothing says when a
 * wait without an interrupt is over, so that such a wait is shorter. */
#define LATE_AT_MOST 200000u
#define MORE_AT_MOST 1000u
#define BLIND_AT_MOST 4000000u

static uint64_t busy_cycles(const struct umakit_programs_run *run)
{
    struct umakit_own_counters counters;

    umakit_simulator_measure(run->device, &counters);
    return counters.busy_cycles;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ---- What the device says of itself ---- */

static bool is_busy(const struct umakit_programs_run *run)
{
    return (umakit_device_read32(run->device, run->setting->busy) & run->setting->busy_mask) != 0u;
}

/* Whether a device that can say it says that there is no more work. */
static bool says_rest(const struct umakit_programs_run *run,
                      const struct umakit_programs_access *polled)
{
    uint32_t value;

    if (run->setting->has_busy || polled == NULL) {
        return run->setting->has_busy && !is_busy(run);
    }
    value = umakit_device_read32(run->device, polled->offset);
    return ((value ^ polled->expected) & polled->value) == 0u;
}

/* ---- The model ---- */

/* When its counter of busy cycles was last seen to grow. */
struct stillness {
    uint64_t busy;
    uint64_t since; /* clock */
};

/* Cycles for which the counter of busy cycles has not grown. */
static uint64_t still_for(const struct umakit_programs_run *run, struct stillness *still)
{
    const uint64_t busy = busy_cycles(run), now = umakit_programs_clock(run);

    if (busy != still->busy) {
        *still = (struct stillness){.busy = busy, .since = now};
    }
    return now - still->since;
}

/* Cycles after which a counter that stands still says that there is no work: of one that does not
 * grow while there is work, or of none, as long as the layer takes. */
static uint64_t enough(const struct umakit_programs_run *run)
{
    const bool is_known = run->is_at_rest || run->has_ended || run->setting->counts_work;

    return is_known ? QUIET : run->program->cycles + WAIT_SLICE;
}

static enum umakit_programs_end wait_on_model(struct umakit_programs_run *run, uint32_t limit)
{
    struct umakit_programs_note *const note =
        umakit_programs_note(run, UMAKIT_PROGRAMS_INTERRUPT, 0u);
    const uint64_t begin = umakit_programs_clock(run);
    struct stillness still = {.busy = busy_cycles(run), .since = begin};
    bool is_raised = false, is_over = false;
    uint64_t left = limit;

    if (note == NULL) {
        return UMAKIT_PROGRAMS_LONG;
    }
    while (left > 0u && !is_raised && !is_over) {
        const bool was_idle = run->setting->has_busy && !is_busy(run);
        const uint64_t slice =
            least(left, begin == UMAKIT_UNKNOWN ? UNKNOWN_WAIT : run->settling + WAIT_SLICE);

        is_raised = umakit_device_wait(run->device, (uint32_t)slice) == UMAKIT_OK;
        if (umakit_programs_has_failed(run)) {
            return UMAKIT_PROGRAMS_FAILED;
        }
        if (umakit_programs_is_too_long(run)) {
            return UMAKIT_PROGRAMS_LONG;
        }
        is_over = begin == UMAKIT_UNKNOWN || was_idle ||
                  (!run->setting->has_busy && still_for(run, &still) >= enough(run));
        left -= slice;
    }
    run->has_ended = run->has_ended || is_raised;
    note->value = is_raised ? 1u : 0u;
    note->cycles = begin == UMAKIT_UNKNOWN ? UNKNOWN_WAIT : umakit_programs_clock(run) - begin;
    return UMAKIT_PROGRAMS_OK;
}

static enum umakit_programs_end rest_on_model(struct umakit_programs_run *run,
                                              const struct umakit_programs_access *polled)
{
    struct umakit_programs_note *const note = umakit_programs_note(run, UMAKIT_PROGRAMS_REST, 0u);
    const uint64_t begin = umakit_programs_clock(run);
    struct stillness still = {.busy = busy_cycles(run), .since = begin};
    bool says = says_rest(run, polled), is_over = says;

    if (note == NULL) {
        return UMAKIT_PROGRAMS_FAILED;
    }
    while (!is_over) {
        const uint64_t before = umakit_programs_clock(run);

        umakit_programs_pass(run, begin == UMAKIT_UNKNOWN && !run->is_at_rest ? UNKNOWN_WAIT
                                                                              : QUIET);
        if (umakit_programs_is_too_long(run)) {
            return UMAKIT_PROGRAMS_LONG;
        }
        says = says_rest(run, polled);
        /* Without a clock, or where an interrupt ends each wait at once, no more time passes. */
        is_over = says || before == umakit_programs_clock(run) ||
                  (!run->setting->has_busy && still_for(run, &still) >= enough(run));
    }
    umakit_programs_pass(run, run->settling);
    note->value = says ? 1u : 0u;
    note->cycles = begin == UMAKIT_UNKNOWN ? QUIET : umakit_programs_clock(run) - begin;
    run->is_at_rest = true;
    return UMAKIT_PROGRAMS_OK;
}

/* ---- The RTL ---- */

/* Cycles within which the RTL has done what took the model so many. */
static uint64_t lateness(const struct umakit_programs_run *run, uint64_t cycles)
{
    return run->is_patient ? least(LATE_AT_MOST + MORE_AT_MOST * cycles, UINT32_MAX)
                           : least(LATE + MORE * cycles, UINT32_MAX);
}

static enum umakit_programs_end wait_on_rtl(struct umakit_programs_run *run)
{
    const struct umakit_programs_note *const note =
        umakit_programs_note(run, UMAKIT_PROGRAMS_INTERRUPT, 0u);
    uint64_t limit;
    bool is_raised;

    if (note == NULL) {
        return UMAKIT_PROGRAMS_FAILED;
    }
    limit = lateness(run, note->cycles);
    if (note->value == 0u) {
        limit = run->is_patient ? least(limit, BLIND_AT_MOST) : note->cycles;
    }
    is_raised = umakit_device_wait(run->device, (uint32_t)limit) == UMAKIT_OK;
    if (note->value != 0u && !is_raised && !umakit_programs_has_failed(run)) {
        run->difference = (struct umakit_programs_difference){
            .access = run->access, .kind = "interrupt", .expected = 1u};
        return UMAKIT_PROGRAMS_DIFFERS;
    }
    return UMAKIT_PROGRAMS_OK;
}

static enum umakit_programs_end rest_on_rtl(struct umakit_programs_run *run,
                                            const struct umakit_programs_access *polled)
{
    const struct umakit_programs_note *const note =
        umakit_programs_note(run, UMAKIT_PROGRAMS_REST, 0u);
    uint64_t usual, left;

    if (note == NULL) {
        return UMAKIT_PROGRAMS_FAILED;
    }
    usual = note->cycles + note->cycles / 4u + QUIET / 2u;
    left = lateness(run, note->cycles);
    if (note->value == 0u) {
        umakit_programs_pass(run, run->is_patient ? least(left, BLIND_AT_MOST) : usual);
    }
    while (note->value != 0u && left >= QUIET && !says_rest(run, polled) &&
           !umakit_programs_has_failed(run)) {
        umakit_programs_pass(run, QUIET);
        left -= QUIET;
    }
    run->is_at_rest = true;
    return UMAKIT_PROGRAMS_OK;
}

enum umakit_programs_end umakit_programs_wait(struct umakit_programs_run *run, uint32_t limit)
{
    return run->is_rtl ? wait_on_rtl(run) : wait_on_model(run, limit);
}

enum umakit_programs_end umakit_programs_rest(struct umakit_programs_run *run,
                                              const struct umakit_programs_access *polled)
{
    return run->is_rtl ? rest_on_rtl(run, polled) : rest_on_model(run, polled);
}
