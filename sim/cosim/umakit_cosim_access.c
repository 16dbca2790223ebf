/* SPDX-License-Identifier: Apache-2.0 */
/* Register accesses and waits on both sides, until both say the same. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "umakit_cosim_internal.h"

/* Times that a register of the model is read until it says what the RTL's does. */
#define MODEL_READS 100000u

/* Cycles or reads for which one side is tried before the other is; it doubles each time. One
 * that is probably behind has more. */
#define FIRST_SLICE 2u
#define MORE 4u

/* Cycles for which the RTL waits between two looks at the host's clock. */
#define WAIT_SLICE 250000u

/* ---- The inner devices ---- */

/* Cycles since `before`, at least 1; 1 without a clock. */
static uint64_t cycles_since(const umakit_device *device, uint64_t before)
{
    const uint64_t now = umakit_cosim_clock(device);

    return before == UMAKIT_UNKNOWN || now == UMAKIT_UNKNOWN || now <= before ? 1u
                                                                              : now - before;
}

bool umakit_cosim_check(struct umakit_cosim *pair)
{
    const char *failure = umakit_simulator_failure(pair->model);

    if (failure[0] != '\0') {
        umakit_host_fail(&pair->outer, failure);
    } else if (pair->rtl.failure[0] != '\0' && pair->is_attached) {
        struct umakit_cosim_difference difference = {.kind = "failure",
                                                     .moment = &pair->moment};

        (void)snprintf(difference.what, sizeof(difference.what), "%.250s", pair->rtl.failure);
        umakit_cosim_differ(pair, &difference);
    }
    return !umakit_cosim_has_failed(pair);
}

/* ---- Registers ---- */

static struct umakit_cosim_register *register_at(struct umakit_cosim *pair, uint32_t offset)
{
    size_t i;

    for (i = 0u; i < pair->register_count; ++i) {
        if (pair->registers[i].offset == offset) {
            return &pair->registers[i];
        }
    }
    if (pair->register_count == pair->register_capacity) {
        const size_t capacity = 2u * pair->register_capacity + 16u;
        struct umakit_cosim_register *more =
            realloc(pair->registers, capacity * sizeof(*more));

        if (more == NULL) {
            umakit_host_fail(&pair->outer, "there is no memory for the registers' values");
            return NULL;
        }
        pair->registers = more;
        pair->register_capacity = capacity;
    }
    pair->registers[pair->register_count] = (struct umakit_cosim_register){.offset = offset};
    return &pair->registers[pair->register_count++];
}

void umakit_cosim_note_write(struct umakit_cosim *pair, uint32_t offset, uint32_t value)
{
    struct umakit_cosim_register *entry = register_at(pair, offset);

    ++pair->writes;
    if (entry != NULL) {
        entry->is_written = true;
        entry->has_been_written = true;
        entry->written = value;
    }
}

void umakit_cosim_note_read(struct umakit_cosim *pair, uint32_t offset)
{
    struct umakit_cosim_register *entry = register_at(pair, offset);

    if (entry != NULL) {
        entry->has_been_read = true;
    }
}

/* Bits that are compared whatever has happened. */
static uint32_t compared_bits(const struct umakit_cosim *pair, uint32_t offset)
{
    return ~umakit_cosim_listed(&pair->options.not_compared, offset);
}

void umakit_cosim_find_stale(struct umakit_cosim *pair)
{
    size_t i;

    for (i = 0u; i < pair->register_count; ++i) {
        struct umakit_cosim_register *entry = &pair->registers[i];

        entry->has_agreed = false;
        entry->stale = 0u;
        if (entry->has_been_read && compared_bits(pair, entry->offset) != 0u) {
            entry->stale = umakit_device_read32(pair->model, entry->offset) ^
                           umakit_device_read32(&pair->rtl, entry->offset);
        }
    }
}

void umakit_cosim_look_at_stale(struct umakit_cosim *pair)
{
    size_t i;

    for (i = 0u; i < pair->register_count && pair->is_attached; ++i) {
        struct umakit_cosim_register *entry = &pair->registers[i];

        if (entry->stale != 0u) {
            entry->stale &= umakit_device_read32(pair->model, entry->offset) ^
                            umakit_device_read32(&pair->rtl, entry->offset);
        }
    }
}

