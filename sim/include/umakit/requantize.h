/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How sums of quantized operators become integers of their result's scale.
 *
 * This is the one definition in C: generated kernels call it, and drivers and
 * models of accelerators may, to get the same bits. Everything is integer
 * arithmetic, inline, and free of undefined behaviour for the arguments that
 * are named. Right shifts of negative numbers and conversions of large
 * unsigned ones behave as in gcc, clang and all compilers of two's complement
 * machines.
 *
 * A real factor is stored as multiplier * 2^(shift - 31): a multiplier of 31
 * bits, 0 or at least 2^30, and a shift of -31 to 30, where negative ones
 * shift right. (B. Jacob et al., "Quantization and Training of Neural Networks
 * for Efficient Integer-Arithmetic-Only Inference", 2018, section 2.2.)
 *
 *     sum = bias + (data - input zero point) * weight + ...
 *     scaled = umakit_requantize(rounding, sum, multiplier, shift);
 *     result = umakit_add_and_clamp(scaled, output_zero_point, lowest, highest);
 */
#ifndef UMAKIT_REQUANTIZE_H
#define UMAKIT_REQUANTIZE_H

#include <stdint.h>

/* How a product with a factor is rounded: the argument `rounding` of drivers. */
enum umakit_rounding {
    UMAKIT_ROUNDING_TFLM = 0, /* twice, as TensorFlow Lite Micro */
    UMAKIT_ROUNDING_ORT = 1,  /* as the float32 arithmetic of ONNX Runtime */
    UMAKIT_ROUNDING_EVEN = 2, /* once, ties to even */
    UMAKIT_ROUNDING_OWN = 3   /* by a function of the accelerator's own, not by this header */
};

/* Bits of an integer of 0 or more up to its highest one; 0 of 0. */
static inline int32_t umakit_bit_length(int64_t value)
{
#if defined(__GNUC__)
    return value == 0 ? 0 : 64 - __builtin_clzll((unsigned long long)value);
#else
    int32_t bits = 0;

    for (; value != 0; value >>= 1) {
        ++bits;
    }
    return bits;
#endif
}

/* Leading zero bits of an integer of 0 or more, of 32. */
static inline int32_t umakit_leading_zeros(int32_t value)
{
    return 32 - umakit_bit_length(value);
}

/* --- TensorFlow Lite Micro ------------------------------------------------------------------ */

/* left * right / 2^31 to the nearest integer, ties up; not for two INT32_MIN.
 * `SaturatingRoundingDoublingHighMul` of gemmlowp (fixedpoint/fixedpoint.h). */
static inline int32_t umakit_high_product(int32_t left, int32_t right)
{
    return (int32_t)(((int64_t)left * right + (INT64_C(1) << 30)) >> 31);
}

/* value / 2^exponent to the nearest integer, ties away from 0; exponents of 1 to 32.
 * `RoundingDivideByPOT` of gemmlowp. */
static inline int32_t umakit_divide_by_power_of_two(int32_t value, int32_t exponent)
{
    const uint32_t magnitude = value < 0 ? 0u - (uint32_t)value : (uint32_t)value;
    const int32_t quotient = (int32_t)(((magnitude >> (exponent - 1)) + 1u) >> 1);

    return value < 0 ? -quotient : quotient;
}

/* The same in fewer instructions, not for INT32_MIN; exponents of 1 to 32. One less than a negative
 * value is at most a tie that is rounded up, which away from 0 rounds down. */
static inline int32_t umakit_rounded_shift(int32_t value, int32_t exponent)
{
    const int32_t twice = (value - (value < 0)) >> (exponent - 1);

    return (twice >> 1) + (twice & 1);
}

/* value * multiplier * 2^(shift - 31), rounded twice. A left shift keeps the low 32 bits.
 * `MultiplyByQuantizedMultiplier` of TensorFlow Lite (kernels/internal/common.h). */
static inline int32_t umakit_requantize_tflm(int32_t value, int32_t multiplier, int32_t shift)
{
    if (shift >= 0) {
        return umakit_high_product((int32_t)((uint32_t)value << shift), multiplier);
    }
    /* A product with a multiplier of 31 bits is above INT32_MIN. */
    return umakit_rounded_shift(umakit_high_product(value, multiplier), -shift);
}

/* value * multiplier * 2^(shift - 15) to the nearest integer, ties up, for sums of 64 bits, as
 * int16 data has them: |value| below 2^47, a multiplier of 15 bits, a shift of -31 to 14.
 * The overload of `MultiplyByQuantizedMultiplier` for int64. */
static inline int32_t umakit_requantize_tflm_int64(int64_t value, int32_t multiplier, int32_t shift)
{
    const int32_t right = 15 - shift;

    return (int32_t)((value * multiplier + (INT64_C(1) << (right - 1))) >> right);
}

/* 1 / m with 31 fractional bits, for a positive integer of which m in [1, 2) is what comes of
 * shifting out its leading zeros: three steps of Newton's method. Softmax divides by its sum so.
 * `one_over_one_plus_x_for_x_in_0_1` of gemmlowp. */
static inline int32_t umakit_reciprocal(int32_t value)
{
    /* With 29 fractional bits: the first approximation of 1 / x for x in [1/2, 1]. */
    const int32_t forty_eight_seventeenths = 1515870810;
    const int32_t minus_thirty_two_seventeenths = -1010580540;
    const uint32_t shifted = (uint32_t)value << umakit_leading_zeros(value);
    const int32_t half = (int32_t)(shifted >> 1);
    int32_t x = forty_eight_seventeenths + umakit_high_product(half, minus_thirty_two_seventeenths);
    int32_t step;

    for (step = 0; step < 3; ++step) {
        const int32_t error = (INT32_C(1) << 29) - umakit_high_product(half, x);
        x += umakit_high_product(x, error) * 4;
    }
    return x > INT32_MAX / 2 ? INT32_MAX : x * 2;
}

/* --- ONNX Runtime ---------------------------------------------------------------------------- */

/* value / 2^exponent to the nearest integer, ties to even; exponents of 1 to 62, |value| up to
 * 2^62. */
static inline int64_t umakit_divide_to_even(int64_t value, int32_t exponent)
{
    const int64_t half = INT64_C(1) << (exponent - 1);
    const int64_t odd = (value >> exponent) & 1;

    return (value + half - 1 + odd) >> exponent;
}

/* What float32 makes of an integer: 24 significant bits, ties to even; |value| up to 2^62. */
static inline int64_t umakit_round_to_float32(int64_t value)
{
    const int64_t largest_exact = INT64_C(1) << 24;
    int32_t excess;

    if (value >= -largest_exact && value <= largest_exact) {
        return value;
    }
    excess = umakit_bit_length(value < 0 ? -value : value) - 24;
    return umakit_divide_to_even(value, excess) * (INT64_C(1) << excess);
}

/* An integer limited to 32 bits. */
static inline int32_t umakit_saturate(int64_t value)
{
    return value > INT32_MAX ? INT32_MAX : value < INT32_MIN ? INT32_MIN : (int32_t)value;
}

/* rint(float32(value) * factor) for the float32 factor multiplier * 2^(shift - 31), limited to 32
 * bits: what ONNX Runtime computes (`MlasRequantizeOutput`), in integers. */
static inline int32_t umakit_requantize_ort(int32_t value, int32_t multiplier, int32_t shift)
{
    const int64_t product = umakit_round_to_float32(value) * multiplier;

    return umakit_saturate(
        umakit_divide_to_even(umakit_round_to_float32(product), 31 - shift));
}

/* value * multiplier * 2^(shift - 31) to the nearest integer, ties to even, limited to 32 bits; for
 * shifts of -31 to 30, and products of a magnitude up to 2^62. ONNX Runtime's float32 results for
 * integers of 16 bits are next to it. */
static inline int32_t umakit_requantize_even(int64_t value, int32_t multiplier, int32_t shift)
{
    return umakit_saturate(umakit_divide_to_even(value * multiplier, 31 - shift));
}

/* --- any -------------------------------------------------------------------------------------- */

/* value * multiplier * 2^(shift - 31), rounded as a driver is told to; not for ..._OWN. */
static inline int32_t umakit_requantize(int32_t rounding, int32_t value, int32_t multiplier,
                                        int32_t shift)
{
    switch (rounding) {
    case UMAKIT_ROUNDING_ORT:
        return umakit_requantize_ort(value, multiplier, shift);
    case UMAKIT_ROUNDING_EVEN:
        return umakit_requantize_even(value, multiplier, shift);
    default:
        return umakit_requantize_tflm(value, multiplier, shift);
    }
}

/* value + zero_point, limited to [lowest, highest]; zero point and limits have 16 bits. */
static inline int32_t umakit_add_and_clamp(int32_t value, int32_t zero_point, int32_t lowest,
                                           int32_t highest)
{
    /* The sum of a value in these limits does not overflow. */
    const int32_t low = lowest - zero_point;
    const int32_t high = highest - zero_point;

    return (value < low ? low : value > high ? high : value) + zero_point;
}

#endif /* UMAKIT_REQUANTIZE_H */
