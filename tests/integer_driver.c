/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A driver for integer operators, as a hardware team would write it: plain
 * loops in the place of hardware, and arithmetic that shares nothing with
 * umakit's. It rounds as TensorFlow Lite Micro (0) or as ONNX Runtime (1).
 */
#include "integer_driver.h" /* what patterns.c_declaration prints */

#include <math.h>

#define UNSUPPORTED 7
#define ORT 1

/* round(value * multiplier / 2^31), ties up, then / 2^right, ties away from 0. */
static int64_t scaled_twice_rounded(int64_t value, int32_t multiplier, int32_t shift)
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

/* What ONNX Runtime does: a float32 sum, a float32 product, ties to even. */
static int64_t scaled_as_float(int64_t value, int32_t multiplier, int32_t shift)
{
    const float factor = ldexpf((float)multiplier, shift - 31);
    return llrintf((float)value * factor);
}

static int64_t scaled(int64_t value, int32_t multiplier, int32_t shift, int32_t rounding)
{
    return rounding == ORT ? scaled_as_float(value, multiplier, shift)
                           : scaled_twice_rounded(value, multiplier, shift);
}

static int8_t clipped(int64_t value, int32_t lowest, int32_t highest)
{
    if (value < lowest) {
        return (int8_t)lowest;
    }
    return (int8_t)(value > highest ? highest : value);
}

/* left + sign * right; element i of the result reads elements of the operands. */
struct sum {
    int32_t left_zero_point, right_zero_point, left_shift;
    int32_t left_multiplier, left_multiplier_shift, right_multiplier, right_multiplier_shift;
    int32_t multiplier, shift, output_zero_point, lowest, highest, rounding, sign;
};

static int8_t added(const struct sum *s, int8_t left, int8_t right)
{
    const int64_t up = INT64_C(1) << s->left_shift;
    const int64_t one = scaled((left - s->left_zero_point) * up, s->left_multiplier,
                               s->left_multiplier_shift, s->rounding);
    const int64_t other = scaled((right - s->right_zero_point) * up, s->right_multiplier,
                                 s->right_multiplier_shift, s->rounding);
    const int64_t total = scaled(one + s->sign * other, s->multiplier, s->shift, s->rounding);
    return clipped(total + s->output_zero_point, s->lowest, s->highest);
}

struct layer {
    const int8_t *data;
    const int8_t *weights;
    int32_t height, width, channels, kernel_height, kernel_width, per_group;
    int32_t outputs, input_zero_point;
    int form;
};

/* What differs between the functions below. */
#define PLAIN 0
#define BLOCKED 1        /* weights O/8 HWI 8o, the zero point in the bias */
#define CHANNELS_FIRST 2 /* data NCHW */

static int32_t weight_of(const struct layer *l, int32_t o, int32_t ky, int32_t kx, int32_t c)
{
    const int32_t place = (ky * l->kernel_width + kx) * l->per_group + c;
    const int32_t window = l->kernel_height * l->kernel_width * l->per_group;
    if (l->form & BLOCKED) {
        return l->weights[(o / 8 * window + place) * 8 + o % 8];
    }
    return l->weights[o * window + place]; /* OHWI */
}

/* Index of an element in the layout of the data. */
static int32_t place_of(int form, int32_t n, int32_t y, int32_t x, int32_t c, int32_t height,
                        int32_t width, int32_t channels)
{
    if (form & CHANNELS_FIRST) {
        return ((n * channels + c) * height + y) * width + x;
    }
    return ((n * height + y) * width + x) * channels + c;
}

static int32_t data_of(const struct layer *l, int32_t n, int32_t y, int32_t x, int32_t c)
{
    if (y < 0 || y >= l->height || x < 0 || x >= l->width) {
        return l->input_zero_point;
    }
    return l->data[place_of(l->form, n, y, x, c, l->height, l->width, l->channels)];
}

/* The arguments behind the pointers, in the order of their declaration. */
enum argument {
    BATCH, HEIGHT, WIDTH, INPUT_CHANNELS, OUTPUT_HEIGHT, OUTPUT_WIDTH, OUTPUT_CHANNELS,
    KERNEL_HEIGHT, KERNEL_WIDTH, STRIDE_Y, STRIDE_X, PAD_TOP, PAD_LEFT, PAD_BOTTOM, PAD_RIGHT,
    DILATION_Y, DILATION_X, GROUPS, SCALES, INPUT_ZERO_POINT, OUTPUT_ZERO_POINT, LOWEST, HIGHEST,
    ROUNDING, ARGUMENTS
};

