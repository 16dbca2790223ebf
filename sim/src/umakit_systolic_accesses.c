/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Accesses to the scratchpad and to the accumulator memory.
 *
 * The scratchpad is as wide as the bus: an access is of at most dma_bytes_per_cycle bytes that
 * lie side by side. An access to the accumulator is of the sums of one output position for the
 * channels of one fold, 4 bytes each. What is read:
 *
 * - inputs: for each block of channels that the array computes at a time, once for each output
 *   position and each position of the kernel that meets an input; input stationary, for the first
 *   block only. Padding is no access.
 * - weights: once for each fold along the output positions; weight stationary, once.
 * - bias, multipliers, shifts: once in a job. The addend: once for each result.
 * - sums: by jobs that continue; if an operand is stationary, by each fold along the depth but
 *   the first.
 *
 * Results are written once; sums like they are read, by jobs that keep them and by each fold but
 * the last. umakit/machine/counts says the same in Python.
 */
#include "umakit/systolic_engines.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "umakit/own_simulator.h"
#include "umakit/saturating.h"
#include "umakit/systolic_array.h"
#include "umakit/systolic_command.h"
#include "umakit/systolic_taps.h"

static const char *scratchpad_name(const struct umakit_systolic_array *array)
{
    return array->config.scratchpad_name == NULL ? "scratchpad" : array->config.scratchpad_name;
}

static const char *accumulator_name(void)
{
    return "accumulator";
}

/* Accesses to `bytes` bytes side by side in the scratchpad. */
static uint64_t words(const struct umakit_systolic_array *array, uint64_t bytes)
{
    return umakit_divide_rounding_up(bytes, array->config.dma_bytes_per_cycle);
}

/* The same of channels that lie side by side or, with channels first, apart. */
static uint64_t channel_words(const struct umakit_systolic_array *array, const uint32_t strides[3],
                              uint64_t channels)
{
    return strides[2] == 1u ? words(array, channels) : channels;
}

void umakit_systolic_name_memories(struct umakit_systolic_array *array)
{
    const struct umakit_memory_access scratchpad = {.memory = scratchpad_name(array)};
    const struct umakit_memory_access accumulator = {.memory = accumulator_name()};

    umakit_host_access(&array->device, &scratchpad);
    if (array->config.accumulator_bytes != 0u) {
        umakit_host_access(&array->device, &accumulator);
    }
}

void umakit_systolic_count_transfer(struct umakit_systolic_array *array,
                                    const struct umakit_systolic_transfer *transfer)
{
    const uint32_t row_bytes = transfer->bus.sizes[2];
    const uint64_t count = transfer->moved / row_bytes * words(array, row_bytes) +
                           words(array, transfer->moved % row_bytes);
    const struct umakit_memory_access access = {
        .memory = scratchpad_name(array),
        .reads = transfer->is_out ? count : 0u,
        .read_bytes = transfer->is_out ? transfer->moved : 0u,
        .writes = transfer->is_out ? 0u : count,
        .written_bytes = transfer->is_out ? 0u : transfer->moved,
    };

    umakit_host_access(&array->device, &access);
}

/* Pairs of an output and a position of the kernel that meets an input, along an axis. */
static uint64_t taps_along(const struct umakit_systolic_job *job, int axis)
{
    uint64_t count = 0u;
    uint32_t output;

    for (output = 0u; output < job->output[axis]; ++output) {
        const struct umakit_systolic_taps taps = umakit_systolic_taps_of(job, axis, output);

        count += taps.end - taps.first;
    }
    return count;
}

static bool is_depthwise(const struct umakit_systolic_job *job)
{
    return job->operation == UMAKIT_SYSTOLIC_ARRAY_OPERATION_DEPTHWISE;
}

/* Input channels that output channels `first` to `first + count - 1` read. */
static uint64_t inputs_of(const struct umakit_systolic_job *job, uint32_t first, uint32_t count)
{
    const uint32_t multiplier = job->output[2] / job->input[2];

    if (!is_depthwise(job) && !umakit_systolic_is_pool(job)) {
        return job->dataflow == UMAKIT_SYSTOLIC_ARRAY_DATAFLOW_INPUT_STATIONARY && first != 0u
                   ? 0u
                   : job->input[2];
    }
    return (uint64_t)((first + count - 1u) / multiplier) - first / multiplier + 1u;
}

/* Products that each result is the sum of. */
static uint64_t depth_of(const struct umakit_systolic_job *job)
{
    return (uint64_t)job->kernel[0] * job->kernel[1] * (is_depthwise(job) ? 1u : job->input[2]);
}

