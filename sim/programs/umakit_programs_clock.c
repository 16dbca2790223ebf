/* SPDX-License-Identifier: Apache-2.0 */
/* The clock of one side: how it passes, and when a run has failed or takes too long. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "umakit_programs_internal.h"

/* Cycles of the model that a program may take: as its layer, and more. */
#define LEAST_LIMIT 40000u
#define MORE_THAN_LAYER 4u

uint64_t umakit_programs_clock(const struct umakit_programs_run *run)
{
    struct umakit_own_counters counters;

    umakit_simulator_measure(run->device, &counters);
    return counters.clock;
}

void umakit_programs_pass(struct umakit_programs_run *run, uint64_t cycles)
{
    const uint64_t begin = umakit_programs_clock(run);
    uint64_t reads = cycles;

    if (cycles == 0u) {
        return;
    }
    if (!run->setting->has_idle || begin == UMAKIT_UNKNOWN) {
        const uint64_t most = cycles < UINT32_MAX ? cycles : UINT32_MAX;

        if (umakit_device_wait(run->device, (uint32_t)most) != UMAKIT_OK) {
            return; /* the time has passed, or less of it because of an interrupt */
        }
        return;
    }
    while (reads-- > 0u && umakit_programs_clock(run) - begin < cycles) {
        (void)umakit_device_read32(run->device, run->setting->idle);
    }
}

bool umakit_programs_has_failed(const struct umakit_programs_run *run)
{
    return umakit_simulator_failure(run->device)[0] != '\0';
}

bool umakit_programs_is_too_long(const struct umakit_programs_run *run)
{
    const uint64_t clock = umakit_programs_clock(run);
    const uint64_t more = MORE_THAN_LAYER * run->program->cycles;

    return run->settling == 0u && clock != UMAKIT_UNKNOWN &&
           clock > (more > LEAST_LIMIT ? more : LEAST_LIMIT);
}
