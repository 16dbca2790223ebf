/* SPDX-License-Identifier: Apache-2.0 */
/* Two devices that should be alike, for tests of varied programs: ID, START, OPERAND, RESULT and
 * ERROR. A start takes 20 cycles and adds 1 to the operand; an operand above 1000 is an error.
 * The second one forgets to when the operand is 7, and takes long when it is 6; it takes 1200,
 * refuses 900, and calls 2000 another error. */
#include "umakit_programs.h"

struct adder {
    uint64_t clock;
    uint64_t busy;
    uint64_t until;
    uint32_t operand;
    uint32_t result;
    uint32_t error;
    bool is_wrong;
};

static struct adder adders[2] = {{.clock = 0u}, {.is_wrong = true}};

static void pass(struct adder *adder, uint64_t cycles)
{
    while (cycles-- > 0u) {
        adder->busy += adder->clock < adder->until ? 1u : 0u;
        ++adder->clock;
        if (adder->clock == adder->until) {
            adder->result =
                adder->operand + (adder->is_wrong && adder->operand == 7u ? 0u : 1u);
        }
    }
}

static void reset(void *simulator)
{
    struct adder *adder = simulator;

    *adder = (struct adder){.is_wrong = adder->is_wrong};
}

static uint32_t read32(void *simulator, uint32_t offset)
{
    struct adder *adder = simulator;
    const uint32_t values[] = {0x1234u, 0u, adder->operand, adder->result, adder->error};

    pass(adder, 1u);
    return offset / 4u < 5u ? values[offset / 4u] : 0u;
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

    pass(adder, adder->is_wrong ? 3u : 1u);
    if (offset == 8u) {
        adder->operand = value;
    } else if (offset == 4u && refuses(adder)) {
        adder->error = adder->is_wrong && adder->operand == 2000u ? 4u : 3u;
    } else if (offset == 4u) {
        adder->until = adder->clock + (adder->is_wrong && adder->operand == 6u ? 30000u : 20u);
    }
}

static bool wait(void *simulator, uint64_t cycles)
{
    struct adder *adder = simulator;

    while (cycles-- > 0u && adder->clock < adder->until) {
        pass(adder, 1u);
    }
    return adder->clock >= adder->until;
}

static void counters(void *simulator, struct umakit_own_counters *found)
{
    const struct adder *adder = simulator;

    found->clock = adder->clock;
    found->busy_cycles = adder->busy;
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

    tables[1] = tables[0];
    tables[1].create = create_second;
    umakit_simulator_open(&model, &tables[0]);
    return umakit_programs_replay(&model, &tables[1], randomize, NULL);
}
