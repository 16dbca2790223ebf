/* SPDX-License-Identifier: Apache-2.0 */
/* The device that records what a driver does with the model of an accelerator. */
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "umakit_programs.h"

/* Cycles in which a counter of busy cycles that grows while there is work does not stand still; as
 * in umakit_programs_rest.c. */
#define QUIET 32u

/* Waits in slices of a half of it, after which slices become longer. */
#define MOST_SLICES 65536u

static struct {
    umakit_device outer;
    umakit_device *model;
    FILE *file;
    uint64_t layer_began; /* the model's clock */

    /* Whether its counter of busy cycles grows while the driver waits or polls. */
    struct umakit_own_counters grew; /* when it was last seen to grow */
    bool has_grown, has_stood_still; /* since the driver began to wait */
    bool is_live, is_dead;           /* in a wait of this layer that has ended */
    bool polls;                      /* the driver has just read a register */
    uint32_t offset, value;          /* this one */
} recorder;

static void begin_waiting(void)
{
    umakit_simulator_measure(recorder.model, &recorder.grew);
    recorder.has_grown = false;
    recorder.has_stood_still = false;
}

static void go_on_waiting(void)
{
    struct umakit_own_counters now;

    umakit_simulator_measure(recorder.model, &now);
    if (now.busy_cycles != recorder.grew.busy_cycles) {
        recorder.grew = now;
        recorder.has_grown = true;
    } else if (now.clock - recorder.grew.clock >= QUIET) {
        recorder.has_stood_still = true;
    }
}

/* What the driver waited for has come. */
static void end_waiting(void)
{
    recorder.is_live = recorder.is_live || recorder.has_grown;
    recorder.is_dead = recorder.is_dead || recorder.has_stood_still;
}

static void write_buffer(uint32_t slot, const struct umakit_simulator_window *window)
{
    const unsigned char *bytes = window->memory;
    size_t i;

    fprintf(recorder.file, "m %" PRIx32 " %zx %x ", (slot + 1u) * UMAKIT_SIMULATOR_WINDOW_BYTES,
            window->bytes, (unsigned int)window->direction);
    for (i = 0u; i < window->bytes; ++i) {
        fprintf(recorder.file, "%02x", (unsigned int)bytes[i]);
    }
    fputc('\n', recorder.file);
}

/* The model works on the buffers that the driver mapped. */
static void follow_maps(void)
{
    uint32_t slot;

    for (slot = 0u; slot < UMAKIT_SIMULATOR_WINDOW_COUNT; ++slot) {
        const struct umakit_simulator_window *window = &recorder.outer.windows[slot];

        if (window->memory != NULL && recorder.model->windows[slot].memory == NULL) {
            write_buffer(slot, window);
        }
        recorder.model->windows[slot] = *window;
    }
}

static void *create(umakit_host *host)
{
    const char *name = getenv("UMAKIT_PROGRAMS_RECORD");

    recorder.file = name == NULL ? NULL : fopen(name, "w");
    if (recorder.file == NULL) {
        umakit_host_fail(host, "the file of the recording cannot be written");
    } else if (recorder.model == NULL || umakit_simulator_failure(recorder.model)[0] != '\0') {
        umakit_host_fail(host, recorder.model == NULL
                                   ? "there is no model"
                                   : umakit_simulator_failure(recorder.model));
    }
    return &recorder;
}

/* A driver is told that the model failed. */
static void check_model(void)
{
    if (umakit_simulator_failure(recorder.model)[0] != '\0') {
        umakit_host_fail(&recorder.outer, umakit_simulator_failure(recorder.model));
    }
}

static uint32_t read32(void *simulator, uint32_t offset)
{
    uint32_t value;

    (void)simulator;
    follow_maps();
    value = umakit_device_read32(recorder.model, offset);
    fprintf(recorder.file, "r %" PRIx32 " %" PRIx32 "\n", offset, value);
    if (!recorder.polls || offset != recorder.offset) {
        begin_waiting();
    } else if (value == recorder.value) {
        go_on_waiting();
    } else {
        end_waiting();
    }
    recorder.polls = true;
    recorder.offset = offset;
    recorder.value = value;
    check_model();
    return value;
}

static void write32(void *simulator, uint32_t offset, uint32_t value)
{
    (void)simulator;
    follow_maps();
    recorder.polls = false;
    fprintf(recorder.file, "w %" PRIx32 " %" PRIx32 "\n", offset, value);
    umakit_device_write32(recorder.model, offset, value);
    check_model();
}

/* In slices, to see whether the counter of busy cycles grows meanwhile. */
static bool wait_in_slices(uint32_t cycles)
{
    uint32_t left = cycles, slice = QUIET / 2u, slices = 0u;
    int status = UMAKIT_TIMEOUT;

    begin_waiting();
    while (status == UMAKIT_TIMEOUT && left > 0u) {
        const uint32_t now = left < slice ? left : slice;

        status = umakit_device_wait(recorder.model, now);
        left -= now;
        if (status == UMAKIT_OK) {
            end_waiting();
        } else {
            go_on_waiting();
        }
        if (++slices > MOST_SLICES && slice <= UINT32_MAX / 2u) {
            slice *= 2u;
        }
    }
    return status == UMAKIT_OK;
}

static bool wait(void *simulator, uint64_t cycles)
{
    const uint32_t limit = cycles > UINT32_MAX ? UINT32_MAX : (uint32_t)cycles;
    bool is_raised;

    (void)simulator;
    follow_maps();
    is_raised = wait_in_slices(limit);
    recorder.polls = false;
    fprintf(recorder.file, "i %" PRIx32 " %x\n", limit, is_raised ? 1u : 0u);
    check_model();
    return is_raised;
}

static void unmapping(void *simulator, uint32_t address, size_t bytes)
{
    (void)simulator;
    (void)bytes;
    follow_maps();
    fprintf(recorder.file, "u %" PRIx32 "\n", address);
    umakit_device_unmap(recorder.model, address);
}

static void counters(void *simulator, struct umakit_own_counters *found)
{
    (void)simulator;
    umakit_simulator_measure(recorder.model, found);
}

umakit_device *umakit_programs_recorder(umakit_device *model)
{
    static const struct umakit_own_simulator first = {.version = UMAKIT_OWN_SIMULATOR_VERSION,
                                                      .create = create,
                                                      .read32 = read32,
                                                      .write32 = write32,
                                                      .wait = wait,
                                                      .counters = counters,
                                                      .unmapping = unmapping};
    static struct umakit_own_simulator table;

    if (recorder.outer.operations == NULL && recorder.outer.failure[0] == '\0') {
        table = first;
        table.map_alignment = model == NULL ? 0u : model->map_alignment;
        recorder.model = model;
        umakit_simulator_open(&recorder.outer, &table);
    }
    return &recorder.outer;
}

void umakit_programs_after_layer(void)
{
    struct umakit_own_counters now;

    if (recorder.file == NULL) {
        return;
    }
    umakit_simulator_measure(recorder.model, &now);
    fprintf(recorder.file, "l %" PRIx64 " %s\n",
            now.clock == UMAKIT_UNKNOWN ? 0u : now.clock - recorder.layer_began,
            recorder.is_dead ? "0" : recorder.is_live ? "1" : "-");
    fflush(recorder.file);
    recorder.layer_began = now.clock == UMAKIT_UNKNOWN ? 0u : now.clock;
    recorder.is_live = false;
    recorder.is_dead = false;
}
