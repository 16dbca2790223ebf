/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs of the systolic array: what the registers ask for and whether it is
 * valid. */
#include "umakit/systolic_jobs.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "umakit/saturating.h"
#include "umakit/systolic_array.h"
#include "umakit/systolic_command.h"
#include "umakit/systolic_register_file.h"
#include "umakit/systolic_scratchpad.h"
#include "umakit/systolic_taps.h"

#define REGISTER(name) umakit_systolic_register(array, UMAKIT_SYSTOLIC_ARRAY_##name##_OFFSET)

/* So that no product of two sizes, strides or paddings overflows. */
#define MAX_SIZE 0xFFFFu
#define MAX_CHANNELS 0xFFFFFFu

/* Differences of bytes, shifted, fit 32 bits. */
#define MAX_ADD_SHIFT 22u

/* Two's complement without a conversion that depends on the compiler. */
static int64_t signed_value(uint32_t value)
{
    return value <= INT32_MAX ? (int64_t)value : (int64_t)value - INT64_C(0x100000000);
}

static int32_t signed_byte(uint32_t value)
{
    const int64_t number = signed_value(value);

    return number < -128 || number > 127 ? INT32_MAX : (int32_t)number;
}

/* A register that is none of a pool's. */
static uint32_t unless_pool(uint32_t operation, uint32_t value)
{
    return operation <= UMAKIT_SYSTOLIC_ARRAY_OPERATION_DEPTHWISE ? value : 0u;
}

static void read_job(const struct umakit_systolic_array *array, struct umakit_systolic_job *job)
{
    *job = (struct umakit_systolic_job){
        .operation = REGISTER(OPERATION),
        .dataflow = REGISTER(DATAFLOW),
        .input = {REGISTER(INPUT_HEIGHT), REGISTER(INPUT_WIDTH), REGISTER(INPUT_CHANNELS)},
        .output = {REGISTER(OUTPUT_HEIGHT), REGISTER(OUTPUT_WIDTH), REGISTER(OUTPUT_CHANNELS)},
        .kernel = {REGISTER(KERNEL_HEIGHT), REGISTER(KERNEL_WIDTH)},
        .stride = {REGISTER(STRIDE_HEIGHT), REGISTER(STRIDE_WIDTH)},
        .dilation = {REGISTER(DILATION_HEIGHT), REGISTER(DILATION_WIDTH)},
        .pad = {REGISTER(PAD_TOP), REGISTER(PAD_LEFT)},
        .ifmap_stride = {REGISTER(IFMAP_ROW_STRIDE), REGISTER(IFMAP_COLUMN_STRIDE),
                         REGISTER(IFMAP_CHANNEL_STRIDE)},
        .ofmap_stride = {REGISTER(OFMAP_ROW_STRIDE), REGISTER(OFMAP_COLUMN_STRIDE),
                         REGISTER(OFMAP_CHANNEL_STRIDE)},
        .columns = array->config.array_columns,
        .input_zero_point = signed_byte(REGISTER(INPUT_ZERO_POINT)),
        .output_zero_point = signed_byte(REGISTER(OUTPUT_ZERO_POINT)),
        .lowest = signed_byte(REGISTER(CLIP_LOWEST)),
        .highest = signed_byte(REGISTER(CLIP_HIGHEST)),
        .rounding = REGISTER(ROUNDING),
        .scale_count = REGISTER(SCALE_COUNT),
        .accumulate = unless_pool(REGISTER(OPERATION), REGISTER(ACCUMULATE)),
        .accumulator_start = REGISTER(ACCUMULATOR_START),
    };
}

static struct umakit_systolic_scale scale(uint32_t multiplier, uint32_t shift)
{
    /* A negative multiplier and a shift too far become what is refused. */
    return (struct umakit_systolic_scale){
        multiplier <= INT32_MAX ? (int32_t)multiplier : -1, signed_byte(shift)};
}

static void read_addition(const struct umakit_systolic_array *array,
                          struct umakit_systolic_addition *add)
{
    *add = (struct umakit_systolic_addition){
        .is_used = REGISTER(ADD),
        .left_shift = REGISTER(ADD_LEFT_SHIFT),
        .addend_zero_point = signed_byte(REGISTER(ADDEND_ZERO_POINT)),
        .result = scale(REGISTER(ADD_RESULT_MULTIPLIER), REGISTER(ADD_RESULT_SHIFT)),
        .addend = scale(REGISTER(ADD_ADDEND_MULTIPLIER), REGISTER(ADD_ADDEND_SHIFT)),
        .sum = scale(REGISTER(ADD_MULTIPLIER), REGISTER(ADD_SHIFT)),
        .zero_point = signed_byte(REGISTER(SUM_ZERO_POINT)),
        .lowest = signed_byte(REGISTER(SUM_CLIP_LOWEST)),
        .highest = signed_byte(REGISTER(SUM_CLIP_HIGHEST)),
    };
}

