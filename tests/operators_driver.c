/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A driver for operators whose patterns are made of their interface: plain
 * loops over what they are handed, with the arithmetic of requantize.h.
 */
#include "operators_driver.h" /* what patterns.c_declaration prints */

#include "umakit/requantize.h"

static int8_t stored(int32_t rounding, int32_t sum, int32_t multiplier, int32_t shift,
                     int32_t zero_point, int32_t lowest, int32_t highest)
{
    const int32_t scaled = umakit_requantize(rounding, sum, multiplier, shift);

    return (int8_t)umakit_add_and_clamp(scaled, zero_point, lowest, highest);
}

/* exp of a number of at most 0 with 26 fractional bits; the result has 31. */
static int32_t exponential(int32_t value)
{
    static const struct {
        int32_t bit, factor;
    } powers[] = {{24, 1672461947}, {25, 1302514674}, {26, 790015084}, {27, 290630308},
                  {28, 39332535},   {29, 720401},     {30, 242}};
    const int32_t quarter = INT32_C(1) << 24;
    const int32_t modulus = (int32_t)((uint32_t)value & (uint32_t)(quarter - 1)) - quarter;
    const int32_t x = modulus * 32 + (INT32_C(1) << 28);
    const int32_t square = umakit_high_product(x, x);
    const int32_t fourth = umakit_high_product(square, square);
    const int32_t sum = umakit_divide_by_power_of_two(fourth, 2) + umakit_high_product(square, x);
    const int32_t rest = umakit_high_product(sum, 715827883) + square;
    int32_t result = 1895147668 + umakit_high_product(
                                      1895147668, x + umakit_divide_by_power_of_two(rest, 1));
    int32_t i;

    if (value == 0) {
        return INT32_MAX;
    }
    for (i = 0; i < 7; ++i) {
        if (((modulus - value) >> powers[i].bit) & 1) {
            result = umakit_high_product(result, powers[i].factor);
        }
    }
    return result;
}

/* By multiplier, shift and diff_min, as kernel libraries take them; the table is not read. */
int32_t all_qsoftmax(const int8_t *data, const int32_t *exponentials, int8_t *result, int32_t rows,
                     int32_t length, int32_t multiplier, int32_t shift, int32_t diff_min,
                     int32_t output_zero_point, int32_t lowest, int32_t highest, int32_t rounding)
{
    int32_t row, i;

    (void)exponentials;
    (void)rounding;
    for (row = 0; row < rows; ++row, data += length, result += length) {
        int32_t largest = data[0], sum = 0, reciprocal, right;

        for (i = 1; i < length; ++i) {
            largest = data[i] > largest ? data[i] : largest;
        }
        for (i = 0; i < length; ++i) {
            const int32_t difference = data[i] - largest;
            if (difference >= diff_min) {
                sum += umakit_divide_by_power_of_two(
                    exponential(umakit_high_product(difference * (INT32_C(1) << shift), multiplier)),
                    12);
            }
        }
        reciprocal = umakit_reciprocal(sum);
        right = 12 + 31 - 8 - umakit_leading_zeros(sum);
        for (i = 0; i < length; ++i) {
            const int32_t difference = data[i] - largest;
            int32_t probability = 0;
            if (difference >= diff_min) {
                const int32_t power = exponential(
                    umakit_high_product(difference * (INT32_C(1) << shift), multiplier));
                probability =
                    umakit_divide_by_power_of_two(umakit_high_product(reciprocal, power), right);
            }
            result[i] =
                (int8_t)umakit_add_and_clamp(probability, output_zero_point, lowest, highest);
        }
    }
    return 0;
}

int32_t all_qlookup(const int8_t *data, const int8_t *table, int8_t *result, int32_t elements)
{
    int32_t i;

    for (i = 0; i < elements; ++i) {
        result[i] = table[data[i] + 128];
    }
    return 0;
}

static void sums(const int8_t *data, int8_t *result, int32_t outer, int32_t length, int32_t inner,
                 int32_t input_zero_point, int32_t multiplier, int32_t shift,
                 int32_t output_zero_point, int32_t lowest, int32_t highest, int32_t rounding)
{
    int32_t o, i, k;

    for (o = 0; o < outer; ++o) {
        for (i = 0; i < inner; ++i) {
            int32_t sum = 0;
            for (k = 0; k < length; ++k) {
                sum += data[(o * length + k) * inner + i] - input_zero_point;
            }
            result[o * inner + i] =
                stored(rounding, sum, multiplier, shift, output_zero_point, lowest, highest);
        }
    }
}

