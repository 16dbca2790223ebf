/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of products with the dot product of 64-bit Arm (Cortex-A55, A76 and later): see
 * dot_products.h. Windows are int8_t; SDOT sums four products in each lane, for eight channels of
 * up to four positions. */
#ifndef UMAKIT_DOT_PRODUCTS_SDOT_H
#define UMAKIT_DOT_PRODUCTS_SDOT_H

#include "dot_products.h"

#define UMAKIT_SDOT_CHANNELS 8

#if defined(__ARM_FEATURE_DOTPROD) && !defined(UMAKIT_PLAIN_DOT_PRODUCTS)

#include <arm_neon.h>

/* Products of four elements of a window with the weights of eight channels; the lane of an
 * instruction is a constant. */
#define UMAKIT_SDOT_STEP(LANE)                                                                     \
    do {                                                                                           \
        const int8x16_t low = vld1q_s8(weights + (i + 4 * (LANE)) * UMAKIT_SDOT_CHANNELS);         \
        const int8x16_t high = vld1q_s8(weights + (i + 4 * (LANE)) * UMAKIT_SDOT_CHANNELS + 16);   \
                                                                                                   \
        a0 = vdotq_laneq_s32(a0, low, first, LANE);                                                \
        a1 = vdotq_laneq_s32(a1, high, first, LANE);                                               \
        b0 = vdotq_laneq_s32(b0, low, second, LANE);                                               \
        b1 = vdotq_laneq_s32(b1, high, second, LANE);                                              \
        c0 = vdotq_laneq_s32(c0, low, third, LANE);                                                \
        c1 = vdotq_laneq_s32(c1, high, third, LANE);                                               \
        d0 = vdotq_laneq_s32(d0, low, fourth, LANE);                                               \
        d1 = vdotq_laneq_s32(d1, high, fourth, LANE);                                              \
    } while (0)

static inline void umakit_sdot_four(int32_t *restrict sums, int32_t sums_step,
                                    const int8_t *restrict windows, int32_t windows_step,
                                    const int8_t *restrict weights, int32_t elements)
{
    int32x4_t a0 = vdupq_n_s32(0), a1 = a0, b0 = a0, b1 = a0;
    int32x4_t c0 = a0, c1 = a0, d0 = a0, d1 = a0;
    int32_t i;

    for (i = 0; i < elements; i += 16) {
        const int8x16_t first = vld1q_s8(windows + i);
        const int8x16_t second = vld1q_s8(windows + windows_step + i);
        const int8x16_t third = vld1q_s8(windows + 2 * windows_step + i);
        const int8x16_t fourth = vld1q_s8(windows + 3 * windows_step + i);

        UMAKIT_SDOT_STEP(0);
        UMAKIT_SDOT_STEP(1);
        UMAKIT_SDOT_STEP(2);
        UMAKIT_SDOT_STEP(3);
    }
    vst1q_s32(sums, a0);
    vst1q_s32(sums + 4, a1);
    vst1q_s32(sums + sums_step, b0);
    vst1q_s32(sums + sums_step + 4, b1);
    vst1q_s32(sums + 2 * sums_step, c0);
    vst1q_s32(sums + 2 * sums_step + 4, c1);
    vst1q_s32(sums + 3 * sums_step, d0);
    vst1q_s32(sums + 3 * sums_step + 4, d1);
}
#undef UMAKIT_SDOT_STEP

#define UMAKIT_SDOT_STEP(LANE)                                                                     \
    do {                                                                                           \
        const int8_t *const here = weights + (i + 4 * (LANE)) * UMAKIT_SDOT_CHANNELS;              \
                                                                                                   \
        a0 = vdotq_laneq_s32(a0, vld1q_s8(here), data, LANE);                                      \
        a1 = vdotq_laneq_s32(a1, vld1q_s8(here + 16), data, LANE);                                 \
    } while (0)

