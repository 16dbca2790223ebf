/* SPDX-License-Identifier: Apache-2.0 */
/* Two devices that should be alike, for tests of varied programs: ID, START, OPERAND, RESULT,
 * ERROR, LENGTH, SILENT and BUSY. A start takes LENGTH cycles, 20 if that is 0, and adds 1 to the
 * operand; an operand above 1000 is an error. SILENT 1 switches the interrupt off.
 * The second one forgets to when the operand is 7, and takes long when it is 6; it takes 1200,
 * refuses 900, and calls 2000 another error. With PAIR_ALIKE in the environment it does none of
 * this and is only slower. PAIR_COUNTS says how the devices count busy cycles: `live` (also when it
 * is unset), all at a job's `start` or `end`, in `bursts` of 1,000 cycles or 64, or `not` at all. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "umakit_programs.h"

#define BURST 1000u

struct adder {
    uint64_t clock;
    uint64_t busy;
    uint64_t until;
    uint32_t operand;
    uint32_t result;
    uint32_t error;
    uint32_t length;
    uint32_t silent;
    uint64_t took; /* the job */
    bool is_second;
    bool is_wrong;
};

static struct adder adders[2] = {{.clock = 0u}, {.is_second = true, .is_wrong = true}};

static bool counts(const char *how)
{
    const char *const given = getenv("PAIR_COUNTS");

    return strcmp(given == NULL ? "live" : given, how) == 0;
}

static void count(struct adder *adder)
{
    const uint64_t left = adder->until - adder->clock;

    if (counts("live")) {
        ++adder->busy;
    } else if (counts("end") && left == 1u) {
        adder->busy += adder->took;
    } else if (counts("bursts") && left % BURST == 64u) {
        adder->busy += left < BURST ? adder->took % BURST : BURST;
    }
}

static void pass(struct adder *adder, uint64_t cycles)
{
    while (cycles-- > 0u && adder->clock < adder->until) {
        count(adder);
        ++adder->clock;
        if (adder->clock == adder->until) {
            adder->result =
                adder->operand + (adder->is_wrong && adder->operand == 7u ? 0u : 1u);
        }
    }
    adder->clock += cycles + 1u;
}

static void reset(void *simulator)
{
    struct adder *adder = simulator;

    *adder = (struct adder){.is_second = adder->is_second, .is_wrong = adder->is_wrong};
}

static uint32_t read32(void *simulator, uint32_t offset)
{
    struct adder *adder = simulator;
    const uint32_t values[] = {0x1234u,      0u,           adder->operand, adder->result,
                               adder->error, adder->length, adder->silent,
                               adder->clock < adder->until ? 1u : 0u};

    pass(adder, 1u);
    return offset / 4u < 8u ? values[offset / 4u] : 0u;
}

static bool refuses(const struct adder *adder)
{
    return adder->is_wrong && (adder->operand == 1200u || adder->operand == 900u)
               ? adder->operand == 900u
               : adder->operand > 1000u;
}

static void write32(void *simulator, uint32_t offset, uint32_t value)
{
    struct adder *adder = simulator;

    pass(adder, adder->is_second ? 3u : 1u);
    if (offset == 8u) {
        adder->operand = value;
    } else if (offset == 4u && refuses(adder)) {
        adder->error = adder->is_wrong && adder->operand == 2000u ? 4u : 3u;
    } else if (offset == 4u) {
        adder->took = adder->length == 0u ? 20u : adder->length + adder->length / 5u * adder->is_second;
        adder->took = adder->is_wrong && adder->operand == 6u ? 30000u : adder->took;
        adder->until = adder->clock + adder->took;
        adder->busy += counts("start") ? adder->took : 0u;
    } else if (offset == 20u) {
        adder->length = value & 0x1ffffu;
    } else if (offset == 24u) {
        adder->silent = value & 1u;
    }
}

static bool wait(void *simulator, uint64_t cycles)
{
    struct adder *adder = simulator;

    if (adder->silent != 0u) {
        pass(adder, cycles);
        return false;
    }
    while (cycles-- > 0u && adder->clock < adder->until) {
        pass(adder, 1u);
    }
    return adder->clock >= adder->until;
}

static void counters(void *simulator, struct umakit_own_counters *found)
{
    const struct adder *adder = simulator;

    found->clock = adder->clock;
    found->busy_cycles = counts("not") ? UMAKIT_UNKNOWN : adder->busy;
}

static void *create_first(umakit_host *host)
{
    (void)host;
    return &adders[0];
}

static void *create_second(umakit_host *host)
{
    (void)host;
    return &adders[1];
}

static void randomize(uint32_t state_seed, uint32_t pause_seed)
{
    (void)state_seed;
    (void)pause_seed;
}

int main(void)
{
    static umakit_device model;
    struct umakit_own_simulator tables[2] = {{.version = UMAKIT_OWN_SIMULATOR_VERSION,
                                              .create = create_first,
                                              .reset = reset,
                                              .read32 = read32,
                                              .write32 = write32,
                                              .wait = wait,
                                              .counters = counters}};

    adders[1].is_wrong = getenv("PAIR_ALIKE") == NULL;
    tables[1] = tables[0];
    tables[1].create = create_second;
    umakit_simulator_open(&model, &tables[0]);
    return umakit_programs_replay(&model, &tables[1], randomize, NULL);
}
