/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of products with the vector extension of Arm's Cortex-M55 and M85 (Helium, MVE): see
 * dot_products.h. Windows are int8_t; VMLADAVA sums 16 products at once, for two channels of up to
 * two positions. Loops have tail predication, so windows and channels may have any size. */
#ifndef UMAKIT_DOT_PRODUCTS_MVE_H
#define UMAKIT_DOT_PRODUCTS_MVE_H

#include "dot_products.h"

#define UMAKIT_MVE_CHANNELS 2

#if defined(__ARM_FEATURE_MVE) && !defined(UMAKIT_PLAIN_DOT_PRODUCTS)

#include <arm_mve.h>

static inline void umakit_mve_two(int32_t *restrict sums, int32_t sums_step,
                                  const int8_t *restrict windows, int32_t windows_step,
                                  const int8_t *restrict weights, int32_t elements)
{
    const int8_t *first = windows;
    const int8_t *second = windows + windows_step;
    const int8_t *even = weights;
    const int8_t *odd = weights + elements;
    uint32_t a0 = 0, a1 = 0, b0 = 0, b1 = 0;

    __asm__ volatile(
        "   wlstp.8 lr, %[elements], 2f\n"
        "1: vldrb.8 q0, [%[first]], #16\n"
        "   vldrb.8 q2, [%[even]], #16\n"
        "   vmladava.s8 %[a0], q0, q2\n"
        "   vldrb.8 q1, [%[second]], #16\n"
        "   vmladava.s8 %[b0], q1, q2\n"
        "   vldrb.8 q3, [%[odd]], #16\n"
        "   vmladava.s8 %[a1], q0, q3\n"
        "   vmladava.s8 %[b1], q1, q3\n"
        "   letp lr, 1b\n"
        "2:\n"
        : [first] "+r"(first), [second] "+r"(second), [even] "+r"(even), [odd] "+r"(odd),
          [a0] "+Te"(a0), [a1] "+Te"(a1), [b0] "+Te"(b0), [b1] "+Te"(b1)
        : [elements] "r"(elements)
        : "q0", "q1", "q2", "q3", "lr", "cc", "memory");
    sums[0] = (int32_t)a0;
    sums[1] = (int32_t)a1;
    sums[sums_step] = (int32_t)b0;
    sums[sums_step + 1] = (int32_t)b1;
}

static inline void umakit_mve_one(int32_t *restrict sums, const int8_t *restrict window,
                                  const int8_t *restrict weights, int32_t elements)
{
    const int8_t *even = weights;
    const int8_t *odd = weights + elements;
    uint32_t a0 = 0, a1 = 0;

    __asm__ volatile(
        "   wlstp.8 lr, %[elements], 2f\n"
        "1: vldrb.8 q0, [%[window]], #16\n"
        "   vldrb.8 q1, [%[even]], #16\n"
        "   vmladava.s8 %[a0], q0, q1\n"
        "   vldrb.8 q2, [%[odd]], #16\n"
        "   vmladava.s8 %[a1], q0, q2\n"
        "   letp lr, 1b\n"
        "2:\n"
        : [window] "+r"(window), [even] "+r"(even), [odd] "+r"(odd), [a0] "+Te"(a0), [a1] "+Te"(a1)
        : [elements] "r"(elements)
        : "q0", "q1", "q2", "lr", "cc", "memory");
    sums[0] = (int32_t)a0;
    sums[1] = (int32_t)a1;
}

static inline void umakit_mve_products(int32_t *restrict sums, int32_t sums_step,
                                       const int8_t *restrict windows, int32_t windows_step,
                                       int32_t positions, const int8_t *restrict weights,
                                       int32_t elements, int32_t blocks)
{
    int32_t block;

    for (block = 0; block < blocks; ++block) {
        if (positions == 2) {
            umakit_mve_two(sums, sums_step, windows, windows_step, weights, elements);
        } else {
            umakit_mve_one(sums, windows, weights, elements);
        }
        sums += UMAKIT_MVE_CHANNELS;
        weights += elements * UMAKIT_MVE_CHANNELS;
    }
}

