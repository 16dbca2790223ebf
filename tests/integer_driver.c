/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A driver for integer operators, as a hardware team would write it: plain
 * loops in the place of hardware, and arithmetic that shares nothing with
 * umakit's. It rounds as TensorFlow Lite Micro.
 */
#include "integer_driver.h" /* what patterns.c_declaration prints */

#define UNSUPPORTED 7

/* round(value * multiplier / 2^31), ties up, then / 2^right, ties away from 0. */
static int64_t scaled(int64_t value, int32_t multiplier, int32_t shift)
{
    const int32_t left = shift > 0 ? shift : 0;
    const int32_t right = shift < 0 ? -shift : 0;
    const int64_t divisor = INT64_C(1) << right;
    const int64_t product = value * (INT64_C(1) << left) * multiplier;
    /* Division truncates: make it a floor. */
    const int64_t doubled = product + (INT64_C(1) << 30);
    int64_t high = doubled / (INT64_C(1) << 31);
    if (doubled % (INT64_C(1) << 31) < 0) {
        high -= 1;
    }
    if (high < 0) {
        return -((-high + divisor / 2) / divisor);
    }
    return (high + divisor / 2) / divisor;
}

static int8_t clipped(int64_t value, int32_t lowest, int32_t highest)
{
    if (value < lowest) {
        return (int8_t)lowest;
    }
    return (int8_t)(value > highest ? highest : value);
}

/* The sum of a window; weights are found by the caller's function. */
struct layer {
    const int8_t *data;
    const int8_t *weights;
    int32_t height, width, channels, kernel_height, kernel_width, per_group;
    int32_t outputs, input_zero_point;
    int blocked;
};

static int32_t weight_of(const struct layer *l, int32_t o, int32_t ky, int32_t kx, int32_t c)
{
    const int32_t place = (ky * l->kernel_width + kx) * l->per_group + c;
    const int32_t window = l->kernel_height * l->kernel_width * l->per_group;
    if (l->blocked) { /* O/8 HWI 8o */
        return l->weights[(o / 8 * window + place) * 8 + o % 8];
    }
    return l->weights[o * window + place]; /* OHWI */
}

static int32_t data_of(const struct layer *l, int32_t n, int32_t y, int32_t x, int32_t c)
{
    if (y < 0 || y >= l->height || x < 0 || x >= l->width) {
        return l->input_zero_point;
    }
    return l->data[((n * l->height + y) * l->width + x) * l->channels + c];
}

static int convolve(int blocked, const int8_t *data, const int8_t *weights, const int32_t *bias,
                    const int32_t *multipliers, const int8_t *shifts, int8_t *result,
                    const int32_t *a)
{
    const int32_t batch = a[0], rows = a[4], columns = a[5], outputs = a[6];
    const int32_t groups = a[17], scales = a[18], input_zero_point = a[19];
    struct layer l = {data, weights, a[1], a[2], a[3], a[7], a[8], 0, outputs, 0, blocked};
    int32_t n, y, x, o, ky, kx, c;

    if (a[23] != 0 || a[3] % groups != 0 || (scales != 1 && scales != outputs)) {
        return UNSUPPORTED;
    }
    l.per_group = a[3] / groups;
    l.input_zero_point = input_zero_point;
    for (n = 0; n < batch; ++n) {
        for (y = 0; y < rows; ++y) {
            for (x = 0; x < columns; ++x) {
                for (o = 0; o < outputs; ++o) {
                    const int32_t first = o / (outputs / groups) * l.per_group;
                    const int32_t s = scales > 1 ? o : 0;
                    int64_t sum = bias[o];
                    for (ky = 0; ky < l.kernel_height; ++ky) {
                        for (kx = 0; kx < l.kernel_width; ++kx) {
                            for (c = 0; c < l.per_group; ++c) {
                                const int32_t value =
                                    data_of(&l, n, y * a[9] + ky * a[15] - a[11],
                                            x * a[10] + kx * a[16] - a[12], first + c);
                                /* Blocked weights come with a bias that holds the zero point. */
                                sum += (int64_t)(value - (blocked ? 0 : input_zero_point)) *
                                       weight_of(&l, o, ky, kx, c);
                            }
                        }
                    }
                    result[((n * rows + y) * columns + x) * outputs + o] = clipped(
                        scaled(sum, multipliers[s], shifts[s]) + a[20], a[21], a[22]);
                }
            }
        }
    }
    return 0;
}

