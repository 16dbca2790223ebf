/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the systolic array computes: sums of products. umakit_systolic_output.c
 * says where they start and what becomes of them.
 *
 * Sums wrap at 32 bits as the array's registers do, so their order does not
 * matter and is the one that compilers vectorise. A convolution is a product of
 * two matrices along `depth`, the kernel's rows, columns and channels in this
 * order; padding is the zero point, which contributes nothing. Tiles of both are
 * copied first, inputs without their zero point and 0 where there is none, so
 * that the inner loop has neither bounds nor strides to look after.
 */
#include "umakit/systolic_jobs.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "umakit/static_assert.h"
#include "umakit/systolic_command.h"
#include "umakit/systolic_taps.h"

/* Sizes of a tile, which lies on the stack: 5 KiB. */
#define POSITIONS 16u
#define CHANNELS 32u
#define DEPTH 64u

/* Channels whose weights are copied at a time, so that each input that was read
 * is used several times. */
#define LANES 4u

/* The depth of a tile is a multiple of it: whole vectors. */
#define VECTOR 16u

UMAKIT_STATIC_ASSERT(LANES == 4u && CHANNELS % LANES == 0u && DEPTH % VECTOR == 0u,
                     tiles_are_whole);

struct tile {
    uint32_t position; /* the first */
    uint32_t positions;
    uint32_t channel; /* the first */
    uint32_t channels;
    uint32_t depth;
    int16_t inputs[POSITIONS][DEPTH];
    uint32_t accumulators[POSITIONS][CHANNELS];
};

static uint32_t smaller(uint32_t left, uint32_t right)
{
    return left < right ? left : right;
}

static void copy_inputs(int16_t *restrict line, const int8_t *restrict inputs, size_t stride,
                        int32_t zero_point, uint32_t count)
{
    uint32_t i;

    if (stride == 1u) {
        for (i = 0u; i < count; ++i) {
            line[i] = (int16_t)(inputs[i] - zero_point);
        }
        return;
    }
    for (i = 0u; i < count; ++i) {
        line[i] = (int16_t)(inputs[i * stride] - zero_point);
    }
}

/* The inputs of one position of the result from `depth` on. */
static void gather_inputs(const struct umakit_systolic_job *job, const int8_t *ifmap,
                          uint32_t position, uint32_t depth, int16_t *line)
{
    const uint32_t channels = job->input[2];
    const int64_t top =
        (int64_t)(position / job->output[1]) * job->stride[0] - (int64_t)job->pad[0];
    const int64_t left =
        (int64_t)(position % job->output[1]) * job->stride[1] - (int64_t)job->pad[1];
    uint32_t channel = depth % channels;
    uint32_t row = depth / channels / job->kernel[1];
    uint32_t column = depth / channels % job->kernel[1];
    uint32_t count = 0u;

    memset(line, 0, DEPTH * sizeof(line[0]));
    while (count < DEPTH && row < job->kernel[0]) {
        const int64_t y = top + (int64_t)row * job->dilation[0];
        const int64_t x = left + (int64_t)column * job->dilation[1];
        const uint32_t run = smaller(channels - channel, DEPTH - count);

        if (y >= 0 && y < (int64_t)job->input[0] && x >= 0 && x < (int64_t)job->input[1]) {
            copy_inputs(line + count,
                        ifmap + (size_t)y * job->ifmap_stride[0] +
                            (size_t)x * job->ifmap_stride[1] +
                            (size_t)channel * job->ifmap_stride[2],
                        job->ifmap_stride[2], job->input_zero_point, run);
        }
        count += run;
        channel = 0u;
        ++column;
        if (column == job->kernel[1]) {
            column = 0u;
            ++row;
        }
    }
}

/* The weights of one channel from `depth` on, the job's columns apart. */
static const int8_t *weights_of(const struct umakit_systolic_job *job, const int8_t *weights,
                                uint32_t total_depth, uint32_t depth, uint32_t channel)
{
    const size_t block = channel / job->columns;

    return weights + (block * total_depth + depth) * job->columns + channel % job->columns;
}

/* The weights of a few channels, which may lie in different blocks; beyond the
 * tile's channels those of its last, whose results are not used, and beyond the
 * depth 0. */
static void gather_weights(const struct umakit_systolic_job *job, const int8_t *weights,
                           uint32_t total_depth, uint32_t depth, const struct tile *tile,
                           uint32_t first, int16_t lines[LANES][DEPTH])
{
    const uint32_t count = smaller(tile->depth, total_depth - depth);
    const size_t stride = job->columns;
    const int8_t *sources[LANES];
    uint32_t lane;
    uint32_t i;

    for (lane = 0u; lane < LANES; ++lane) {
        const uint32_t channel =
            tile->channel + smaller(first + lane, tile->channels - 1u);

        sources[lane] = weights_of(job, weights, total_depth, depth, channel);
    }
    for (i = 0u; i < count; ++i) {
        for (lane = 0u; lane < LANES; ++lane) {
            lines[lane][i] = sources[lane][i * stride];
        }
    }
    for (; i < tile->depth; ++i) {
        for (lane = 0u; lane < LANES; ++lane) {
            lines[lane][i] = 0;
        }
    }
}

