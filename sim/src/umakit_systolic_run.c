/* SPDX-License-Identifier: Apache-2.0 */
/* Running a job of the systolic array on the bytes of its operands. */
#include "umakit/systolic_jobs.h"

#include <stddef.h>
#include <stdint.h>

#include "umakit/systolic_array.h"
#include "umakit/systolic_command.h"
#include "umakit/systolic_scratchpad.h"

enum {
    IFMAP = UMAKIT_SYSTOLIC_IFMAP,
    WEIGHTS = UMAKIT_SYSTOLIC_WEIGHTS,
    BIAS = UMAKIT_SYSTOLIC_BIAS,
    MULTIPLIERS = UMAKIT_SYSTOLIC_MULTIPLIERS,
    SHIFTS = UMAKIT_SYSTOLIC_SHIFTS,
    ADDEND = UMAKIT_SYSTOLIC_ADDEND,
    OFMAP = UMAKIT_SYSTOLIC_OFMAP,
    OPERANDS = UMAKIT_SYSTOLIC_OPERAND_COUNT
};

static int check_values(const struct umakit_systolic_array *array,
                        const struct umakit_systolic_job *job, uint32_t *address)
{
    const int8_t *shifts = (const int8_t *)array->config.scratchpad;
    uint32_t i;

    for (i = 0u; i < OFMAP; ++i) {
        if (job->is_used[i] &&
            !umakit_systolic_parity_holds(array, &job->region[i], address)) {
            return UMAKIT_PARITY_ERROR;
        }
    }
    if (!job->is_used[SHIFTS]) {
        return UMAKIT_OK;
    }
    for (i = 0u; i < job->scale_count; ++i) {
        *address = job->region[SHIFTS].start + i;
        if (shifts[*address] < -UMAKIT_SYSTOLIC_MAX_SHIFT_RIGHT ||
            shifts[*address] > UMAKIT_SYSTOLIC_MAX_SHIFT_LEFT) {
            return UMAKIT_INVALID_ARGUMENT;
        }
    }
    return UMAKIT_OK;
}

int umakit_systolic_run_job(struct umakit_systolic_array *array,
                            const struct umakit_systolic_job *job, uint32_t *address)
{
    const int status = check_values(array, job, address);
    struct umakit_systolic_operands operands;
    unsigned char *at[OPERANDS];
    uint32_t *accumulators = NULL;
    size_t i;

    if (status != UMAKIT_OK) {
        return status;
    }
    for (i = 0u; i < OPERANDS; ++i) {
        at[i] = job->is_used[i] ? (unsigned char *)array->config.scratchpad +
                                      job->region[i].start
                                : NULL;
    }
    if (job->accumulate != 0u) {
        accumulators =
            (uint32_t *)array->config.accumulator + job->accumulator_start / 4u;
    }
    operands = (struct umakit_systolic_operands){
        .ifmap = (const int8_t *)at[IFMAP],
        .weights = (const int8_t *)at[WEIGHTS],
        .bias = at[BIAS],
        .multipliers = at[MULTIPLIERS],
        .shifts = (const int8_t *)at[SHIFTS],
        .addend = (const int8_t *)at[ADDEND],
        .ofmap = (int8_t *)at[OFMAP],
        .accumulators = accumulators,
    };
    if (umakit_systolic_is_pool(job)) {
        umakit_systolic_pool(job, &operands);
    } else {
        umakit_systolic_convolve(job, &operands);
    }
    if (job->is_used[OFMAP]) {
        umakit_systolic_set_parity(array, &job->region[OFMAP]);
    }
    return UMAKIT_OK;
}
