/* SPDX-License-Identifier: Apache-2.0 */
/* When the RTL takes part, what is counted meanwhile, and when a tile has ended. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "umakit_cosim_internal.h"

/* ---- Counters ---- */

/* Add what a counter has counted since `before`; unknown once is unknown for good. */
static void add(uint64_t *sum, uint64_t before, uint64_t now)
{
    if (*sum == UMAKIT_UNKNOWN || before == UMAKIT_UNKNOWN || now == UMAKIT_UNKNOWN ||
        now < before) {
        *sum = UMAKIT_UNKNOWN;
    } else {
        *sum += now - before;
    }
}

void umakit_cosim_start_counting(struct umakit_cosim *pair)
{
    umakit_cosim_measure(pair->model, pair->model_counters);
    umakit_cosim_measure(&pair->rtl, pair->rtl_counters);
}

uint32_t umakit_cosim_read_timed(umakit_device *device, uint32_t offset, uint64_t *cycles)
{
    const uint64_t before = umakit_cosim_clock(device);
    const uint32_t value = umakit_device_read32(device, offset);

    add(cycles, before, umakit_cosim_clock(device));
    return value;
}

void umakit_cosim_write_timed(umakit_device *device, uint32_t offset, uint32_t value,
                              uint64_t *cycles)
{
    const uint64_t before = umakit_cosim_clock(device);

    umakit_device_write32(device, offset, value);
    add(cycles, before, umakit_cosim_clock(device));
}

void umakit_cosim_keep_step(struct umakit_cosim *pair, uint64_t left)
{
    struct umakit_cosim_layer *layer = &pair->layer;
    uint64_t before = UMAKIT_UNKNOWN;

    if (pair->options.idle == UINT32_MAX || layer->rtl_access_cycles == UMAKIT_UNKNOWN ||
        layer->model_access_cycles == UMAKIT_UNKNOWN) {
        return;
    }
    while (layer->model_access_cycles + left < layer->rtl_access_cycles &&
           layer->model_access_cycles != before) {
        before = layer->model_access_cycles;
        (void)umakit_cosim_read_timed(pair->model, pair->options.idle,
                                      &layer->model_access_cycles);
    }
}

void umakit_cosim_account(struct umakit_cosim *pair)
{
    uint64_t model[UMAKIT_COSIM_COUNTERS];
    uint64_t rtl[UMAKIT_COSIM_COUNTERS];
    uint64_t rtl_cycles;
    uint64_t model_cycles;
    size_t i;

    umakit_cosim_measure(pair->model, model);
    umakit_cosim_measure(&pair->rtl, rtl);
    for (i = 0u; i < UMAKIT_COSIM_COUNTERS; ++i) {
        const uint64_t *now = pair->is_attached ? rtl : model;
        const uint64_t *before = pair->is_attached ? pair->rtl_counters : pair->model_counters;

        /* What the RTL does not know stays unknown, whoever counts now. */
        add(&pair->totals[i], before[i], rtl[i] == UMAKIT_UNKNOWN ? UMAKIT_UNKNOWN : now[i]);
    }
    rtl_cycles = pair->rtl_counters[UMAKIT_COSIM_CLOCK];
    model_cycles = pair->model_counters[UMAKIT_COSIM_CLOCK];
    add(&pair->layer.layer_model_cycles, model_cycles, model[UMAKIT_COSIM_CLOCK]);
    if (pair->is_attached) {
        add(&pair->layer.model_cycles, model_cycles, model[UMAKIT_COSIM_CLOCK]);
        add(&pair->layer.rtl_cycles, rtl_cycles, rtl[UMAKIT_COSIM_CLOCK]);
    }
    umakit_cosim_start_counting(pair);
}

/* ---- The RTL takes part, or not ---- */

static void detach(struct umakit_cosim *pair)
{
    umakit_cosim_account(pair);
    umakit_cosim_forget(pair);
    pair->is_attached = false;
}

