/* SPDX-License-Identifier: Apache-2.0 */
/* A simulator of the relu_npu that is complete, incomplete or wrong as the environment says. */
#include <stdlib.h>
#include <string.h>

#include "umakit/own_simulator.h"

#define MOST_VALUES 256u
#define FIELDS 7

static umakit_host *the_host;
static uint32_t registers[5];
static uint64_t totals[FIELDS];
static float values[MOST_VALUES];
static unsigned int jobs;

/* Whether a word stands in the list $UMAKIT_TEST_SIMULATOR. */
static bool is_set(const char *word)
{
    const char *const list = getenv("UMAKIT_TEST_SIMULATOR");
    const size_t length = strlen(word);
    const char *place = list;

    while (place != NULL && (place = strstr(place, word)) != NULL) {
        if ((place == list || place[-1] == ' ') &&
            (place[length] == '\0' || place[length] == ' ')) {
            return true;
        }
        place += length;
    }
    return false;
}

static void *create(umakit_host *host)
{
    the_host = host;
    if (is_set("create-fails")) {
        return NULL;
    }
    if (is_set("fail-at-once")) {
        umakit_host_fail(host, "it has no licence");
    }
    return registers;
}

static void reset(void *simulator)
{
    (void)simulator;
    memset(registers, 0, sizeof registers);
    memset(totals, 0, sizeof totals);
}

static void tell(const char *engine, const char *label, uint64_t begin, uint64_t busy, uint64_t end)
{
    const struct umakit_event event = {engine, label, begin, busy, end};

    umakit_host_event(the_host, &event);
}

static void tell_events(uint64_t begin, uint64_t end)
{
    unsigned int i;

    if (is_set("events-none")) {
        return;
    }
    tell("relu", "values", begin, end, end);
    if (is_set("events-odd")) {
        tell("dma", "later first", end, end, end + 3u);
        tell("dma", NULL, begin, begin, begin);
        tell(NULL, "no engine", begin, end, end);
        tell("", "", begin, begin + 1u, end);
        tell("a\tb \n", "<b>&\"'\\ \xff\xc3", begin, end, end);
        tell("backwards", "end before begin", end, begin, begin);
        tell("past", "before the clock", 0u, 1u, 2u);
        tell("far", "long after", UINT64_MAX - 9u, UINT64_MAX - 5u, UINT64_MAX - 1u);
        tell("a name that is longer than all names may be", "and a label that is longer than any",
             begin, end, end);
    }
    for (i = 0; is_set("events-many") && i < 70000u; ++i) {
        tell("relu", "one of many", begin, begin, end);
    }
}

static void run(uint32_t bytes)
{
    const uint32_t count = bytes / (uint32_t)sizeof values[0];
    const uint64_t begin = totals[0];
    uint32_t i;

    ++jobs;
    if (is_set("fail-in-job") || count > MOST_VALUES) {
        umakit_host_fail(the_host, "the \"second\" bank\nis full");
        return;
    }
    if (umakit_host_read(the_host, registers[1], bytes, values) != UMAKIT_OK) {
        return;
    }
    for (i = 0; i < count; ++i) {
        values[i] = values[i] > 0.0f ? values[i] : 0.0f;
    }
    if (umakit_host_write(the_host, registers[2], bytes, values) != UMAKIT_OK) {
        return;
    }
    for (i = 0; i < FIELDS; ++i) {
        totals[i] += i < 4u ? count : bytes;
    }
    tell_events(begin, totals[0]);
    registers[0] = is_set("status-wrong") ? 2u : 1u;
}

static uint32_t read32(void *simulator, uint32_t offset)
{
    (void)simulator;
    return registers[offset / 4u % 5u];
}

static void write32(void *simulator, uint32_t offset, uint32_t value)
{
    (void)simulator;
    registers[offset / 4u % 5u] = value;
    if (offset == 16u) {
        run(registers[3]);
    }
}

static bool wait(void *simulator, uint64_t cycles)
{
    (void)simulator;
    (void)cycles;
    return !is_set("wait-never");
}

static void counters(void *simulator, struct umakit_own_counters *counted)
{
    uint64_t *const fields[FIELDS] = {
        &counted->clock, &counted->busy_cycles, &counted->compute_cycles, &counted->dma_cycles,
        &counted->macs, &counted->bytes_read, &counted->bytes_written,
    };
    static const char *const names[FIELDS] = {"clock", "busy_cycles", "compute_cycles",
                                              "dma_cycles", "macs", "bytes_read", "bytes_written"};
    char word[40];
    int i;

    (void)simulator;
    for (i = 0; i < FIELDS; ++i) {
        (void)strcat(strcpy(word, "no-"), names[i]);
        if (is_set(word)) {
            continue;
        }
        (void)strcat(strcpy(word, "still-"), names[i]);
        *fields[i] = is_set(word) ? 5u : totals[i];
        (void)strcat(strcpy(word, "back-"), names[i]);
        if (is_set(word)) {
            *fields[i] = 1000000u - totals[i];
        }
        (void)strcat(strcpy(word, "lost-"), names[i]);
        if (is_set(word) && jobs > 0u) {
            *fields[i] = UMAKIT_UNKNOWN;
        }
    }
}

static void unmapping(void *simulator, uint32_t address, size_t bytes)
{
    (void)simulator;
    (void)address;
    (void)bytes;
}

static void misuse(void *simulator, enum umakit_status error, uint32_t address)
{
    (void)simulator;
    (void)error;
    (void)address;
}

const struct umakit_own_simulator *relu_npu_simulator(void);

const struct umakit_own_simulator *relu_npu_simulator(void)
{
    static struct umakit_own_simulator table;

    table.version = is_set("version-0") ? 0u : is_set("version-2") ? 2u : UMAKIT_OWN_SIMULATOR_VERSION;
    table.map_alignment = is_set("align-4") ? 4u : is_set("align-3") ? 3u : 0u;
    table.create = is_set("null-create") ? NULL : create;
    table.read32 = is_set("null-read32") ? NULL : read32;
    table.write32 = is_set("null-write32") ? NULL : write32;
    table.wait = is_set("null-wait") ? NULL : wait;
    table.reset = is_set("without-reset") ? NULL : reset;
    table.counters = is_set("without-counters") ? NULL : counters;
    table.unmapping = is_set("with-unmapping") ? unmapping : NULL;
    table.misuse = is_set("with-misuse") ? misuse : NULL;
    return is_set("no-table") ? NULL : &table;
}