/* ---- What is valid ---- */

static bool is_size(uint32_t value, uint32_t max)
{
    return value != 0u && value <= max;
}

static bool sizes_are_valid(const struct umakit_systolic_job *job)
{
    int axis;

    for (axis = 0; axis < 2; ++axis) {
        if (!is_size(job->input[axis], MAX_SIZE) ||
            !is_size(job->output[axis], MAX_SIZE) ||
            !is_size(job->kernel[axis], MAX_SIZE) ||
            !is_size(job->stride[axis], MAX_SIZE) ||
            !is_size(job->dilation[axis], MAX_SIZE) || job->pad[axis] > MAX_SIZE) {
            return false;
        }
    }
    return is_size(job->input[2], MAX_CHANNELS) &&
           is_size(job->output[2], MAX_CHANNELS);
}

static bool channels_are_valid(const struct umakit_systolic_job *job)
{
    if (umakit_systolic_is_pool(job)) {
        return job->input[2] == job->output[2];
    }
    return job->operation != UMAKIT_SYSTOLIC_ARRAY_OPERATION_DEPTHWISE ||
           job->output[2] % job->input[2] == 0u;
}

static bool values_are_valid(const struct umakit_systolic_job *job)
{
    if (job->lowest == INT32_MAX || job->highest == INT32_MAX || job->lowest > job->highest) {
        return false;
    }
    return umakit_systolic_is_pool(job) ||
           (job->input_zero_point != INT32_MAX && job->output_zero_point != INT32_MAX &&
            job->rounding <= UMAKIT_SYSTOLIC_ARRAY_ROUNDING_ORT &&
            (job->scale_count == 1u || job->scale_count == job->output[2]));
}

static bool scale_is_valid(struct umakit_systolic_scale scale)
{
    return scale.multiplier >= 0 && scale.shift >= -UMAKIT_SYSTOLIC_MAX_SHIFT_RIGHT &&
           scale.shift <= UMAKIT_SYSTOLIC_MAX_SHIFT_LEFT;
}

static bool addition_is_valid(const struct umakit_systolic_addition *add)
{
    return add->is_used == 0u ||
           (add->is_used == 1u && add->left_shift <= MAX_ADD_SHIFT &&
            add->addend_zero_point != INT32_MAX && scale_is_valid(add->result) &&
            scale_is_valid(add->addend) && scale_is_valid(add->sum) &&
            add->zero_point != INT32_MAX && add->lowest != INT32_MAX &&
            add->highest != INT32_MAX && add->lowest <= add->highest);
}

/* Whether each window of a pool has an input: one that lies in padding alone has no result.
 * Axis 0 is rows, axis 1 columns. */
static bool windows_have_inputs(const struct umakit_systolic_job *job)
{
    int axis;
    uint32_t output;

    for (axis = 0; axis < 2; ++axis) {
        for (output = 0u; output < job->output[axis]; ++output) {
            const struct umakit_systolic_taps taps = umakit_systolic_taps_of(job, axis, output);

            if (taps.first >= taps.end) {
                return false;
            }
        }
    }
    return true;
}

static bool is_supported(const struct umakit_systolic_array *array,
                         const struct umakit_systolic_job *job)
{
    const struct umakit_systolic_array_config *config = &array->config;
    const bool is_depthwise = job->operation == UMAKIT_SYSTOLIC_ARRAY_OPERATION_DEPTHWISE;

    if (umakit_systolic_is_pool(job)) {
        return config->pooling_lanes != 0u;
    }
    if (is_depthwise && !config->depthwise) {
        return false;
    }
    switch (job->dataflow) {
    case UMAKIT_SYSTOLIC_ARRAY_DATAFLOW_OUTPUT_STATIONARY:
        return config->output_stationary;
    case UMAKIT_SYSTOLIC_ARRAY_DATAFLOW_WEIGHT_STATIONARY:
        return config->weight_stationary;
    default: /* an input of its own for each weight cannot stay */
        return config->input_stationary && !is_depthwise;
    }
}

/* Bytes of the accumulators that a job uses at a time for what stays in the
 * array. */
static uint64_t working_bytes(const struct umakit_systolic_array_config *config,
                              const struct umakit_systolic_job *job)
{
    const uint64_t columns = config->array_columns;
    const uint64_t m = (uint64_t)job->output[0] * job->output[1];
    const uint64_t n = job->output[2];

    switch (job->dataflow) {
    case UMAKIT_SYSTOLIC_ARRAY_DATAFLOW_WEIGHT_STATIONARY:
        return umakit_saturating_product(4u * m, n < columns ? n : columns);
    case UMAKIT_SYSTOLIC_ARRAY_DATAFLOW_INPUT_STATIONARY:
        return umakit_saturating_product(4u * n, m < columns ? m : columns);
    default:
        return 0u;
    }
}

