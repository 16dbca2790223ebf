/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of products with the DSP extension of Arm (Cortex-M4, M7, M33): see dot_products.h. Windows
 * are int16_t, two products are summed at once by SMLAD, for two channels of up to two positions.
 * Weights are in the order 0, 2, 1, 3: SXTB16 takes every second byte. */
#ifndef UMAKIT_DOT_PRODUCTS_SMLAD_H
#define UMAKIT_DOT_PRODUCTS_SMLAD_H

#include "dot_products.h"

#define UMAKIT_SMLAD_CHANNELS 2

/* Without optimization compilers keep registers that the loops need. */
#if defined(__ARM_FEATURE_SIMD32) && defined(__OPTIMIZE__) && !defined(UMAKIT_PLAIN_DOT_PRODUCTS)

/* Four bytes, of which `from` is the first. */
static inline uint32_t umakit_smlad_word(const void *from)
{
    uint32_t word;

    memcpy(&word, from, sizeof word);
    return word;
}

/* Bytes 0 and 2 as 16-bit integers, and bytes 1 and 3. */
static inline uint32_t umakit_smlad_even(uint32_t bytes)
{
    uint32_t pair;

    __asm__("sxtb16 %0, %1" : "=r"(pair) : "r"(bytes));
    return pair;
}

static inline uint32_t umakit_smlad_odd(uint32_t bytes)
{
    uint32_t pair;

    __asm__("sxtb16 %0, %1, ror #8" : "=r"(pair) : "r"(bytes));
    return pair;
}

/* Four elements of two windows, and their weights of two channels. */
#define UMAKIT_SMLAD_TWO                                                                           \
    "   ldr %[x0], [%[first]], #4\n"                                                               \
    "   ldr %[x1], [%[second]], #4\n"                                                              \
    "   ldr %[w0], [%[weights]], #4\n"                                                             \
    "   ldr %[w1], [%[weights]], #4\n"                                                             \
    "   sxtb16 %[w], %[w0]\n"                                                                      \
    "   smlad %[a0], %[x0], %[w], %[a0]\n"                                                         \
    "   smlad %[b0], %[x1], %[w], %[b0]\n"                                                         \
    "   sxtb16 %[w], %[w1]\n"                                                                      \
    "   smlad %[a1], %[x0], %[w], %[a1]\n"                                                         \
    "   smlad %[b1], %[x1], %[w], %[b1]\n"                                                         \
    "   ldr %[x0], [%[first]], #4\n"                                                               \
    "   ldr %[x1], [%[second]], #4\n"                                                              \
    "   sxtb16 %[w], %[w0], ror #8\n"                                                              \
    "   smlad %[a0], %[x0], %[w], %[a0]\n"                                                         \
    "   smlad %[b0], %[x1], %[w], %[b0]\n"                                                         \
    "   sxtb16 %[w], %[w1], ror #8\n"                                                              \
    "   smlad %[a1], %[x0], %[w], %[a1]\n"                                                         \
    "   smlad %[b1], %[x1], %[w], %[b1]\n"

static inline void umakit_smlad_two(int32_t *restrict sums, int32_t sums_step,
                                    const int16_t *restrict windows, int32_t windows_step,
                                    const int8_t *restrict weights, int32_t elements)
{
    const int16_t *first = windows;
    const int16_t *second = windows + windows_step;
    const int8_t *const end = weights + elements * UMAKIT_SMLAD_CHANNELS;
    uint32_t a0 = 0, a1 = 0, b0 = 0, b1 = 0, x0, x1, w0, w1, w;

    if (elements % 8 != 0) {
        __asm__ volatile(UMAKIT_SMLAD_TWO
                         : [first] "+r"(first), [second] "+r"(second), [weights] "+r"(weights),
                           [a0] "+r"(a0), [a1] "+r"(a1), [b0] "+r"(b0), [b1] "+r"(b1),
                           [x0] "=&r"(x0), [x1] "=&r"(x1), [w0] "=&r"(w0), [w1] "=&r"(w1),
                           [w] "=&r"(w)
                         :
                         : "memory");
    }
    if (weights != end) {
        __asm__ volatile("1:\n" UMAKIT_SMLAD_TWO UMAKIT_SMLAD_TWO
                         "   cmp %[weights], %[end]\n"
                         "   bne 1b\n"
                         : [first] "+r"(first), [second] "+r"(second), [weights] "+r"(weights),
                           [a0] "+r"(a0), [a1] "+r"(a1), [b0] "+r"(b0), [b1] "+r"(b1),
                           [x0] "=&r"(x0), [x1] "=&r"(x1), [w0] "=&r"(w0), [w1] "=&r"(w1),
                           [w] "=&r"(w)
                         : [end] "r"(end)
                         : "cc", "memory");
    }
    sums[0] = (int32_t)a0;
    sums[1] = (int32_t)a1;
    sums[sums_step] = (int32_t)b0;
    sums[sums_step + 1] = (int32_t)b1;
}
#undef UMAKIT_SMLAD_TWO

