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
    if (count <= 0) {
        return;
    }
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

/* 16 channels of a depthwise window. Two products of 8 bits are summed in 16 bits, which only
 * two of -128 * -128 would not fit: weights are -127 or more. */
static inline void umakit_mve_depthwise_16(int32_t *restrict sums, const int8_t *restrict data,
                                           int32_t row_step, int32_t column_step,
                                           const int8_t *restrict weights, int32_t rows,
                                           int32_t columns, int32_t channels)
{
    const int32_t elements = rows * columns;
    int32_t from = 0;
    int32_t weight = 0;
    /* Even and odd channels, of these the even and odd ones. */
    int32x4_t sum0 = vdupq_n_s32(0), sum1 = sum0, sum2 = sum0, sum3 = sum0;
    int32_t column = columns;
    int32_t i;

    for (i = 0; i < elements; i += 2) {
        int8x16_t left = vldrbq_s8(data + from);
        int8x16_t right = vldrbq_s8(weights + weight);
        int16x8_t even = vmullbq_int_s8(left, right);
        int16x8_t odd = vmulltq_int_s8(left, right);

        weight += channels;
        from += column_step;
        if (--column == 0) {
            column = columns;
            from += row_step - columns * column_step;
        }
        if (i + 1 < elements) {
            left = vldrbq_s8(data + from);
            right = vldrbq_s8(weights + weight);
            even = vaddq_s16(even, vmullbq_int_s8(left, right));
            odd = vaddq_s16(odd, vmulltq_int_s8(left, right));
            weight += channels;
            from += column_step;
            if (--column == 0) {
                column = columns;
                from += row_step - columns * column_step;
            }
        }
        sum0 = vaddq_s32(sum0, vmovlbq_s16(even));
        sum1 = vaddq_s32(sum1, vmovlbq_s16(odd));
        sum2 = vaddq_s32(sum2, vmovltq_s16(even));
        sum3 = vaddq_s32(sum3, vmovltq_s16(odd));
    }
    {
        /* Channels 4 i + 0, 1, 2, 3 are in the sums of these numbers. */
        int32x4x4_t all;

        all.val[0] = sum0;
        all.val[1] = sum1;
        all.val[2] = sum2;
        all.val[3] = sum3;
        vst4q_s32(sums, all);
    }
}

/* Whole vectors of channels; returns the number of channels. */
static inline int32_t umakit_mve_depthwise_whole(int32_t *restrict sums,
                                                 const int8_t *restrict data, int32_t row_step,
                                                 int32_t column_step,
                                                 const int8_t *restrict weights, int32_t rows,
                                                 int32_t columns, int32_t channels)
{
    int32_t channel = 0;

    for (; channel + 16 <= channels; channel += 16) {
        umakit_mve_depthwise_16(sums + channel, data + channel, row_step, column_step,
                                weights + channel, rows, columns, channels);
    }
    return channel;
}

