/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What comes before and behind the sums of the systolic array: bias and
 * accumulator, change of scale and limits, and the fused addition.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "umakit/requantize.h"
#include "umakit/systolic_array_internal.h"

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

void umakit_systolic_first_sums(const struct umakit_systolic_job *job,
                                const struct umakit_systolic_operands *operands,
                                uint32_t position, uint32_t channel, uint32_t count,
                                uint32_t *sums)
{
    uint32_t i;

    if (umakit_systolic_continues(job)) {
        memcpy(sums, operands->sums + (size_t)position * job->output[2] + channel,
               count * sizeof(sums[0]));
        return;
    }
    for (i = 0u; i < count; ++i) {
        sums[i] = (uint32_t)int32_at(operands->bias, (size_t)channel + i);
    }
}

static int8_t requantize(const struct umakit_systolic_job *job,
                         const struct umakit_systolic_operands *operands, uint32_t channel,
                         uint32_t sum)
{
    const size_t scale = job->scale_count == 1u ? 0u : channel;
    const int32_t multiplier = int32_at(operands->multipliers, scale);
    const int32_t shift = operands->shifts[scale];
    const int32_t value =
        umakit_requantize((int32_t)job->rounding, signed_value(sum), multiplier, shift);

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
    const struct umakit_systolic_addition *known = &job->add;
    const uint32_t sum =
        scaled(job, result - job->output_zero_point, known->result) +
        scaled(job, addend - known->addend_zero_point, known->addend);
    const int32_t value = umakit_requantize((int32_t)job->rounding, signed_value(sum),
                                            known->sum.multiplier, known->sum.shift);

    return (int8_t)umakit_add_and_clamp(value, known->zero_point, known->lowest,
                                        known->highest);
}

void umakit_systolic_put_sums(const struct umakit_systolic_job *job,
                              const struct umakit_systolic_operands *operands,
                              uint32_t position, uint32_t channel, uint32_t count,
                              const uint32_t *sums)
{
    const size_t start = (size_t)(position / job->output[1]) * job->ofmap_stride[0] +
                         (size_t)(position % job->output[1]) * job->ofmap_stride[1];
    uint32_t i;

    if (umakit_systolic_keeps(job)) {
        memcpy(operands->sums + (size_t)position * job->output[2] + channel, sums,
               count * sizeof(sums[0]));
        return;
    }
    for (i = 0u; i < count; ++i) {
        const size_t place = start + (size_t)(channel + i) * job->ofmap_stride[2];
        const int8_t result = requantize(job, operands, channel + i, sums[i]);

        operands->ofmap[place] =
            job->add.is_used != 0u ? add(job, result, operands->addend[place]) : result;
    }
}