/* Four elements of a window, and their weights of two channels. */
#define UMAKIT_SMLAD_ONE                                                                           \
    "   ldr %[x0], [%[window]], #4\n"                                                              \
    "   ldr %[w0], [%[weights]], #4\n"                                                             \
    "   ldr %[w1], [%[weights]], #4\n"                                                             \
    "   ldr %[x1], [%[window]], #4\n"                                                              \
    "   sxtb16 %[w], %[w0]\n"                                                                      \
    "   smlad %[a0], %[x0], %[w], %[a0]\n"                                                         \
    "   sxtb16 %[w0], %[w0], ror #8\n"                                                             \
    "   smlad %[a0], %[x1], %[w0], %[a0]\n"                                                        \
    "   sxtb16 %[w], %[w1]\n"                                                                      \
    "   smlad %[a1], %[x0], %[w], %[a1]\n"                                                         \
    "   sxtb16 %[w1], %[w1], ror #8\n"                                                             \
    "   smlad %[a1], %[x1], %[w1], %[a1]\n"

static inline void umakit_smlad_one(int32_t *restrict sums, const int16_t *restrict window,
                                    const int8_t *restrict weights, int32_t elements)
{
    const int8_t *const end = weights + elements * UMAKIT_SMLAD_CHANNELS;
    uint32_t a0 = 0, a1 = 0, x0, x1, w0, w1, w;

    if (elements % 8 != 0) {
        __asm__ volatile(UMAKIT_SMLAD_ONE
                         : [window] "+r"(window), [weights] "+r"(weights), [a0] "+r"(a0),
                           [a1] "+r"(a1), [x0] "=&r"(x0), [x1] "=&r"(x1), [w0] "=&r"(w0),
                           [w1] "=&r"(w1), [w] "=&r"(w)
                         :
                         : "memory");
    }
    if (weights != end) {
        __asm__ volatile("1:\n" UMAKIT_SMLAD_ONE UMAKIT_SMLAD_ONE
                         "   cmp %[weights], %[end]\n"
                         "   bne 1b\n"
                         : [window] "+r"(window), [weights] "+r"(weights), [a0] "+r"(a0),
                           [a1] "+r"(a1), [x0] "=&r"(x0), [x1] "=&r"(x1), [w0] "=&r"(w0),
                           [w1] "=&r"(w1), [w] "=&r"(w)
                         : [end] "r"(end)
                         : "cc", "memory");
    }
    sums[0] = (int32_t)a0;
    sums[1] = (int32_t)a1;
}
#undef UMAKIT_SMLAD_ONE

static inline void umakit_smlad_products(int32_t *restrict sums, int32_t sums_step,
                                         const int16_t *restrict windows, int32_t windows_step,
                                         int32_t positions, const int8_t *restrict weights,
                                         int32_t elements, int32_t blocks)
{
    int32_t block;

    for (block = 0; block < blocks; ++block) {
        if (positions == 2) {
            umakit_smlad_two(sums, sums_step, windows, windows_step, weights, elements);
        } else {
            umakit_smlad_one(sums, windows, weights, elements);
        }
        sums += UMAKIT_SMLAD_CHANNELS;
        weights += elements * UMAKIT_SMLAD_CHANNELS;
    }
}

