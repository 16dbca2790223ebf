/* SPDX-License-Identifier: Apache-2.0 */
/* The counters of both sides, and what they have counted while the RTL took part. */
#include <stddef.h>
#include <stdint.h>

#include "umakit_cosim_internal.h"

void umakit_cosim_measure(const umakit_device *device,
                          uint64_t counters[UMAKIT_COSIM_COUNTERS])
{
    struct umakit_own_counters measured;

    umakit_simulator_measure(device, &measured);
    counters[UMAKIT_COSIM_CLOCK] = measured.clock;
    counters[1] = measured.busy_cycles;
    counters[2] = measured.compute_cycles;
    counters[3] = measured.dma_cycles;
    counters[4] = measured.macs;
    counters[5] = measured.bytes_read;
    counters[UMAKIT_COSIM_BYTES_WRITTEN] = measured.bytes_written;
}

uint64_t umakit_cosim_clock(const umakit_device *device)
{
    struct umakit_own_counters measured;

    umakit_simulator_measure(device, &measured);
    return measured.clock;
}

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