static inline void umakit_sdot_one(int32_t *restrict sums, const int8_t *restrict window,
                                   const int8_t *restrict weights, int32_t elements)
{
    int32x4_t a0 = vdupq_n_s32(0), a1 = a0;
    int32_t i;

    for (i = 0; i < elements; i += 16) {
        const int8x16_t data = vld1q_s8(window + i);

        UMAKIT_SDOT_STEP(0);
        UMAKIT_SDOT_STEP(1);
        UMAKIT_SDOT_STEP(2);
        UMAKIT_SDOT_STEP(3);
    }
    vst1q_s32(sums, a0);
    vst1q_s32(sums + 4, a1);
}
#undef UMAKIT_SDOT_STEP

UMAKIT_PRODUCTS_BY_FOUR(sdot, int8, UMAKIT_SDOT_CHANNELS)

static inline void umakit_sdot_copy_int8(int8_t *restrict to, const int8_t *restrict from,
                                         int32_t count)
{
    umakit_plain_copy_int8_int8(to, from, count);
}

static inline void umakit_sdot_copy_uint8(int8_t *restrict to, const uint8_t *restrict from,
                                          int32_t count)
{
    for (; count >= 16; count -= 16) {
        const uint8x16_t bytes = veorq_u8(vld1q_u8(from), vdupq_n_u8(128));

        vst1q_s8(to, vreinterpretq_s8_u8(bytes));
        from += 16;
        to += 16;
    }
    umakit_plain_copy_uint8_int8(to, from, count);
}

/* Channels of a depthwise window, eight at a time. */
#define UMAKIT_SDOT_DEPTHWISE(TYPE, LOAD)                                                          \
    static inline void umakit_sdot_depthwise_##TYPE(                                               \
        UMAKIT_DEPTHWISE_PARAMETERS(TYPE))                                                         \
    {                                                                                              \
        int32_t channel;                                                                           \
                                                                                                   \
        if (channels < 8) {                                                                        \
            umakit_plain_depthwise_##TYPE(sums, data, row_step, column_step, weights, rows,        \
                                          columns, channels, 1);                                   \
            return;                                                                                \
        }                                                                                          \
        for (channel = 0; channel < channels; channel += 8) {                                      \
            /* The last channels overlap those before them. */                                     \
            const int32_t here = channel + 8 <= channels ? channel : channels - 8;                 \
            int32_t weight = here;                                                                 \
            int32x4_t low = vdupq_n_s32(0);                                                        \
            int32x4_t high = low;                                                                  \
            int32_t row;                                                                           \
            int32_t column;                                                                        \
                                                                                                   \
            for (row = 0; row < rows; ++row) {                                                     \
                int32_t from = here + row * row_step;                                              \
                                                                                                   \
                for (column = 0; column < columns; ++column) {                                     \
                    const int16x8_t left = LOAD(data + from);                                      \
                    const int16x8_t right = vmovl_s8(vld1_s8(weights + weight));                   \
                                                                                                   \
                    low = vmlal_s16(low, vget_low_s16(left), vget_low_s16(right));                 \
                    high = vmlal_high_s16(high, left, right);                                      \
                    from += column_step;                                                           \
                    weight += channels;                                                            \
                }                                                                                  \
            }                                                                                      \
            vst1q_s32(sums + here, low);                                                           \
            vst1q_s32(sums + here + 4, high);                                                      \
        }                                                                                          \
    }

#define UMAKIT_SDOT_LOAD_INT8(from) vmovl_s8(vld1_s8(from))
#define UMAKIT_SDOT_LOAD_UINT8(from) vreinterpretq_s16_u16(vmovl_u8(vld1_u8(from)))
UMAKIT_SDOT_DEPTHWISE(int8, UMAKIT_SDOT_LOAD_INT8)
UMAKIT_SDOT_DEPTHWISE(uint8, UMAKIT_SDOT_LOAD_UINT8)
#undef UMAKIT_SDOT_DEPTHWISE

/* --- results ---------------------------------------------------------------------------------- */

/* SQRDMULH is umakit_high_product; SRSHL rounds ties up, one less than a negative number away from
 * 0: that is added before. */
