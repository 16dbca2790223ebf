/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums of products of 8-bit integers for processors with instructions for them: what all sets of
 * instructions share, in plain C.
 *
 * Kernels of convolutions and matrix products copy the windows of a few positions of the result
 * next to each other (im2col of some positions) and multiply them with the weights of blocks of
 * output channels:
 *
 *     sums[position][channel] = window[position][0] * weights[channel][0] + ...
 *
 * Each set of instructions, a form, has a header `dot_products_FORM.h` with the functions
 * umakit_FORM_products, umakit_FORM_depthwise_TYPE and umakit_FORM_results_ROUNDING_TYPE, and an
 * order of weights of its own: [channels / CHANNELS][elements / GROUP][CHANNELS][GROUP], where
 * windows are filled up with zeros to a multiple of ELEMENTS, and channels to one of CHANNELS:
 *
 *     form    window  positions  CHANNELS  GROUP  ELEMENTS
 *     smlad   int16           2         2      4         4  DSP extension of Arm
 *     avx2    int16           4        16      2         2  AVX2 of x86-64
 *     vnni    uint8           4        32      4         4  AVX-512 VNNI of x86-64
 *     sdot    int8            4         8      4        16  dot product of 64-bit Arm
 *     mve     int8            2         2    all         1  Helium of Arm
 *     rvv     int8            4        16      1         1  vectors of RISC-V
 *
 * Without the instructions of a form, or with UMAKIT_PLAIN_DOT_PRODUCTS, its functions are those
 * here. Sums wrap around at 32 bits, as the instructions let them.
 */
#ifndef UMAKIT_DOT_PRODUCTS_H
#define UMAKIT_DOT_PRODUCTS_H

#include "requantize.h"

#include <stdint.h>
#include <string.h>

/* Parameters of functions that all forms have, described at those in plain C. */
#define UMAKIT_PRODUCTS_PARAMETERS(WINDOW)                                                         \
    int32_t *restrict sums, int32_t sums_step, const WINDOW##_t *restrict windows,                 \
        int32_t windows_step, int32_t positions, const int8_t *restrict weights,                   \
        int32_t elements, int32_t blocks

#define UMAKIT_DEPTHWISE_PARAMETERS(TYPE)                                                          \
    int32_t *restrict sums, const TYPE##_t *restrict data, int32_t row_step, int32_t column_step,  \
        const int8_t *restrict weights, int32_t rows, int32_t columns, int32_t channels

#define UMAKIT_RESULTS_PARAMETERS(TYPE)                                                            \
    TYPE##_t *restrict results, const int32_t *restrict sums, int32_t count,                       \
        const int32_t *restrict bias, const int32_t *restrict multipliers,                         \
        const int8_t *restrict shifts, int32_t step, int32_t zero_point, int32_t lowest,           \
        int32_t highest

#define UMAKIT_ADD_PARAMETERS(TYPE)                                                                \
    TYPE##_t *results, const TYPE##_t *left, const TYPE##_t *right, int32_t count,                 \
        int32_t left_zero_point, int32_t right_zero_point, int32_t left_shift,                     \
        int32_t left_multiplier, int32_t left_factor_shift, int32_t right_multiplier,              \
        int32_t right_factor_shift, int32_t multiplier, int32_t shift, int32_t zero_point,         \
        int32_t lowest, int32_t highest

/* --- copies of data --------------------------------------------------------------------------- */