int32_t all_qmean(const int8_t *data, int8_t *result, int32_t outer, int32_t length, int32_t inner,
                  int32_t input_zero_point, int32_t multiplier, int32_t shift,
                  int32_t output_zero_point, int32_t lowest, int32_t highest, int32_t rounding)
{
    sums(data, result, outer, length, inner, input_zero_point, multiplier, shift,
         output_zero_point, lowest, highest, rounding);
    return 0;
}

int32_t all_qsum(const int8_t *data, int8_t *result, int32_t outer, int32_t length, int32_t inner,
                 int32_t input_zero_point, int32_t multiplier, int32_t shift,
                 int32_t output_zero_point, int32_t lowest, int32_t highest, int32_t rounding)
{
    sums(data, result, outer, length, inner, input_zero_point, multiplier, shift,
         output_zero_point, lowest, highest, rounding);
    return 0;
}

int32_t all_qglobal_avg_pool(const int8_t *data, int8_t *result, int32_t rows, int32_t length,
                             int32_t input_zero_point, int32_t multiplier, int32_t shift,
                             int32_t output_zero_point, int32_t lowest, int32_t highest,
                             int32_t rounding)
{
    sums(data, result, rows, length, 1, input_zero_point, multiplier, shift, output_zero_point,
         lowest, highest, rounding);
    return 0;
}

int32_t all_qargmax(const int8_t *data, int32_t *result, int32_t outer, int32_t length,
                    int32_t inner)
{
    int32_t o, i, k;

    for (o = 0; o < outer; ++o) {
        for (i = 0; i < inner; ++i) {
            int32_t best = 0;
            for (k = 1; k < length; ++k) {
                if (data[(o * length + k) * inner + i] > data[(o * length + best) * inner + i]) {
                    best = k;
                }
            }
            result[o * inner + i] = best;
        }
    }
    return 0;
}

int32_t all_qrequantize(const int8_t *data, int8_t *result, int32_t elements,
                        int32_t input_zero_point, int32_t multiplier, int32_t shift,
                        int32_t output_zero_point, int32_t lowest, int32_t highest,
                        int32_t rounding)
{
    int32_t i;

    for (i = 0; i < elements; ++i) {
        result[i] = stored(rounding, data[i] - input_zero_point, multiplier, shift,
                           output_zero_point, lowest, highest);
    }
    return 0;
}

int32_t all_qprelu(const int8_t *data, const int8_t *slopes, int8_t *result, int32_t data_0,
                   int32_t data_1, int32_t data_2, int32_t data_3, int32_t slopes_0,
                   int32_t slopes_1, int32_t slopes_2, int32_t slopes_3, int32_t input_zero_point,
                   int32_t slope_zero_point, int32_t multiplier, int32_t negative_multiplier,
                   int32_t shift, int32_t negative_shift, int32_t output_zero_point,
                   int32_t lowest, int32_t highest, int32_t rounding)
{
    const int32_t slopes_count = slopes_0 * slopes_1 * slopes_2 * slopes_3;
    const int32_t count = data_0 * data_1 * data_2 * data_3;
    int32_t i;

    if (slopes_3 != data_3 || slopes_count != slopes_3) {
        return 1; /* this driver repeats slopes of the last axis only */
    }
    for (i = 0; i < count; ++i) {
        const int32_t value = data[i] - input_zero_point;
        const int32_t slope = slopes[i % slopes_count] - slope_zero_point;
        result[i] = value < 0 ? stored(rounding, value * slope, negative_multiplier,
                                       negative_shift, output_zero_point, lowest, highest)
                              : stored(rounding, value, multiplier, shift, output_zero_point,
                                       lowest, highest);
    }
    return 0;
}

int32_t all_qbatch_matmul(const int8_t *left, const int8_t *right, int8_t *result,
                          int32_t left_matrices, int32_t right_matrices, int32_t rows,
                          int32_t columns, int32_t terms, int32_t left_zero_point,
                          int32_t right_zero_point, int32_t multiplier, int32_t shift,
                          int32_t left_adjoint, int32_t right_adjoint, int32_t output_zero_point,
                          int32_t lowest, int32_t highest, int32_t rounding)
{
    const int32_t matrices = left_matrices > right_matrices ? left_matrices : right_matrices;
    int32_t m, row, column, k;

    for (m = 0; m < matrices; ++m) {
        const int8_t *a = left + (left_matrices > 1 ? m : 0) * rows * terms;
        const int8_t *b = right + (right_matrices > 1 ? m : 0) * terms * columns;
        for (row = 0; row < rows; ++row) {
            for (column = 0; column < columns; ++column) {
                int32_t sum = 0;
                for (k = 0; k < terms; ++k) {
                    const int32_t x = a[left_adjoint ? k * rows + row : row * terms + k];
                    const int32_t y = b[right_adjoint ? column * terms + k : k * columns + column];
                    sum += (x - left_zero_point) * (y - right_zero_point);
                }
                *result++ =
                    stored(rounding, sum, multiplier, shift, output_zero_point, lowest, highest);
            }
        }
    }
    return 0;
}

