/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of products with AVX2: see dot_products.h. Windows are int16_t, two products are summed at
 * once by vpmaddwd, for 16 channels of up to four positions. */
#ifndef UMAKIT_DOT_PRODUCTS_AVX2_H
#define UMAKIT_DOT_PRODUCTS_AVX2_H

#include "dot_products.h"

#define UMAKIT_AVX2_CHANNELS 16

#if defined(__AVX2__) && !defined(UMAKIT_PLAIN_DOT_PRODUCTS)

#include <immintrin.h>

/* Copies of data as 16-bit integers, 16 at a time. */
#define UMAKIT_AVX2_COPY(TYPE, WIDEN)                                                              \
    static inline void umakit_avx2_copy_##TYPE(                                                    \
        int16_t *restrict to, const TYPE##_t *restrict from, int32_t count)                        \
    {                                                                                              \
        for (; count >= 16; count -= 16) {                                                         \
            const __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)from);            \
                                                                                                   \
            _mm256_storeu_si256((__m256i *)(void *)to, WIDEN(bytes));                              \
            from += 16;                                                                            \
            to += 16;                                                                              \
        }                                                                                          \
        umakit_plain_copy_##TYPE##_int16(to, from, count);                                         \
    }

UMAKIT_AVX2_COPY(int8, _mm256_cvtepi8_epi16)
UMAKIT_AVX2_COPY(uint8, _mm256_cvtepu8_epi16)
#undef UMAKIT_AVX2_COPY

/* Two neighbouring elements of a window in all lanes. */
static inline __m256i umakit_avx2_pair(const int16_t *from)
{
    int32_t pair;

    memcpy(&pair, from, sizeof pair);
    return _mm256_set1_epi32(pair);
}

/* Eight pairs of weights as 16-bit integers. */
static inline __m256i umakit_avx2_weights(const int8_t *from)
{
    return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)from));
}

static inline __m256i umakit_avx2_add(__m256i sum, __m256i data, __m256i weights)
{
    return _mm256_add_epi32(sum, _mm256_madd_epi16(data, weights));
}

static inline void umakit_avx2_store(int32_t *to, __m256i low, __m256i high)
{
    _mm256_storeu_si256((__m256i *)(void *)to, low);
    _mm256_storeu_si256((__m256i *)(void *)(to + 8), high);
}

/* One block of channels of four positions. */
static inline void umakit_avx2_four(int32_t *restrict sums, int32_t sums_step,
                                    const int16_t *restrict windows, int32_t windows_step,
                                    const int8_t *restrict weights, int32_t elements)
{
    const int16_t *const first = windows;
    const int16_t *const second = windows + windows_step;
    const int16_t *const third = second + windows_step;
    const int16_t *const fourth = third + windows_step;
    __m256i a0 = _mm256_setzero_si256(), a1 = a0, b0 = a0, b1 = a0;
    __m256i c0 = a0, c1 = a0, d0 = a0, d1 = a0;
    int32_t i;

    for (i = 0; i < elements; i += 2) {
        const __m256i low = umakit_avx2_weights(weights + i * UMAKIT_AVX2_CHANNELS);
        const __m256i high = umakit_avx2_weights(weights + i * UMAKIT_AVX2_CHANNELS + 16);
        __m256i data = umakit_avx2_pair(first + i);

        a0 = umakit_avx2_add(a0, data, low);
        a1 = umakit_avx2_add(a1, data, high);
        data = umakit_avx2_pair(second + i);
        b0 = umakit_avx2_add(b0, data, low);
        b1 = umakit_avx2_add(b1, data, high);
        data = umakit_avx2_pair(third + i);
        c0 = umakit_avx2_add(c0, data, low);
        c1 = umakit_avx2_add(c1, data, high);
        data = umakit_avx2_pair(fourth + i);
        d0 = umakit_avx2_add(d0, data, low);
        d1 = umakit_avx2_add(d1, data, high);
    }
    umakit_avx2_store(sums, a0, a1);
    umakit_avx2_store(sums + sums_step, b0, b1);
    umakit_avx2_store(sums + 2 * sums_step, c0, c1);
    umakit_avx2_store(sums + 3 * sums_step, d0, d1);
}

/* One block of channels of one position; two sums each, because an addition waits for the one
 * before it. */