/* to[i] = from[i]; as int8_t, 128 is subtracted from uint8_t, and added the other way. */
#define UMAKIT_PLAIN_COPY(FROM, TO, LESS)                                                          \
    static inline void umakit_plain_copy_##FROM##_##TO(TO##_t *restrict to,                        \
                                                       const FROM##_t *restrict from,              \
                                                       int32_t count)                              \
    {                                                                                              \
        int32_t i;                                                                                 \
                                                                                                   \
        for (i = 0; i < count; ++i) {                                                              \
            to[i] = (TO##_t)(from[i] - (LESS));                                                    \
        }                                                                                          \
    }

UMAKIT_PLAIN_COPY(int8, int8, 0)
UMAKIT_PLAIN_COPY(uint8, int8, 128)
UMAKIT_PLAIN_COPY(uint8, uint8, 0)
UMAKIT_PLAIN_COPY(int8, uint8, -128)
UMAKIT_PLAIN_COPY(int8, int16, 0)
UMAKIT_PLAIN_COPY(uint8, int16, 0)
#undef UMAKIT_PLAIN_COPY

/* to[i] = value. */
#define UMAKIT_PLAIN_FILL(TYPE)                                                                    \
    static inline void umakit_plain_fill_##TYPE(TYPE##_t *restrict to, int32_t count,              \
                                                int32_t value)                                     \
    {                                                                                              \
        int32_t i;                                                                                 \
                                                                                                   \
        for (i = 0; i < count; ++i) {                                                              \
            to[i] = (TYPE##_t)value;                                                               \
        }                                                                                          \
    }

UMAKIT_PLAIN_FILL(int8)
UMAKIT_PLAIN_FILL(uint8)
UMAKIT_PLAIN_FILL(int16)
#undef UMAKIT_PLAIN_FILL

/* --- sums ------------------------------------------------------------------------------------- */

/* Sums of products of one window with `blocks` blocks of weights. With `swapped` the two inner
 * weights of each group of four are exchanged. */
#define UMAKIT_PLAIN_PRODUCTS(TYPE)                                                                \
    static inline void umakit_plain_products_##TYPE(                                               \
        int32_t *restrict sums, const TYPE##_t *restrict window, const int8_t *restrict weights,   \
        int32_t elements, int32_t blocks, int32_t channels, int32_t group, int32_t swapped)        \
    {                                                                                              \
        int32_t channel;                                                                           \
                                                                                                   \
        for (channel = 0; channel < blocks * channels; ++channel) {                                \
            const int32_t block = channel / channels;                                              \
            const int8_t *const first =                                                            \
                weights + block * channels * elements + channel % channels * group;                \
            uint32_t sum = 0;                                                                      \
            int32_t i;                                                                             \
                                                                                                   \
            for (i = 0; i < elements; ++i) {                                                       \
                const int32_t within = i % group;                                                  \
                const int32_t inner = swapped != 0 && (within == 1 || within == 2);                \
                const int32_t place = inner != 0 ? 3 - within : within;                            \
                                                                                                   \
                sum += (uint32_t)(window[i] * (int32_t)first[(i - within) * channels + place]);    \
            }                                                                                      \
            sums[channel] = (int32_t)sum;                                                          \
        }                                                                                          \
    }

UMAKIT_PLAIN_PRODUCTS(int8)
UMAKIT_PLAIN_PRODUCTS(uint8)
UMAKIT_PLAIN_PRODUCTS(int16)
#undef UMAKIT_PLAIN_PRODUCTS

/* Sums of products of each channel with weights of its own, over a window of rows and columns.
 * Steps are distances in the data. Weights are [elements / group][channels][group], filled up with
 * zeros. */
#define UMAKIT_PLAIN_DEPTHWISE(TYPE)                                                               \
    static inline void umakit_plain_depthwise_##TYPE(                                              \
        UMAKIT_DEPTHWISE_PARAMETERS(TYPE), int32_t group)                                          \
    {                                                                                              \
        int32_t channel;                                                                           \
                                                                                                   \
        for (channel = 0; channel < channels; ++channel) {                                         \
            uint32_t sum = 0;                                                                      \
            int32_t row;                                                                           \
            int32_t column;                                                                        \
                                                                                                   \
            for (row = 0; row < rows; ++row) {                                                     \
                for (column = 0; column < columns; ++column) {                                     \
                    const int32_t i = row * columns + column;                                      \
                    const int32_t place = (i / group * channels + channel) * group + i % group;    \
                                                                                                   \
                    sum += (uint32_t)(data[row * row_step + column * column_step + channel] *      \
                                      (int32_t)weights[place]);                                    \
                }                                                                                  \
            }                                                                                      \
            sums[channel] = (int32_t)sum;                                                          \
        }                                                                                          \
    }

UMAKIT_PLAIN_DEPTHWISE(int8)
UMAKIT_PLAIN_DEPTHWISE(uint8)
#undef UMAKIT_PLAIN_DEPTHWISE

/* --- results ---------------------------------------------------------------------------------- */

