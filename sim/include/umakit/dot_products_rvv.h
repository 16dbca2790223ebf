/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of products with the vector extension of RISC-V, version 1.0, for vector registers of 128
 * bits or more: see dot_products.h. Windows are int8_t; an element is multiplied with the weights
 * of 16 channels, of up to four positions. */
#ifndef UMAKIT_DOT_PRODUCTS_RVV_H
#define UMAKIT_DOT_PRODUCTS_RVV_H

#include "dot_products.h"

#define UMAKIT_RVV_CHANNELS 16

#if defined(__riscv_vector) && !defined(UMAKIT_PLAIN_DOT_PRODUCTS)

#include <riscv_vector.h>

static inline vint16m2_t umakit_rvv_weights(const int8_t *from)
{
    const vint8m1_t bytes = __riscv_vle8_v_i8m1(from, UMAKIT_RVV_CHANNELS);

    return __riscv_vsext_vf2_i16m2(bytes, UMAKIT_RVV_CHANNELS);
}

static inline void umakit_rvv_four(int32_t *restrict sums, int32_t sums_step,
                                   const int8_t *restrict windows, int32_t windows_step,
                                   const int8_t *restrict weights, int32_t elements)
{
    const int8_t *const second = windows + windows_step;
    const int8_t *const third = second + windows_step;
    const int8_t *const fourth = third + windows_step;
    vint32m4_t a = __riscv_vmv_v_x_i32m4(0, UMAKIT_RVV_CHANNELS);
    vint32m4_t b = a, c = a, d = a;
    int32_t i;

    for (i = 0; i < elements; ++i) {
        const vint16m2_t weight = umakit_rvv_weights(weights + i * UMAKIT_RVV_CHANNELS);

        a = __riscv_vwmacc_vx_i32m4(a, windows[i], weight, UMAKIT_RVV_CHANNELS);
        b = __riscv_vwmacc_vx_i32m4(b, second[i], weight, UMAKIT_RVV_CHANNELS);
        c = __riscv_vwmacc_vx_i32m4(c, third[i], weight, UMAKIT_RVV_CHANNELS);
        d = __riscv_vwmacc_vx_i32m4(d, fourth[i], weight, UMAKIT_RVV_CHANNELS);
    }
    __riscv_vse32_v_i32m4(sums, a, UMAKIT_RVV_CHANNELS);
    __riscv_vse32_v_i32m4(sums + sums_step, b, UMAKIT_RVV_CHANNELS);
    __riscv_vse32_v_i32m4(sums + 2 * sums_step, c, UMAKIT_RVV_CHANNELS);
    __riscv_vse32_v_i32m4(sums + 3 * sums_step, d, UMAKIT_RVV_CHANNELS);
}

static inline void umakit_rvv_one(int32_t *restrict sums, const int8_t *restrict window,
                                  const int8_t *restrict weights, int32_t elements)
{
    vint32m4_t sum = __riscv_vmv_v_x_i32m4(0, UMAKIT_RVV_CHANNELS);
    int32_t i;

    for (i = 0; i < elements; ++i) {
        const vint16m2_t weight = umakit_rvv_weights(weights + i * UMAKIT_RVV_CHANNELS);

        sum = __riscv_vwmacc_vx_i32m4(sum, window[i], weight, UMAKIT_RVV_CHANNELS);
    }
    __riscv_vse32_v_i32m4(sums, sum, UMAKIT_RVV_CHANNELS);
}

UMAKIT_PRODUCTS_BY_FOUR(rvv, int8, UMAKIT_RVV_CHANNELS)

static inline void umakit_rvv_copy_int8(int8_t *restrict to, const int8_t *restrict from,
                                        int32_t count)
{
    while (count > 0) {
        const size_t some = __riscv_vsetvl_e8m8((size_t)count);

        __riscv_vse8_v_i8m8(to, __riscv_vle8_v_i8m8(from, some), some);
        from += some;
        to += some;
        count -= (int32_t)some;
    }
}

static inline void umakit_rvv_copy_uint8(int8_t *restrict to, const uint8_t *restrict from,
                                         int32_t count)
{
    while (count > 0) {
        const size_t some = __riscv_vsetvl_e8m8((size_t)count);
        const vuint8m8_t bytes =
            __riscv_vxor_vx_u8m8(__riscv_vle8_v_u8m8(from, some), 128, some);

        __riscv_vse8_v_i8m8(to, __riscv_vreinterpret_v_u8m8_i8m8(bytes), some);
        from += some;
        to += some;
        count -= (int32_t)some;
    }
}