static inline void umakit_avx2_one(int32_t *restrict sums, const int16_t *restrict window,
                                   const int8_t *restrict weights, int32_t elements)
{
    __m256i a0 = _mm256_setzero_si256(), a1 = a0, b0 = a0, b1 = a0;
    int32_t i;

    for (i = 0; i + 2 < elements; i += 4) {
        const int8_t *const here = weights + i * UMAKIT_AVX2_CHANNELS;
        __m256i data = umakit_avx2_pair(window + i);

        a0 = umakit_avx2_add(a0, data, umakit_avx2_weights(here));
        a1 = umakit_avx2_add(a1, data, umakit_avx2_weights(here + 16));
        data = umakit_avx2_pair(window + i + 2);
        b0 = umakit_avx2_add(b0, data, umakit_avx2_weights(here + 32));
        b1 = umakit_avx2_add(b1, data, umakit_avx2_weights(here + 48));
    }
    if (i < elements) {
        const int8_t *const here = weights + i * UMAKIT_AVX2_CHANNELS;
        const __m256i data = umakit_avx2_pair(window + i);

        a0 = umakit_avx2_add(a0, data, umakit_avx2_weights(here));
        a1 = umakit_avx2_add(a1, data, umakit_avx2_weights(here + 16));
    }
    umakit_avx2_store(sums, _mm256_add_epi32(a0, b0), _mm256_add_epi32(a1, b1));
}

UMAKIT_PRODUCTS_BY_FOUR(avx2, int16, UMAKIT_AVX2_CHANNELS)

/* 16 channels of two elements of a depthwise window, as pairs of 16-bit integers. */
#define UMAKIT_AVX2_DEPTHWISE(TYPE, WIDEN)                                                         \
    static inline void umakit_avx2_depthwise_16_##TYPE(                                            \
        UMAKIT_DEPTHWISE_PARAMETERS(TYPE))                                                         \
    {                                                                                              \
        const int32_t elements = rows * columns;                                                   \
        int32_t row_start = 0;                                                                     \
        __m256i low = _mm256_setzero_si256();                                                      \
        __m256i high = low;                                                                        \
        int32_t column = 0;                                                                        \
        int32_t i;                                                                                 \
                                                                                                   \
        for (i = 0; i < elements; i += 2) {                                                        \
            const int8_t *const here = weights + i * channels;                                     \
            __m128i first, second = _mm_setzero_si128();                                           \
                                                                                                   \
            first = _mm_loadu_si128(                                                               \
                (const __m128i *)(const void *)(data + row_start + column * column_step));         \
            if (++column == columns) {                                                             \
                column = 0;                                                                        \
                row_start += row_step;                                                             \
            }                                                                                      \
            if (i + 1 < elements) {                                                                \
                second = _mm_loadu_si128(                                                          \
                    (const __m128i *)(const void *)(data + row_start + column * column_step));     \
                if (++column == columns) {                                                         \
                    column = 0;                                                                    \
                    row_start += row_step;                                                         \
                }                                                                                  \
            }                                                                                      \
            low = umakit_avx2_add(low, WIDEN(_mm_unpacklo_epi8(first, second)),                    \
                                  umakit_avx2_weights(here));                                      \
            high = umakit_avx2_add(high, WIDEN(_mm_unpackhi_epi8(first, second)),                  \
                                   umakit_avx2_weights(here + 16));                                \
        }                                                                                          \
        umakit_avx2_store(sums, low, high);                                                        \
    }                                                                                              \
                                                                                                   \
    static inline void umakit_avx2_depthwise_##TYPE(                                               \
        UMAKIT_DEPTHWISE_PARAMETERS(TYPE))                                                         \
    {                                                                                              \
        int32_t channel;                                                                           \
                                                                                                   \
        if (channels < 16) {                                                                       \
            umakit_plain_depthwise_##TYPE(sums, data, row_step, column_step, weights, rows,        \
                                          columns, channels, 2);                                   \
            return;                                                                                \
        }                                                                                          \
        for (channel = 0; channel < channels; channel += 16) {                                     \
            /* The last channels overlap those before them. */                                     \
            const int32_t here = channel + 16 <= channels ? channel : channels - 16;               \
                                                                                                   \
            umakit_avx2_depthwise_16_##TYPE(sums + here, data + here, row_step, column_step,       \
                                            weights + 2 * here, rows, columns, channels);          \
        }                                                                                          \
    }

UMAKIT_AVX2_DEPTHWISE(int8, _mm256_cvtepi8_epi16)
UMAKIT_AVX2_DEPTHWISE(uint8, _mm256_cvtepu8_epi16)
#undef UMAKIT_AVX2_DEPTHWISE

