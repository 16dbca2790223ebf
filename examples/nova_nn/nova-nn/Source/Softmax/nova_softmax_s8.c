/*
 * SPDX-License-Identifier: Apache-2.0
 */
#include "internal/nova_nn_support.h"
#include "nova_nn_functions.h"

#define SUM_BITS 12

/* exp of 31 fractional bits, in [-1/4, 0), as a polynomial around -1/8 */
static int32_t exp_of_fraction(const int32_t value)
{
    const int32_t x = value + (1 << 28);
    const int32_t x2 = nova_doubling_high_mult(x, x);
    const int32_t x3 = nova_doubling_high_mult(x2, x);
    const int32_t x4 = nova_doubling_high_mult(x2, x2);
    const int32_t third = nova_doubling_high_mult(nova_divide_by_power_of_two(x4, 2) + x3,
                                                  715827883);
    const int32_t series = x + nova_divide_by_power_of_two(third + x2, 1);

    return 1895147668 + nova_doubling_high_mult(1895147668, series);
}

/* exp of 26 fractional bits, not above 0; 31 fractional bits */
static int32_t exp_on_negative(const int32_t value)
{
    static const int32_t powers[] = {1672461947, 1302514674, 790015084, 290630308,
                                     39332535,   720401,     242};
    const int32_t quarter = 1 << 24;
    const int32_t fraction = (value & (quarter - 1)) - quarter;
    const int32_t rest = fraction - value;
    int32_t result = exp_of_fraction(fraction * (1 << 5));

    for (int i = 0; i < 7; i++) {
        if (rest & (quarter << i)) {
            result = nova_doubling_high_mult(result, powers[i]);
        }
    }
    return value == 0 ? INT32_MAX : result;
}

/* 1 / (1 + x) of 31 fractional bits, x in [0, 1), by Newton's method */
static int32_t one_over_one_plus(const int32_t value)
{
    const int64_t sum = (int64_t)value + INT32_MAX;
    const int32_t half = (sum + (sum >= 0 ? 1 : -1)) / 2;
    int32_t x = 1515870810 + nova_doubling_high_mult(half, -1010580540);

    for (int i = 0; i < 3; i++) {
        const int32_t left = (1 << 29) - nova_doubling_high_mult(half, x);

        x += nova_doubling_high_mult(x, left) * 4;
    }
    return x > INT32_MAX / 2 ? INT32_MAX : x * 2;
}

nova_status nova_softmax_s8(const int8_t *input, int32_t num_rows, int32_t row_size, int32_t mult,
                            int32_t shift, int32_t diff_min, int8_t *output)
{
    if (row_size < 1) {
        return NOVA_ARG_ERROR;
    }
    for (int row = 0; row < num_rows; row++) {
        int32_t largest = input[0], sum = 0;

        for (int i = 1; i < row_size; i++) {
            largest = NOVA_MAX(largest, input[i]);
        }
        for (int i = 0; i < row_size; i++) {
            const int32_t diff = input[i] - largest;

            if (diff >= diff_min) {
                const int32_t scaled = nova_doubling_high_mult(diff * (1 << shift), mult);

                sum += nova_divide_by_power_of_two(exp_on_negative(scaled), SUM_BITS);
            }
        }
        const int32_t headroom = NOVA_CLZ((uint32_t)sum);
        const int32_t fraction = ((uint32_t)sum << headroom) - (1u << 31);
        const int32_t reciprocal = one_over_one_plus(fraction);
        const int32_t bits = SUM_BITS - headroom + 31 - 8;

        for (int i = 0; i < row_size; i++) {
            const int32_t diff = input[i] - largest;
            int32_t result = -128;

            if (diff >= diff_min && bits < 32) { /* else below one half */
                const int32_t scaled = nova_doubling_high_mult(diff * (1 << shift), mult);
                const int32_t product =
                    nova_doubling_high_mult(reciprocal, exp_on_negative(scaled));

                result += nova_divide_by_power_of_two(product, bits);
            }
            output[i] = NOVA_CLAMP(result, 127, -128);
        }
        input += row_size;
        output += row_size;
    }
    return NOVA_SUCCESS;
}
