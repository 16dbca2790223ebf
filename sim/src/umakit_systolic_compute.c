/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the systolic array computes: convolutions of int8 with bias, change of
 * scale and limits.
 *
 * Sums wrap at 32 bits as the array's registers do, so their order does not
 * matter and the loops have the one that compilers vectorise: for one output
 * position a few neighbouring channels at a time. Padding is the zero point,
 * which contributes nothing, so kernel positions outside the input are skipped.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "umakit/requantize.h"
#include "umakit/systolic_array_internal.h"

/* Channels at a time: of an array with 8 columns a whole block of weights. */
#define LANES 8u

struct umakit_systolic_taps umakit_systolic_taps(const struct umakit_systolic_job *job,
                                                 int axis, uint32_t output)
{
    const int64_t dilation = job->dilation[axis];
    const int64_t size = job->input[axis];
    const int64_t start =
        (int64_t)output * job->stride[axis] - (int64_t)job->pad[axis];
    struct umakit_systolic_taps taps = {0u, 0u, 0u};
    int64_t first = 0;
    int64_t end;

    if (start < 0) {
        first = (-start + dilation - 1) / dilation;
    }
    if (start >= size || first >= (int64_t)job->kernel[axis]) {
        return taps;
    }
    end = (size - start + dilation - 1) / dilation;
    if (end > (int64_t)job->kernel[axis]) {
        end = (int64_t)job->kernel[axis];
    }
    if (end <= first) {
        return taps;
    }
    taps.first = (uint32_t)first;
    taps.end = (uint32_t)end;
    taps.input = (uint32_t)(start + first * dilation);
    return taps;
}

static int32_t int32_at(const unsigned char *bytes, size_t index)
{
    int32_t value;

    memcpy(&value, bytes + 4u * index, sizeof(value));
    return value;
}

/* ---- The array ---- */

/* Unsigned sums wrap; the conversion of a product keeps its low 32 bits. */
static void accumulate_lanes(uint32_t *restrict sums, const int8_t *restrict inputs,
                             size_t input_stride, int32_t zero_point,
                             const int8_t *restrict weights, size_t weights_stride,
                             size_t count)
{
    uint32_t local[LANES]; /* in registers */
    size_t lane;
    size_t i;

    memcpy(local, sums, sizeof(local));
    for (i = 0u; i < count; ++i) {
        const int16_t input = (int16_t)(inputs[i * input_stride] - zero_point);

        for (lane = 0u; lane < LANES; ++lane) {
            /* At most 255 * 128: fits, and 16 bits multiply faster than 32. */
            const uint32_t product = (uint32_t)(int16_t)(input * weights[lane]);

            local[lane] += product;
        }
        weights += weights_stride;
    }
    memcpy(sums, local, sizeof(local));
}

static void accumulate_few(uint32_t *restrict sums, const int8_t *restrict inputs,
                           size_t input_stride, int32_t zero_point,
                           const int8_t *restrict weights, size_t weights_stride, size_t count,
                           size_t lanes)
{
    size_t i;

    for (i = 0u; i < count; ++i) {
        const int32_t input = inputs[i * input_stride] - zero_point;
        size_t lane;

        for (lane = 0u; lane < lanes; ++lane) {
            sums[lane] += (uint32_t)(input * weights[lane]);
        }
        weights += weights_stride;
    }
}

/* Channels `first` to `first + lanes - 1`, all in one block of weights. */
static void convolve_channels(const struct umakit_systolic_job *job,
                              const struct umakit_systolic_operands *operands,
                              struct umakit_systolic_taps rows,
                              struct umakit_systolic_taps columns, uint32_t first,
                              size_t lanes, uint32_t *sums)
{
    const size_t channels = job->input[2];
    const size_t tap_weights = channels * job->columns;
    const int8_t *block = operands->weights +
                          first / job->columns * job->kernel[0] * job->kernel[1] * tap_weights +
                          first % job->columns;
    uint32_t row;
    uint32_t column;

    for (row = rows.first; row < rows.end; ++row) {
        const int8_t *inputs =
            operands->ifmap +
            (size_t)(rows.input + (row - rows.first) * job->dilation[0]) * job->ifmap_stride[0];

        for (column = columns.first; column < columns.end; ++column) {
            const size_t x = columns.input + (column - columns.first) * job->dilation[1];
            const int8_t *pixel = inputs + x * job->ifmap_stride[1];
            const int8_t *weights =
                block + ((size_t)row * job->kernel[1] + column) * tap_weights;

            if (lanes == LANES) {
                accumulate_lanes(sums, pixel, job->ifmap_stride[2], job->input_zero_point,
                                 weights, job->columns, channels);
            } else {
                accumulate_few(sums, pixel, job->ifmap_stride[2], job->input_zero_point,
                               weights, job->columns, channels, lanes);
            }
        }
    }
}

