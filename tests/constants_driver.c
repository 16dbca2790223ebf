/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A driver that reads constants in other forms: shifts of 32 bits, sums of
 * weights in the place of zero points, multipliers of 31 bits for 16-bit data.
 */
#include "constants_driver.h" /* what patterns.c_declaration prints */

#include "umakit/requantize.h"

static int32_t convolved(const int8_t *data, const int8_t *weights, const int32_t *bias,
                         const int32_t *multipliers, const int32_t *shifts,
                         const int32_t *weight_sums, int8_t *result, int32_t height,
                         int32_t width, int32_t input_channels, int32_t output_height,
                         int32_t output_width, int32_t output_channels, int32_t kernel_height,
                         int32_t kernel_width, int32_t stride_y, int32_t stride_x, int32_t pad_top,
                         int32_t pad_left, int32_t group_channels, int32_t scales,
                         int32_t input_zero_point, int32_t output_zero_point, int32_t lowest,
                         int32_t highest)
{
    const int32_t per_group = output_channels / (input_channels / group_channels);
    int32_t y, x, o, ky, kx, c;

    for (y = 0; y < output_height; ++y) {
        for (x = 0; x < output_width; ++x) {
            for (o = 0; o < output_channels; ++o) {
                const int8_t *w = weights + o * kernel_height * kernel_width * group_channels;
                int32_t sum = bias[o] - input_zero_point * weight_sums[o];
                for (ky = 0; ky < kernel_height; ++ky) {
                    for (kx = 0; kx < kernel_width; ++kx) {
                        const int32_t iy = y * stride_y + ky - pad_top;
                        const int32_t ix = x * stride_x + kx - pad_left;
                        const int inside = iy >= 0 && iy < height && ix >= 0 && ix < width;
                        for (c = 0; c < group_channels; ++c) {
                            const int32_t channel = o / per_group * group_channels + c;
                            sum += *w++ * (inside ? data[(iy * width + ix) * input_channels + channel]
                                                  : input_zero_point);
                        }
                    }
                }
                sum = umakit_requantize(0, sum, multipliers[scales > 1 ? o : 0],
                                        shifts[scales > 1 ? o : 0]);
                *result++ = (int8_t)umakit_add_and_clamp(sum, output_zero_point, lowest, highest);
            }
        }
    }
    return 0;
}

int32_t own_qconv2d(const int8_t *data, const int8_t *weights, const int32_t *bias,
                    const int32_t *multipliers, const int32_t *shifts, const int32_t *weight_sums,
                    int8_t *result, int32_t batch, int32_t height, int32_t width,
                    int32_t input_channels, int32_t output_height, int32_t output_width,
                    int32_t output_channels, int32_t kernel_height, int32_t kernel_width,
                    int32_t stride_y, int32_t stride_x, int32_t pad_top, int32_t pad_left,
                    int32_t pad_bottom, int32_t pad_right, int32_t dilation_y, int32_t dilation_x,
                    int32_t groups, int32_t scales, int32_t input_zero_point,
                    int32_t output_zero_point, int32_t lowest, int32_t highest, int32_t rounding)
{
    (void)pad_bottom, (void)pad_right, (void)dilation_y, (void)dilation_x, (void)rounding;
    return batch > 1 ? 1
                     : convolved(data, weights, bias, multipliers, shifts, weight_sums, result,
                                 height, width, input_channels, output_height, output_width,
                                 output_channels, kernel_height, kernel_width, stride_y, stride_x,
                                 pad_top, pad_left, input_channels / groups, scales,
                                 input_zero_point, output_zero_point, lowest, highest);
}

