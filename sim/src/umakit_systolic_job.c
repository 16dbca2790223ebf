/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs of the systolic array: what the registers ask for, whether it is sound,
 * and running it. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "umakit/simulator_internal.h"
#include "umakit/systolic_array_internal.h"

#define REGISTER(name) umakit_systolic_register(array, UMAKIT_SYSTOLIC_ARRAY_##name##_OFFSET)

/* So that no product of two sizes, strides or paddings overflows. */
#define LARGEST_SIZE 0xFFFFu
#define MOST_CHANNELS 0xFFFFFFu

#define MOST_SHIFT_LEFT 30
#define MOST_SHIFT_RIGHT 31

/* What a job reads, and last what it writes. */
enum { IFMAP, WEIGHTS, BIAS, MULTIPLIERS, SHIFTS, OFMAP, REGIONS };

struct regions {
    struct umakit_systolic_region region[REGIONS];
    bool is_used[REGIONS];
};

static bool is_pool(const struct umakit_systolic_job *job)
{
    return job->operation == UMAKIT_SYSTOLIC_ARRAY_OPERATION_MAX_POOL ||
           job->operation == UMAKIT_SYSTOLIC_ARRAY_OPERATION_AVERAGE_POOL;
}

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

static void read_job(const struct umakit_systolic_array *array, struct umakit_systolic_job *job)
{
    *job = (struct umakit_systolic_job){
        .operation = REGISTER(OPERATION),
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
    };
}

/* ---- What is sound ---- */

static bool is_between(uint32_t value, uint32_t most)
{
    return value != 0u && value <= most;
}

static bool sizes_are_sound(const struct umakit_systolic_job *job)
{
    int axis;

    for (axis = 0; axis < 2; ++axis) {
        if (!is_between(job->input[axis], LARGEST_SIZE) ||
            !is_between(job->output[axis], LARGEST_SIZE) ||
            !is_between(job->kernel[axis], LARGEST_SIZE) ||
            !is_between(job->stride[axis], LARGEST_SIZE) ||
            !is_between(job->dilation[axis], LARGEST_SIZE) || job->pad[axis] > LARGEST_SIZE) {
            return false;
        }
    }
    return is_between(job->input[2], MOST_CHANNELS) &&
           is_between(job->output[2], MOST_CHANNELS);
}

static bool channels_are_sound(const struct umakit_systolic_job *job)
{
    if (is_pool(job)) {
        return job->input[2] == job->output[2];
    }
    return job->operation != UMAKIT_SYSTOLIC_ARRAY_OPERATION_DEPTHWISE ||
           job->output[2] % job->input[2] == 0u;
}

static bool values_are_sound(const struct umakit_systolic_job *job)
{
    if (job->lowest == INT32_MAX || job->highest == INT32_MAX || job->lowest > job->highest) {
        return false;
    }
    return is_pool(job) ||
           (job->input_zero_point != INT32_MAX && job->output_zero_point != INT32_MAX &&
            job->rounding <= UMAKIT_SYSTOLIC_ARRAY_ROUNDING_ORT &&
            (job->scale_count == 1u || job->scale_count == job->output[2]));
}

