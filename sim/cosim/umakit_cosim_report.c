/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The report of the co-simulation: a file with a line of JSON for each layer and backend,
 *
 *   {"backend": "npu", "layer": 0, "inference": 0, "checked": true, "detached": false,
 *    "model_cycles": 812, "rtl_cycles": 830, "model_access_cycles": 11,
 *    "rtl_access_cycles": 29, "layer_model_cycles": 812,
 *    "compared_bytes": 640, "register_writes": 9, "register_reads": 2, "waits": 1,
 *    "tiles": 1}
 *
 * with cycles of each clock as long as the RTL took part (layer_model_cycles: always), null
 * if unknown; those of accesses are cycles of the driver's register accesses, which take longer
 * on a bus than in a model unless UMAKIT_COSIM_IDLE is set, but not of reading again to
 * catch up; the compared bytes are those of buffers when they were
 * unmapped, or when the RTL was detached; now and then
 *
 *   {"progress": {"backend": "npu", "layer": 0, "rtl_cycles": 4000000, "seconds": 3}}
 *
 * and, before the run ends, the first difference; it has the keys that its kind has:
 *
 *   {"difference": {"backend": "npu", "layer": 0, "inference": 0, "kind": "memory",
 *    "access": 11, "command": 1, "tile": 1, "offset": 16, "address": 268435473,
 *    "byte": 17, "buffer_bytes": 640, "bytes_differing": 3, "pointers": [8],
 *    "written_byte": 17, "written_cycle": 803, "expected": 1, "found": 2,
 *    "last_writes": [[0, 1]], "first_cycle": 70, "last_cycle": 890, "resets": 0,
 *    "sentence": "..."}}
 *
 * Kinds: "memory"; "interrupt", of one side only; "register", which is not what the driver has
 * written, or differs before it mapped a buffer; "status", any other register; "failure", by
 * umakit_host_fail of the RTL. Pointers are offsets of registers whose last values are bus addresses
 * in the buffer. The written byte is, of a buffer that is watched, the one of those that differ which
 * the RTL wrote first, and the cycle is when it wrote it last. Accesses and commands count from 1, in the layer; tiles are
 * those that had ended. The cycles are of the RTL's clock after so many resets: from the
 * command's begin to when the difference was seen first; of a register, to when the RTL
 * changed it last; of an interrupt that is missing, to twice as long as the model took, and
 * "gave_up_cycle" is when the RTL was given up.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "umakit_cosim_internal.h"

/* At least one second between two lines: time() has whole seconds. */
#define PROGRESS_SECONDS 2.0

static FILE *file;
static time_t started;
static time_t told;

void umakit_cosim_open_report(void)
{
    const char *path = getenv("UMAKIT_COSIM_REPORT");

    if (file == NULL && path != NULL) {
        file = fopen(path, "w");
    }
    started = time(NULL);
    told = started;
}

bool umakit_cosim_has_report(void)
{
    return file != NULL || getenv("UMAKIT_COSIM_REPORT") == NULL;
}

void umakit_cosim_close_report(void)
{
    if (file != NULL) {
        (void)fclose(file);
        file = NULL;
    }
}

/* ---- JSON ---- */

static void put_text(const char *name, const char *text)
{
    (void)fprintf(file, "\"%s\": \"", name);
    for (; *text != '\0'; ++text) {
        const unsigned char character = (unsigned char)*text;

        if (character == '"' || character == '\\') {
            (void)fputc('\\', file);
        }
        (void)fputc(character < 32u ? ' ' : (int)character, file);
    }
    (void)fputc('"', file);
}

static void put_number(const char *name, uint64_t value)
{
    if (value == UMAKIT_UNKNOWN) {
        (void)fprintf(file, ", \"%s\": null", name);
    } else {
        (void)fprintf(file, ", \"%s\": %" PRIu64, name, value);
    }
}

static void put_bool(const char *name, bool value)
{
    (void)fprintf(file, ", \"%s\": %s", name, value ? "true" : "false");
}

static void put_place(const struct umakit_cosim *pair)
{
    put_text("backend", pair->backend);
    put_number("layer", umakit_cosim_place.layer);
    put_number("inference", umakit_cosim_place.inference);
}

static void put_last_writes(const struct umakit_cosim_moment *moment)
{
    size_t i = moment->write_count > UMAKIT_COSIM_LAST_WRITES
                   ? moment->write_count - UMAKIT_COSIM_LAST_WRITES
                   : 0u;
    const char *separator = "";

    (void)fputs(", \"last_writes\": [", file);
    for (; i < moment->write_count; ++i) {
        const size_t at = i % UMAKIT_COSIM_LAST_WRITES;

        (void)fprintf(file, "%s[%" PRIu32 ", %" PRIu32 "]", separator,
                      moment->write_offsets[at], moment->write_values[at]);
        separator = ", ";
    }
    (void)fputc(']', file);
}