int32_t own_qdepthwise(const int8_t *data, const int8_t *weights, const int32_t *bias,
                       const int32_t *multipliers, const int32_t *shifts,
                       const int32_t *weight_sums, int8_t *result, int32_t batch, int32_t height,
                       int32_t width, int32_t input_channels, int32_t output_height,
                       int32_t output_width, int32_t output_channels, int32_t kernel_height,
                       int32_t kernel_width, int32_t stride_y, int32_t stride_x, int32_t pad_top,
                       int32_t pad_left, int32_t pad_bottom, int32_t pad_right, int32_t dilation_y,
                       int32_t dilation_x, int32_t groups, int32_t scales,
                       int32_t input_zero_point, int32_t output_zero_point, int32_t lowest,
                       int32_t highest, int32_t rounding)
{
    return own_qconv2d(data, weights, bias, multipliers, shifts, weight_sums, result, batch, height,
                       width, input_channels, output_height, output_width, output_channels,
                       kernel_height, kernel_width, stride_y, stride_x, pad_top, pad_left,
                       pad_bottom, pad_right, dilation_y, dilation_x, groups, scales,
                       input_zero_point, output_zero_point, lowest, highest, rounding);
}

int32_t own_qdense(const int8_t *data, const int8_t *weights, const int32_t *bias,
                   const int32_t *multipliers, const int32_t *shifts, const int32_t *weight_sums,
                   int8_t *result, int32_t rows, int32_t inputs, int32_t outputs, int32_t scales,
                   int32_t input_zero_point, int32_t output_zero_point, int32_t lowest,
                   int32_t highest, int32_t rounding)
{
    int32_t row;

    (void)rounding;
    for (row = 0; row < rows; ++row, data += inputs, result += outputs) {
        (void)convolved(data, weights, bias, multipliers, shifts, weight_sums, result, 1, 1, inputs,
                        1, 1, outputs, 1, 1, 1, 1, 0, 0, inputs, scales, input_zero_point,
                        output_zero_point, lowest, highest);
    }
    return 0;
}

/* One result of data of int16, with a multiplier of 15 bits. */
static int16_t wide_result(const int16_t *data, const int8_t *weights, int64_t sum, int32_t inputs,
                           int32_t multiplier, int32_t shift, int32_t output_zero_point,
                           int32_t lowest, int32_t highest)
{
    int32_t i;

    for (i = 0; i < inputs; ++i) {
        sum += weights[i] * data[i];
    }
    return (int16_t)umakit_add_and_clamp(umakit_requantize_tflm_int64(sum, multiplier, shift),
                                         output_zero_point, lowest, highest);
}

/* As CMSIS-NN: the upper 15 bits of a multiplier of 31. */
int32_t own_qdense_wide(const int16_t *data, const int8_t *weights, const int64_t *bias,
                        const int32_t *multipliers, const int32_t *shifts, int16_t *result,
                        int32_t rows, int32_t inputs, int32_t outputs, int32_t scales,
                        int32_t input_zero_point, int32_t output_zero_point, int32_t lowest,
                        int32_t highest, int32_t rounding)
{
    int32_t row, o;

    (void)input_zero_point, (void)rounding;
    for (row = 0; row < rows; ++row, data += inputs) {
        for (o = 0; o < outputs; ++o) {
            const int32_t scale = scales > 1 ? o : 0, multiplier = multipliers[scale];
            const int32_t reduced =
                multiplier < 0x7FFF0000 ? (multiplier + (1 << 15)) >> 16 : 0x7FFF;
            *result++ = wide_result(data, weights + o * inputs, bias[o], inputs, reduced,
                                    shifts[scale], output_zero_point, lowest, highest);
        }
    }
    return 0;
}

/* Multipliers of 15 bits as they are. */
int32_t own_qdense_short(const int16_t *data, const int8_t *weights, const int64_t *bias,
                         const int16_t *multipliers, const int8_t *shifts, int16_t *result,
                         int32_t rows, int32_t inputs, int32_t outputs, int32_t scales,
                         int32_t input_zero_point, int32_t output_zero_point, int32_t lowest,
                         int32_t highest, int32_t rounding)
{
    int32_t row, o;

    (void)input_zero_point, (void)rounding;
    for (row = 0; row < rows; ++row, data += inputs) {
        for (o = 0; o < outputs; ++o) {
            const int32_t scale = scales > 1 ? o : 0;
            *result++ =
                wide_result(data, weights + o * inputs, bias[o], inputs, multipliers[scale],
                            shifts[scale], output_zero_point, lowest, highest);
        }
    }
    return 0;
}