/* Whether there is an accumulator memory, and room in it. */
static int check_accumulation(const struct umakit_systolic_array *array,
                              const struct umakit_systolic_job *job, uint32_t *address)
{
    const struct umakit_systolic_array_config *config = &array->config;
    const uint32_t bytes = config->accumulator_bytes;
    const uint32_t start = job->accumulator_start;
    const uint64_t used = umakit_saturating_product(
        4u * (uint64_t)job->output[0] * job->output[1], job->output[2]);

    *address = UMAKIT_SYSTOLIC_ARRAY_ACCUMULATE_OFFSET;
    if (bytes == 0u || umakit_systolic_is_pool(job)) {
        return job->accumulate == 0u ? UMAKIT_OK : UMAKIT_UNSUPPORTED;
    }
    if (job->accumulate > (UMAKIT_SYSTOLIC_ARRAY_ACCUMULATE_CONTINUE_MASK |
                           UMAKIT_SYSTOLIC_ARRAY_ACCUMULATE_KEEP_MASK)) {
        return UMAKIT_INVALID_ARGUMENT;
    }
    *address = UMAKIT_SYSTOLIC_ARRAY_ACCUMULATOR_START_OFFSET;
    if (working_bytes(config, job) > bytes) {
        return UMAKIT_OUT_OF_RANGE;
    }
    if (job->accumulate == 0u) {
        return UMAKIT_OK;
    }
    if (start % 4u != 0u) {
        return UMAKIT_MISALIGNED;
    }
    return start > bytes || used > bytes - start ? UMAKIT_OUT_OF_RANGE : UMAKIT_OK;
}

/* *address becomes the register that is wrong, as far as there is one. */
static int check_job(const struct umakit_systolic_array *array,
                     const struct umakit_systolic_job *job, uint32_t *address)
{
    int status;

    *address = UMAKIT_SYSTOLIC_ARRAY_OPERATION_OFFSET;
    if (job->operation > UMAKIT_SYSTOLIC_ARRAY_OPERATION_AVERAGE_POOL) {
        return UMAKIT_INVALID_ARGUMENT;
    }
    *address = UMAKIT_SYSTOLIC_ARRAY_DATAFLOW_OFFSET;
    if (!umakit_systolic_is_pool(job) &&
        job->dataflow > UMAKIT_SYSTOLIC_ARRAY_DATAFLOW_INPUT_STATIONARY) {
        return UMAKIT_INVALID_ARGUMENT;
    }
    *address = UMAKIT_SYSTOLIC_ARRAY_OPERATION_OFFSET;
    if (!is_supported(array, job)) {
        return UMAKIT_UNSUPPORTED;
    }
    *address = UMAKIT_SYSTOLIC_ARRAY_INPUT_HEIGHT_OFFSET;
    if (!sizes_are_valid(job) || !channels_are_valid(job)) {
        return UMAKIT_INVALID_ARGUMENT;
    }
    *address = UMAKIT_SYSTOLIC_ARRAY_CLIP_LOWEST_OFFSET;
    if (!values_are_valid(job)) {
        return UMAKIT_INVALID_ARGUMENT;
    }
    *address = UMAKIT_SYSTOLIC_ARRAY_ADD_OFFSET;
    if (!addition_is_valid(&job->add)) {
        return UMAKIT_INVALID_ARGUMENT;
    }
    status = check_accumulation(array, job, address);
    if (status != UMAKIT_OK) {
        return status;
    }
    *address = UMAKIT_SYSTOLIC_ARRAY_PAD_TOP_OFFSET;
    return umakit_systolic_is_pool(job) && !windows_have_inputs(job) ? UMAKIT_INVALID_ARGUMENT
                                                                     : UMAKIT_OK;
}

/* ---- The command ---- */

int umakit_systolic_prepare_job(const struct umakit_systolic_array *array,
                                struct umakit_systolic_command *command, uint32_t *address)
{
    struct umakit_systolic_job *job = &command->job;
    int status;
    int i;

    command->stream = UMAKIT_SYSTOLIC_ARRAY;
    read_job(array, job);
    if (!umakit_systolic_is_pool(job) && !umakit_systolic_keeps(job)) {
        read_addition(array, &job->add);
    }
    status = check_job(array, job, address);
    if (status != UMAKIT_OK) {
        return status;
    }
    umakit_systolic_find_operands(array, job);
    status = umakit_systolic_check_operands(array, job, address);
    if (status != UMAKIT_OK) {
        return status;
    }
    umakit_systolic_set_job_cycles(&array->config, command);
    for (i = 0; i < UMAKIT_SYSTOLIC_OPERAND_COUNT; ++i) {
        if (job->is_used[i]) {
            *(i == UMAKIT_SYSTOLIC_OFMAP ? &command->writes : &command->reads) |=
                umakit_systolic_banks(array, &job->region[i]);
        }
    }
    return UMAKIT_OK;
}