/* A second change of scale; `multiplier` 0 stands for none. */
struct change {
    int32_t multiplier, shift, input_zero_point, output_zero_point, lowest, highest;
};

static int32_t changed(int32_t value, const struct change *then, int32_t rounding)
{
    if (then->multiplier == 0) {
        return value;
    }
    return clipped(scaled(value - then->input_zero_point, then->multiplier, then->shift, rounding) +
                       then->output_zero_point,
                   then->lowest, then->highest);
}

static int convolve(int form, const int8_t *data, const int8_t *weights, const int32_t *bias,
                    const int32_t *multipliers, const int8_t *shifts, int8_t *result,
                    const int32_t *a, const int8_t *addend, const struct sum *sum_of,
                    const struct change *then)
{
    const int32_t rows = a[OUTPUT_HEIGHT], columns = a[OUTPUT_WIDTH], outputs = a[OUTPUT_CHANNELS];
    const int32_t groups = a[GROUPS], scales = a[SCALES], zero_point = a[INPUT_ZERO_POINT];
    struct layer l = {data, weights, a[HEIGHT], a[WIDTH], a[INPUT_CHANNELS], a[KERNEL_HEIGHT],
                      a[KERNEL_WIDTH], 0, outputs, zero_point, form};
    int32_t n, y, x, o, ky, kx, c;

    if (a[ROUNDING] > ORT || l.channels % groups != 0 || (scales != 1 && scales != outputs)) {
        return UNSUPPORTED;
    }
    l.per_group = l.channels / groups;
    for (n = 0; n < a[BATCH]; ++n) {
        for (y = 0; y < rows; ++y) {
            for (x = 0; x < columns; ++x) {
                for (o = 0; o < outputs; ++o) {
                    const int32_t first = o / (outputs / groups) * l.per_group;
                    const int32_t s = scales > 1 ? o : 0;
                    const int32_t subtracted = form & BLOCKED ? 0 : zero_point;
                    int64_t sum = bias[o];
                    for (ky = 0; ky < l.kernel_height; ++ky) {
                        for (kx = 0; kx < l.kernel_width; ++kx) {
                            for (c = 0; c < l.per_group; ++c) {
                                const int32_t iy =
                                    y * a[STRIDE_Y] + ky * a[DILATION_Y] - a[PAD_TOP];
                                const int32_t ix =
                                    x * a[STRIDE_X] + kx * a[DILATION_X] - a[PAD_LEFT];
                                const int32_t value = data_of(&l, n, iy, ix, first + c);
                                sum += (int64_t)(value - subtracted) * weight_of(&l, o, ky, kx, c);
                            }
                        }
                    }
                    sum = clipped(scaled(sum, multipliers[s], shifts[s], a[ROUNDING]) +
                                      a[OUTPUT_ZERO_POINT],
                                  a[LOWEST], a[HIGHEST]);
                    const int32_t place = place_of(form, n, y, x, o, rows, columns, outputs);
                    if (addend) {
                        sum = added(sum_of, (int8_t)sum, addend[place]);
                    }
                    result[place] = (int8_t)changed((int32_t)sum, then, a[ROUNDING]);
                }
            }
        }
    }
    return 0;
}

#define POINTERS                                                                               \
    const int8_t *data, const int8_t *weights, const int32_t *bias,                            \
        const int32_t *multipliers, const int8_t *shifts, int8_t *result
#define SCALARS                                                                                \
    int32_t batch, int32_t height, int32_t width, int32_t input_channels,                      \
        int32_t output_height, int32_t output_width, int32_t output_channels,                  \
        int32_t kernel_height, int32_t kernel_width, int32_t stride_y, int32_t stride_x,       \
        int32_t pad_top, int32_t pad_left, int32_t pad_bottom, int32_t pad_right,              \
        int32_t dilation_y, int32_t dilation_x, int32_t groups, int32_t scales,                \
        int32_t input_zero_point, int32_t output_zero_point, int32_t lowest, int32_t highest,  \
        int32_t rounding
#define SCALAR_VALUES                                                                          \
    {batch, height, width, input_channels, output_height, output_width, output_channels,       \
     kernel_height, kernel_width, stride_y, stride_x, pad_top, pad_left, pad_bottom,           \
     pad_right, dilation_y, dilation_x, groups, scales, input_zero_point, output_zero_point,   \
     lowest, highest, rounding}