/* Copies of data, 16 bytes at a time. */
static inline void umakit_mve_copy_int8(int8_t *restrict to, const int8_t *restrict from,
                                        int32_t count)
{
    __asm__ volatile(
        "   wlstp.8 lr, %[count], 2f\n"
        "1: vldrb.8 q0, [%[from]], #16\n"
        "   vstrb.8 q0, [%[to]], #16\n"
        "   letp lr, 1b\n"
        "2:\n"
        : [from] "+r"(from), [to] "+r"(to)
        : [count] "r"(count)
        : "q0", "lr", "cc", "memory");
}

static inline void umakit_mve_copy_uint8(int8_t *restrict to, const uint8_t *restrict from,
                                         int32_t count)
{
    for (; count > 0; count -= 16) {
        const mve_pred16_t some = vctp8q((uint32_t)count);
        const uint8x16_t bytes = veorq_u8(vldrbq_z_u8(from, some), vdupq_n_u8(128));

        vstrbq_p_s8(to, vreinterpretq_s8_u8(bytes), some);
        from += 16;
        to += 16;
    }
}

/* Channels of a depthwise window, four at a time. */
#define UMAKIT_MVE_DEPTHWISE(TYPE, LOAD)                                                           \
    static inline void umakit_mve_depthwise_##TYPE(                                                \
        int32_t *restrict sums, const TYPE##_t *restrict data, int32_t row_step,                   \
        int32_t column_step, const int8_t *restrict weights, int32_t rows, int32_t columns,        \
        int32_t channels)                                                                          \
    {                                                                                              \
        int32_t channel;                                                                           \
                                                                                                   \
        for (channel = 0; channel < channels; channel += 4) {                                      \
            const mve_pred16_t some = vctp32q((uint32_t)(channels - channel));                     \
            const int8_t *weight = weights + channel;                                              \
            int32x4_t sum = vdupq_n_s32(0);                                                        \
            int32_t row;                                                                           \
                                                                                                   \
            for (row = 0; row < rows; ++row) {                                                     \
                const TYPE##_t *from = data + channel + row * row_step;                            \
                int32_t column;                                                                    \
                                                                                                   \
                for (column = 0; column < columns; ++column) {                                     \
                    const int32x4_t left = LOAD(from, some);                                       \
                    const int32x4_t right = vldrbq_z_s32(weight, some);                            \
                                                                                                   \
                    sum = vaddq_s32(sum, vmulq_s32(left, right));                                  \
                    from += column_step;                                                           \
                    weight += channels;                                                            \
                }                                                                                  \
            }                                                                                      \
            vstrwq_p_s32(sums + channel, sum, some);                                               \
        }                                                                                          \
    }

#define UMAKIT_MVE_LOAD_UINT8(from, some) vreinterpretq_s32_u32(vldrbq_z_u32(from, some))
UMAKIT_MVE_DEPTHWISE(int8, vldrbq_z_s32)
UMAKIT_MVE_DEPTHWISE(uint8, UMAKIT_MVE_LOAD_UINT8)
#undef UMAKIT_MVE_LOAD_UINT8
#undef UMAKIT_MVE_DEPTHWISE

/* --- results ---------------------------------------------------------------------------------- */

/* VQRDMULH is umakit_high_product; VRSHL rounds ties up, one less than a negative number away from
 * 0: that is added before. */
static inline int32x4_t umakit_mve_requantize_tflm(int32x4_t sums, int32x4_t multipliers,
                                                   int32x4_t shifts)
{
    const int32x4_t zero = vdupq_n_s32(0);
    const int32x4_t left = vmaxq_s32(shifts, zero);
    const int32x4_t right = vminq_s32(shifts, zero);
    const int32x4_t scaled = vqrdmulhq_s32(vshlq_s32(sums, left), multipliers);
    const int32x4_t fix = vshrq_n_s32(vandq_s32(scaled, right), 31);

    return vrshlq_s32(vqaddq_s32(scaled, fix), right);
}