/* Position of a place of the result in the data, and its neighbours, in 1/1024. */
static int32_t neighbours(int32_t place, int32_t size, int32_t result, int32_t align,
                          int32_t half, int32_t *lower, int32_t *upper)
{
    const int32_t step = align && result > 1
                             ? ((size - 1) * 1024 + (result - 1) / 2) / (result - 1)
                             : (size * 1024 + result / 2) / result;
    const int32_t position = place * step + (half ? step / 2 - 512 : 0);

    *lower = position / 1024 > 0 ? position / 1024 : 0;
    *upper = (position + 1023) / 1024 < size - 1 ? (position + 1023) / 1024 : size - 1;
    return position - *lower * 1024;
}

int32_t all_qresize_bilinear(const int8_t *data, int8_t *result, int32_t batch, int32_t height,
                             int32_t width, int32_t channels, int32_t output_height,
                             int32_t output_width, int32_t align_corners,
                             int32_t half_pixel_centers, int32_t output_zero_point, int32_t lowest,
                             int32_t highest, int32_t rounding)
{
    int32_t n, y, x, c;

    (void)output_zero_point;
    (void)rounding;
    for (n = 0; n < batch; ++n, data += height * width * channels) {
        for (y = 0; y < output_height; ++y) {
            int32_t top, bottom, left, right;
            const int32_t down = neighbours(y, height, output_height, align_corners,
                                            half_pixel_centers, &top, &bottom);
            for (x = 0; x < output_width; ++x) {
                const int32_t across = neighbours(x, width, output_width, align_corners,
                                                  half_pixel_centers, &left, &right);
                for (c = 0; c < channels; ++c) {
                    const int32_t sum =
                        data[(top * width + left) * channels + c] * (1024 - down) *
                            (1024 - across) +
                        data[(top * width + right) * channels + c] * (1024 - down) * across +
                        data[(bottom * width + left) * channels + c] * down * (1024 - across) +
                        data[(bottom * width + right) * channels + c] * down * across;
                    const int32_t half = sum > 0 ? 1 << 19 : -(1 << 19);
                    *result++ = (int8_t)umakit_add_and_clamp((sum + half) / (1 << 20), 0, lowest,
                                                             highest);
                }
            }
        }
    }
    return 0;
}

int32_t all_qconv2d_transpose(
    const int8_t *data, const int8_t *weights, const int32_t *bias, const int32_t *multipliers,
    const int8_t *shifts, int8_t *result, int32_t batch, int32_t height, int32_t width,
    int32_t input_channels, int32_t output_height, int32_t output_width, int32_t output_channels,
    int32_t kernel_height, int32_t kernel_width, int32_t stride_y, int32_t stride_x,
    int32_t pad_top, int32_t pad_left, int32_t pad_bottom, int32_t pad_right, int32_t dilation_y,
    int32_t dilation_x, int32_t groups, int32_t scales, int32_t input_zero_point,
    int32_t output_zero_point, int32_t lowest, int32_t highest, int32_t rounding)
{
    static int32_t sums[4096];
    const int32_t count = output_height * output_width * output_channels;
    int32_t i, y, x, ky, kx, o, c;

    (void)pad_bottom;
    (void)pad_right;
    if (batch != 1 || groups != 1 || dilation_y != 1 || dilation_x != 1 || count > 4096) {
        return 1;
    }
    for (i = 0; i < count; ++i) {
        sums[i] = bias[i % output_channels];
    }
    /* Spread each element of the data over its window of the result. */
    for (y = 0; y < height; ++y) {
        for (x = 0; x < width; ++x) {
            for (ky = 0; ky < kernel_height; ++ky) {
                for (kx = 0; kx < kernel_width; ++kx) {
                    const int32_t oy = y * stride_y + ky - pad_top;
                    const int32_t ox = x * stride_x + kx - pad_left;
                    if (oy < 0 || oy >= output_height || ox < 0 || ox >= output_width) {
                        continue;
                    }
                    for (o = 0; o < output_channels; ++o) {
                        const int8_t *w = weights + ((o * kernel_height + ky) * kernel_width + kx) *
                                                        input_channels;
                        for (c = 0; c < input_channels; ++c) {
                            sums[(oy * output_width + ox) * output_channels + o] +=
                                (data[(y * width + x) * input_channels + c] - input_zero_point) *
                                w[c];
                        }
                    }
                }
            }
        }
    }
    for (i = 0; i < count; ++i) {
        const int32_t s = scales > 1 ? i % output_channels : 0;
        result[i] = stored(rounding, sums[i], multipliers[s], shifts[s], output_zero_point, lowest,
                           highest);
    }
    return 0;
}

