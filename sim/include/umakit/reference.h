/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Integer operators as plain loops, which compute what an accelerator has to compute.
 *
 * They stand in for hardware: in a driver that has none yet, in the array of a
 * simulator, in a self-test of a board. Exports contain this header if a file of the
 * backend includes it. Data and weights are int8, biases and sums int32. Sums wrap
 * around, as those of 32-bit adders do.
 *
 * Members have the names of the arguments that a driver gets (patterns.c_declaration).
 * What a driver does not say, such as `groups`, is 0 in an initializer and means 1.
 * Images are rows x columns x channels, or, with `channels_first`, channels x rows x
 * columns. Padding counts as the zero point of the input.
 *
 * No argument is checked: sizes are those of the tensors, multipliers and shifts those
 * of umakit/requantize.h, whose functions these loops call.
 */
#ifndef UMAKIT_REFERENCE_H
#define UMAKIT_REFERENCE_H

#include <stddef.h>
#include <stdint.h>

#include "requantize.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- Sums of two tensors ----------------------------------------------------------------------- */

/* left + right: both are shifted left and scaled, added, and scaled again. */
struct umakit_reference_addition {
    int32_t left_zero_point, right_zero_point;
    int32_t left_shift; /* of both operands, in bits */
    int32_t left_multiplier, left_multiplier_shift;
    int32_t right_multiplier, right_multiplier_shift;
    int32_t multiplier, shift; /* of the sum */
    int32_t output_zero_point, lowest, highest;
    int32_t rounding; /* an enum umakit_rounding, but not ..._OWN; below too */
};

static inline int8_t umakit_reference_sum(const struct umakit_reference_addition *addition,
                                          int32_t left, int32_t right)
{
    const int32_t unit = (int32_t)(UINT32_C(1) << addition->left_shift);
    const int32_t scaled_left = umakit_requantize(
        addition->rounding, (left - addition->left_zero_point) * unit, addition->left_multiplier,
        addition->left_multiplier_shift);
    const int32_t scaled_right = umakit_requantize(
        addition->rounding, (right - addition->right_zero_point) * unit,
        addition->right_multiplier, addition->right_multiplier_shift);
    const uint32_t sum = (uint32_t)scaled_left + (uint32_t)scaled_right;

    return (int8_t)umakit_add_and_clamp(
        umakit_requantize(addition->rounding, (int32_t)sum, addition->multiplier, addition->shift),
        addition->output_zero_point, addition->lowest, addition->highest);
}

/* result[i] = left[i] + right[i] */
static inline void umakit_reference_add(const struct umakit_reference_addition *addition,
                                        const int8_t *left, const int8_t *right, int8_t *result,
                                        int32_t elements)
{
    int32_t i;

    for (i = 0; i < elements; ++i) {
        result[i] = umakit_reference_sum(addition, left[i], right[i]);
    }
}

/* --- Products of two tensors ------------------------------------------------------------------- */

struct umakit_reference_multiplication {
    int32_t left_zero_point, right_zero_point;
    int32_t multiplier, shift;
    int32_t output_zero_point, lowest, highest;
    int32_t rounding;
};

/* result[i] = left[i] * right[i] */
static inline void
umakit_reference_multiply(const struct umakit_reference_multiplication *multiplication,
                          const int8_t *left, const int8_t *right, int8_t *result,
                          int32_t elements)
{
    int32_t i;

    for (i = 0; i < elements; ++i) {
        const int32_t product = (left[i] - multiplication->left_zero_point) *
                                (right[i] - multiplication->right_zero_point);
        const int32_t scaled = umakit_requantize(multiplication->rounding, product,
                                                 multiplication->multiplier, multiplication->shift);

        result[i] = (int8_t)umakit_add_and_clamp(scaled, multiplication->output_zero_point,
                                                 multiplication->lowest, multiplication->highest);
    }
}

/* --- Convolutions and fully connected layers --------------------------------------------------- */

/* A convolution, in groups or depthwise too. A fully connected layer is one of an image of
 * `rows` rows and one column, with `inputs` channels in and `outputs` channels out. */
