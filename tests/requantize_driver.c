/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A driver for integer operators that takes its arithmetic from umakit, for
 * both ways of rounding. integer_driver.c is one that shares nothing with it.
 */
#include "requantize_driver.h" /* what patterns.c_declaration prints */

#include "umakit/requantize.h"

/* Distances of elements in memory. */
struct strides {
    int32_t n, y, x, c;
};

static struct strides layout(int channels_first, int32_t height, int32_t width, int32_t channels)
{
    const struct strides nchw = {channels * height * width, width, 1, height * width};
    const struct strides nhwc = {height * width * channels, width * channels, channels, 1};

    return channels_first ? nchw : nhwc;
}

#define CONVOLUTION(name, channels_first)                                                       \
    int32_t name(const int8_t *data, const int8_t *weights, const int32_t *bias,                \
                 const int32_t *multipliers, const int8_t *shifts, int8_t *result,              \
                 int32_t batch, int32_t height, int32_t width, int32_t input_channels,          \
                 int32_t output_height, int32_t output_width, int32_t output_channels,          \
                 int32_t kernel_height, int32_t kernel_width, int32_t stride_y,                 \
                 int32_t stride_x, int32_t pad_top, int32_t pad_left, int32_t pad_bottom,       \
                 int32_t pad_right, int32_t dilation_y, int32_t dilation_x, int32_t groups,     \
                 int32_t scales, int32_t input_zero_point, int32_t output_zero_point,           \
                 int32_t lowest, int32_t highest, int32_t rounding)                             \
    {                                                                                           \
        const struct strides from = layout(channels_first, height, width, input_channels);      \
        const struct strides to =                                                               \
            layout(channels_first, output_height, output_width, output_channels);               \
        const int32_t per_group = input_channels / groups;                                      \
        (void)pad_bottom;                                                                       \
        (void)pad_right;                                                                        \
        for (int32_t n = 0; n < batch; ++n) {                                                   \
            for (int32_t y = 0; y < output_height; ++y) {                                       \
                for (int32_t x = 0; x < output_width; ++x) {                                    \
                    for (int32_t o = 0; o < output_channels; ++o) {                             \
                        const int32_t group = o / (output_channels / groups);                   \
                        const int32_t s = scales > 1 ? o : 0;                                   \
                        const int8_t *weight =                                                  \
                            weights + o * kernel_height * kernel_width * per_group;             \
                        int32_t sum = bias[o];                                                  \
                        for (int32_t ky = 0; ky < kernel_height; ++ky) {                        \
                            for (int32_t kx = 0; kx < kernel_width; ++kx) {                     \
                                const int32_t iy = y * stride_y + ky * dilation_y - pad_top;    \
                                const int32_t ix = x * stride_x + kx * dilation_x - pad_left;   \
                                for (int32_t c = 0; c < per_group; ++c, ++weight) {             \
                                    if (iy >= 0 && iy < height && ix >= 0 && ix < width) {      \
                                        sum += (data[n * from.n + iy * from.y + ix * from.x +   \
                                                     (group * per_group + c) * from.c] -        \
                                                input_zero_point) *                             \
                                               *weight;                                         \
                                    }                                                           \
                                }                                                               \
                            }                                                                   \
                        }                                                                       \
                        result[n * to.n + y * to.y + x * to.x + o * to.c] =                     \
                            (int8_t)umakit_add_and_clamp(                                       \
                                umakit_requantize(rounding, sum, multipliers[s], shifts[s]),    \
                                output_zero_point, lowest, highest);                            \
                    }                                                                           \
                }                                                                               \
            }                                                                                   \
        }                                                                                       \
        return 0;                                                                               \
    }

CONVOLUTION(ruler_qconv2d, 0)
CONVOLUTION(ruler_qdepthwise, 0)
CONVOLUTION(ruler_qconv2d_nchw, 1)

int32_t ruler_qdense(const int8_t *data, const int8_t *weights, const int32_t *bias,
                     const int32_t *multipliers, const int8_t *shifts, int8_t *result,
                     int32_t rows, int32_t inputs, int32_t outputs, int32_t scales,
                     int32_t input_zero_point, int32_t output_zero_point, int32_t lowest,
                     int32_t highest, int32_t rounding)
{
    for (int32_t row = 0; row < rows; ++row) {
        for (int32_t o = 0; o < outputs; ++o) {
            const int32_t s = scales > 1 ? o : 0;
            int32_t sum = bias[o];
            for (int32_t i = 0; i < inputs; ++i) {
                sum += (data[row * inputs + i] - input_zero_point) * weights[o * inputs + i];
            }
            result[row * outputs + o] = (int8_t)umakit_add_and_clamp(
                umakit_requantize(rounding, sum, multipliers[s], shifts[s]), output_zero_point,
                lowest, highest);
        }
    }
    return 0;
}

int32_t ruler_qadd(const int8_t *left, const int8_t *right, int8_t *result, int32_t elements,
                   int32_t left_zero_point, int32_t right_zero_point, int32_t left_shift,
                   int32_t left_multiplier, int32_t left_multiplier_shift,
                   int32_t right_multiplier, int32_t right_multiplier_shift, int32_t multiplier,
                   int32_t shift, int32_t output_zero_point, int32_t lowest, int32_t highest,
                   int32_t rounding)
{
    const int32_t up = INT32_C(1) << left_shift;

    for (int32_t i = 0; i < elements; ++i) {
        const int32_t sum =
            umakit_requantize(rounding, (left[i] - left_zero_point) * up, left_multiplier,
                              left_multiplier_shift) +
            umakit_requantize(rounding, (right[i] - right_zero_point) * up, right_multiplier,
                              right_multiplier_shift);
        result[i] = (int8_t)umakit_add_and_clamp(
            umakit_requantize(rounding, sum, multiplier, shift), output_zero_point, lowest,
            highest);
    }
    return 0;
}