/* results[i] = sums[i] + bias[i], rescaled by multipliers[i * step] and shifts[i * step], plus the
 * zero point, limited. */
#define UMAKIT_PLAIN_RESULTS(ROUNDING, TYPE)                                                       \
    static inline void umakit_plain_results_##ROUNDING##_##TYPE(                                   \
        UMAKIT_RESULTS_PARAMETERS(TYPE))                                                           \
    {                                                                                              \
        int32_t i;                                                                                 \
                                                                                                   \
        for (i = 0; i < count; ++i) {                                                              \
            const int32_t sum = (int32_t)((uint32_t)sums[i] + (uint32_t)bias[i]);                  \
            const int32_t scaled =                                                                 \
                umakit_requantize_##ROUNDING(sum, multipliers[i * step], shifts[i * step]);        \
                                                                                                   \
            results[i] = (TYPE##_t)umakit_add_and_clamp(scaled, zero_point, lowest, highest);      \
        }                                                                                          \
    }

UMAKIT_PLAIN_RESULTS(tflm, int8)
UMAKIT_PLAIN_RESULTS(tflm, uint8)
UMAKIT_PLAIN_RESULTS(ort, int8)
UMAKIT_PLAIN_RESULTS(ort, uint8)
#undef UMAKIT_PLAIN_RESULTS

/* --- additions -------------------------------------------------------------------------------- */

/* results[i] = left[i] + right[i], both brought to a common scale, rescaled and limited: `add` of
 * TensorFlow Lite (kernels/internal/reference/add.h). Results may lie where an operand does. */
#define UMAKIT_PLAIN_ADD(TYPE)                                                                     \
    static inline void umakit_plain_add_tflm_##TYPE(                                               \
        UMAKIT_ADD_PARAMETERS(TYPE))                                                               \
    {                                                                                              \
        int32_t i;                                                                                 \
                                                                                                   \
        for (i = 0; i < count; ++i) {                                                              \
            const int32_t first = (left[i] - left_zero_point) * (INT32_C(1) << left_shift);        \
            const int32_t second = (right[i] - right_zero_point) * (INT32_C(1) << left_shift);     \
            const int32_t sum =                                                                    \
                umakit_requantize_tflm(first, left_multiplier, left_factor_shift) +                \
                umakit_requantize_tflm(second, right_multiplier, right_factor_shift);              \
                                                                                                   \
            results[i] = (TYPE##_t)umakit_add_and_clamp(                                           \
                umakit_requantize_tflm(sum, multiplier, shift), zero_point, lowest, highest);      \
        }                                                                                          \
    }

UMAKIT_PLAIN_ADD(int8)
UMAKIT_PLAIN_ADD(uint8)
#undef UMAKIT_PLAIN_ADD

/* A function that is not inlined: what a kernel keeps in registers for its results would otherwise
 * take registers from sums. */
#if defined(__GNUC__) || defined(__clang__)
#define UMAKIT_OWN_REGISTERS static __attribute__((noinline, unused))
#else
#define UMAKIT_OWN_REGISTERS static inline
#endif

/* Blocks of weights with all windows at once if these are four, else with each by itself. */
#define UMAKIT_PRODUCTS_BY_FOUR(FORM, WINDOW, CHANNELS)                                            \
    UMAKIT_OWN_REGISTERS void umakit_##FORM##_products(UMAKIT_PRODUCTS_PARAMETERS(WINDOW))         \
    {                                                                                              \
        int32_t block;                                                                             \
                                                                                                   \
        for (block = 0; block < blocks; ++block) {                                                 \
            if (positions == 4) {                                                                  \
                umakit_##FORM##_four(sums, sums_step, windows, windows_step, weights, elements);   \
            } else {                                                                               \
                int32_t position;                                                                  \
                                                                                                   \
                for (position = 0; position < positions; ++position) {                             \
                    umakit_##FORM##_one(sums + position * sums_step,                               \
                                        windows + position * windows_step, weights, elements);     \
                }                                                                                  \
            }                                                                                      \
            sums += CHANNELS;                                                                      \
            weights += elements * CHANNELS;                                                        \
        }                                                                                          \
    }

/* --- forms without their instructions --------------------------------------------------------- */

