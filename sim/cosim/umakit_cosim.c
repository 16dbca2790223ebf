/* SPDX-License-Identifier: Apache-2.0 */
/* The co-simulation device: a table of functions over two inner devices. */
#include "umakit_cosim.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "umakit_cosim_internal.h"

struct umakit_cosim_place umakit_cosim_place;
static struct umakit_cosim *pairs;

/* ---- The table ---- */

static void record(struct umakit_cosim *pair, bool is_write, uint32_t offset, uint32_t value)
{
    if (pair->has_mapped) {
        return;
    }
    if (pair->initial_count == pair->initial_capacity) {
        const size_t capacity = 2u * pair->initial_capacity + 32u;
        struct umakit_cosim_access *more = realloc(pair->initial, capacity * sizeof(*more));

        if (more == NULL) {
            umakit_host_fail(&pair->outer, "there is no memory for the initial accesses");
            return;
        }
        pair->initial = more;
        pair->initial_capacity = capacity;
    }
    pair->initial[pair->initial_count] =
        (struct umakit_cosim_access){.is_write = is_write, .offset = offset, .value = value};
    ++pair->initial_count;
}

/* Where the cycles of the model's accesses are added: nowhere while it is alone. */
static uint64_t *model_cycles(struct umakit_cosim *pair)
{
    static uint64_t not_wanted;

    return pair->is_attached ? &pair->layer.model_access_cycles : &not_wanted;
}

static uint32_t pair_read32(void *simulator, uint32_t offset)
{
    struct umakit_cosim *pair = simulator;
    uint32_t value;

    if (!umakit_cosim_begin_access(pair)) {
        return UINT32_MAX;
    }
    ++pair->layer.register_reads;
    ++pair->moment.access;
    record(pair, false, offset, 0u);
    umakit_cosim_note_read(pair, offset);
    value = umakit_cosim_read_timed(pair->model, offset, model_cycles(pair));
    return umakit_cosim_check(pair) && pair->is_attached ? umakit_cosim_read(pair, offset, value)
                                                         : value;
}

static void note_write(struct umakit_cosim *pair, uint32_t offset, uint32_t value)
{
    struct umakit_cosim_moment *moment = &pair->moment;
    const bool is_doorbell = umakit_cosim_listed(&pair->options.doorbells, offset) != 0u;
    const size_t at = moment->write_count % UMAKIT_COSIM_LAST_WRITES;

    if (is_doorbell || (!pair->in_command && !pair->options.doorbells.is_set)) {
        moment->first_cycle = umakit_cosim_clock(&pair->rtl);
        pair->model_began = umakit_cosim_clock(pair->model);
    }
    pair->in_command = true;
    moment->command += is_doorbell ? 1u : 0u;
    moment->write_offsets[at] = offset;
    moment->write_values[at] = value;
    ++moment->write_count;
    ++moment->access;
    ++pair->layer.register_writes;
}

static void pair_write32(void *simulator, uint32_t offset, uint32_t value)
{
    struct umakit_cosim *pair = simulator;

    if (!umakit_cosim_begin_access(pair)) {
        return;
    }
    note_write(pair, offset, value);
    record(pair, true, offset, value);
    if (pair->is_attached) {
        umakit_cosim_note_write(pair, offset, value);
        umakit_cosim_write_timed(&pair->rtl, offset, value, &pair->layer.rtl_access_cycles);
        pair->moment.last_cycle = umakit_cosim_clock(&pair->rtl);
        umakit_cosim_keep_step(pair, 1u); /* a write has its effect at the end */
    }
    umakit_cosim_write_timed(pair->model, offset, value, model_cycles(pair));
    if (pair->is_attached) {
        umakit_cosim_check_bus(pair, true, offset);
        umakit_cosim_look_at_stale(pair);
        umakit_cosim_report_progress(pair);
    }
    (void)umakit_cosim_check(pair);
}

static bool pair_wait(void *simulator, uint64_t cycles)
{
    struct umakit_cosim *pair = simulator;

    if (!umakit_cosim_begin_access(pair)) {
        return false;
    }
    ++pair->layer.waits;
    return umakit_cosim_wait(pair, cycles);
}

static void pair_unmapping(void *simulator, uint32_t address, size_t bytes)
{
    struct umakit_cosim *pair = simulator;

    (void)bytes;
    if (!umakit_cosim_begin_access(pair)) {
        return;
    }
    if (pair->is_attached) {
        umakit_cosim_compare_at_last(pair, address);
        umakit_device_unmap(&pair->rtl, address);
        umakit_cosim_leave(pair, address);
    }
    umakit_device_unmap(pair->model, address);
    (void)umakit_cosim_check(pair);
}

static void pair_misuse(void *simulator, enum umakit_status error, uint32_t address)
{
    struct umakit_cosim *pair = simulator;

    (void)error; /* that the buffer is not mapped, which both find */
    if (umakit_cosim_begin_access(pair)) {
        umakit_device_unmap(pair->model, address);
        if (pair->is_attached) {
            umakit_device_unmap(&pair->rtl, address);
        }
    }
}

static int pair_inject(void *simulator, const struct umakit_fault *fault)
{
    struct umakit_cosim *pair = simulator;
    int status = umakit_simulator_inject(pair->model, fault);

    if (status == UMAKIT_OK) {
        status = umakit_simulator_inject(&pair->rtl, fault);
    }
    return status;
}

static void pair_remove_faults(void *simulator)
{
    struct umakit_cosim *pair = simulator;

    umakit_simulator_remove_faults(pair->model);
    umakit_simulator_remove_faults(&pair->rtl);
}