/* --- results ---------------------------------------------------------------------------------- */

/* umakit_high_product of eight pairs. */
static inline __m256i umakit_avx2_high_product(__m256i left, __m256i right)
{
    const __m256i half = _mm256_set1_epi64x(INT64_C(1) << 30);
    const __m256i even = _mm256_add_epi64(_mm256_mul_epi32(left, right), half);
    const __m256i odd = _mm256_add_epi64(
        _mm256_mul_epi32(_mm256_srli_epi64(left, 32), _mm256_srli_epi64(right, 32)), half);

    return _mm256_blend_epi32(_mm256_srli_epi64(even, 31), _mm256_slli_epi64(odd, 1), 0xAA);
}

static inline __m256i umakit_avx2_requantize_tflm(__m256i sums, __m256i multipliers,
                                                  __m256i shifts)
{
    const __m256i zero = _mm256_setzero_si256();
    const __m256i one = _mm256_set1_epi32(1);
    const __m256i left = _mm256_max_epi32(shifts, zero);
    const __m256i right = _mm256_max_epi32(_mm256_sub_epi32(zero, shifts), zero);
    const __m256i half = _mm256_srli_epi32(_mm256_sllv_epi32(one, right), 1);
    const __m256i scaled = umakit_avx2_high_product(_mm256_sllv_epi32(sums, left), multipliers);
    /* Unsigned, because the magnitude of INT32_MIN is. */
    const __m256i magnitude = _mm256_add_epi32(_mm256_abs_epi32(scaled), half);

    return _mm256_sign_epi32(_mm256_srlv_epi32(magnitude, right), scaled);
}

/* Limited to 2^30 in magnitude, which is beyond the limits of results. */
static inline __m256i umakit_avx2_requantize_ort(__m256i sums, __m256i multipliers,
                                                 __m256i shifts)
{
    const __m256i exponent =
        _mm256_slli_epi32(_mm256_add_epi32(shifts, _mm256_set1_epi32(127 - 31)), 23);
    const __m256 factor =
        _mm256_mul_ps(_mm256_cvtepi32_ps(multipliers), _mm256_castsi256_ps(exponent));
    const __m256 product = _mm256_mul_ps(_mm256_cvtepi32_ps(sums), factor);
    const __m256 limit = _mm256_set1_ps(1073741824.0f);
    const __m256 limited =
        _mm256_max_ps(_mm256_min_ps(product, limit), _mm256_sub_ps(_mm256_setzero_ps(), limit));

    return _mm256_cvtps_epi32(limited);
}

#define UMAKIT_AVX2_RESULTS(ROUNDING, TYPE, PACK)                                                  \
    static inline void umakit_avx2_results_##ROUNDING##_##TYPE(                                    \
        UMAKIT_RESULTS_PARAMETERS(TYPE))                                                           \
    {                                                                                              \
        const __m256i zero = _mm256_set1_epi32(zero_point);                                        \
        const __m256i low = _mm256_set1_epi32(lowest - zero_point);                                \
        const __m256i high = _mm256_set1_epi32(highest - zero_point);                              \
        __m256i multiplier = _mm256_set1_epi32(multipliers[0]);                                    \
        __m256i shift = _mm256_set1_epi32(shifts[0]);                                              \
        int32_t first;                                                                             \
                                                                                                   \
        if (count < 8) {                                                                           \
            umakit_plain_results_##ROUNDING##_##TYPE(results, sums, count, bias, multipliers,      \
                                                     shifts, step, zero_point, lowest, highest);   \
            return;                                                                                \
        }                                                                                          \
        for (first = 0; first < count; first += 8) {                                               \
            const int32_t i = first + 8 <= count ? first : count - 8;                              \
            __m256i value = _mm256_add_epi32(                                                      \
                _mm256_loadu_si256((const __m256i *)(const void *)(sums + i)),                     \
                _mm256_loadu_si256((const __m256i *)(const void *)(bias + i)));                    \
            __m128i narrow;                                                                        \
                                                                                                   \
            if (step != 0) {                                                                       \
                multiplier =                                                                       \
                    _mm256_loadu_si256((const __m256i *)(const void *)(multipliers + i));          \
                shift = _mm256_cvtepi8_epi32(                                                      \
                    _mm_loadl_epi64((const __m128i *)(const void *)(shifts + i)));                 \
            }                                                                                      \
            value = umakit_avx2_requantize_##ROUNDING(value, multiplier, shift);                   \
            value = _mm256_min_epi32(_mm256_max_epi32(value, low), high);                          \
            value = _mm256_add_epi32(value, zero);                                                 \
            narrow = _mm_packs_epi32(_mm256_castsi256_si128(value),                                \
                                     _mm256_extracti128_si256(value, 1));                          \
            narrow = PACK(narrow, narrow);                                                         \
            _mm_storel_epi64((__m128i *)(void *)(results + i), narrow);                            \
        }                                                                                          \
    }