struct answers {
    uint32_t offset;
    uint32_t compared; /* bits */
    uint32_t model;
    uint32_t rtl;
    uint64_t rtl_changed; /* when: its clock */
};

static bool agree(const struct answers *answers)
{
    return ((answers->model ^ answers->rtl) & answers->compared) == 0u;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* What is left of the time to catch up. */
struct patience {
    uint64_t cycles; /* of the RTL */
    uint64_t reads;  /* of the model's register */
};

/* Read the RTL's register again for some cycles. */
static void try_rtl(struct umakit_cosim *pair, struct answers *answers,
                    struct patience *patience, uint64_t limit)
{
    uint64_t left = least(limit, patience->cycles);

    patience->cycles -= left;
    while (left > 0u && !agree(answers) && pair->rtl.failure[0] == '\0') {
        const uint64_t before = umakit_cosim_clock(&pair->rtl);
        const uint32_t value = umakit_device_read32(&pair->rtl, answers->offset);

        if (value != answers->rtl) {
            answers->rtl = value;
            answers->rtl_changed = umakit_cosim_clock(&pair->rtl);
        }
        left -= least(left, cycles_since(&pair->rtl, before));
        umakit_cosim_report_progress(pair);
    }
    patience->cycles += left;
}

static void try_model(const struct umakit_cosim *pair, struct answers *answers,
                      struct patience *patience, uint64_t limit)
{
    uint64_t left = least(limit, patience->reads);

    patience->reads -= left;
    while (left > 0u && !agree(answers)) {
        answers->model = umakit_device_read32(pair->model, answers->offset);
        --left;
    }
    patience->reads += left;
}

static bool read_lead(const struct umakit_cosim *pair, uint64_t *lead)
{
    const uint64_t rtl = umakit_cosim_clock(&pair->rtl);
    const uint64_t model = umakit_cosim_clock(pair->model);

    *lead = rtl - model; /* modulo 2^64, where it may be negative */
    return rtl != UMAKIT_UNKNOWN && model != UMAKIT_UNKNOWN;
}

/* If the lead of the RTL is not what it was when both agreed last, as after a wait for
 * interrupts that came at other times, who is behind by their clocks gets that time first. */
static void level(struct umakit_cosim *pair, struct answers *answers,
                  struct patience *patience)
{
    uint64_t lead;

    if (!pair->has_lead || !read_lead(pair, &lead)) {
        return;
    }
    if (pair->lead - lead <= INT64_MAX) {
        try_rtl(pair, answers, patience, pair->lead - lead);
    } else {
        try_model(pair, answers, patience, lead - pair->lead);
    }
}

static bool is_still(const struct answers *answers, uint32_t value, uint32_t agreed)
{
    return ((value ^ agreed) & answers->compared) == 0u;
}

/* Cycles that the RTL may take where the model took `taken`: being slower is not wrong. */
static uint64_t allowed(const struct umakit_cosim *pair, uint64_t taken)
{
    const uint64_t times = pair->options.times;
    const uint64_t slower = taken > UINT32_MAX / times ? UINT32_MAX : times * taken;

    return slower > pair->options.catch_up ? slower : pair->options.catch_up;
}

/* Whether the model's value is other than what the driver has written, after work began. */
static bool is_status(const struct umakit_cosim *pair, const struct umakit_cosim_register *entry,
                      const struct answers *answers)
{
    return pair->has_mapped &&
           !(entry->has_been_written &&
             ((entry->written ^ answers->model) & answers->compared) == 0u);
}

/* Then each gets time in turn, as it is seldom certain who is behind. If the driver has only read
 * since both agreed, it is who still has that value, and gets more; a write may change any register,
 * such as the space of a queue. Slices grow, so that who is not behind waits in vain for as
 * long at most as the other takes to catch up, or a share of it. */
static void catch_up(struct umakit_cosim *pair, struct answers *answers,
                     const struct umakit_cosim_register *entry)
{
    struct patience patience = {.cycles = pair->options.catch_up, .reads = MODEL_READS};
    const bool is_known = entry->has_agreed && entry->writes == pair->writes;
    const bool is_rtl_still = is_known && is_still(answers, answers->rtl, entry->agreed);
    const bool is_model_still = is_known && is_still(answers, answers->model, entry->agreed);
    uint64_t slice;

    if (is_status(pair, entry, answers)) {
        patience.cycles = allowed(pair, cycles_since(pair->model, pair->model_began));
    }
    level(pair, answers, &patience);
    for (slice = FIRST_SLICE; !agree(answers) && pair->rtl.failure[0] == '\0' &&
                              (patience.cycles > 0u || patience.reads > 0u);
         slice *= 2u) {
        try_rtl(pair, answers, &patience, is_rtl_still ? MORE * slice : slice);
        try_model(pair, answers, &patience, is_model_still ? MORE * slice : slice);
    }
}

static void differ(struct umakit_cosim *pair, const struct umakit_cosim_register *entry,
                   const struct answers *answers)
{
    struct umakit_cosim_difference difference = {
        .kind = is_status(pair, entry, answers) ? "status" : "register",
        .moment = &pair->moment,
        .has_offset = true,
        .offset = answers->offset,
        .has_values = true,
        .expected = answers->model,
        .found = answers->rtl};

    (void)snprintf(difference.what, sizeof(difference.what),
                   "the register at 0x%" PRIx32 " is 0x%08" PRIx32 ", expected 0x%08" PRIx32,
                   answers->offset, answers->rtl, answers->model);
    if (pair->rtl.unresolved > pair->model->unresolved) {
        const size_t used = strlen(difference.what);

        (void)snprintf(difference.what + used, sizeof(difference.what) - used,
                       "; the RTL accessed bus address 0x%08" PRIx32 ", which no buffer has",
                       pair->rtl.unresolved_address);
    }
    umakit_cosim_differ(pair, &difference);
}

void umakit_cosim_check_bus(struct umakit_cosim *pair, bool is_write, uint32_t offset)
{
    struct umakit_cosim_difference difference = {
        .kind = "register", .moment = &pair->moment, .has_offset = true, .offset = offset};

    if (pair->rtl.bus_errors.count > pair->bus_errors[0] &&
        pair->model->bus_errors.count == pair->bus_errors[1]) {
        pair->moment.last_cycle = umakit_cosim_clock(&pair->rtl);
        (void)snprintf(difference.what, sizeof(difference.what),
                       "the %s of the register at 0x%" PRIx32 " ended in the bus error %s",
                       is_write ? "write" : "read", offset, pair->rtl.bus_errors.response);
        umakit_cosim_differ(pair, &difference);
    }
}

uint32_t umakit_cosim_read(struct umakit_cosim *pair, uint32_t offset, uint32_t value)
{
    struct answers answers = {.offset = offset, .model = value};
    struct umakit_cosim_register *entry = register_at(pair, offset);
    uint32_t agreed;
    bool is_news;

    answers.compared = compared_bits(pair, offset) & ~(entry == NULL ? 0u : entry->stale);
    answers.rtl = umakit_cosim_read_timed(&pair->rtl, offset, &pair->layer.rtl_access_cycles);
    answers.rtl_changed = umakit_cosim_clock(&pair->rtl);
    umakit_cosim_check_bus(pair, false, offset);
    if (umakit_cosim_has_failed(pair)) {
        return UINT32_MAX;
    }
    umakit_cosim_keep_step(pair, 0u);
    if (compared_bits(pair, offset) == 0u || entry == NULL) {
        (void)umakit_cosim_check(pair);
        return value;
    }
    if (!agree(&answers)) {
        catch_up(pair, &answers, entry);
    }
    pair->moment.last_cycle = umakit_cosim_clock(&pair->rtl);
    if (!umakit_cosim_check(pair)) {
        return UINT32_MAX;
    }
    if (!agree(&answers)) {
        pair->moment.last_cycle = answers.rtl_changed;
        differ(pair, entry, &answers);
        return UINT32_MAX;
    }
    pair->has_lead = read_lead(pair, &pair->lead);
    entry->stale &= answers.model ^ answers.rtl;
    agreed = answers.model & ~entry->stale & compared_bits(pair, offset);
    is_news = !entry->has_agreed || entry->is_written || entry->agreed != agreed;
    entry->agreed = agreed;
    entry->has_agreed = true;
    entry->is_written = false;
    entry->writes = pair->writes;
    if (is_news) {
        umakit_cosim_complete(pair);
    }
    return answers.model;
}

/* ---- Waits ---- */

/* Wait in slices, for the progress. */
static bool wait_on_rtl(struct umakit_cosim *pair, uint64_t limit)
{
    uint64_t left = limit;
    bool is_over = false;
    int status = UMAKIT_TIMEOUT;

    do {
        const uint64_t before = umakit_cosim_clock(&pair->rtl);
        const uint64_t slice = before == UMAKIT_UNKNOWN ? left : least(left, WAIT_SLICE);

        status = umakit_device_wait(&pair->rtl, (uint32_t)slice);
        left -= slice;
        /* A test may have let the interrupt be lost, which ends the wait early. */
        is_over = left == 0u || umakit_cosim_clock(&pair->rtl) - before < slice;
        umakit_cosim_report_progress(pair);
    } while (status == UMAKIT_TIMEOUT && !is_over);
    return status == UMAKIT_OK;
}

static void differ_by_interrupt(struct umakit_cosim *pair, const char *late,
                                const char *early, uint64_t limit, uint64_t after,
                                const char *why)
{
    struct umakit_cosim_difference difference = {.kind = "interrupt",
                                                 .moment = &pair->moment,
                                                 .gave_up = umakit_cosim_clock(&pair->rtl)};

    (void)snprintf(difference.what, sizeof(difference.what),
                   "no interrupt of the %s within %" PRIu64 " cycles%s, that of the %s came after "
                   "%" PRIu64,
                   late, limit, why, early, after);
    umakit_cosim_differ(pair, &difference);
}

static bool wait_on_model(struct umakit_cosim *pair, uint64_t cycles)
{
    return umakit_device_wait(pair->model, (uint32_t)least(cycles, UINT32_MAX)) == UMAKIT_OK;
}

/* The RTL, once the model's wait has ended after `taken` cycles. */
static bool follow(struct umakit_cosim *pair, uint64_t cycles, uint64_t taken, bool is_raised)
{
    uint64_t limit = is_raised ? allowed(pair, taken) : pair->options.catch_up;
    uint64_t before;
    uint64_t after;
    bool is_raised_in_rtl;

    limit = least(least(limit, cycles), UINT32_MAX);
    before = umakit_cosim_clock(&pair->rtl);
    is_raised_in_rtl = wait_on_rtl(pair, limit);
    after = cycles_since(&pair->rtl, before);
    pair->moment.last_cycle = umakit_cosim_clock(&pair->rtl);
    if (!umakit_cosim_check(pair)) {
        return false;
    }
    if (is_raised && !is_raised_in_rtl) {
        if (before != UMAKIT_UNKNOWN && after > 2u * taken) {
            pair->moment.last_cycle = before + 2u * taken; /* the rest is idle */
        }
        differ_by_interrupt(pair, "RTL", "model", limit, taken,
                            limit == cycles ? ", as long as the driver waits" : "");
    } else if (!is_raised && is_raised_in_rtl) {
        limit = 4u * after > pair->options.catch_up ? 4u * after : pair->options.catch_up;
        is_raised = wait_on_model(pair, limit);
        if (umakit_cosim_check(pair) && !is_raised) {
            differ_by_interrupt(pair, "model", "RTL", cycles + limit, after, "");
        }
    }
    return is_raised;
}

bool umakit_cosim_wait(struct umakit_cosim *pair, uint64_t cycles)
{
    const uint64_t before = umakit_cosim_clock(pair->model);
    bool is_raised = wait_on_model(pair, cycles);

    if (!umakit_cosim_check(pair) || !pair->is_attached) {
        return is_raised;
    }
    is_raised = follow(pair, cycles, cycles_since(pair->model, before), is_raised);
    if (is_raised && !umakit_cosim_has_failed(pair)) {
        umakit_cosim_complete(pair);
    } else {
        pair->has_given_up = true;
    }
    return is_raised;
}
