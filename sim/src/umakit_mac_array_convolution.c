/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The function of the array, in the order in which one of its cells adds: a
 * result starts at +0 and takes the products of input channel 0 first, within
 * a channel kernel row by kernel row, within a row column by column. Padding
 * adds nothing. Float addition is not associative, so this order is part of
 * the result; no fused multiply-add, which would round once instead of twice.
 *
 * The loops run the other way round: for one weight at a time, over all
 * results it belongs to. Each result still sees its products in the order
 * above, and the inner loop is one that compilers vectorise.
 */
#include "umakit/mac_array.h"

#include <stddef.h>

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF /* gcc does not know it and needs -ffp-contract=off */
#endif

/* Results [begin, end) along one axis have an input for a given position in the
 * kernel; the first of them has input `first_input`. */
struct span {
    size_t begin;
    size_t end;
    size_t first_input;
};

static struct span valid_span(size_t extent, size_t kernel_position, size_t pad)
{
    struct span span;

    if (kernel_position < pad) {
        span.begin = pad - kernel_position;
        span.end = extent;
        span.first_input = 0u;
    } else {
        size_t shift = kernel_position - pad;

        span.begin = 0u;
        span.end = shift < extent ? extent - shift : 0u;
        span.first_input = shift;
    }
    return span;
}

/* A length of its own for the bulk lets compilers vectorise without a check of
 * the trip count, which gcc does not do at -O2. */
#define BLOCK 16u

static void accumulate(float *restrict accumulators, const float *restrict inputs,
                       float weight, size_t count)
{
    while (count >= BLOCK) {
        size_t i;

        for (i = 0u; i < BLOCK; ++i) {
            accumulators[i] += weight * inputs[i];
        }
        accumulators += BLOCK;
        inputs += BLOCK;
        count -= BLOCK;
    }
    while (count > 0u) {
        *accumulators++ += weight * *inputs++;
        --count;
    }
}

/* Add what one weight contributes to one plane of the result. */
static void accumulate_plane(float *restrict accumulators, const float *restrict inputs,
                             float weight, size_t width, struct span rows,
                             struct span columns)
{
    size_t count;
    size_t row;

    if (rows.begin >= rows.end || columns.begin >= columns.end) {
        return; /* the kernel reaches beyond the image: only padding here */
    }
    count = columns.end - columns.begin;
    if (count == width) {
        /* Whole rows follow each other without a gap: one long row. This is
         * every weight of a 1x1 kernel. */
        accumulate(accumulators + rows.begin * width, inputs + rows.first_input * width, weight,
                   (rows.end - rows.begin) * width);
        return;
    }
    for (row = 0u; row < rows.end - rows.begin; ++row) {
        accumulate(accumulators + (rows.begin + row) * width + columns.begin,
                   inputs + (rows.first_input + row) * width + columns.first_input, weight,
                   count);
    }
}

void umakit_mac_array_convolve(const struct umakit_mac_array_convolution *convolution)
{
    const size_t plane = convolution->height * convolution->width;
    const float *weight = convolution->weights;
    float *accumulators = convolution->result;
    size_t output_channel;

    for (output_channel = 0u; output_channel < convolution->output_channels;
         ++output_channel) {
        const float *inputs = convolution->ifmap;
        size_t input_channel;
        size_t i;

        for (i = 0u; i < plane; ++i) {
            accumulators[i] = 0.0f;
        }
        for (input_channel = 0u; input_channel < convolution->input_channels;
             ++input_channel) {
            size_t kernel_row;

            for (kernel_row = 0u; kernel_row < convolution->kernel_height; ++kernel_row) {
                const struct span rows =
                    valid_span(convolution->height, kernel_row, convolution->pad_top);
                size_t kernel_column;

                for (kernel_column = 0u; kernel_column < convolution->kernel_width;
                     ++kernel_column) {
                    const struct span columns = valid_span(
                        convolution->width, kernel_column, convolution->pad_left);

                    accumulate_plane(accumulators, inputs, *weight, convolution->width, rows,
                                     columns);
                    ++weight;
                }
            }
            inputs += plane;
        }
        accumulators += plane;
    }
}
