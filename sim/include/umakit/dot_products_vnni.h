/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of products with AVX-512 VNNI (Intel since Ice Lake, AMD since Zen 4): see dot_products.h.
 * Windows are uint8_t; VPDPBUSD sums four products in each lane, for 32 channels of up to four
 * positions. Depthwise windows, results and additions are those of AVX2. */
#ifndef UMAKIT_DOT_PRODUCTS_VNNI_H
#define UMAKIT_DOT_PRODUCTS_VNNI_H

#include "dot_products.h"

#define UMAKIT_VNNI_CHANNELS 32

#if defined(__AVX512VNNI__) && defined(__AVX512F__) && !defined(UMAKIT_PLAIN_DOT_PRODUCTS)

#include <immintrin.h>

/* Four neighbouring elements of a window in all lanes. */
static inline __m512i umakit_vnni_group(const uint8_t *from)
{
    int32_t group;

    memcpy(&group, from, sizeof group);
    return _mm512_set1_epi32(group);
}

static inline __m512i umakit_vnni_weights(const int8_t *from)
{
    return _mm512_loadu_si512((const void *)from);
}

static inline void umakit_vnni_store(int32_t *to, __m512i low, __m512i high)
{
    _mm512_storeu_si512((void *)to, low);
    _mm512_storeu_si512((void *)(to + 16), high);
}

static inline void umakit_vnni_four(int32_t *restrict sums, int32_t sums_step,
                                    const uint8_t *restrict windows, int32_t windows_step,
                                    const int8_t *restrict weights, int32_t elements)
{
    const uint8_t *const second = windows + windows_step;
    const uint8_t *const third = second + windows_step;
    const uint8_t *const fourth = third + windows_step;
    __m512i a0 = _mm512_setzero_si512(), a1 = a0, b0 = a0, b1 = a0;
    __m512i c0 = a0, c1 = a0, d0 = a0, d1 = a0;
    int32_t i;

    for (i = 0; i < elements; i += 4) {
        const __m512i low = umakit_vnni_weights(weights + i * UMAKIT_VNNI_CHANNELS);
        const __m512i high = umakit_vnni_weights(weights + i * UMAKIT_VNNI_CHANNELS + 64);
        __m512i data = umakit_vnni_group(windows + i);

        a0 = _mm512_dpbusd_epi32(a0, data, low);
        a1 = _mm512_dpbusd_epi32(a1, data, high);
        data = umakit_vnni_group(second + i);
        b0 = _mm512_dpbusd_epi32(b0, data, low);
        b1 = _mm512_dpbusd_epi32(b1, data, high);
        data = umakit_vnni_group(third + i);
        c0 = _mm512_dpbusd_epi32(c0, data, low);
        c1 = _mm512_dpbusd_epi32(c1, data, high);
        data = umakit_vnni_group(fourth + i);
        d0 = _mm512_dpbusd_epi32(d0, data, low);
        d1 = _mm512_dpbusd_epi32(d1, data, high);
    }
    umakit_vnni_store(sums, a0, a1);
    umakit_vnni_store(sums + sums_step, b0, b1);
    umakit_vnni_store(sums + 2 * sums_step, c0, c1);
    umakit_vnni_store(sums + 3 * sums_step, d0, d1);
}

static inline void umakit_vnni_one(int32_t *restrict sums, const uint8_t *restrict window,
                                   const int8_t *restrict weights, int32_t elements)
{
    __m512i a0 = _mm512_setzero_si512(), a1 = a0;
    int32_t i;

    for (i = 0; i < elements; i += 4) {
        const int8_t *const here = weights + i * UMAKIT_VNNI_CHANNELS;
        const __m512i data = umakit_vnni_group(window + i);

        a0 = _mm512_dpbusd_epi32(a0, data, umakit_vnni_weights(here));
        a1 = _mm512_dpbusd_epi32(a1, data, umakit_vnni_weights(here + 64));
    }
    umakit_vnni_store(sums, a0, a1);
}

UMAKIT_PRODUCTS_BY_FOUR(vnni, uint8, UMAKIT_VNNI_CHANNELS)

#else /* no VNNI */

UMAKIT_PLAIN_PRODUCTS_OF(vnni, uint8, UMAKIT_VNNI_CHANNELS, 4, 0)

#endif

/* 128 is added to int8_t. */
UMAKIT_PLAIN_COPIES_OF(vnni, uint8)

#endif /* UMAKIT_DOT_PRODUCTS_VNNI_H */