struct umakit_reference_convolution {
    int32_t batch; /* images */
    int32_t height, width, input_channels;
    int32_t output_height, output_width, output_channels;
    int32_t kernel_height, kernel_width;
    int32_t stride_y, stride_x, pad_top, pad_left, dilation_y, dilation_x;
    int32_t groups;       /* as many as input channels: depthwise */
    int32_t weight_block; /* output channels that lie side by side in the weights: 1 is O x H x W x I,
                             b is O/b x H x W x I x b, all of a depthwise one H x W x O */
    int32_t channels_first;
    int32_t scales; /* multipliers and shifts: 1, or one for each output channel */
    int32_t input_zero_point, output_zero_point, lowest, highest;
    int32_t rounding;
    const struct umakit_reference_addition *addition; /* of another tensor, or NULL */
};

static inline int32_t umakit_reference_or_one(int32_t value)
{
    return value == 0 ? 1 : value;
}

/* Index of an element of an image in a tensor. */
static inline size_t umakit_reference_place(int32_t channels_first, int32_t image, int32_t y,
                                            int32_t x, int32_t channel, int32_t height,
                                            int32_t width, int32_t channels)
{
    const size_t line = channels_first != 0
                            ? ((size_t)image * (size_t)channels + (size_t)channel) * (size_t)height
                            : (size_t)image * (size_t)height;
    const size_t position = (line + (size_t)y) * (size_t)width + (size_t)x;

    return channels_first != 0 ? position : position * (size_t)channels + (size_t)channel;
}

/* The products of one window, added to `sum`. */
static inline int32_t
umakit_reference_products(const struct umakit_reference_convolution *layer, const int8_t *data,
                          const int8_t *weights, int32_t image, int32_t y, int32_t x,
                          int32_t output_channel, int32_t sum)
{
    const int32_t groups = umakit_reference_or_one(layer->groups);
    const int32_t block = umakit_reference_or_one(layer->weight_block);
    const int32_t inputs = layer->input_channels / groups; /* of a group */
    const int32_t first = output_channel / (layer->output_channels / groups) * inputs;
    const int32_t top = y * umakit_reference_or_one(layer->stride_y) - layer->pad_top;
    const int32_t left = x * umakit_reference_or_one(layer->stride_x) - layer->pad_left;
    uint32_t total = (uint32_t)sum;
    int32_t ky, kx, channel;

    for (ky = 0; ky < layer->kernel_height; ++ky) {
        const int32_t row = top + ky * umakit_reference_or_one(layer->dilation_y);

        for (kx = 0; kx < layer->kernel_width; ++kx) {
            const int32_t column = left + kx * umakit_reference_or_one(layer->dilation_x);

            if (row < 0 || row >= layer->height || column < 0 || column >= layer->width) {
                continue; /* the zero point, less the zero point */
            }
            for (channel = 0; channel < inputs; ++channel) {
                const size_t weight =
                    ((((size_t)(output_channel / block) * (size_t)layer->kernel_height +
                       (size_t)ky) * (size_t)layer->kernel_width + (size_t)kx) * (size_t)inputs +
                     (size_t)channel) * (size_t)block + (size_t)(output_channel % block);
                const int32_t value = data[umakit_reference_place(
                    layer->channels_first, image, row, column, first + channel, layer->height,
                    layer->width, layer->input_channels)];

                total += (uint32_t)((value - layer->input_zero_point) * weights[weight]);
            }
        }
    }
    return (int32_t)total;
}

/* A sum with its bias as an element of the result, which has a place in `addend` too. */
static inline int8_t
umakit_reference_element(const struct umakit_reference_convolution *layer, int32_t sum,
                         int32_t output_channel, const int32_t *multipliers, const int8_t *shifts,
                         const int8_t *addend)
{
    const int32_t scale = layer->scales > 1 ? output_channel : 0;
    const int32_t value = umakit_add_and_clamp(
        umakit_requantize(layer->rounding, sum, multipliers[scale], shifts[scale]),
        layer->output_zero_point, layer->lowest, layer->highest);

    return layer->addition == NULL ? (int8_t)value
                                   : umakit_reference_sum(layer->addition, value, *addend);
}

/*
 * A step of a convolution whose input channels come in parts.
 *
 *     sums       int32, one for each element of the result, rows x columns x channels; NULL if
 *                all input channels are there at once
 *     continues  the sums are those of the step before; else they start with the bias
 *     keeps      the sums stay for the next step; else they become the result
 *
 * `addend` is laid out like the result, NULL without an addition.
 */