static void pair_reset(void *simulator)
{
    struct umakit_cosim *pair = simulator;
    size_t i;

    if (umakit_simulator_reset(pair->model) != UMAKIT_OK ||
        umakit_simulator_reset(&pair->rtl) != UMAKIT_OK) {
        (void)umakit_cosim_check(pair);
        return;
    }
    umakit_cosim_forget(pair);
    ++pair->resets;
    umakit_cosim_start_waveform(pair);
    for (i = 0u; i < pair->register_count; ++i) {
        pair->registers[i] = (struct umakit_cosim_register){.offset = pair->registers[i].offset};
    }
    for (i = 0u; i < UMAKIT_COSIM_COUNTERS; ++i) {
        pair->totals[i] = 0u;
    }
    pair->initial_count = 0u;
    pair->has_mapped = false;
    pair->has_given_up = false;
    pair->in_command = false;
    pair->is_stale = false;
    umakit_cosim_start_counting(pair);
    pair->written_before = pair->rtl_counters[UMAKIT_COSIM_BYTES_WRITTEN];
}

static void pair_counters(void *simulator, struct umakit_own_counters *counters)
{
    struct umakit_cosim *pair = simulator;

    umakit_cosim_account(pair);
    counters->clock = pair->totals[UMAKIT_COSIM_CLOCK];
    counters->busy_cycles = pair->totals[1];
    counters->compute_cycles = pair->totals[2];
    counters->dma_cycles = pair->totals[3];
    counters->macs = pair->totals[4];
    counters->bytes_read = pair->totals[5];
    counters->bytes_written = pair->totals[UMAKIT_COSIM_BYTES_WRITTEN];
}

static void *pair_create(umakit_host *host)
{
    /* The device is the pair's first member. */
    struct umakit_cosim *pair = (struct umakit_cosim *)host;
    const char *wrong = umakit_cosim_read_options(&pair->options, pair->backend);

    if (wrong != NULL) {
        umakit_host_fail(host, wrong);
        return pair;
    }
    if (!umakit_cosim_has_report()) {
        umakit_host_fail(host, "the file that UMAKIT_COSIM_REPORT names cannot be written");
        return pair;
    }
    if (pair->model == NULL || umakit_simulator_failure(pair->model)[0] != '\0') {
        umakit_host_fail(host, pair->model == NULL ? "there is no model"
                                                   : umakit_simulator_failure(pair->model));
        return pair;
    }
    umakit_simulator_open(&pair->rtl, pair->rtl_table);
    if (pair->rtl.failure[0] != '\0') {
        umakit_host_fail(host, pair->rtl.failure);
        return pair;
    }
    umakit_cosim_start_waveform(pair);
    umakit_cosim_start_counting(pair);
    return pair;
}

/* ---- Pairs ---- */

static uint32_t alignment_of(const struct umakit_cosim *pair)
{
    const uint32_t model = pair->model == NULL ? 0u : pair->model->map_alignment;
    const uint32_t rtl = pair->rtl_table == NULL ? 0u : pair->rtl_table->map_alignment;

    return model > rtl ? model : rtl; /* powers of two */
}

umakit_device *umakit_cosim_open(const char *backend, umakit_device *model,
                                 const struct umakit_own_simulator *rtl,
                                 umakit_cosim_trace *trace)
{
    struct umakit_cosim *pair = calloc(1u, sizeof(*pair));

    if (pair == NULL) {
        return NULL;
    }
    if (pairs == NULL) {
        umakit_cosim_place = (struct umakit_cosim_place){.layer = 0u};
        umakit_cosim_open_report();
    }
    pair->backend = backend;
    pair->model = model;
    pair->rtl_table = rtl;
    pair->trace = trace;
    pair->table = (struct umakit_own_simulator){.version = UMAKIT_OWN_SIMULATOR_VERSION,
                                                .map_alignment = alignment_of(pair),
                                                .create = pair_create,
                                                .read32 = pair_read32,
                                                .write32 = pair_write32,
                                                .wait = pair_wait,
                                                .counters = pair_counters,
                                                .unmapping = pair_unmapping,
                                                .misuse = pair_misuse,
                                                .inject = pair_inject,
                                                .remove_faults = pair_remove_faults};
    umakit_simulator_open(&pair->outer, &pair->table);
    if (model != NULL && model->operations != NULL && model->operations->reset != NULL &&
        rtl != NULL && rtl->reset != NULL) {
        pair->table.reset = pair_reset; /* both have just been opened, so not before */
    }
    pair->next = pairs;
    pairs = pair;
    return &pair->outer;
}

void umakit_cosim_close(const umakit_device *device)
{
    struct umakit_cosim **link = &pairs;

    while (*link != NULL && &(*link)->outer != device) {
        link = &(*link)->next;
    }
    if (*link != NULL) {
        struct umakit_cosim *pair = *link;

        *link = pair->next;
        umakit_cosim_forget(pair);
        umakit_cosim_free_options(&pair->options);
        free(pair->watch.cycles);
        free(pair->registers);
        free(pair->initial);
        free(pair);
    }
    if (pairs == NULL) {
        umakit_cosim_close_report();
    }
}

void umakit_cosim_after_layer(int32_t layer)
{
    struct umakit_cosim *pair;

    umakit_cosim_place.layer = (uint32_t)layer;
    for (pair = pairs; pair != NULL; pair = pair->next) {
        if (!umakit_cosim_has_failed(pair)) {
            umakit_cosim_account(pair);
            umakit_cosim_report_layer(pair);
        }
        pair->layer = (struct umakit_cosim_layer){.has_begun = false};
        pair->moment.access = 0u;
        pair->moment.command = 0u;
        pair->moment.tile = 0u;
    }
    umakit_cosim_place.layer = (uint32_t)layer + 1u;
}

void umakit_cosim_after_inference(void)
{
    umakit_cosim_place.layer = 0u;
    ++umakit_cosim_place.inference;
}