/* Unsigned accumulators wrap; a product is at most 255 * 128 and fits. */
static void add_products(uint32_t *restrict accumulators, const int16_t *restrict inputs,
                         const int16_t (*restrict weights)[DEPTH], uint32_t depth)
{
    const uint32_t count = depth / VECTOR * VECTOR; /* tells compilers that it is a multiple */
    uint32_t sum0 = 0u;
    uint32_t sum1 = 0u;
    uint32_t sum2 = 0u;
    uint32_t sum3 = 0u;
    uint32_t i;

    for (i = 0u; i < count; ++i) {
        sum0 += (uint32_t)(inputs[i] * weights[0][i]);
        sum1 += (uint32_t)(inputs[i] * weights[1][i]);
        sum2 += (uint32_t)(inputs[i] * weights[2][i]);
        sum3 += (uint32_t)(inputs[i] * weights[3][i]);
    }
    accumulators[0] += sum0;
    accumulators[1] += sum1;
    accumulators[2] += sum2;
    accumulators[3] += sum3;
}

static void convolve_tile(const struct umakit_systolic_job *job,
                          const struct umakit_systolic_operands *operands, struct tile *tile)
{
    const uint32_t total_depth = job->kernel[0] * job->kernel[1] * job->input[2];
    int16_t weights[LANES][DEPTH];
    uint32_t count;
    uint32_t depth;
    uint32_t position;
    uint32_t channel;

    for (depth = 0u; depth < total_depth; depth += count) {
        count = smaller(total_depth - depth, DEPTH);
        tile->depth = (count + VECTOR - 1u) / VECTOR * VECTOR;
        for (position = 0u; position < tile->positions; ++position) {
            gather_inputs(job, operands->ifmap, tile->position + position, depth,
                          tile->inputs[position]);
        }
        for (channel = 0u; channel < tile->channels; channel += LANES) {
            gather_weights(job, operands->weights, total_depth, depth, tile, channel, weights);
            for (position = 0u; position < tile->positions; ++position) {
                add_products(&tile->accumulators[position][channel], tile->inputs[position],
                             (const int16_t(*)[DEPTH])weights, tile->depth);
            }
        }
    }
}

/* One tap of a depthwise convolution, for channels `first` to `first + count - 1`. */
static void add_tap(const struct umakit_systolic_job *job, const int8_t *restrict pixel,
                    const int8_t *restrict weights, uint32_t first, uint32_t count,
                    uint32_t *restrict accumulators)
{
    const uint32_t multiplier = job->output[2] / job->input[2];
    int16_t inputs[CHANNELS] = {0};
    uint32_t i;

    if (multiplier == 1u) {
        copy_inputs(inputs, pixel + (size_t)first * job->ifmap_stride[2], job->ifmap_stride[2],
                    job->input_zero_point, count);
    } else {
        for (i = 0u; i < count; ++i) {
            inputs[i] = (int16_t)(pixel[(size_t)((first + i) / multiplier) *
                                        job->ifmap_stride[2]] -
                                  job->input_zero_point);
        }
    }
    for (i = 0u; i < count; ++i) {
        accumulators[i] += (uint32_t)(inputs[i] * weights[i]);
    }
}

static void convolve_depthwise(const struct umakit_systolic_job *job,
                               const struct umakit_systolic_operands *operands,
                               struct tile *tile, uint32_t position)
{
    const uint32_t place = tile->position + position;
    const struct umakit_systolic_taps rows =
        umakit_systolic_taps_of(job, 0, place / job->output[1]);
    const struct umakit_systolic_taps columns =
        umakit_systolic_taps_of(job, 1, place % job->output[1]);
    uint32_t row;
    uint32_t column;

    for (row = rows.first; row < rows.end; ++row) {
        const size_t y = rows.input + (row - rows.first) * job->dilation[0];

        for (column = columns.first; column < columns.end; ++column) {
            const size_t x = columns.input + (column - columns.first) * job->dilation[1];

            add_tap(job,
                    operands->ifmap + y * job->ifmap_stride[0] + x * job->ifmap_stride[1],
                    operands->weights +
                        ((size_t)row * job->kernel[1] + column) * job->output[2] +
                        tile->channel,
                    tile->channel, tile->channels, tile->accumulators[position]);
        }
    }
}

static void compute_tile(const struct umakit_systolic_job *job,
                         const struct umakit_systolic_operands *operands, struct tile *tile)
{
    uint32_t position;

    memset(tile->accumulators, 0, sizeof(tile->accumulators));
    for (position = 0u; position < tile->positions; ++position) {
        umakit_systolic_load_accumulators(job, operands, tile->position + position,
                                          tile->channel, tile->channels,
                                          tile->accumulators[position]);
    }
    if (job->operation == UMAKIT_SYSTOLIC_ARRAY_OPERATION_DEPTHWISE) {
        for (position = 0u; position < tile->positions; ++position) {
            convolve_depthwise(job, operands, tile, position);
        }
    } else {
        convolve_tile(job, operands, tile);
    }
    for (position = 0u; position < tile->positions; ++position) {
        umakit_systolic_store_accumulators(job, operands, tile->position + position,
                                           tile->channel, tile->channels,
                                           tile->accumulators[position]);
    }
}

void umakit_systolic_convolve(const struct umakit_systolic_job *job,
                              const struct umakit_systolic_operands *operands)
{
    const uint32_t positions = job->output[0] * job->output[1]; /* fit the scratchpad */
    struct tile tile;

    for (tile.position = 0u; tile.position < positions; tile.position += tile.positions) {
        tile.positions = smaller(positions - tile.position, POSITIONS);
        for (tile.channel = 0u; tile.channel < job->output[2]; tile.channel += tile.channels) {
            tile.channels = smaller(job->output[2] - tile.channel, CHANNELS);
            compute_tile(job, operands, &tile);
        }
    }
}
