/* SPDX-License-Identifier: Apache-2.0 */
/* The operands of a job of the systolic array: where they lie, and whether they
 * may lie there. */
#include "umakit/systolic_jobs.h"

#include <stdbool.h>
#include <stdint.h>

#include "umakit/saturating.h"
#include "umakit/systolic_array.h"
#include "umakit/systolic_command.h"
#include "umakit/systolic_register_file.h"
#include "umakit/systolic_scratchpad.h"

#define REGISTER(name) umakit_systolic_register(array, UMAKIT_SYSTOLIC_ARRAY_##name##_OFFSET)

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

static struct umakit_systolic_region bytes_at(uint32_t start, uint32_t elements,
                                              uint32_t element_bytes)
{
    return (struct umakit_systolic_region){
        start, {1u, elements, element_bytes}, {0u, element_bytes, 1u}};
}

static void find_used(struct umakit_systolic_job *job)
{
    const bool is_product = !umakit_systolic_is_pool(job);
    const bool has_result = !umakit_systolic_keeps(job);

    job->is_used[IFMAP] = true;
    job->is_used[WEIGHTS] = is_product;
    job->is_used[BIAS] = is_product && !umakit_systolic_continues(job);
    job->is_used[MULTIPLIERS] = is_product && has_result;
    job->is_used[SHIFTS] = is_product && has_result;
    job->is_used[ADDEND] = job->add.is_used != 0u;
    job->is_used[OFMAP] = has_result;
}

void umakit_systolic_find_operands(const struct umakit_systolic_array *array,
                                   struct umakit_systolic_job *job)
{
    const bool is_depthwise = job->operation == UMAKIT_SYSTOLIC_ARRAY_OPERATION_DEPTHWISE;
    const uint32_t window = job->kernel[0] * job->kernel[1]; /* below 2^32 */
    const uint32_t blocks = (job->output[2] - 1u) / job->columns + 1u;
    struct umakit_systolic_region *region = job->region;
    int i;

    find_used(job);
    region[IFMAP].start = REGISTER(IFMAP_START);
    region[OFMAP].start = REGISTER(OFMAP_START);
    for (i = 0; i < 3; ++i) {
        region[IFMAP].sizes[i] = job->input[i];
        region[IFMAP].strides[i] = job->ifmap_stride[i];
        region[OFMAP].sizes[i] = job->output[i];
        region[OFMAP].strides[i] = job->ofmap_stride[i];
    }
    region[ADDEND] = region[OFMAP];
    region[ADDEND].start = REGISTER(ADDEND_START);
    /* Sizes that do not fit 32 bits are far larger than any scratchpad, and so
     * is what is put in their place. */
    region[WEIGHTS] = (struct umakit_systolic_region){REGISTER(WEIGHTS_START),
                                                      {window, 1u, job->output[2]},
                                                      {job->output[2], 0u, 1u}};
    if (!is_depthwise) {
        const uint64_t row = umakit_saturating_product(job->input[2], job->columns);
        const uint32_t row_bytes = row > UINT32_MAX ? UINT32_MAX : (uint32_t)row;
        const uint64_t rows = umakit_saturating_product(blocks, window);

        region[WEIGHTS].sizes[0] = rows > UINT32_MAX ? UINT32_MAX : (uint32_t)rows;
        region[WEIGHTS].sizes[2] = row_bytes;
        region[WEIGHTS].strides[0] = row_bytes;
    }
    region[BIAS] = bytes_at(REGISTER(BIAS_START), job->output[2], 4u);
    region[MULTIPLIERS] = bytes_at(REGISTER(MULTIPLIERS_START), job->scale_count, 4u);
    region[SHIFTS] = bytes_at(REGISTER(SHIFTS_START), job->scale_count, 1u);
}

int umakit_systolic_check_operands(const struct umakit_systolic_array *array,
                                   const struct umakit_systolic_job *job, uint32_t *address)
{
    const struct umakit_systolic_region *ofmap = &job->region[OFMAP];
    const uint64_t inputs =
        umakit_saturating_product((uint64_t)job->input[0] * job->input[1], job->input[2]);
    const uint64_t outputs =
        umakit_saturating_product((uint64_t)job->output[0] * job->output[1], job->output[2]);
    int i;

    for (i = 0; i < OPERANDS; ++i) {
        const struct umakit_systolic_region *region = &job->region[i];

        *address = region->start;
        if (job->is_used[i] && (i == BIAS || i == MULTIPLIERS) && *address % 4u != 0u) {
            return UMAKIT_MISALIGNED;
        }
        if (job->is_used[i] && !umakit_systolic_is_in_scratchpad(array, region)) {
            return UMAKIT_OUT_OF_RANGE;
        }
    }
    /* Strides of 0 must not make a small scratchpad hold an endless job. */
    *address = UMAKIT_SYSTOLIC_ARRAY_INPUT_HEIGHT_OFFSET;
    if (inputs > array->config.scratchpad_bytes ||
        (job->is_used[OFMAP] && outputs > array->config.scratchpad_bytes)) {
        return UMAKIT_OUT_OF_RANGE;
    }
    *address = ofmap->start;
    for (i = 0; i < OFMAP && job->is_used[OFMAP]; ++i) {
        const bool is_in_place = i == ADDEND && job->region[i].start == ofmap->start;

        if (job->is_used[i] && !is_in_place &&
            umakit_systolic_ranges_overlap(&job->region[i], ofmap)) {
            return UMAKIT_INVALID_ARGUMENT;
        }
    }
    return UMAKIT_OK;
}