#define CONVOLUTION(name, form)                                                                \
    int32_t name(POINTERS, SCALARS)                                                            \
    {                                                                                          \
        const int32_t arguments[ARGUMENTS] = SCALAR_VALUES;                                    \
        const struct change none = {0, 0, 0, 0, 0, 0};                                         \
        return convolve(form, data, weights, bias, multipliers, shifts, result, arguments, 0,  \
                        0, &none);                                                             \
    }

CONVOLUTION(npu_qconv2d, PLAIN)
CONVOLUTION(npu_qconv2d_blocked, BLOCKED)
CONVOLUTION(npu_qconv2d_nchw, CHANNELS_FIRST)
CONVOLUTION(npu_qconv2d_blocked_nchw, BLOCKED | CHANNELS_FIRST)
CONVOLUTION(npu_qdepthwise, PLAIN)
CONVOLUTION(npu_qdepthwise_nchw, CHANNELS_FIRST)

/* With another tensor added to the result. */
#define CONVOLUTION_ADD(name, form)                                                            \
    int32_t name(const int8_t *data, const int8_t *addend, const int8_t *weights,              \
                 const int32_t *bias, const int32_t *multipliers, const int8_t *shifts,        \
                 int8_t *result, SCALARS, int32_t add_left_shift,                              \
                 int32_t convolution_multiplier, int32_t convolution_shift,                    \
                 int32_t addend_zero_point, int32_t addend_multiplier, int32_t addend_shift,   \
                 int32_t sum_multiplier, int32_t sum_shift, int32_t sum_zero_point,            \
                 int32_t sum_lowest, int32_t sum_highest)                                      \
    {                                                                                          \
        const int32_t arguments[ARGUMENTS] = SCALAR_VALUES;                                    \
        const struct change none = {0, 0, 0, 0, 0, 0};                                         \
        const struct sum sum = {output_zero_point, addend_zero_point, add_left_shift,          \
                                convolution_multiplier, convolution_shift, addend_multiplier,  \
                                addend_shift, sum_multiplier, sum_shift, sum_zero_point,       \
                                sum_lowest, sum_highest, rounding, 1};                         \
        return convolve(form, data, weights, bias, multipliers, shifts, result, arguments,     \
                        addend, &sum, &none);                                                  \
    }

CONVOLUTION_ADD(npu_qconv2d_add, PLAIN)
CONVOLUTION_ADD(npu_qconv2d_add_blocked, BLOCKED)
CONVOLUTION_ADD(npu_qconv2d_add_blocked_nchw, BLOCKED | CHANNELS_FIRST)

/* With a second change of scale. */
int32_t npu_qconv2d_then(POINTERS, SCALARS, int32_t then_multiplier, int32_t then_shift,
                         int32_t then_input_zero_point, int32_t then_output_zero_point,
                         int32_t then_lowest, int32_t then_highest)
{
    const int32_t arguments[ARGUMENTS] = SCALAR_VALUES;
    const struct change then = {then_multiplier,         then_shift,  then_input_zero_point,
                                then_output_zero_point, then_lowest, then_highest};
    return convolve(PLAIN, data, weights, bias, multipliers, shifts, result, arguments, 0, 0,
                    &then);
}

int32_t npu_qdense(const int8_t *data, const int8_t *weights, const int32_t *bias,
                   const int32_t *multipliers, const int8_t *shifts, int8_t *result,
                   int32_t rows, int32_t inputs, int32_t outputs, int32_t scales,
                   int32_t input_zero_point, int32_t output_zero_point, int32_t lowest,
                   int32_t highest, int32_t rounding)
{
    int32_t row, o, i;

    if (rounding > ORT) {
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
                scaled(sum, multipliers[s], shifts[s], rounding) + output_zero_point, lowest, highest);
        }
    }
    return 0;
}

#define SUM_SCALARS                                                                            \
    int32_t left_zero_point, int32_t right_zero_point, int32_t left_shift,                     \
        int32_t left_multiplier, int32_t left_multiplier_shift, int32_t right_multiplier,      \
        int32_t right_multiplier_shift, int32_t multiplier, int32_t shift,                     \
        int32_t output_zero_point, int32_t lowest, int32_t highest, int32_t rounding