#define CONVOLUTION(name, blocked)                                                             \
    int32_t name(const int8_t *data, const int8_t *weights, const int32_t *bias,               \
                 const int32_t *multipliers, const int8_t *shifts, int8_t *result,             \
                 int32_t batch, int32_t height, int32_t width, int32_t input_channels,         \
                 int32_t output_height, int32_t output_width, int32_t output_channels,         \
                 int32_t kernel_height, int32_t kernel_width, int32_t stride_y,                \
                 int32_t stride_x, int32_t pad_top, int32_t pad_left, int32_t pad_bottom,      \
                 int32_t pad_right, int32_t dilation_y, int32_t dilation_x, int32_t groups,    \
                 int32_t scales, int32_t input_zero_point, int32_t output_zero_point,          \
                 int32_t lowest, int32_t highest, int32_t rounding)                            \
    {                                                                                          \
        const int32_t arguments[24] = {                                                        \
            batch,         height,       width,        input_channels, output_height,          \
            output_width,  output_channels, kernel_height, kernel_width, stride_y,             \
            stride_x,      pad_top,      pad_left,     pad_bottom,     pad_right,              \
            dilation_y,    dilation_x,   groups,       scales,         input_zero_point,       \
            output_zero_point, lowest,   highest,      rounding};                              \
        return convolve(blocked, data, weights, bias, multipliers, shifts, result, arguments); \
    }

CONVOLUTION(npu_qconv2d, 0)
CONVOLUTION(npu_qconv2d_blocked, 1)
CONVOLUTION(npu_qdepthwise, 0)

int32_t npu_qdense(const int8_t *data, const int8_t *weights, const int32_t *bias,
                   const int32_t *multipliers, const int8_t *shifts, int8_t *result,
                   int32_t rows, int32_t inputs, int32_t outputs, int32_t scales,
                   int32_t input_zero_point, int32_t output_zero_point, int32_t lowest,
                   int32_t highest, int32_t rounding)
{
    int32_t row, o, i;

    if (rounding != 0) {
        return UNSUPPORTED;
    }
    for (row = 0; row < rows; ++row) {
        for (o = 0; o < outputs; ++o) {
            const int32_t s = scales > 1 ? o : 0;
            int64_t sum = bias[o];
            for (i = 0; i < inputs; ++i) { /* the weights are IO */
                sum += (int64_t)(data[row * inputs + i] - input_zero_point) *
                       weights[i * outputs + o];
            }
            result[row * outputs + o] = clipped(
                scaled(sum, multipliers[s], shifts[s]) + output_zero_point, lowest, highest);
        }
    }
    return 0;
}

int32_t npu_qadd(const int8_t *left, const int8_t *right, int8_t *result, int32_t elements,
                 int32_t left_zero_point, int32_t right_zero_point, int32_t left_shift,
                 int32_t left_multiplier, int32_t left_multiplier_shift,
                 int32_t right_multiplier, int32_t right_multiplier_shift, int32_t multiplier,
                 int32_t shift, int32_t output_zero_point, int32_t lowest, int32_t highest,
                 int32_t rounding)
{
    const int64_t up = INT64_C(1) << left_shift;
    int32_t i;

    if (rounding != 0) {
        return UNSUPPORTED;
    }
    for (i = 0; i < elements; ++i) {
        const int64_t sum =
            scaled((left[i] - left_zero_point) * up, left_multiplier, left_multiplier_shift) +
            scaled((right[i] - right_zero_point) * up, right_multiplier, right_multiplier_shift);
        result[i] = clipped(scaled(sum, multiplier, shift) + output_zero_point, lowest, highest);
    }
    return 0;
}