#define UMAKIT_RVV_LOAD_INT8(from, some)                                                           \
    __riscv_vsext_vf2_i16m2(__riscv_vle8_v_i8m1(from, some), some)
#define UMAKIT_RVV_LOAD_UINT8(from, some)                                                          \
    __riscv_vreinterpret_v_u16m2_i16m2(                                                            \
        __riscv_vzext_vf2_u16m2(__riscv_vle8_v_u8m1(from, some), some))

#define UMAKIT_RVV_DEPTHWISE(TYPE, LOAD)                                                           \
    static inline void umakit_rvv_depthwise_##TYPE(                                                \
        UMAKIT_DEPTHWISE_PARAMETERS(TYPE))                                                         \
    {                                                                                              \
        int32_t channel = 0;                                                                       \
                                                                                                   \
        while (channel < channels) {                                                               \
            const size_t some = __riscv_vsetvl_e32m4((size_t)(channels - channel));                \
            int32_t weight = channel;                                                              \
            vint32m4_t sum = __riscv_vmv_v_x_i32m4(0, some);                                       \
            int32_t row;                                                                           \
            int32_t column;                                                                        \
                                                                                                   \
            for (row = 0; row < rows; ++row) {                                                     \
                int32_t from = channel + row * row_step;                                           \
                                                                                                   \
                for (column = 0; column < columns; ++column) {                                     \
                    sum = __riscv_vwmacc_vv_i32m4(                                                 \
                        sum, LOAD(data + from, some),                                              \
                        UMAKIT_RVV_LOAD_INT8(weights + weight, some), some);                       \
                    from += column_step;                                                           \
                    weight += channels;                                                            \
                }                                                                                  \
            }                                                                                      \
            __riscv_vse32_v_i32m4(sums + channel, sum, some);                                      \
            channel += (int32_t)some;                                                              \
        }                                                                                          \
    }

UMAKIT_RVV_DEPTHWISE(int8, UMAKIT_RVV_LOAD_INT8)
UMAKIT_RVV_DEPTHWISE(uint8, UMAKIT_RVV_LOAD_UINT8)
#undef UMAKIT_RVV_DEPTHWISE

/* --- results ---------------------------------------------------------------------------------- */

/* umakit_requantize_tflm of each lane; see umakit_rounded_shift for the last steps. */
static inline vint32m4_t umakit_rvv_requantize_tflm(vint32m4_t sums, vint32m4_t multipliers,
                                                    vint32m4_t shifts, size_t some)
{
    const vint32m4_t left = __riscv_vmax_vx_i32m4(shifts, 0, some);
    const vint32m4_t right =
        __riscv_vrsub_vx_i32m4(__riscv_vmin_vx_i32m4(shifts, 0, some), 0, some);
    const vint32m4_t before =
        __riscv_vmax_vx_i32m4(__riscv_vadd_vx_i32m4(right, -1, some), 0, some);
    const vbool8_t divides = __riscv_vmsgt_vx_i32m4_b8(right, 0, some);
    const vint32m4_t value =
        __riscv_vsll_vv_i32m4(sums, __riscv_vreinterpret_v_i32m4_u32m4(left), some);
    const vint64m8_t product = __riscv_vadd_vx_i64m8(
        __riscv_vwmul_vv_i64m8(value, multipliers, some), INT64_C(1) << 30, some);
    const vint32m4_t high = __riscv_vnsra_wx_i32m4(product, 31, some);
    const vint32m4_t twice = __riscv_vsra_vv_i32m4(
        __riscv_vadd_vv_i32m4(high, __riscv_vsra_vx_i32m4(high, 31, some), some),
        __riscv_vreinterpret_v_i32m4_u32m4(before), some);
    const vint32m4_t rounded =
        __riscv_vadd_vv_i32m4(__riscv_vsra_vx_i32m4(twice, 1, some),
                              __riscv_vand_vx_i32m4(twice, 1, some), some);

    return __riscv_vmerge_vvm_i32m4(high, rounded, divides, some);
}

static inline void umakit_rvv_narrow(int8_t *to, vint32m4_t values, size_t some)
{
    const vint16m2_t half = __riscv_vncvt_x_x_w_i16m2(values, some);

    __riscv_vse8_v_i8m1(to, __riscv_vncvt_x_x_w_i8m1(half, some), some);
}

/* value + zero_point, limited. */
static inline vint32m4_t umakit_rvv_limited(vint32m4_t value, int32_t zero_point, int32_t lowest,
                                            int32_t highest, size_t some)
{
    value = __riscv_vmax_vx_i32m4(value, lowest - zero_point, some);
    value = __riscv_vmin_vx_i32m4(value, highest - zero_point, some);
    return __riscv_vadd_vx_i32m4(value, zero_point, some);
}