/* Channels of a depthwise window, four at a time. */
#define UMAKIT_MVE_DEPTHWISE(TYPE, LOAD, FIRST)                                                    \
    static inline void umakit_mve_depthwise_##TYPE(                                                \
        UMAKIT_DEPTHWISE_PARAMETERS(TYPE))                                                         \
    {                                                                                              \
        int32_t channel = FIRST;                                                                   \
                                                                                                   \
        for (; channel < channels; channel += 4) {                                                 \
            const mve_pred16_t some = vctp32q((uint32_t)(channels - channel));                     \
            int32_t weight = channel;                                                              \
            int32x4_t sum = vdupq_n_s32(0);                                                        \
            int32_t row;                                                                           \
                                                                                                   \
            for (row = 0; row < rows; ++row) {                                                     \
                int32_t from = channel + row * row_step;                                           \
                int32_t column;                                                                    \
                                                                                                   \
                for (column = 0; column < columns; ++column) {                                     \
                    const int32x4_t left = LOAD(data + from, some);                                \
                    const int32x4_t right = vldrbq_z_s32(weights + weight, some);                  \
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
#define UMAKIT_MVE_WHOLE                                                                           \
    umakit_mve_depthwise_whole(sums, data, row_step, column_step, weights, rows, columns, channels)
UMAKIT_MVE_DEPTHWISE(int8, vldrbq_z_s32, UMAKIT_MVE_WHOLE)
UMAKIT_MVE_DEPTHWISE(uint8, UMAKIT_MVE_LOAD_UINT8, 0)
#undef UMAKIT_MVE_WHOLE
#undef UMAKIT_MVE_LOAD_UINT8
#undef UMAKIT_MVE_DEPTHWISE

/* --- results ---------------------------------------------------------------------------------- */

/* VQRDMULH is umakit_high_product; VRSHL rounds ties up, one less than a negative number away from
 * 0: that is added before. */
static inline int32x4_t umakit_mve_scaled(int32x4_t sums, int32x4_t multipliers, int32_t shift)
{
    if (shift >= 0) {
        return vqrdmulhq_s32(vshlq_r_s32(sums, shift), multipliers);
    }
    sums = vqrdmulhq_s32(sums, multipliers);
    return vrshlq_n_s32(vqaddq_s32(sums, vshrq_n_s32(sums, 31)), shift);
}

/* What follows the loads of a sum to q0, a multiplier to q1 and a shift to q2. */
#define UMAKIT_MVE_RESCALE                                                                         \
    "   vmax.s32 q3, q2, %q[zero]\n"                                                               \
    "   vshl.s32 q0, q0, q3\n"                                                                     \
    "   vmin.s32 q2, q2, %q[zero]\n"                                                               \
    "   vqrdmulh.s32 q0, q0, q1\n"                                                                 \
    "   vand q1, q0, q2\n"                                                                         \
    "   vshr.s32 q1, q1, #31\n"                                                                    \
    "   vqadd.s32 q0, q0, q1\n"                                                                    \
    "   vrshl.s32 q0, q0, q2\n"                                                                    \
    "   vqadd.s32 q0, q0, %[zero_point]\n"                                                         \
    "   vmax.s32 q0, q0, %q[low]\n"                                                                \
    "   vmin.s32 q0, q0, %q[high]\n"                                                               \
    "   vstrb.32 q0, [%[results]], #4\n"                                                           \
    "   letp lr, 1b\n"                                                                             \
    "2:\n"

/* VSTRB stores the low bytes, signed or not. */
static inline void umakit_mve_results(void *results, const int32_t *restrict sums, int32_t count,
                                      const int32_t *restrict bias,
                                      const int32_t *restrict multipliers,
                                      const int8_t *restrict shifts, int32_t step,
                                      int32_t zero_point, int32_t lowest, int32_t highest)
{
    const int32x4_t zero = vdupq_n_s32(0);
    const int32x4_t low = vdupq_n_s32(lowest);
    const int32x4_t high = vdupq_n_s32(highest);

    if (step != 0) {
        __asm__ volatile("   wlstp.32 lr, %[count], 2f\n"
                         "1: vldrw.32 q0, [%[sums]], #16\n"
                         "   vldrw.32 q1, [%[bias]], #16\n"
                         "   vadd.i32 q0, q0, q1\n"
                         "   vldrw.32 q1, [%[multipliers]], #16\n"
                         "   vldrb.s32 q2, [%[shifts]], #4\n" UMAKIT_MVE_RESCALE
                         : [results] "+l"(results), [sums] "+r"(sums), [bias] "+r"(bias),
                           [multipliers] "+r"(multipliers), [shifts] "+l"(shifts)
                         : [count] "r"(count), [zero_point] "r"(zero_point), [zero] "w"(zero),
                           [low] "w"(low), [high] "w"(high)
                         : "q0", "q1", "q2", "q3", "lr", "cc", "memory");
    } else {
        const int32_t multiplier = multipliers[0];
        const int32_t shift = shifts[0];

        __asm__ volatile("   wlstp.32 lr, %[count], 2f\n"
                         "1: vldrw.32 q0, [%[sums]], #16\n"
                         "   vldrw.32 q1, [%[bias]], #16\n"
                         "   vadd.i32 q0, q0, q1\n"
                         "   vdup.32 q1, %[multiplier]\n"
                         "   vdup.32 q2, %[shift]\n" UMAKIT_MVE_RESCALE
                         : [results] "+l"(results), [sums] "+r"(sums), [bias] "+r"(bias)
                         : [count] "r"(count), [zero_point] "r"(zero_point), [zero] "w"(zero),
                           [low] "w"(low), [high] "w"(high), [multiplier] "r"(multiplier),
                           [shift] "r"(shift)
                         : "q0", "q1", "q2", "q3", "lr", "cc", "memory");
    }
}
#undef UMAKIT_MVE_RESCALE

#define UMAKIT_MVE_RESULTS(TYPE)                                                                   \
    static inline void umakit_mve_results_tflm_##TYPE(                                             \
        UMAKIT_RESULTS_PARAMETERS(TYPE))                                                           \
    {                                                                                              \
        umakit_mve_results(results, sums, count, bias, multipliers, shifts, step, zero_point,      \
                           lowest, highest);                                                       \
    }

UMAKIT_MVE_RESULTS(int8)
UMAKIT_MVE_RESULTS(uint8)
#undef UMAKIT_MVE_RESULTS

/* --- additions -------------------------------------------------------------------------------- */

#define UMAKIT_MVE_ADD(TYPE, LOAD, STORE)                                                          \
    static inline void umakit_mve_add_tflm_##TYPE(                                                 \
        UMAKIT_ADD_PARAMETERS(TYPE))                                                               \
    {                                                                                              \
        const int32x4_t low = vdupq_n_s32(lowest);                                                 \
        const int32x4_t high = vdupq_n_s32(highest);                                               \
        const int32x4_t left_factor = vdupq_n_s32(left_multiplier);                                \
        const int32x4_t right_factor = vdupq_n_s32(right_multiplier);                              \
        const int32x4_t factor = vdupq_n_s32(multiplier);                                          \
                                                                                                   \
        for (; count > 0; count -= 4) {                                                            \
            const mve_pred16_t some = vctp32q((uint32_t)count);                                    \
            int32x4_t first = vsubq_n_s32(LOAD(left, some), left_zero_point);                      \
            int32x4_t second = vsubq_n_s32(LOAD(right, some), right_zero_point);                   \
            int32x4_t sum;                                                                         \
                                                                                                   \
            first = umakit_mve_scaled(vshlq_r_s32(first, left_shift), left_factor,                 \
                                      left_factor_shift);                                          \
            second = umakit_mve_scaled(vshlq_r_s32(second, left_shift), right_factor,              \
                                       right_factor_shift);                                        \
            sum = umakit_mve_scaled(vaddq_s32(first, second), factor, shift);                      \
            sum = vqaddq_n_s32(sum, zero_point);                                                   \
            sum = vminq_s32(vmaxq_s32(sum, low), high);                                            \
            STORE(results, sum, some);                                                             \
            left += 4;                                                                             \
            right += 4;                                                                            \
            results += 4;                                                                          \
        }                                                                                          \
    }

#define UMAKIT_MVE_LOAD_UINT8(from, some) vreinterpretq_s32_u32(vldrbq_z_u32(from, some))
#define UMAKIT_MVE_STORE_UINT8(to, value, some) vstrbq_p_u32(to, vreinterpretq_u32_s32(value), some)
UMAKIT_MVE_ADD(int8, vldrbq_z_s32, vstrbq_p_s32)
UMAKIT_MVE_ADD(uint8, UMAKIT_MVE_LOAD_UINT8, UMAKIT_MVE_STORE_UINT8)
#undef UMAKIT_MVE_LOAD_UINT8
#undef UMAKIT_MVE_STORE_UINT8
#undef UMAKIT_MVE_ADD

#else /* no MVE */

UMAKIT_PLAIN_SUMS_OF(mve, int8, UMAKIT_MVE_CHANNELS, elements, 0, 1)
UMAKIT_PLAIN_RESULTS_OF(mve, tflm)
UMAKIT_PLAIN_ADD_OF(mve)

#endif

#endif /* UMAKIT_DOT_PRODUCTS_MVE_H */