int32_t npu_qmultiply(const int8_t *left, const int8_t *right, int8_t *result, int32_t elements,
                      int32_t left_zero_point, int32_t right_zero_point, int32_t multiplier,
                      int32_t shift, int32_t output_zero_point, int32_t lowest, int32_t highest,
                      int32_t rounding)
{
    int32_t i;

    if (rounding != 0) {
        return UNSUPPORTED;
    }
    for (i = 0; i < elements; ++i) {
        const int64_t product =
            (int64_t)(left[i] - left_zero_point) * (right[i] - right_zero_point);
        result[i] =
            clipped(scaled(product, multiplier, shift) + output_zero_point, lowest, highest);
    }
    return 0;
}

/* A pool of either kind. */
static int32_t pooled(int average, const int8_t *data, int8_t *result, const int32_t *a)
{
    int32_t n, y, x, c, wy, wx;

    for (n = 0; n < a[0]; ++n) {
        for (y = 0; y < a[4]; ++y) {
            for (x = 0; x < a[5]; ++x) {
                for (c = 0; c < a[3]; ++c) {
                    int32_t sum = 0, count = 0, largest = -128;
                    for (wy = 0; wy < a[6]; ++wy) {
                        for (wx = 0; wx < a[7]; ++wx) {
                            const int32_t iy = y * a[8] + wy - a[10];
                            const int32_t ix = x * a[9] + wx - a[11];
                            if (iy >= 0 && iy < a[1] && ix >= 0 && ix < a[2]) {
                                const int32_t value =
                                    data[((n * a[1] + iy) * a[2] + ix) * a[3] + c];
                                sum += value;
                                count += 1;
                                largest = value > largest ? value : largest;
                            }
                        }
                    }
                    if (average) {
                        largest = (sum > 0 ? sum + count / 2 : sum - count / 2) / count;
                    }
                    result[((n * a[4] + y) * a[5] + x) * a[3] + c] =
                        clipped(largest, a[12], a[13]);
                }
            }
        }
    }
    return 0;
}

#define POOL(name, average)                                                                    \
    int32_t name(const int8_t *data, int8_t *result, int32_t batch, int32_t height,            \
                 int32_t width, int32_t channels, int32_t output_height, int32_t output_width, \
                 int32_t window_height, int32_t window_width, int32_t stride_y,                \
                 int32_t stride_x, int32_t pad_top, int32_t pad_left, int32_t pad_bottom,      \
                 int32_t pad_right, int32_t output_zero_point, int32_t lowest,                 \
                 int32_t highest, int32_t rounding)                                            \
    {                                                                                          \
        const int32_t arguments[14] = {batch,        height,        width,        channels,    \
                                       output_height, output_width, window_height,             \
                                       window_width, stride_y,      stride_x,     pad_top,     \
                                       pad_left,     lowest,        highest};                  \
        (void)pad_bottom;                                                                      \
        (void)pad_right;                                                                       \
        (void)output_zero_point;                                                               \
        (void)rounding;                                                                        \
        return pooled(average, data, result, arguments);                                       \
    }

POOL(npu_qavg_pool2d, 1)
POOL(npu_qmax_pool2d, 0)

/* A device that fails. */
int32_t npu_broken(const int8_t *left, const int8_t *right, int8_t *result, int32_t elements,
                   int32_t left_zero_point, int32_t right_zero_point, int32_t multiplier,
                   int32_t shift, int32_t output_zero_point, int32_t lowest, int32_t highest,
                   int32_t rounding)
{
    (void)npu_qmultiply(left, right, result, elements, left_zero_point, right_zero_point,
                        multiplier, shift, output_zero_point, lowest, highest, rounding);
    return 42;
}
