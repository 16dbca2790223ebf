/* SPDX-License-Identifier: Apache-2.0 */
/* How long transfers and jobs of the systolic array take. */
#include "umakit/systolic_jobs.h"

#include <stdbool.h>
#include <stdint.h>

#include "umakit/saturating.h"
#include "umakit/static_assert.h"
#include "umakit/systolic_array.h"
#include "umakit/systolic_command.h"
#include "umakit/systolic_cycles.h"

UMAKIT_STATIC_ASSERT((unsigned int)UMAKIT_OUTPUT_STATIONARY ==
                             UMAKIT_SYSTOLIC_ARRAY_DATAFLOW_OUTPUT_STATIONARY &&
                         (unsigned int)UMAKIT_WEIGHT_STATIONARY ==
                             UMAKIT_SYSTOLIC_ARRAY_DATAFLOW_WEIGHT_STATIONARY &&
                         (unsigned int)UMAKIT_INPUT_STATIONARY ==
                             UMAKIT_SYSTOLIC_ARRAY_DATAFLOW_INPUT_STATIONARY,
                     dataflows_are_those_of_the_register);

/* ---- Transfers ---- */

void umakit_systolic_set_transfer_cycles(const struct umakit_systolic_array_config *config,
                                         struct umakit_systolic_command *command)
{
    const uint32_t *sizes = command->transfer.bus.sizes;
    const uint32_t row_bytes = sizes[2];
    const uint32_t burst_bytes =
        config->dma_burst_bytes == 0u ? row_bytes : config->dma_burst_bytes;
    uint64_t row_cycles = umakit_divide_rounding_up(row_bytes, config->dma_bytes_per_cycle);

    if (config->dma_outstanding) {
        command->tail = config->dma_latency_cycles;
    } else {
        row_cycles +=
            umakit_divide_rounding_up(row_bytes, burst_bytes) * config->dma_latency_cycles;
    }
    command->busy = umakit_saturating_sum(
        config->dma_setup_cycles,
        umakit_saturating_product((uint64_t)sizes[0] * sizes[1], row_cycles));
}

/* ---- Jobs ---- */

static void set_pool_cycles(const struct umakit_systolic_array_config *config,
                            struct umakit_systolic_command *command)
{
    struct umakit_systolic_job *job = &command->job;
    const uint64_t window = (uint64_t)job->kernel[0] * job->kernel[1];

    job->folds = 1u;
    job->fold_cycles = umakit_saturating_product(
        (uint64_t)job->output[0] * job->output[1],
        window * umakit_divide_rounding_up(job->output[2], config->pooling_lanes));
    command->busy = job->fold_cycles;
}

/* Folds of an array whose columns are packed: a job of m output positions and n output
 * channels has blocks of array_columns channels. Where the last block has few, the columns
 * that are left take further groups of positions. */
static uint64_t packed_folds(const struct umakit_systolic_array_config *config,
                             struct umakit_product_size size)
{
    const uint64_t rest = size.n % config->array_columns;
    const uint64_t folds =
        size.n / config->array_columns * umakit_divide_rounding_up(size.m, config->array_rows);

    return rest == 0u
               ? folds
               : folds + umakit_divide_rounding_up(
                             size.m, config->array_columns / rest * config->array_rows);
}

/* Cycles until an operand that stays is in the array; 0 if none does. */
static uint64_t preload_cycles(const struct umakit_systolic_array_config *config,
                               uint32_t dataflow)
{
    const uint32_t rows = config->preload_rows == 0u ? 1u : config->preload_rows;

    return dataflow == UMAKIT_OUTPUT_STATIONARY
               ? 0u
               : umakit_divide_rounding_up(config->array_rows, rows);
}

/* Cycles of a fold between others: what moves through the array, while what stays
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

static void set_product_cycles(const struct umakit_systolic_array_config *config,
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
    job->useful_macs =
        umakit_saturating_product(umakit_saturating_product(size.m, size.n), size.k);
    if (config->pack_columns && !stays) {
        job->folds = packed_folds(config, size);
        job->macs = umakit_saturating_product(cycles.slots / cycles.folds, job->folds);
    }
    if (config->preload) {
        job->fold_cycles = preloaded_fold_cycles(config, job->dataflow, size);
        command->busy = umakit_saturating_product(job->folds, job->fold_cycles);
        command->tail = (uint64_t)(config->array_rows - 1u) + (config->array_columns - 1u) +
                        drain + preload_cycles(config, job->dataflow);
    } else {
        command->busy = umakit_saturating_product(job->folds, job->fold_cycles + drain);
    }
}

void umakit_systolic_set_job_cycles(const struct umakit_systolic_array_config *config,
                                    struct umakit_systolic_command *command)
{
    if (umakit_systolic_is_pool(&command->job)) {
        set_pool_cycles(config, command);
    } else {
        set_product_cycles(config, command);
    }
    command->setup = config->array_setup_cycles;
    command->busy = umakit_saturating_sum(command->setup, command->busy);
}