#define UMAKIT_MVE_RESULTS(TYPE)                                                                   \
    static inline void umakit_mve_results_tflm_##TYPE(                                             \
        TYPE##_t *restrict results, const int32_t *restrict sums, int32_t count,                   \
        const int32_t *restrict bias, const int32_t *restrict multipliers,                         \
        const int8_t *restrict shifts, int32_t step, int32_t zero_point, int32_t lowest,           \
        int32_t highest)                                                                           \
    {                                                                                              \
        const int32x4_t low = vdupq_n_s32(lowest);                                                 \
        const int32x4_t high = vdupq_n_s32(highest);                                               \
        int32x4_t multiplier = vdupq_n_s32(multipliers[0]);                                        \
        int32x4_t shift = vdupq_n_s32(shifts[0]);                                                  \
        int32_t i;                                                                                 \
                                                                                                   \
        for (i = 0; i < count; i += 4) {                                                           \
            const mve_pred16_t some = vctp32q((uint32_t)(count - i));                              \
            int32x4_t value =                                                                      \
                vaddq_s32(vldrwq_z_s32(sums + i, some), vldrwq_z_s32(bias + i, some));             \
                                                                                                   \
            if (step != 0) {                                                                       \
                multiplier = vldrwq_z_s32(multipliers + i, some);                                  \
                shift = vldrbq_z_s32(shifts + i, some);                                            \
            }                                                                                      \
            value = umakit_mve_requantize_tflm(value, multiplier, shift);                          \
            value = vqaddq_n_s32(value, zero_point);                                               \
            value = vminq_s32(vmaxq_s32(value, low), high);                                        \
            UMAKIT_MVE_STORE_##TYPE(results + i, value, some);                                     \
        }                                                                                          \
    }

#define UMAKIT_MVE_STORE_int8(to, value, some) vstrbq_p_s32(to, value, some)
#define UMAKIT_MVE_STORE_uint8(to, value, some) vstrbq_p_u32(to, vreinterpretq_u32_s32(value), some)
UMAKIT_MVE_RESULTS(int8)
UMAKIT_MVE_RESULTS(uint8)
#undef UMAKIT_MVE_STORE_int8
#undef UMAKIT_MVE_STORE_uint8
#undef UMAKIT_MVE_RESULTS

#else /* no MVE */

static inline void umakit_mve_products(int32_t *restrict sums, int32_t sums_step,
                                       const int8_t *restrict windows, int32_t windows_step,
                                       int32_t positions, const int8_t *restrict weights,
                                       int32_t elements, int32_t blocks)
{
    int32_t position;

    for (position = 0; position < positions; ++position) {
        umakit_plain_products_int8(sums + position * sums_step, windows + position * windows_step,
                                   weights, elements, blocks, UMAKIT_MVE_CHANNELS, elements, 0);
    }
}

static inline void umakit_mve_copy_int8(int8_t *restrict to, const int8_t *restrict from,
                                         int32_t count)
{
    umakit_plain_copy_int8_int8(to, from, count);
}

static inline void umakit_mve_copy_uint8(int8_t *restrict to, const uint8_t *restrict from,
                                          int32_t count)
{
    umakit_plain_copy_uint8_int8(to, from, count);
}

static inline void umakit_mve_depthwise_int8(int32_t *restrict sums, const int8_t *restrict data,
                                               int32_t row_step, int32_t column_step,
                                               const int8_t *restrict weights, int32_t rows,
                                               int32_t columns, int32_t channels)
{
    umakit_plain_depthwise_int8(sums, data, row_step, column_step, weights, rows, columns, channels,
                                1);
}

static inline void umakit_mve_depthwise_uint8(int32_t *restrict sums,
                                                const uint8_t *restrict data, int32_t row_step,
                                                int32_t column_step,
                                                const int8_t *restrict weights, int32_t rows,
                                                int32_t columns, int32_t channels)
{
    umakit_plain_depthwise_uint8(sums, data, row_step, column_step, weights, rows, columns,
                                 channels, 1);
}

#define UMAKIT_MVE_RESULTS(TYPE)                                                                   \
    static inline void umakit_mve_results_tflm_##TYPE(                                             \
        TYPE##_t *restrict results, const int32_t *restrict sums, int32_t count,                   \
        const int32_t *restrict bias, const int32_t *restrict multipliers,                         \
        const int8_t *restrict shifts, int32_t step, int32_t zero_point, int32_t lowest,           \
        int32_t highest)                                                                           \
    {                                                                                              \
        umakit_plain_results_tflm_##TYPE(results, sums, count, bias, multipliers, shifts, step,    \
                                         zero_point, lowest, highest);                             \
    }

UMAKIT_MVE_RESULTS(int8)
UMAKIT_MVE_RESULTS(uint8)
#undef UMAKIT_MVE_RESULTS

#endif

#endif /* UMAKIT_DOT_PRODUCTS_MVE_H */