int32_t all_qfloat32_sum(const int8_t *left, const int8_t *right, int8_t *result, int32_t elements,
                         int32_t left_offset, int32_t right_offset, int64_t left_factor,
                         int64_t right_factor, int64_t constant, int32_t fraction_bits,
                         int32_t output_offset, int32_t scalar, int32_t plain,
                         int32_t output_zero_point, int32_t lowest, int32_t highest,
                         int32_t rounding)
{
    int32_t i;

    (void)output_zero_point; /* it is in the constant */
    (void)rounding;
    for (i = 0; i < elements; ++i) {
        const int64_t a = (left[i] + left_offset) * left_factor;
        const int64_t b = (right[i] + right_offset) * right_factor;
        int64_t sum;
        if (plain) {
            sum = (a + b + constant) >> fraction_bits;
        } else {
            const int64_t first = scalar == 1 ? a : b, second = scalar == 1 ? b : a;
            sum = umakit_round_to_float32(
                (scalar ? umakit_round_to_float32(first) : first) + constant);
            sum = umakit_divide_to_even(umakit_round_to_float32(sum + second), fraction_bits);
        }
        result[i] = (int8_t)umakit_add_and_clamp(umakit_saturate(sum), output_offset, lowest,
                                                 highest);
    }
    return 0;
}

int32_t all_qfloat32_product(const int8_t *left, const int8_t *right, int8_t *result,
                             int32_t elements, int32_t left_offset, int32_t right_offset,
                             int64_t factor, int64_t constant, int32_t fraction_bits,
                             int32_t output_offset, int32_t scalar, int32_t plain,
                             int32_t output_zero_point, int32_t lowest, int32_t highest,
                             int32_t rounding)
{
    int32_t i;

    (void)output_zero_point;
    (void)rounding;
    (void)scalar;
    for (i = 0; i < elements; ++i) {
        const int64_t product = (left[i] + left_offset) * (right[i] + right_offset) * factor;
        const int64_t value =
            plain ? (product + constant) >> fraction_bits
                  : umakit_divide_to_even(umakit_round_to_float32(
                                              umakit_round_to_float32(product) + constant),
                                          fraction_bits);
        result[i] = (int8_t)umakit_add_and_clamp(umakit_saturate(value), output_offset, lowest,
                                                 highest);
    }
    return 0;
}

int32_t all_qpad(const int8_t *data, int8_t *result, int32_t data_0, int32_t data_1, int32_t data_2,
                 int32_t data_3, int32_t before_0, int32_t before_1, int32_t before_2,
                 int32_t before_3, int32_t after_0, int32_t after_1, int32_t after_2,
                 int32_t after_3, int32_t pad_value)
{
    int32_t a, b, c, d;

    for (a = -before_0; a < data_0 + after_0; ++a) {
        for (b = -before_1; b < data_1 + after_1; ++b) {
            for (c = -before_2; c < data_2 + after_2; ++c) {
                for (d = -before_3; d < data_3 + after_3; ++d) {
                    const int inside = a >= 0 && a < data_0 && b >= 0 && b < data_1 && c >= 0 &&
                                       c < data_2 && d >= 0 && d < data_3;
                    *result++ = inside ? data[((a * data_1 + b) * data_2 + c) * data_3 + d]
                                       : (int8_t)pad_value;
                }
            }
        }
    }
    return 0;
}

int32_t all_qconcatenation(const int8_t *operand_0, const int8_t *operand_1,
                           const int8_t *operand_2, int8_t *result, int32_t outer, int32_t length_0,
                           int32_t length_1, int32_t length_2)
{
    int32_t o, i;

    for (o = 0; o < outer; ++o) {
        for (i = 0; i < length_0; ++i) {
            *result++ = *operand_0++;
        }
        for (i = 0; i < length_1; ++i) {
            *result++ = *operand_1++;
        }
        for (i = 0; i < length_2; ++i) {
            *result++ = *operand_2++;
        }
    }
    return 0;
}