/* How often the weights of a block of `count` channels enter the array. */
static uint64_t weight_passes(const struct umakit_systolic_array *array,
                              const struct umakit_systolic_job *job, uint32_t count)
{
    const struct umakit_systolic_array_config *config = &array->config;
    const uint64_t positions = (uint64_t)job->output[0] * job->output[1];

    if (job->dataflow == UMAKIT_SYSTOLIC_ARRAY_DATAFLOW_WEIGHT_STATIONARY) {
        return 1u;
    }
    if (job->dataflow == UMAKIT_SYSTOLIC_ARRAY_DATAFLOW_INPUT_STATIONARY) {
        return umakit_divide_rounding_up(positions, config->array_columns);
    }
    return umakit_divide_rounding_up(
        positions, (uint64_t)config->array_rows *
                       (config->pack_columns ? config->array_columns / count : 1u));
}

/* What a block of channels reads and writes in the scratchpad. */
static void add_block(const struct umakit_systolic_array *array,
                      const struct umakit_systolic_job *job, uint32_t first, uint32_t count,
                      uint64_t taps, struct umakit_memory_access *access)
{
    const uint64_t positions = (uint64_t)job->output[0] * job->output[1];
    const uint64_t inputs = inputs_of(job, first, count);
    const uint64_t results = channel_words(array, job->ofmap_stride, count);

    access->read_bytes += taps * inputs;
    access->reads += taps * channel_words(array, job->ifmap_stride, inputs);
    if (job->is_used[UMAKIT_SYSTOLIC_WEIGHTS]) {
        const uint64_t rows = depth_of(job) * weight_passes(array, job, count);

        access->read_bytes += rows * count;
        access->reads += rows * words(array, count);
    }
    if (job->is_used[UMAKIT_SYSTOLIC_ADDEND]) {
        access->read_bytes += positions * count;
        access->reads += positions * results;
    }
    if (job->is_used[UMAKIT_SYSTOLIC_OFMAP]) {
        access->written_bytes += positions * count;
        access->writes += positions * results;
    }
}

static void add_parameters(const struct umakit_systolic_array *array,
                           const struct umakit_systolic_job *job,
                           struct umakit_memory_access *access)
{
    const uint64_t bytes[3] = {
        job->is_used[UMAKIT_SYSTOLIC_BIAS] ? 4u * (uint64_t)job->output[2] : 0u,
        job->is_used[UMAKIT_SYSTOLIC_MULTIPLIERS] ? 4u * (uint64_t)job->scale_count : 0u,
        job->is_used[UMAKIT_SYSTOLIC_SHIFTS] ? job->scale_count : 0u,
    };
    int i;

    for (i = 0; i < 3; ++i) {
        access->read_bytes += bytes[i];
        access->reads += words(array, bytes[i]);
    }
}

static void count_sums(struct umakit_systolic_array *array, const struct umakit_systolic_job *job)
{
    const struct umakit_systolic_array_config *config = &array->config;
    const uint64_t positions = (uint64_t)job->output[0] * job->output[1];
    const uint64_t blocks = umakit_divide_rounding_up(job->output[2], config->array_columns);
    const uint64_t folds = job->dataflow == UMAKIT_SYSTOLIC_ARRAY_DATAFLOW_OUTPUT_STATIONARY
                               ? 1u
                               : umakit_divide_rounding_up(depth_of(job), config->array_rows);
    const uint64_t reads = folds - 1u + (umakit_systolic_continues(job) ? 1u : 0u);
    const uint64_t writes = folds - 1u + (umakit_systolic_keeps(job) ? 1u : 0u);
    const struct umakit_memory_access access = {
        .memory = accumulator_name(),
        .reads = reads * positions * blocks,
        .read_bytes = 4u * reads * positions * job->output[2],
        .writes = writes * positions * blocks,
        .written_bytes = 4u * writes * positions * job->output[2],
    };

    umakit_host_access(&array->device, &access);
}

void umakit_systolic_count_job(struct umakit_systolic_array *array,
                               const struct umakit_systolic_job *job)
{
    const bool is_pool = umakit_systolic_is_pool(job);
    const uint32_t lanes = is_pool ? array->config.pooling_lanes : array->config.array_columns;
    const uint64_t taps = taps_along(job, 0) * taps_along(job, 1);
    struct umakit_memory_access access = {.memory = scratchpad_name(array)};
    uint32_t first = 0u;

    while (first < job->output[2]) {
        const uint32_t left = job->output[2] - first;
        const uint32_t count = left < lanes ? left : lanes;

        add_block(array, job, first, count, taps, &access);
        first += count;
    }
    add_parameters(array, job, &access);
    umakit_host_access(&array->device, &access);
    if (!is_pool && array->config.accumulator_bytes != 0u) {
        count_sums(array, job);
    }
}
