/* SPDX-License-Identifier: Apache-2.0 */
/* How long jobs of the systolic array take. */
#include <stdbool.h>
#include <stdint.h>

#include "umakit/systolic_array_internal.h"

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

/* See systolic_array.h for the formulas and their source. */
void umakit_systolic_plan_folds(const struct umakit_systolic_array_config *config,
                                uint32_t dataflow, struct umakit_systolic_job *job)
{
    const bool is_depthwise = job->operation == UMAKIT_SYSTOLIC_ARRAY_OPERATION_DEPTHWISE;
    const uint64_t m = (uint64_t)job->output[0] * job->output[1];
    const uint64_t n = job->output[2];
    const uint64_t k =
        (uint64_t)job->kernel[0] * job->kernel[1] * (is_depthwise ? 1u : job->input[2]);
    uint64_t on_rows = k;
    uint64_t on_columns = n;
    uint64_t streamed = m;
    uint64_t preload = config->array_rows;

    if (dataflow == UMAKIT_SYSTOLIC_ARRAY_DATAFLOW_OUTPUT_STATIONARY) {
        on_rows = m;
        streamed = k;
        preload = 0u;
    } else if (dataflow == UMAKIT_SYSTOLIC_ARRAY_DATAFLOW_INPUT_STATIONARY) {
        on_columns = m;
        streamed = n;
    }
    job->folds =
        umakit_systolic_product(divide_rounding_up(on_rows, config->array_rows),
                                divide_rounding_up(on_columns, config->array_columns));
    job->fold_cycles =
        preload + (config->array_rows - 1u) + (config->array_columns - 1u) + streamed;
    job->useful_macs = umakit_systolic_product(umakit_systolic_product(m, n), k);
    job->macs = umakit_systolic_product(
        job->folds, umakit_systolic_product(
                        (uint64_t)config->array_rows * config->array_columns, streamed));
}
