/* SPDX-License-Identifier: Apache-2.0 */
/* How long jobs of the systolic array take. */
#include <stdbool.h>
#include <stdint.h>

#include "umakit/static_assert.h"
#include "umakit/systolic_array_internal.h"
#include "umakit/systolic_cycles.h"

UMAKIT_STATIC_ASSERT((unsigned int)UMAKIT_OUTPUT_STATIONARY ==
                             UMAKIT_SYSTOLIC_ARRAY_DATAFLOW_OUTPUT_STATIONARY &&
                         (unsigned int)UMAKIT_WEIGHT_STATIONARY ==
                             UMAKIT_SYSTOLIC_ARRAY_DATAFLOW_WEIGHT_STATIONARY &&
                         (unsigned int)UMAKIT_INPUT_STATIONARY ==
                             UMAKIT_SYSTOLIC_ARRAY_DATAFLOW_INPUT_STATIONARY,
                     dataflows_are_those_of_the_register);

static uint64_t divide_rounding_up(uint64_t dividend, uint32_t divisor)
{
    return dividend / divisor + (dividend % divisor != 0u ? 1u : 0u);
}

void umakit_systolic_plan_pool(const struct umakit_systolic_array_config *config,
                               struct umakit_systolic_job *job)
{
    const uint64_t window = (uint64_t)job->kernel[0] * job->kernel[1];

    job->folds = 1u;
    job->fold_cycles =
        umakit_systolic_product((uint64_t)job->output[0] * job->output[1],
                                window * divide_rounding_up(job->output[2],
                                                            config->pooling_lanes));
}

void umakit_systolic_plan_product(const struct umakit_systolic_array_config *config,
                                  uint32_t dataflow, struct umakit_systolic_job *job)
{
    const bool is_depthwise = job->operation == UMAKIT_SYSTOLIC_ARRAY_OPERATION_DEPTHWISE;
    const struct umakit_product_size size = {
        (uint64_t)job->output[0] * job->output[1], job->output[2],
        (uint64_t)job->kernel[0] * job->kernel[1] * (is_depthwise ? 1u : job->input[2])};
    const struct umakit_array_size array = {config->array_rows, config->array_columns,
                                            config->drain_cycles_per_fold};
    const struct umakit_systolic_cycles cycles =
        umakit_systolic_cycles((enum umakit_dataflow)dataflow, size, array);

    job->folds = cycles.folds;
    job->fold_cycles = cycles.compute / cycles.folds;
    job->macs = cycles.slots;
    job->useful_macs = umakit_systolic_product(umakit_systolic_product(size.m, size.n), size.k);
}
