/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What umakit/dot_products_vnni.h uses of AVX-512, in C for any processor: no version of QEMU has
 * these instructions. Written from Intel's description of VPDPBUSD: in each of 16 lanes of 32 bits,
 * four products of unsigned bytes by signed ones are added to the sum, which wraps around.
 */
#ifndef EMULATED_IMMINTRIN_H
#define EMULATED_IMMINTRIN_H

#include <stdint.h>
#include <string.h>

#define LANES 16
#define BYTES_OF_A_LANE 4

typedef struct {
    uint8_t bytes[LANES * BYTES_OF_A_LANE];
} __m512i;

static inline __m512i _mm512_setzero_si512(void)
{
    __m512i zero;

    memset(zero.bytes, 0, sizeof zero.bytes);
    return zero;
}

static inline __m512i _mm512_loadu_si512(const void *from)
{
    __m512i loaded;

    memcpy(loaded.bytes, from, sizeof loaded.bytes);
    return loaded;
}

static inline void _mm512_storeu_si512(void *to, __m512i stored)
{
    memcpy(to, stored.bytes, sizeof stored.bytes);
}

static inline __m512i _mm512_set1_epi32(int32_t number)
{
    __m512i all;
    int lane;

    for (lane = 0; lane < LANES; ++lane) {
        memcpy(all.bytes + lane * BYTES_OF_A_LANE, &number, sizeof number);
    }
    return all;
}

static inline __m512i _mm512_dpbusd_epi32(__m512i sums, __m512i left, __m512i right)
{
    int lane;

    for (lane = 0; lane < LANES; ++lane) {
        const int first = lane * BYTES_OF_A_LANE;
        uint32_t sum;
        int n;

        memcpy(&sum, sums.bytes + first, sizeof sum);
        for (n = first; n < first + BYTES_OF_A_LANE; ++n) {
            const int factor = right.bytes[n] < 128 ? right.bytes[n] : right.bytes[n] - 256;

            sum += (uint32_t)((int)left.bytes[n] * factor);
        }
        memcpy(sums.bytes + first, &sum, sizeof sum);
    }
    return sums;
}

#endif /* EMULATED_IMMINTRIN_H */
