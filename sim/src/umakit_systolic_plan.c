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

static uint64_t divide_rounding_up(uint64_t dividend, uint64_t divisor)
{
    return dividend / divisor + (dividend % divisor != 0u ? 1u : 0u);
}

static void plan_pool(const struct umakit_systolic_array_config *config,
                      struct umakit_systolic_command *command)
{
    struct umakit_systolic_job *job = &command->job;
    const uint64_t window = (uint64_t)job->kernel[0] * job->kernel[1];

    job->folds = 1u;
    job->fold_cycles =
        umakit_systolic_product((uint64_t)job->output[0] * job->output[1],
                                window * divide_rounding_up(job->output[2],
                                                            config->pooling_lanes));
    command->busy = job->fold_cycles;
}

/* What is done with the last block of channels for several groups of positions at
 * a time. */
static uint64_t packed_folds(const struct umakit_systolic_array_config *config,
                             struct umakit_product_size size)
{
    const uint64_t rest = size.n % config->array_columns;
    const uint64_t folds = size.n / config->array_columns *
                           divide_rounding_up(size.m, config->array_rows);

    return rest == 0u
               ? folds
               : folds + divide_rounding_up(
                             size.m, config->array_columns / rest * config->array_rows);
}

/* Cycles until an operand that stays is in the array; 0 if none does. */
static uint64_t preload_cycles(const struct umakit_systolic_array_config *config,
                               uint32_t dataflow)
{
    const uint32_t rows = config->preload_rows == 0u ? 1u : config->preload_rows;

    return dataflow == UMAKIT_OUTPUT_STATIONARY ? 0u
                                                : divide_rounding_up(config->array_rows, rows);
}

/* Cycles of a fold beside others: what moves through the array, while what stays
 * for the next one comes in. */
static uint64_t preloaded_fold_cycles(const struct umakit_systolic_array_config *config,
                                      uint32_t dataflow, struct umakit_product_size size)
{
    const uint64_t through = dataflow == UMAKIT_OUTPUT_STATIONARY   ? size.k
                             : dataflow == UMAKIT_WEIGHT_STATIONARY ? size.m
                                                                    : size.n;
    const uint64_t preload = preload_cycles(config, dataflow);

    return through > preload ? through : preload;
}

static void plan_product(const struct umakit_systolic_array_config *config,
                         struct umakit_systolic_command *command)
{
    struct umakit_systolic_job *job = &command->job;
    const bool is_depthwise = job->operation == UMAKIT_SYSTOLIC_ARRAY_OPERATION_DEPTHWISE;
    const bool stays = job->dataflow != UMAKIT_OUTPUT_STATIONARY; /* an operand does */
    const struct umakit_product_size size = {
        (uint64_t)job->output[0] * job->output[1], job->output[2],
        (uint64_t)job->kernel[0] * job->kernel[1] * (is_depthwise ? 1u : job->input[2])};
    const uint64_t drain = config->drain_cycles_per_fold;
    const struct umakit_array_size array = {config->array_rows, config->array_columns,
                                            config->drain_cycles_per_fold};
    const struct umakit_product_cycles cycles =
        umakit_systolic_cycles((enum umakit_dataflow)job->dataflow, size, array);

    job->folds = cycles.folds;
    job->fold_cycles = cycles.compute / cycles.folds;
    job->macs = cycles.slots;
    job->useful_macs = umakit_systolic_product(umakit_systolic_product(size.m, size.n), size.k);
    if (config->pack_columns && !stays) {
        job->folds = packed_folds(config, size);
        job->macs = umakit_systolic_product(cycles.slots / cycles.folds, job->folds);
    }
    if (config->preload) {
        job->fold_cycles = preloaded_fold_cycles(config, job->dataflow, size);
        command->busy = umakit_systolic_product(job->folds, job->fold_cycles);
        command->tail = (uint64_t)(config->array_rows - 1u) + (config->array_columns - 1u) +
                        drain + preload_cycles(config, job->dataflow);
    } else {
        command->busy = umakit_systolic_product(job->folds, job->fold_cycles + drain);
    }
}

void umakit_systolic_plan(const struct umakit_systolic_array_config *config,
                          struct umakit_systolic_command *command)
{
    if (umakit_systolic_is_pool(&command->job)) {
        plan_pool(config, command);
    } else {
        plan_product(config, command);
    }
}
