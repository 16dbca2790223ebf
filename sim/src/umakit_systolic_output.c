/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What precedes and follows the sums of products of the systolic array: bias and
 * accumulator memory, requantization and clipping, and the fused addition.
 */
#include "umakit/systolic_jobs.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "umakit/requantize.h"
#include "umakit/systolic_command.h"

static int32_t int32_at(const unsigned char *bytes, size_t index)
{
    int32_t value;

    memcpy(&value, bytes + 4u * index, sizeof(value));
    return value;
}

/* Two's complement. */
static int32_t signed_value(uint32_t bits)
{
    int32_t value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

void umakit_systolic_load_accumulators(const struct umakit_systolic_job *job,
                                       const struct umakit_systolic_operands *operands,
                                       uint32_t position, uint32_t channel, uint32_t count,
                                       uint32_t *accumulators)
{
    uint32_t i;

    if (umakit_systolic_continues(job)) {
        memcpy(accumulators,
               operands->accumulators + (size_t)position * job->output[2] + channel,
               count * sizeof(accumulators[0]));
        return;
    }
    for (i = 0u; i < count; ++i) {
        accumulators[i] = (uint32_t)int32_at(operands->bias, (size_t)channel + i);
    }
}

/* The int8 result of a sum: one multiplier and shift for all channels, or one for each. */
static int8_t requantize(const struct umakit_systolic_job *job,
                         const struct umakit_systolic_operands *operands, uint32_t channel,
                         uint32_t accumulator)
{
    const size_t scale = job->scale_count == 1u ? 0u : channel;
    const int32_t multiplier = int32_at(operands->multipliers, scale);
    const int32_t shift = operands->shifts[scale];
    const int32_t value =
        umakit_requantize((int32_t)job->rounding, signed_value(accumulator), multiplier, shift);

    return (int8_t)umakit_add_and_clamp(value, job->output_zero_point, job->lowest,
                                        job->highest);
}

static uint32_t scaled(const struct umakit_systolic_job *job, int32_t value,
                       struct umakit_systolic_scale scale)
{
    const int32_t up = INT32_C(1) << job->add.left_shift;

    return (uint32_t)umakit_requantize((int32_t)job->rounding, value * up, scale.multiplier,
                                       scale.shift);
}

/* Sums wrap, should the multipliers be that large. */
static int8_t add(const struct umakit_systolic_job *job, int8_t result, int8_t addend)
{
    const struct umakit_systolic_addition *addition = &job->add;
    const uint32_t sum =
        scaled(job, result - job->output_zero_point, addition->result) +
        scaled(job, addend - addition->addend_zero_point, addition->addend);
    const int32_t value = umakit_requantize((int32_t)job->rounding, signed_value(sum),
                                            addition->sum.multiplier, addition->sum.shift);

    return (int8_t)umakit_add_and_clamp(value, addition->zero_point, addition->lowest,
                                        addition->highest);
}

void umakit_systolic_store_accumulators(const struct umakit_systolic_job *job,
                                        const struct umakit_systolic_operands *operands,
                                        uint32_t position, uint32_t channel, uint32_t count,
                                        const uint32_t *accumulators)
{
    const size_t start = (size_t)(position / job->output[1]) * job->ofmap_stride[0] +
                         (size_t)(position % job->output[1]) * job->ofmap_stride[1];
    uint32_t i;

    if (umakit_systolic_keeps(job)) {
        memcpy(operands->accumulators + (size_t)position * job->output[2] + channel,
               accumulators, count * sizeof(accumulators[0]));
        return;
    }
    for (i = 0u; i < count; ++i) {
        const size_t place = start + (size_t)(channel + i) * job->ofmap_stride[2];
        const int8_t result = requantize(job, operands, channel + i, accumulators[i]);

        operands->ofmap[place] =
            job->add.is_used != 0u ? add(job, result, operands->addend[place]) : result;
    }
}