/* The mean of no input and the largest of none are nothing. */
static bool windows_have_inputs(const struct umakit_systolic_job *job)
{
    int axis;
    uint32_t output;

    for (axis = 0; axis < 2; ++axis) {
        for (output = 0u; output < job->output[axis]; ++output) {
            const struct umakit_systolic_taps taps = umakit_systolic_taps(job, axis, output);

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
    const uint32_t dataflow = REGISTER(DATAFLOW);
    const bool is_depthwise = job->operation == UMAKIT_SYSTOLIC_ARRAY_OPERATION_DEPTHWISE;

    if (is_pool(job)) {
        return config->pooling_lanes != 0u;
    }
    if (is_depthwise && !config->depthwise) {
        return false;
    }
    switch (dataflow) {
    case UMAKIT_SYSTOLIC_ARRAY_DATAFLOW_OUTPUT_STATIONARY:
        return config->output_stationary;
    case UMAKIT_SYSTOLIC_ARRAY_DATAFLOW_WEIGHT_STATIONARY:
        return config->weight_stationary;
    default: /* an input of its own for each weight cannot stay */
        return config->input_stationary && !is_depthwise;
    }
}

/* *address becomes the register that is wrong, as far as there is one. */
static int check_job(const struct umakit_systolic_array *array,
                     const struct umakit_systolic_job *job, uint32_t *address)
{
    *address = UMAKIT_SYSTOLIC_ARRAY_OPERATION_OFFSET;
    if (job->operation > UMAKIT_SYSTOLIC_ARRAY_OPERATION_AVERAGE_POOL) {
        return UMAKIT_INVALID_ARGUMENT;
    }
    *address = UMAKIT_SYSTOLIC_ARRAY_DATAFLOW_OFFSET;
    if (!is_pool(job) &&
        REGISTER(DATAFLOW) > UMAKIT_SYSTOLIC_ARRAY_DATAFLOW_INPUT_STATIONARY) {
        return UMAKIT_INVALID_ARGUMENT;
    }
    *address = UMAKIT_SYSTOLIC_ARRAY_OPERATION_OFFSET;
    if (!is_supported(array, job)) {
        return UMAKIT_UNSUPPORTED;
    }
    *address = UMAKIT_SYSTOLIC_ARRAY_INPUT_HEIGHT_OFFSET;
    if (!sizes_are_sound(job) || !channels_are_sound(job)) {
        return UMAKIT_INVALID_ARGUMENT;
    }
    *address = UMAKIT_SYSTOLIC_ARRAY_CLIP_LOWEST_OFFSET;
    if (!values_are_sound(job)) {
        return UMAKIT_INVALID_ARGUMENT;
    }
    *address = UMAKIT_SYSTOLIC_ARRAY_PAD_TOP_OFFSET;
    return is_pool(job) && !windows_have_inputs(job) ? UMAKIT_INVALID_ARGUMENT : UMAKIT_OK;
}

/* ---- Where it lies ---- */

static struct umakit_systolic_region bytes_at(uint32_t start, uint32_t elements,
                                              uint32_t element_bytes)
{
    return (struct umakit_systolic_region){
        start, {1u, elements, element_bytes}, {0u, element_bytes, 1u}};
}

static struct regions find_regions(const struct umakit_systolic_array *array,
                                   const struct umakit_systolic_job *job)
{
    struct regions regions = {.is_used = {false}};
    const bool is_depthwise = job->operation == UMAKIT_SYSTOLIC_ARRAY_OPERATION_DEPTHWISE;
    const uint32_t window = job->kernel[0] * job->kernel[1]; /* below 2^32 */
    const uint32_t blocks = (job->output[2] - 1u) / job->columns + 1u;
    struct umakit_systolic_region *region = regions.region;
    int i;

    for (i = 0; i < REGIONS; ++i) {
        regions.is_used[i] = i == IFMAP || i == OFMAP || !is_pool(job);
    }
    region[IFMAP].start = REGISTER(IFMAP_START);
    region[OFMAP].start = REGISTER(OFMAP_START);
    for (i = 0; i < 3; ++i) {
        region[IFMAP].sizes[i] = job->input[i];
        region[IFMAP].strides[i] = job->ifmap_stride[i];
        region[OFMAP].sizes[i] = job->output[i];
        region[OFMAP].strides[i] = job->ofmap_stride[i];
    }
    /* Sizes that do not fit 32 bits are far larger than any scratchpad, and so
     * is what is put in their place. */
    region[WEIGHTS] = (struct umakit_systolic_region){REGISTER(WEIGHTS_START),
                                                      {window, 1u, job->output[2]},
                                                      {job->output[2], 0u, 1u}};
    if (!is_depthwise) {
        const uint64_t row = umakit_systolic_product(job->input[2], job->columns);
        const uint32_t row_bytes = row > UINT32_MAX ? UINT32_MAX : (uint32_t)row;
        const uint64_t rows = umakit_systolic_product(blocks, window);

        region[WEIGHTS].sizes[0] = rows > UINT32_MAX ? UINT32_MAX : (uint32_t)rows;
        region[WEIGHTS].sizes[2] = row_bytes;
        region[WEIGHTS].strides[0] = row_bytes;
    }
    region[BIAS] = bytes_at(REGISTER(BIAS_START), job->output[2], 4u);
    region[MULTIPLIERS] = bytes_at(REGISTER(MULTIPLIERS_START), job->scale_count, 4u);
    region[SHIFTS] = bytes_at(REGISTER(SHIFTS_START), job->scale_count, 1u);
    return regions;
}

/* From first to last byte, in the scratchpad. */
static bool overlap(const struct umakit_systolic_region *left,
                    const struct umakit_systolic_region *right)
{
    return left->start < right->start
               ? right->start - left->start < umakit_systolic_extent(left)
               : left->start - right->start < umakit_systolic_extent(right);
}

static int check_regions(const struct umakit_systolic_array *array,
                         const struct umakit_systolic_job *job,
                         const struct regions *regions, uint32_t *address)
{
    const struct umakit_systolic_region *ofmap = &regions->region[OFMAP];
    const uint64_t inputs =
        umakit_systolic_product((uint64_t)job->input[0] * job->input[1], job->input[2]);
    const uint64_t outputs =
        umakit_systolic_product((uint64_t)job->output[0] * job->output[1], job->output[2]);
    int i;

    for (i = 0; i < REGIONS; ++i) {
        const struct umakit_systolic_region *region = &regions->region[i];

        *address = region->start;
        if (regions->is_used[i] && (i == BIAS || i == MULTIPLIERS) && *address % 4u != 0u) {
            return UMAKIT_MISALIGNED;
        }
        if (regions->is_used[i] && !umakit_systolic_is_in_scratchpad(array, region)) {
            return UMAKIT_OUT_OF_RANGE;
        }
    }
    /* Strides of 0 must not make a small scratchpad hold an endless job. */
    *address = UMAKIT_SYSTOLIC_ARRAY_INPUT_HEIGHT_OFFSET;
    if (inputs > array->config.scratchpad_bytes || outputs > array->config.scratchpad_bytes) {
        return UMAKIT_OUT_OF_RANGE;
    }
    *address = ofmap->start;
    for (i = 0; i < OFMAP; ++i) {
        if (regions->is_used[i] && overlap(&regions->region[i], ofmap)) {
            return UMAKIT_INVALID_ARGUMENT;
        }
    }
    return UMAKIT_OK;
}

/* ---- Preparing and running it ---- */

int umakit_systolic_prepare_job(struct umakit_systolic_array *array, uint32_t *address)
{
    const struct umakit_systolic_array_config *config = &array->config;
    struct umakit_systolic_job job;
    struct regions regions;
    uint64_t drain = config->drain_cycles_per_fold;
    int status;
    int i;

    read_job(array, &job);
    status = check_job(array, &job, address);
    if (status != UMAKIT_OK) {
        return status;
    }
    regions = find_regions(array, &job);
    status = check_regions(array, &job, &regions, address);
    if (status != UMAKIT_OK) {
        return status;
    }
    if (is_pool(&job)) {
        umakit_systolic_plan_pool(config, &job);
        drain = 0u;
    } else {
        umakit_systolic_plan_product(config, REGISTER(DATAFLOW), &job);
    }
    array->job = job;
    array->array = (struct umakit_systolic_engine){
        .cycles = umakit_systolic_product(job.folds, job.fold_cycles + drain)};
    for (i = 0; i < REGIONS; ++i) {
        if (regions.is_used[i]) {
            array->array.banks |= umakit_systolic_banks(array, &regions.region[i]);
        }
    }
    return UMAKIT_OK;
}

static int check_operands(const struct umakit_systolic_array *array,
                          const struct regions *regions, uint32_t *address)
{
    const int8_t *shifts = (const int8_t *)array->config.scratchpad;
    uint32_t i;

    for (i = 0u; i < OFMAP; ++i) {
        if (regions->is_used[i] &&
            !umakit_systolic_parity_holds(array, &regions->region[i], address)) {
            return UMAKIT_PARITY_ERROR;
        }
    }
    if (!regions->is_used[SHIFTS]) {
        return UMAKIT_OK;
    }
    for (i = 0u; i < array->job.scale_count; ++i) {
        *address = regions->region[SHIFTS].start + i;
        if (shifts[*address] < -MOST_SHIFT_RIGHT || shifts[*address] > MOST_SHIFT_LEFT) {
            return UMAKIT_INVALID_ARGUMENT;
        }
    }
    return UMAKIT_OK;
}

int umakit_systolic_run_job(struct umakit_systolic_array *array, uint32_t *address)
{
    unsigned char *scratchpad = (unsigned char *)array->config.scratchpad;
    const struct umakit_systolic_job *job = &array->job;
    struct umakit_systolic_operands operands;
    struct regions regions;
    int status;

    regions = find_regions(array, job);
    status = check_operands(array, &regions, address);
    if (status != UMAKIT_OK) {
        return status;
    }
    operands.ifmap = (const int8_t *)scratchpad + regions.region[IFMAP].start;
    operands.ofmap = (int8_t *)scratchpad + regions.region[OFMAP].start;
    if (is_pool(job)) {
        umakit_systolic_pool(job, &operands);
    } else {
        operands.weights = (const int8_t *)scratchpad + regions.region[WEIGHTS].start;
        operands.bias = scratchpad + regions.region[BIAS].start;
        operands.multipliers = scratchpad + regions.region[MULTIPLIERS].start;
        operands.shifts = (const int8_t *)scratchpad + regions.region[SHIFTS].start;
        umakit_systolic_convolve(job, &operands);
    }
    umakit_systolic_heal(array, &regions.region[OFMAP]);
    return UMAKIT_OK;
}