#define UMAKIT_AVX2_ADD(TYPE, WIDEN, PACK)                                                         \
    static inline void umakit_avx2_add_tflm_##TYPE(                                                \
        UMAKIT_ADD_PARAMETERS(TYPE))                                                               \
    {                                                                                              \
        const __m256i left_zero = _mm256_set1_epi32(left_zero_point);                              \
        const __m256i right_zero = _mm256_set1_epi32(right_zero_point);                            \
        const __m128i common = _mm_cvtsi32_si128(left_shift);                                      \
        const __m256i zero = _mm256_set1_epi32(zero_point);                                        \
        const __m256i low = _mm256_set1_epi32(lowest - zero_point);                                \
        const __m256i high = _mm256_set1_epi32(highest - zero_point);                              \
        const int32_t whole = count / 8 * 8;                                                       \
        int32_t i;                                                                                 \
                                                                                                   \
        for (i = 0; i < whole; i += 8) {                                                           \
            __m256i first = WIDEN(_mm_loadl_epi64((const __m128i *)(const void *)(left + i)));     \
            __m256i second = WIDEN(_mm_loadl_epi64((const __m128i *)(const void *)(right + i)));   \
            __m128i narrow;                                                                        \
            __m256i sum;                                                                           \
                                                                                                   \
            first = umakit_avx2_requantize_tflm(                                                   \
                _mm256_sll_epi32(_mm256_sub_epi32(first, left_zero), common),                      \
                _mm256_set1_epi32(left_multiplier), _mm256_set1_epi32(left_factor_shift));         \
            second = umakit_avx2_requantize_tflm(                                                  \
                _mm256_sll_epi32(_mm256_sub_epi32(second, right_zero), common),                    \
                _mm256_set1_epi32(right_multiplier), _mm256_set1_epi32(right_factor_shift));       \
            sum = umakit_avx2_requantize_tflm(_mm256_add_epi32(first, second),                     \
                                              _mm256_set1_epi32(multiplier),                       \
                                              _mm256_set1_epi32(shift));                           \
            sum = _mm256_min_epi32(_mm256_max_epi32(sum, low), high);                              \
            sum = _mm256_add_epi32(sum, zero);                                                     \
            narrow = _mm_packs_epi32(_mm256_castsi256_si128(sum),                                  \
                                     _mm256_extracti128_si256(sum, 1));                            \
            _mm_storel_epi64((__m128i *)(void *)(results + i), PACK(narrow, narrow));              \
        }                                                                                          \
        umakit_plain_add_tflm_##TYPE(results + whole, left + whole, right + whole, count - whole,  \
                                     left_zero_point, right_zero_point, left_shift,                \
                                     left_multiplier, left_factor_shift, right_multiplier,         \
                                     right_factor_shift, multiplier, shift, zero_point, lowest,    \
                                     highest);                                                     \
    }

UMAKIT_AVX2_ADD(int8, _mm256_cvtepi8_epi32, _mm_packs_epi16)
UMAKIT_AVX2_ADD(uint8, _mm256_cvtepu8_epi32, _mm_packus_epi16)
#undef UMAKIT_AVX2_ADD

UMAKIT_AVX2_RESULTS(tflm, int8, _mm_packs_epi16)
UMAKIT_AVX2_RESULTS(tflm, uint8, _mm_packus_epi16)
UMAKIT_AVX2_RESULTS(ort, int8, _mm_packs_epi16)
UMAKIT_AVX2_RESULTS(ort, uint8, _mm_packus_epi16)
#undef UMAKIT_AVX2_RESULTS

#else /* no AVX2 */

UMAKIT_PLAIN_SUMS_OF(avx2, int16, UMAKIT_AVX2_CHANNELS, 2, 0, 2)
UMAKIT_PLAIN_RESULTS_OF(avx2, tflm)
UMAKIT_PLAIN_RESULTS_OF(avx2, ort)
UMAKIT_PLAIN_ADD_OF(avx2)

#endif

#endif /* UMAKIT_DOT_PRODUCTS_AVX2_H */