/* Registers into which the driver wrote an address in the buffer. */
static void put_pointers(const struct umakit_cosim *pair,
                         const struct umakit_cosim_difference *difference)
{
    const char *separator = "";
    size_t i;

    (void)fputs(", \"pointers\": [", file);
    for (i = 0u; i < pair->register_count; ++i) {
        const struct umakit_cosim_register *const entry = &pair->registers[i];

        if (entry->has_been_written &&
            entry->written - difference->buffer < difference->buffer_bytes) {
            (void)fprintf(file, "%s%" PRIu32, separator, entry->offset);
            separator = ", ";
        }
    }
    (void)fputc(']', file);
}

/* ---- Lines ---- */

void umakit_cosim_report_layer(const struct umakit_cosim *pair)
{
    const struct umakit_cosim_layer *layer = &pair->layer;

    if (file == NULL) {
        return;
    }
    (void)fputc('{', file);
    put_place(pair);
    put_bool("checked", layer->is_checked);
    put_bool("detached", layer->is_detached);
    put_number("model_cycles", layer->is_checked ? layer->model_cycles : UMAKIT_UNKNOWN);
    put_number("rtl_cycles", layer->is_checked ? layer->rtl_cycles : UMAKIT_UNKNOWN);
    put_number("model_access_cycles",
               layer->is_checked ? layer->model_access_cycles : UMAKIT_UNKNOWN);
    put_number("rtl_access_cycles",
               layer->is_checked ? layer->rtl_access_cycles : UMAKIT_UNKNOWN);
    put_number("layer_model_cycles", layer->layer_model_cycles);
    put_number("compared_bytes", layer->compared_bytes);
    put_number("register_writes", layer->register_writes);
    put_number("register_reads", layer->register_reads);
    put_number("waits", layer->waits);
    put_number("tiles", pair->moment.tile);
    (void)fputs("}\n", file);
    (void)fflush(file);
}

void umakit_cosim_report_progress(const struct umakit_cosim *pair)
{
    time_t now;

    if (file == NULL) {
        return;
    }
    now = time(NULL);
    if (difftime(now, told) < PROGRESS_SECONDS) {
        return;
    }
    told = now;
    (void)fputs("{\"progress\": {", file);
    put_text("backend", pair->backend);
    put_number("layer", umakit_cosim_place.layer);
    put_number("rtl_cycles", umakit_cosim_clock(&pair->rtl));
    put_number("seconds", (uint64_t)difftime(now, started));
    (void)fputs("}}\n", file);
    (void)fflush(file);
}

static void put_difference(const struct umakit_cosim *pair,
                           const struct umakit_cosim_difference *difference,
                           const char *sentence)
{
    const struct umakit_cosim_moment *moment = difference->moment;

    (void)fputs("{\"difference\": {", file);
    put_place(pair);
    (void)fputs(", ", file);
    put_text("kind", difference->kind);
    put_number("access", moment->access);
    put_number("command", pair->options.doorbells.is_set ? moment->command : UMAKIT_UNKNOWN);
    put_number("tile", moment->tile);
    if (difference->has_offset) {
        put_number("offset", difference->offset);
    }
    if (difference->is_memory) {
        put_number("address", difference->address);
        put_number("byte", difference->byte);
        put_number("buffer_bytes", difference->buffer_bytes);
        put_number("bytes_differing", difference->bytes_differing);
        put_pointers(pair, difference);
        if (difference->is_written) {
            put_number("written_byte", difference->written);
            put_number("written_cycle", difference->written_at);
        }
    }
    if (difference->has_values) {
        put_number("expected", difference->expected);
        put_number("found", difference->found);
    }
    put_last_writes(moment);
    put_number("first_cycle", moment->first_cycle);
    put_number("last_cycle", moment->last_cycle);
    if (strcmp(difference->kind, "interrupt") == 0) {
        put_number("gave_up_cycle", difference->gave_up);
    }
    put_number("resets", pair->resets);
    (void)fputs(", ", file);
    put_text("sentence", sentence);
    (void)fputs("}}\n", file);
    (void)fflush(file);
}

void umakit_cosim_differ(struct umakit_cosim *pair,
                         const struct umakit_cosim_difference *difference)
{
    const struct umakit_cosim_moment *moment = difference->moment;
    const bool is_failure = strcmp(difference->kind, "failure") == 0;
    char sentence[UMAKIT_FAILURE_BYTES];
    char command[48] = "";

    if (umakit_cosim_has_failed(pair)) {
        return;
    }
    if (pair->options.doorbells.is_set) {
        (void)snprintf(command, sizeof(command), ", command %" PRIu64, moment->command);
    }
    (void)snprintf(sentence, sizeof(sentence),
                   "the RTL of %.60s %s in layer %" PRIu32 ", tile %" PRIu64 "%s: %s",
                   pair->backend, is_failure ? "failed" : "differs from its model",
                   umakit_cosim_place.layer, moment->tile, command, difference->what);
    if (file != NULL) {
        put_difference(pair, difference, sentence);
    }
    umakit_host_fail(&pair->outer, sentence);
}