static inline int32x4_t umakit_sdot_requantize_tflm(int32x4_t sums, int32x4_t multipliers,
                                                    int32x4_t shifts)
{
    const int32x4_t zero = vdupq_n_s32(0);
    const int32x4_t left = vmaxq_s32(shifts, zero);
    const int32x4_t right = vminq_s32(shifts, zero);
    const int32x4_t scaled = vqrdmulhq_s32(vshlq_s32(sums, left), multipliers);
    const int32x4_t fix = vshrq_n_s32(vandq_s32(scaled, right), 31);

    return vrshlq_s32(vqaddq_s32(scaled, fix), right);
}

static inline int32x4_t umakit_sdot_requantize_ort(int32x4_t sums, int32x4_t multipliers,
                                                   int32x4_t shifts)
{
    const int32x4_t exponent = vshlq_n_s32(vaddq_s32(shifts, vdupq_n_s32(127 - 31)), 23);
    const float32x4_t factor =
        vmulq_f32(vcvtq_f32_s32(multipliers), vreinterpretq_f32_s32(exponent));

    return vcvtnq_s32_f32(vmulq_f32(vcvtq_f32_s32(sums), factor));
}

#define UMAKIT_SDOT_RESULTS(ROUNDING, TYPE, NARROW)                                                \
    static inline void umakit_sdot_results_##ROUNDING##_##TYPE(                                    \
        UMAKIT_RESULTS_PARAMETERS(TYPE))                                                           \
    {                                                                                              \
        const int32x4_t zero = vdupq_n_s32(zero_point);                                            \
        const int32x4_t low = vdupq_n_s32(lowest);                                                 \
        const int32x4_t high = vdupq_n_s32(highest);                                               \
        int32_t first;                                                                             \
                                                                                                   \
        if (count < 8) {                                                                           \
            umakit_plain_results_##ROUNDING##_##TYPE(results, sums, count, bias, multipliers,      \
                                                     shifts, step, zero_point, lowest, highest);   \
            return;                                                                                \
        }                                                                                          \
        for (first = 0; first < count; first += 8) {                                               \
            /* The last results overlap those before them. */                                      \
            const int32_t i = first + 8 <= count ? first : count - 8;                              \
            int32x4_t value[2];                                                                    \
            int32_t half;                                                                          \
                                                                                                   \
            for (half = 0; half < 2; ++half) {                                                     \
                const int32_t here = i + 4 * half;                                                 \
                int32x4_t multiplier = vdupq_n_s32(multipliers[0]);                                \
                int32x4_t shift = vdupq_n_s32(shifts[0]);                                          \
                                                                                                   \
                if (step != 0) {                                                                   \
                    const int16x8_t wide = vmovl_s8(vld1_s8(shifts + i));                          \
                                                                                                   \
                    multiplier = vld1q_s32(multipliers + here);                                    \
                    shift = vmovl_s16(half == 0 ? vget_low_s16(wide) : vget_high_s16(wide));       \
                }                                                                                  \
                value[half] = umakit_sdot_requantize_##ROUNDING(                                   \
                    vaddq_s32(vld1q_s32(sums + here), vld1q_s32(bias + here)), multiplier, shift); \
                value[half] = vqaddq_s32(value[half], zero);                                       \
                value[half] = vminq_s32(vmaxq_s32(value[half], low), high);                        \
            }                                                                                      \
            NARROW(results + i, vcombine_s16(vmovn_s32(value[0]), vmovn_s32(value[1])));           \
        }                                                                                          \
    }

#define UMAKIT_SDOT_NARROW_INT8(to, values) vst1_s8(to, vmovn_s16(values))
#define UMAKIT_SDOT_NARROW_UINT8(to, values) vst1_u8(to, vmovn_u16(vreinterpretq_u16_s16(values)))