void umakit_cosim_start_waveform(struct umakit_cosim *pair)
{
    const struct umakit_cosim_options *options = &pair->options;

    if (options->wave == NULL || options->wave_resets != pair->resets) {
        return;
    }
    if (pair->trace == NULL) {
        umakit_host_fail(&pair->outer, "UMAKIT_COSIM_WAVE is set, but the RTL was built "
                                       "without waveforms");
    } else if (pair->trace(options->wave, options->wave_first, options->wave_last) != 0) {
        umakit_host_fail(&pair->outer, "the waveform that UMAKIT_COSIM_WAVE asks for cannot "
                                       "be written");
    }
}

/* Bring the RTL to where the model was before the driver mapped its first buffer. */
static void repeat_initial_accesses(struct umakit_cosim *pair)
{
    size_t i;

    if (umakit_simulator_reset(&pair->rtl) == UMAKIT_UNSUPPORTED) {
        umakit_host_fail(&pair->outer, "the RTL cannot be reset, which it must be to take part "
                                       "in some layers only");
        return;
    }
    ++pair->resets;
    umakit_cosim_start_waveform(pair);
    for (i = 0u; i < pair->initial_count; ++i) {
        const struct umakit_cosim_access *access = &pair->initial[i];

        if (access->is_write) {
            umakit_device_write32(&pair->rtl, access->offset, access->value);
        } else {
            (void)umakit_device_read32(&pair->rtl, access->offset);
        }
    }
    umakit_cosim_find_stale(pair);
    pair->is_stale = false;
}

static void attach(struct umakit_cosim *pair)
{
    umakit_cosim_account(pair);
    if (pair->is_stale) {
        repeat_initial_accesses(pair);
    }
    pair->is_attached = true;
    umakit_cosim_start_counting(pair);
    pair->written_before = pair->rtl_counters[UMAKIT_COSIM_BYTES_WRITTEN];
    pair->in_command = false;
    pair->has_given_up = false;
}

/* At the driver's first access in a layer: who takes part in it. */
static void begin_layer(struct umakit_cosim *pair)
{
    const struct umakit_cosim_list *layers = &pair->options.layers;
    const bool takes_part =
        (!layers->is_set || umakit_cosim_listed(layers, umakit_cosim_place.layer) != 0u) &&
        pair->options.tiles != 0u;

    pair->layer.has_begun = true;
    pair->layer.is_checked = takes_part;
    if (takes_part && !pair->is_attached) {
        attach(pair);
    } else if (!takes_part && pair->is_attached) {
        detach(pair);
    }
}

bool umakit_cosim_begin_access(struct umakit_cosim *pair)
{
    if (!pair->layer.has_begun) {
        begin_layer(pair);
    }
    pair->is_stale = pair->is_stale || !pair->is_attached;
    pair->bus_errors[0] = pair->rtl.bus_errors.count;
    pair->bus_errors[1] = pair->model->bus_errors.count;
    if (!umakit_cosim_has_failed(pair)) {
        umakit_cosim_map(pair);
    }
    return umakit_cosim_check(pair);
}

void umakit_cosim_complete(struct umakit_cosim *pair)
{
    uint64_t rtl[UMAKIT_COSIM_COUNTERS];
    uint64_t written;

    umakit_cosim_measure(&pair->rtl, rtl);
    written = rtl[UMAKIT_COSIM_BYTES_WRITTEN];
    pair->has_given_up = false;
    pair->in_command = false;
    if (written == pair->written_before && written != UMAKIT_UNKNOWN) {
        return;
    }
    pair->written_before = written;
    umakit_cosim_compare(pair);
    ++pair->moment.tile;
    if (pair->moment.tile >= pair->options.tiles && !pair->suspect.is_set &&
        !umakit_cosim_has_failed(pair)) {
        pair->layer.compared_bytes += umakit_cosim_output_bytes(pair);
        detach(pair);
        pair->layer.is_detached = true;
    }
}