#define SUM_VALUES(sign)                                                                       \
    {left_zero_point, right_zero_point, left_shift, left_multiplier, left_multiplier_shift,    \
     right_multiplier, right_multiplier_shift, multiplier, shift, output_zero_point, lowest,   \
     highest, rounding, sign}

#define SUM(name, sign)                                                                        \
    int32_t name(const int8_t *left, const int8_t *right, int8_t *result, int32_t elements,    \
                 SUM_SCALARS)                                                                  \
    {                                                                                          \
        const struct sum s = SUM_VALUES(sign);                                                 \
        int32_t i;                                                                             \
        if (rounding > ORT) {                                                                  \
            return UNSUPPORTED;                                                                \
        }                                                                                      \
        for (i = 0; i < elements; ++i) {                                                       \
            result[i] = added(&s, left[i], right[i]);                                          \
        }                                                                                      \
        return 0;                                                                              \
    }

SUM(npu_qadd, 1)
SUM(npu_qsubtract, -1)

/* Steps through an operand that is repeated along axes of one element. */
static void strides_of(const int32_t *shape, int32_t *strides)
{
    int32_t axis, step = 1;

    for (axis = 3; axis >= 0; --axis) {
        strides[axis] = shape[axis] == 1 ? 0 : step;
        step *= shape[axis];
    }
}

int32_t npu_qadd_broadcast(const int8_t *left, const int8_t *right, int8_t *result, int32_t left_0,
                           int32_t left_1, int32_t left_2, int32_t left_3, int32_t right_0,
                           int32_t right_1, int32_t right_2, int32_t right_3, SUM_SCALARS)
{
    const struct sum s = SUM_VALUES(1);
    const int32_t left_shape[4] = {left_0, left_1, left_2, left_3};
    const int32_t right_shape[4] = {right_0, right_1, right_2, right_3};
    int32_t l[4], r[4], n[4], axis, i, j, k, m;

    if (rounding > ORT) {
        return UNSUPPORTED;
    }
    strides_of(left_shape, l);
    strides_of(right_shape, r);
    for (axis = 0; axis < 4; ++axis) {
        n[axis] = left_shape[axis] > right_shape[axis] ? left_shape[axis] : right_shape[axis];
    }
    for (i = 0; i < n[0]; ++i) {
        for (j = 0; j < n[1]; ++j) {
            for (k = 0; k < n[2]; ++k) {
                for (m = 0; m < n[3]; ++m) {
                    *result++ = added(&s, left[i * l[0] + j * l[1] + k * l[2] + m * l[3]],
                                      right[i * r[0] + j * r[1] + k * r[2] + m * r[3]]);
                }
            }
        }
    }
    return 0;
}

int32_t npu_qmultiply(const int8_t *left, const int8_t *right, int8_t *result, int32_t elements,
                      int32_t left_zero_point, int32_t right_zero_point, int32_t multiplier,
                      int32_t shift, int32_t output_zero_point, int32_t lowest, int32_t highest,
                      int32_t rounding)
{
    int32_t i;

    if (rounding > ORT) {
        return UNSUPPORTED;
    }
    for (i = 0; i < elements; ++i) {
        const int64_t product =
            (int64_t)(left[i] - left_zero_point) * (right[i] - right_zero_point);
        result[i] = clipped(scaled(product, multiplier, shift, rounding) + output_zero_point,
                            lowest, highest);
    }
    return 0;
}

/* A pool of either kind. */
static int32_t pooled(int average, int form, const int8_t *data, int8_t *result, const int32_t *a)
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
                                    data[place_of(form, n, iy, ix, c, a[1], a[2], a[3])];
                                sum += value;
                                count += 1;
                                largest = value > largest ? value : largest;
                            }
                        }
                    }
                    if (average) {
                        largest = (sum > 0 ? sum + count / 2 : sum - count / 2) / count;
                    }
                    result[place_of(form, n, y, x, c, a[4], a[5], a[3])] =
                        clipped(largest, a[12], a[13]);
                }
            }
        }
    }
    return 0;
}

#define POOL(name, average, form)                                                              \
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
        return pooled(average, form, data, result, arguments);                                 \
    }

POOL(npu_qavg_pool2d, 1, PLAIN)
POOL(npu_qmax_pool2d, 0, PLAIN)
POOL(npu_qmax_pool2d_nchw, 0, CHANNELS_FIRST)

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