#define UMAKIT_PLAIN_PRODUCTS_OF(FORM, WINDOW, CHANNELS, GROUP, SWAPPED)                           \
    static inline void umakit_##FORM##_products(UMAKIT_PRODUCTS_PARAMETERS(WINDOW))                \
    {                                                                                              \
        int32_t position;                                                                          \
                                                                                                   \
        for (position = 0; position < positions; ++position) {                                     \
            umakit_plain_products_##WINDOW(sums + position * sums_step,                            \
                                           windows + position * windows_step, weights, elements,   \
                                           blocks, CHANNELS, GROUP, SWAPPED);                      \
        }                                                                                          \
    }

#define UMAKIT_PLAIN_COPY_OF(FORM, WINDOW, TYPE)                                                   \
    static inline void umakit_##FORM##_copy_##TYPE(WINDOW##_t *restrict to,                        \
                                                   const TYPE##_t *restrict from, int32_t count)   \
    {                                                                                              \
        umakit_plain_copy_##TYPE##_##WINDOW(to, from, count);                                      \
    }

#define UMAKIT_PLAIN_COPIES_OF(FORM, WINDOW)                                                       \
    UMAKIT_PLAIN_COPY_OF(FORM, WINDOW, int8)                                                       \
    UMAKIT_PLAIN_COPY_OF(FORM, WINDOW, uint8)

#define UMAKIT_PLAIN_DEPTHWISE_OF(FORM, TYPE, GROUP)                                               \
    static inline void umakit_##FORM##_depthwise_##TYPE(UMAKIT_DEPTHWISE_PARAMETERS(TYPE))         \
    {                                                                                              \
        umakit_plain_depthwise_##TYPE(sums, data, row_step, column_step, weights, rows, columns,   \
                                      channels, GROUP);                                            \
    }

#define UMAKIT_PLAIN_SUMS_OF(FORM, WINDOW, CHANNELS, GROUP, SWAPPED, DEPTHWISE_GROUP)              \
    UMAKIT_PLAIN_PRODUCTS_OF(FORM, WINDOW, CHANNELS, GROUP, SWAPPED)                               \
    UMAKIT_PLAIN_COPIES_OF(FORM, WINDOW)                                                           \
    UMAKIT_PLAIN_DEPTHWISE_OF(FORM, int8, DEPTHWISE_GROUP)                                         \
    UMAKIT_PLAIN_DEPTHWISE_OF(FORM, uint8, DEPTHWISE_GROUP)

#define UMAKIT_PLAIN_TYPED_RESULTS_OF(FORM, ROUNDING, TYPE)                                        \
    static inline void umakit_##FORM##_results_##ROUNDING##_##TYPE(                                \
        UMAKIT_RESULTS_PARAMETERS(TYPE))                                                           \
    {                                                                                              \
        umakit_plain_results_##ROUNDING##_##TYPE(results, sums, count, bias, multipliers, shifts,  \
                                                 step, zero_point, lowest, highest);               \
    }

#define UMAKIT_PLAIN_RESULTS_OF(FORM, ROUNDING)                                                    \
    UMAKIT_PLAIN_TYPED_RESULTS_OF(FORM, ROUNDING, int8)                                            \
    UMAKIT_PLAIN_TYPED_RESULTS_OF(FORM, ROUNDING, uint8)

#define UMAKIT_PLAIN_TYPED_ADD_OF(FORM, TYPE)                                                      \
    static inline void umakit_##FORM##_add_tflm_##TYPE(UMAKIT_ADD_PARAMETERS(TYPE))                \
    {                                                                                              \
        umakit_plain_add_tflm_##TYPE(results, left, right, count, left_zero_point,                 \
                                     right_zero_point, left_shift, left_multiplier,                \
                                     left_factor_shift, right_multiplier, right_factor_shift,      \
                                     multiplier, shift, zero_point, lowest, highest);              \
    }

#define UMAKIT_PLAIN_ADD_OF(FORM)                                                                  \
    UMAKIT_PLAIN_TYPED_ADD_OF(FORM, int8)                                                          \
    UMAKIT_PLAIN_TYPED_ADD_OF(FORM, uint8)

#endif /* UMAKIT_DOT_PRODUCTS_H */
