/* SPDX-License-Identifier: Apache-2.0 */
/* When the RTL takes part. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "umakit_cosim_internal.h"

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
        umakit_cosim_detach(pair);
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