static void convolve_depthwise(const struct umakit_systolic_job *job,
                               const struct umakit_systolic_operands *operands,
                               struct umakit_systolic_taps rows,
                               struct umakit_systolic_taps columns, uint32_t first,
                               size_t lanes, uint32_t *sums)
{
    const uint32_t multiplier = job->output[2] / job->input[2];
    size_t inputs[LANES];
    uint32_t row;
    uint32_t column;
    size_t lane;

    for (lane = 0u; lane < lanes; ++lane) {
        inputs[lane] =
            (size_t)((first + (uint32_t)lane) / multiplier) * job->ifmap_stride[2];
    }
    for (row = rows.first; row < rows.end; ++row) {
        const size_t y = rows.input + (row - rows.first) * job->dilation[0];

        for (column = columns.first; column < columns.end; ++column) {
            const size_t x = columns.input + (column - columns.first) * job->dilation[1];
            const int8_t *pixel =
                operands->ifmap + y * job->ifmap_stride[0] + x * job->ifmap_stride[1];
            const int8_t *weights = operands->weights +
                                    ((size_t)row * job->kernel[1] + column) * job->output[2] +
                                    first;

            for (lane = 0u; lane < lanes; ++lane) {
                const int32_t input = pixel[inputs[lane]] - job->input_zero_point;

                sums[lane] += (uint32_t)(input * weights[lane]);
            }
        }
    }
}

/* ---- The requantize stage ---- */

static int8_t requantize(const struct umakit_systolic_job *job,
                         const struct umakit_systolic_operands *operands, uint32_t channel,
                         uint32_t sum)
{
    const size_t scale = job->scale_count == 1u ? 0u : channel;
    const int32_t multiplier = int32_at(operands->multipliers, scale);
    const int32_t shift = operands->shifts[scale];
    int32_t value;

    memcpy(&value, &sum, sizeof(value)); /* two's complement */
    value = umakit_requantize((int32_t)job->rounding, value, multiplier, shift);
    return (int8_t)umakit_add_and_clamp(value, job->output_zero_point, job->lowest,
                                        job->highest);
}

static void compute_position(const struct umakit_systolic_job *job,
                             const struct umakit_systolic_operands *operands,
                             struct umakit_systolic_taps rows,
                             struct umakit_systolic_taps columns, int8_t *result)
{
    const bool is_depthwise = job->operation == UMAKIT_SYSTOLIC_ARRAY_OPERATION_DEPTHWISE;
    const uint32_t channels = job->output[2];
    uint32_t first = 0u;

    while (first < channels) {
        /* Up to the end of the result, and of a block of weights. */
        const uint32_t in_block = job->columns - first % job->columns;
        uint32_t lanes = channels - first;
        uint32_t sums[LANES];
        uint32_t lane;

        if (!is_depthwise && lanes > in_block) {
            lanes = in_block;
        }
        if (lanes > LANES) {
            lanes = LANES;
        }
        for (lane = 0u; lane < lanes; ++lane) {
            sums[lane] = (uint32_t)int32_at(operands->bias, first + lane);
        }
        if (is_depthwise) {
            convolve_depthwise(job, operands, rows, columns, first, lanes, sums);
        } else {
            convolve_channels(job, operands, rows, columns, first, lanes, sums);
        }
        for (lane = 0u; lane < lanes; ++lane) {
            result[(size_t)(first + lane) * job->ofmap_stride[2]] =
                requantize(job, operands, first + lane, sums[lane]);
        }
        first += lanes;
    }
}

void umakit_systolic_convolve(const struct umakit_systolic_job *job,
                              const struct umakit_systolic_operands *operands)
{
    uint32_t y;
    uint32_t x;

    for (y = 0u; y < job->output[0]; ++y) {
        const struct umakit_systolic_taps rows = umakit_systolic_taps(job, 0, y);
        int8_t *result = operands->ofmap + (size_t)y * job->ofmap_stride[0];

        for (x = 0u; x < job->output[1]; ++x) {
            compute_position(job, operands, rows, umakit_systolic_taps(job, 1, x),
                             result + (size_t)x * job->ofmap_stride[1]);
        }
    }
}