#define UMAKIT_RVV_RESULTS(TYPE)                                                                   \
    static inline void umakit_rvv_results_tflm_##TYPE(                                             \
        UMAKIT_RESULTS_PARAMETERS(TYPE))                                                           \
    {                                                                                              \
        int32_t i = 0;                                                                             \
                                                                                                   \
        while (i < count) {                                                                        \
            const size_t some = __riscv_vsetvl_e32m4((size_t)(count - i));                         \
            vint32m4_t multiplier = __riscv_vmv_v_x_i32m4(multipliers[0], some);                   \
            vint32m4_t shift = __riscv_vmv_v_x_i32m4(shifts[0], some);                             \
            vint32m4_t value =                                                                     \
                __riscv_vadd_vv_i32m4(__riscv_vle32_v_i32m4(sums + i, some),                       \
                                      __riscv_vle32_v_i32m4(bias + i, some), some);                \
                                                                                                   \
            if (step != 0) {                                                                       \
                multiplier = __riscv_vle32_v_i32m4(multipliers + i, some);                         \
                shift = __riscv_vsext_vf4_i32m4(__riscv_vle8_v_i8m1(shifts + i, some), some);      \
            }                                                                                      \
            value = umakit_rvv_requantize_tflm(value, multiplier, shift, some);                    \
            value = umakit_rvv_limited(value, zero_point, lowest, highest, some);                  \
            umakit_rvv_narrow((int8_t *)(void *)(results + i), value, some);                       \
            i += (int32_t)some;                                                                    \
        }                                                                                          \
    }

UMAKIT_RVV_RESULTS(int8)
UMAKIT_RVV_RESULTS(uint8)
#undef UMAKIT_RVV_RESULTS

static inline vint32m4_t umakit_rvv_scaled(vint32m4_t value, int32_t multiplier, int32_t shift,
                                           size_t some)
{
    return umakit_rvv_requantize_tflm(value, __riscv_vmv_v_x_i32m4(multiplier, some),
                                      __riscv_vmv_v_x_i32m4(shift, some), some);
}

#define UMAKIT_RVV_ADD(TYPE, LOAD)                                                                 \
    static inline void umakit_rvv_add_tflm_##TYPE(                                                 \
        UMAKIT_ADD_PARAMETERS(TYPE))                                                               \
    {                                                                                              \
        while (count > 0) {                                                                        \
            const size_t some = __riscv_vsetvl_e32m4((size_t)count);                               \
            const vint32m4_t first =                                                               \
                __riscv_vwsub_vx_i32m4(LOAD(left, some), (int16_t)left_zero_point, some);          \
            const vint32m4_t second =                                                              \
                __riscv_vwsub_vx_i32m4(LOAD(right, some), (int16_t)right_zero_point, some);        \
            const vint32m4_t sum = __riscv_vadd_vv_i32m4(                                          \
                umakit_rvv_scaled(__riscv_vsll_vx_i32m4(first, (size_t)left_shift, some),          \
                                  left_multiplier, left_factor_shift, some),                       \
                umakit_rvv_scaled(__riscv_vsll_vx_i32m4(second, (size_t)left_shift, some),         \
                                  right_multiplier, right_factor_shift, some),                     \
                some);                                                                             \
            const vint32m4_t value = umakit_rvv_scaled(sum, multiplier, shift, some);              \
                                                                                                   \
            umakit_rvv_narrow((int8_t *)(void *)results,                                           \
                              umakit_rvv_limited(value, zero_point, lowest, highest, some), some); \
            left += some;                                                                          \
            right += some;                                                                         \
            results += some;                                                                       \
            count -= (int32_t)some;                                                                \
        }                                                                                          \
    }

UMAKIT_RVV_ADD(int8, UMAKIT_RVV_LOAD_INT8)
UMAKIT_RVV_ADD(uint8, UMAKIT_RVV_LOAD_UINT8)
#undef UMAKIT_RVV_ADD
#undef UMAKIT_RVV_LOAD_INT8
#undef UMAKIT_RVV_LOAD_UINT8

#else /* no vectors */

UMAKIT_PLAIN_SUMS_OF(rvv, int8, UMAKIT_RVV_CHANNELS, 1, 0, 1)
UMAKIT_PLAIN_RESULTS_OF(rvv, tflm)
UMAKIT_PLAIN_ADD_OF(rvv)

#endif

#endif /* UMAKIT_DOT_PRODUCTS_RVV_H */
