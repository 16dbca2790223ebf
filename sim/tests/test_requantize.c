/* SPDX-License-Identifier: Apache-2.0 */
/*
 * requantize.h at its edges, against divisions of exact products. That it is
 * exact for arguments of any size is tested in Python, with big integers.
 */
#include "check.h"
#include "umakit/requantize.h"

static const int32_t VALUES[] = {
    INT32_MIN, INT32_MIN + 1, -(1 << 30) - 1, -(1 << 24) - 1, -1000001, -3, -2, -1, 0,
    1,         2,             3,              1000001,        (1 << 24) + 1, 1 << 30,
    INT32_MAX - 1, INT32_MAX};
static const int32_t MULTIPLIERS[] = {0, 1 << 30, (1 << 30) + 1, 1518500250, 0x7fffff80, INT32_MAX};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* value / divisor to the nearest integer; ties up, away from 0, or to even. */
enum ties { UP, AWAY, EVEN };

static int64_t divided(int64_t value, int64_t divisor, enum ties ties)
{
    int64_t quotient = value / divisor;
    int64_t rest = value % divisor;
    int up;

    if (rest < 0) {
        rest += divisor;
        quotient -= 1;
    }
    if (rest != divisor - rest) {
        up = rest > divisor - rest;
    } else if (ties == EVEN) {
        up = quotient % 2 != 0;
    } else {
        up = ties == UP || value >= 0;
    }
    return quotient + up;
}

static int64_t tflm(int64_t value, int64_t multiplier, int32_t shift)
{
    const int64_t left = shift > 0 ? shift : 0;
    const int64_t right = shift < 0 ? -shift : 0;
    const int64_t high =
        divided(value * (INT64_C(1) << left) * multiplier, INT64_C(1) << 31, UP);

    return divided(high, INT64_C(1) << right, AWAY);
}

/* 24 significant bits. */
static int64_t as_float(int64_t value)
{
    int64_t unit = 1;

    while (value / unit >= INT64_C(1) << 24 || value / unit <= -(INT64_C(1) << 24)) {
        unit *= 2;
    }
    return divided(value, unit, EVEN) * unit;
}

static int64_t ort(int64_t value, int64_t multiplier, int32_t shift)
{
    const int64_t result = divided(as_float(as_float(value) * multiplier),
                                   INT64_C(1) << (31 - shift), EVEN);

    return result > INT32_MAX ? INT32_MAX : result < INT32_MIN ? INT32_MIN : result;
}

static void check_products(void)
{
    size_t v, m;
    int32_t shift;

    for (v = 0; v < COUNT(VALUES); ++v) {
        for (m = 0; m < COUNT(MULTIPLIERS); ++m) {
            const int32_t value = VALUES[v], multiplier = MULTIPLIERS[m];
            for (shift = -31; shift <= 0; ++shift) {
                CHECK_EQUAL(umakit_requantize_tflm(value, multiplier, shift),
                            tflm(value, multiplier, shift));
                CHECK_EQUAL(umakit_requantize(UMAKIT_ROUNDING_TFLM, value, multiplier, shift),
                            tflm(value, multiplier, shift));
            }
            for (shift = -31; shift <= 6; ++shift) {
                CHECK_EQUAL(umakit_requantize_ort(value, multiplier, shift),
                            ort(value, multiplier, shift));
                CHECK_EQUAL(umakit_requantize(UMAKIT_ROUNDING_ORT, value, multiplier, shift),
                            ort(value, multiplier, shift));
            }
        }
    }
    for (shift = 0; shift <= 30; ++shift) {
        const int32_t most = INT32_MAX >> shift;
        CHECK_EQUAL(umakit_requantize_tflm(most, INT32_MAX, shift),
                    tflm(most, INT32_MAX, shift));
        CHECK_EQUAL(umakit_requantize_tflm(-most - 1, INT32_MAX, shift),
                    tflm(-most - 1, INT32_MAX, shift));
    }
}

/* Rounded once; multipliers of fewer bits for larger sums. */
static void check_exact_products(void)
{
    const int64_t most = INT64_C(1) << 42;
    size_t v, m;
    int32_t shift;

    for (v = 0; v < COUNT(VALUES); ++v) {
        for (m = 0; m < COUNT(MULTIPLIERS); ++m) {
            const int32_t value = VALUES[v], multiplier = MULTIPLIERS[m];
            for (shift = -31; shift <= 30; ++shift) {
                const int64_t divisor = INT64_C(1) << (31 - shift);
                const int64_t exact = divided((int64_t)value * multiplier, divisor, EVEN);
                const int64_t expected =
                    exact > INT32_MAX ? INT32_MAX : exact < INT32_MIN ? INT32_MIN : exact;
                CHECK_EQUAL(umakit_requantize_even(value, multiplier, shift), expected);
                CHECK_EQUAL(umakit_requantize(UMAKIT_ROUNDING_EVEN, value, multiplier, shift),
                            expected);
            }
        }
    }
    CHECK_EQUAL(umakit_requantize_even(most, 1 << 20, 30), INT32_MAX);
    CHECK_EQUAL(umakit_requantize_even(-most, 1 << 20, -31), -1);
    CHECK_EQUAL(umakit_requantize_even(most + most / 2, 1 << 19, -31), 1);
}