/* Copies of data as 16-bit integers, four at a time. */
#define UMAKIT_SMLAD_COPY(TYPE, EXTEND)                                                            \
    static inline void umakit_smlad_copy_##TYPE(                                                   \
        int16_t *restrict to, const TYPE##_t *restrict from, int32_t count)                        \
    {                                                                                              \
        for (; count >= 4; count -= 4) {                                                           \
            const uint32_t bytes = umakit_smlad_word(from);                                        \
            uint32_t even, odd, low, high;                                                         \
                                                                                                   \
            __asm__(EXTEND " %0, %1" : "=r"(even) : "r"(bytes));                                   \
            __asm__(EXTEND " %0, %1, ror #8" : "=r"(odd) : "r"(bytes));                            \
            __asm__("pkhbt %0, %1, %2, lsl #16" : "=r"(low) : "r"(even), "r"(odd));                \
            __asm__("pkhtb %0, %1, %2, asr #16" : "=r"(high) : "r"(odd), "r"(even));               \
            memcpy(to, &low, sizeof low);                                                          \
            memcpy(to + 2, &high, sizeof high);                                                    \
            from += 4;                                                                             \
            to += 4;                                                                               \
        }                                                                                          \
        umakit_plain_copy_##TYPE##_int16(to, from, count);                                         \
    }

UMAKIT_SMLAD_COPY(int8, "sxtb16")
UMAKIT_SMLAD_COPY(uint8, "uxtb16")
#undef UMAKIT_SMLAD_COPY

/* Channels of a depthwise window, four at a time: SMLABB and SMLATT multiply halves of words. */
#define UMAKIT_SMLAD_DEPTHWISE(TYPE, EXTEND)                                                       \
    static inline void umakit_smlad_depthwise_##TYPE(                                              \
        UMAKIT_DEPTHWISE_PARAMETERS(TYPE))                                                         \
    {                                                                                              \
        int32_t channel;                                                                           \
                                                                                                   \
        if (channels < 4) {                                                                        \
            umakit_plain_depthwise_##TYPE(sums, data, row_step, column_step, weights, rows,        \
                                          columns, channels, 1);                                   \
            return;                                                                                \
        }                                                                                          \
        for (channel = 0; channel < channels; channel += 4) {                                      \
            /* The last channels overlap those before them. */                                     \
            const int32_t here = channel + 4 <= channels ? channel : channels - 4;                 \
            int32_t weight = here;                                                                 \
            uint32_t a = 0, b = 0, c = 0, d = 0;                                                   \
            int32_t row;                                                                           \
                                                                                                   \
            for (row = 0; row < rows; ++row) {                                                     \
                int32_t from = here + row * row_step;                                              \
                const int32_t end = weight + columns * channels;                                   \
                                                                                                   \
                while (weight != end) {                                                            \
                    const uint32_t bytes = umakit_smlad_word(data + from);                         \
                    const uint32_t others = umakit_smlad_word(weights + weight);                   \
                    uint32_t left, right;                                                          \
                                                                                                   \
                    __asm__(EXTEND " %0, %1" : "=r"(left) : "r"(bytes));                           \
                    right = umakit_smlad_even(others);                                             \
                    __asm__("smlabb %0, %1, %2, %0" : "+r"(a) : "r"(left), "r"(right));            \
                    __asm__("smlatt %0, %1, %2, %0" : "+r"(c) : "r"(left), "r"(right));            \
                    __asm__(EXTEND " %0, %1, ror #8" : "=r"(left) : "r"(bytes));                   \
                    right = umakit_smlad_odd(others);                                              \
                    __asm__("smlabb %0, %1, %2, %0" : "+r"(b) : "r"(left), "r"(right));            \
                    __asm__("smlatt %0, %1, %2, %0" : "+r"(d) : "r"(left), "r"(right));            \
                    from += column_step;                                                           \
                    weight += channels;                                                            \
                }                                                                                  \
            }                                                                                      \
            sums[here] = (int32_t)a;                                                               \
            sums[here + 1] = (int32_t)b;                                                           \
            sums[here + 2] = (int32_t)c;                                                           \
            sums[here + 3] = (int32_t)d;                                                           \
        }                                                                                          \
    }

UMAKIT_SMLAD_DEPTHWISE(int8, "sxtb16")
UMAKIT_SMLAD_DEPTHWISE(uint8, "uxtb16")
#undef UMAKIT_SMLAD_DEPTHWISE

#else /* no DSP extension */

UMAKIT_PLAIN_SUMS_OF(smlad, int16, UMAKIT_SMLAD_CHANNELS, 4, 1, 1)

#endif

#endif /* UMAKIT_DOT_PRODUCTS_SMLAD_H */