#define UMAKIT_SDOT_ADD(TYPE, LOAD, NARROW)                                                        \
    static inline void umakit_sdot_add_tflm_##TYPE(                                                \
        UMAKIT_ADD_PARAMETERS(TYPE))                                                               \
    {                                                                                              \
        const int32x4_t common = vdupq_n_s32(left_shift);                                          \
        const int32_t whole = count / 8 * 8;                                                       \
        int32_t i;                                                                                 \
                                                                                                   \
        for (i = 0; i < whole; i += 8) {                                                           \
            const int16x8_t first =                                                                \
                vsubq_s16(LOAD(left + i), vdupq_n_s16((int16_t)left_zero_point));                  \
            const int16x8_t second =                                                               \
                vsubq_s16(LOAD(right + i), vdupq_n_s16((int16_t)right_zero_point));                \
            int32x4_t sum[2];                                                                      \
            int32_t half;                                                                          \
                                                                                                   \
            for (half = 0; half < 2; ++half) {                                                     \
                const int32x4_t one =                                                              \
                    vmovl_s16(half == 0 ? vget_low_s16(first) : vget_high_s16(first));             \
                const int32x4_t other =                                                            \
                    vmovl_s16(half == 0 ? vget_low_s16(second) : vget_high_s16(second));           \
                                                                                                   \
                sum[half] = vaddq_s32(                                                             \
                    umakit_sdot_requantize_tflm(vshlq_s32(one, common),                            \
                                                vdupq_n_s32(left_multiplier),                      \
                                                vdupq_n_s32(left_factor_shift)),                   \
                    umakit_sdot_requantize_tflm(vshlq_s32(other, common),                          \
                                                vdupq_n_s32(right_multiplier),                     \
                                                vdupq_n_s32(right_factor_shift)));                 \
                sum[half] = umakit_sdot_requantize_tflm(sum[half], vdupq_n_s32(multiplier),        \
                                                        vdupq_n_s32(shift));                       \
                sum[half] = vqaddq_s32(sum[half], vdupq_n_s32(zero_point));                        \
                sum[half] = vmaxq_s32(sum[half], vdupq_n_s32(lowest));                             \
                sum[half] = vminq_s32(sum[half], vdupq_n_s32(highest));                            \
            }                                                                                      \
            NARROW(results + i, vcombine_s16(vmovn_s32(sum[0]), vmovn_s32(sum[1])));               \
        }                                                                                          \
        umakit_plain_add_tflm_##TYPE(results + whole, left + whole, right + whole, count - whole,  \
                                     left_zero_point, right_zero_point, left_shift,                \
                                     left_multiplier, left_factor_shift, right_multiplier,         \
                                     right_factor_shift, multiplier, shift, zero_point, lowest,    \
                                     highest);                                                     \
    }

UMAKIT_SDOT_ADD(int8, UMAKIT_SDOT_LOAD_INT8, UMAKIT_SDOT_NARROW_INT8)
UMAKIT_SDOT_ADD(uint8, UMAKIT_SDOT_LOAD_UINT8, UMAKIT_SDOT_NARROW_UINT8)
#undef UMAKIT_SDOT_ADD
#undef UMAKIT_SDOT_LOAD_INT8
#undef UMAKIT_SDOT_LOAD_UINT8

UMAKIT_SDOT_RESULTS(tflm, int8, UMAKIT_SDOT_NARROW_INT8)
UMAKIT_SDOT_RESULTS(tflm, uint8, UMAKIT_SDOT_NARROW_UINT8)
UMAKIT_SDOT_RESULTS(ort, int8, UMAKIT_SDOT_NARROW_INT8)
UMAKIT_SDOT_RESULTS(ort, uint8, UMAKIT_SDOT_NARROW_UINT8)
#undef UMAKIT_SDOT_RESULTS
#undef UMAKIT_SDOT_NARROW_INT8
#undef UMAKIT_SDOT_NARROW_UINT8

#else /* no dot product */

UMAKIT_PLAIN_SUMS_OF(sdot, int8, UMAKIT_SDOT_CHANNELS, 4, 0, 1)
UMAKIT_PLAIN_RESULTS_OF(sdot, tflm)
UMAKIT_PLAIN_RESULTS_OF(sdot, ort)
UMAKIT_PLAIN_ADD_OF(sdot)

#endif

#endif /* UMAKIT_DOT_PRODUCTS_SDOT_H */