static void check_sums_of_64_bits(void)
{
    const int64_t most = (INT64_C(1) << 47) - 1;
    int32_t shift;

    for (shift = -31; shift <= -1; ++shift) {
        const int64_t divisor = INT64_C(1) << (15 - shift);
        const int64_t value = shift < -16 ? most : (INT64_C(1) << (30 - shift)) - 1;
        CHECK_EQUAL(umakit_requantize_tflm_int64(value, 32767, shift),
                    divided(value * 32767, divisor, UP));
        CHECK_EQUAL(umakit_requantize_tflm_int64(-value, 32767, shift),
                    divided(-value * 32767, divisor, UP));
    }
    CHECK_EQUAL(umakit_requantize_tflm_int64(3, 1 << 14, 0), 2);
    CHECK_EQUAL(umakit_requantize_tflm_int64(-3, 1 << 14, 0), -1);
    CHECK_EQUAL(umakit_requantize_tflm_int64(-1, 1, 14), 0);
}

static void check_divisions(void)
{
    size_t v;
    int32_t exponent;

    for (v = 0; v < COUNT(VALUES); ++v) {
        for (exponent = 1; exponent <= 32; ++exponent) {
            CHECK_EQUAL(umakit_divide_by_power_of_two(VALUES[v], exponent),
                        divided(VALUES[v], INT64_C(1) << exponent, AWAY));
        }
        for (exponent = 1; exponent <= 62; ++exponent) {
            CHECK_EQUAL(umakit_divide_to_even(VALUES[v], exponent),
                        divided(VALUES[v], INT64_C(1) << exponent, EVEN));
        }
    }
    CHECK_EQUAL(umakit_divide_to_even(INT64_C(1) << 62, 62), 1);
    CHECK_EQUAL(umakit_divide_to_even(-(INT64_C(1) << 62), 62), -1);
    CHECK_EQUAL(umakit_round_to_float32(INT64_C(1) << 62), INT64_C(1) << 62);
    CHECK_EQUAL(umakit_round_to_float32((INT64_C(1) << 62) - 1), INT64_C(1) << 62);
    CHECK_EQUAL(umakit_round_to_float32(-(INT64_C(1) << 24) - 1), -(INT64_C(1) << 24));
}

static void check_clamp(void)
{
    int32_t value;

    for (value = -300; value <= 300; ++value) {
        const int32_t sum = value - 17;
        CHECK_EQUAL(umakit_add_and_clamp(value, -17, -128, 127),
                    sum < -128 ? -128 : sum > 127 ? 127 : sum);
    }
    CHECK_EQUAL(umakit_add_and_clamp(INT32_MAX, 127, -128, 127), 127);
    CHECK_EQUAL(umakit_add_and_clamp(INT32_MIN, -128, -128, 127), -128);
    CHECK_EQUAL(umakit_add_and_clamp(INT32_MIN, -32768, -32768, 32767), -32768);
    CHECK_EQUAL(umakit_add_and_clamp(INT32_MAX, 65535, 0, 65535), 65535);
}

static void check_bits(void)
{
    int32_t bit;

    CHECK_EQUAL(umakit_bit_length(0), 0);
    for (bit = 0; bit <= 62; ++bit) {
        CHECK_EQUAL(umakit_bit_length(INT64_C(1) << bit), bit + 1);
        CHECK_EQUAL(umakit_bit_length((INT64_C(1) << bit) - 1), bit);
    }
    CHECK_EQUAL(umakit_leading_zeros(1), 31);
    CHECK_EQUAL(umakit_leading_zeros(INT32_MAX), 1);
    CHECK_EQUAL(umakit_saturate(INT64_MAX), INT32_MAX);
    CHECK_EQUAL(umakit_saturate(INT64_MIN), INT32_MIN);
    CHECK_EQUAL(umakit_saturate(-5), -5);
}

/* 1 / m has an error of few units in the last place. */
static void check_reciprocals(void)
{
    uint32_t state = 1u;
    int i;

    for (i = 0; i < 100000; ++i) {
        const uint32_t random = random_number(&state);
        const int32_t value = (int32_t)((random >> 1 >> random % 31u) | 1u);
        const int64_t shifted = (int64_t)value << umakit_leading_zeros(value);
        const int64_t difference =
            (INT64_C(1) << 62) / shifted - umakit_reciprocal(value);
        CHECK(difference > -16 && difference < 16);
    }
    CHECK_EQUAL(umakit_reciprocal(1), INT32_MAX);
    CHECK_EQUAL(umakit_reciprocal(1 << 30), INT32_MAX);
}

int main(void)
{
    check_products();
    check_exact_products();
    check_sums_of_64_bits();
    check_divisions();
    check_clamp();
    check_bits();
    check_reciprocals();
    return check_result();
}