static inline void
umakit_reference_conv2d_step(const struct umakit_reference_convolution *layer, const int8_t *data,
                             const int8_t *weights, const int32_t *bias,
                             const int32_t *multipliers, const int8_t *shifts,
                             const int8_t *addend, int32_t *sums, int32_t continues,
                             int32_t keeps, int8_t *result)
{
    const int32_t images = umakit_reference_or_one(layer->batch);
    int32_t image, y, x, channel;
    size_t next = 0u;

    for (image = 0; image < images; ++image) {
        for (y = 0; y < layer->output_height; ++y) {
            for (x = 0; x < layer->output_width; ++x) {
                for (channel = 0; channel < layer->output_channels; ++channel, ++next) {
                    const size_t place = umakit_reference_place(
                        layer->channels_first, image, y, x, channel, layer->output_height,
                        layer->output_width, layer->output_channels);
                    const int32_t sum = umakit_reference_products(
                        layer, data, weights, image, y, x, channel,
                        continues != 0 ? sums[next] : bias[channel]);

                    if (keeps != 0) {
                        sums[next] = sum;
                    } else {
                        result[place] = umakit_reference_element(
                            layer, sum, channel, multipliers, shifts,
                            addend == NULL ? NULL : addend + place);
                    }
                }
            }
        }
    }
}

/* A convolution of all input channels. */
static inline void
umakit_reference_conv2d(const struct umakit_reference_convolution *layer, const int8_t *data,
                        const int8_t *weights, const int32_t *bias, const int32_t *multipliers,
                        const int8_t *shifts, int8_t *result)
{
    umakit_reference_conv2d_step(layer, data, weights, bias, multipliers, shifts, NULL, NULL, 0, 0,
                                 result);
}

/* --- Pools ------------------------------------------------------------------------------------- */

/* A pool of images; padding does not take part. */
struct umakit_reference_pool {
    int32_t batch;
    int32_t height, width, channels;
    int32_t output_height, output_width;
    int32_t window_height, window_width;
    int32_t stride_y, stride_x, pad_top, pad_left;
    int32_t channels_first;
    int32_t lowest, highest;
};

/* The part of a window that lies in an image, along one axis: from `first` to before `end`. */
static inline void umakit_reference_span(int32_t start, int32_t window, int32_t size,
                                         int32_t *first, int32_t *end)
{
    *first = start < 0 ? 0 : start;
    *end = start + window > size ? size : start + window;
}

/* The mean, ties rounded away from 0, or the largest element of each window. */
static inline void umakit_reference_pool2d(const struct umakit_reference_pool *pool,
                                           int32_t is_average, const int8_t *data, int8_t *result)
{
    const int32_t images = umakit_reference_or_one(pool->batch);
    int32_t image, y, x, channel, row, column, rows[2], columns[2];

    for (image = 0; image < images; ++image) {
        for (y = 0; y < pool->output_height; ++y) {
            umakit_reference_span(y * umakit_reference_or_one(pool->stride_y) - pool->pad_top,
                                  pool->window_height, pool->height, &rows[0], &rows[1]);
            for (x = 0; x < pool->output_width; ++x) {
                umakit_reference_span(x * umakit_reference_or_one(pool->stride_x) - pool->pad_left,
                                      pool->window_width, pool->width, &columns[0], &columns[1]);
                for (channel = 0; channel < pool->channels; ++channel) {
                    int32_t sum = 0, count = 0, value = INT8_MIN;

                    for (row = rows[0]; row < rows[1]; ++row) {
                        for (column = columns[0]; column < columns[1]; ++column, ++count) {
                            const int32_t element = data[umakit_reference_place(
                                pool->channels_first, image, row, column, channel, pool->height,
                                pool->width, pool->channels)];

                            sum += element;
                            value = element > value ? element : value;
                        }
                    }
                    if (is_average != 0 && count > 0) {
                        value = (sum > 0 ? sum + count / 2 : sum - count / 2) / count;
                    }
                    result[umakit_reference_place(pool->channels_first, image, y, x, channel,
                                                  pool->output_height, pool->output_width,
                                                  pool->channels)] =
                        (int8_t)umakit_add_and_clamp(value, 0, pool->lowest, pool->highest);
                }
            }
        }
    }
}

static inline void umakit_reference_max_pool2d(const struct umakit_reference_pool *pool,
                                               const int8_t *data, int8_t *result)
{
    umakit_reference_pool2d(pool, 0, data, result);
}

static inline void umakit_reference_avg_pool2d(const struct umakit_reference_pool *pool,
                                               const int8_t *data, int8_t *result)
{
    umakit_reference_pool2d(pool, 1, data, result);
}

#ifdef __cplusplus
}
#endif

#endif /* UMAKIT_REFERENCE_H */
