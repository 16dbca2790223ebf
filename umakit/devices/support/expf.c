/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exp(x) in single precision, rounded as glibc and musl round it.
 *
 * newlib and picolibc compute it in single precision for small processors, up to 1 ULP away from
 * them. That would do, were it not for networks: 1 - exp(x), as in ELU, makes 16 ULP of it for
 * small x. This one takes its place in the program. It is computed in double precision, with the
 * method and the three coefficients of Arm's optimized-routines, which both libraries use:
 *
 *     exp(x) = 2^(k/32) * 2^(r/32), k the integer nearest to 32 x / ln 2, -1/2 <= r <= 1/2
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

/* 2^(i/32) */
static const double roots[32] = {
    0x1.0p+0, 0x1.059b0d3158574p+0, 0x1.0b5586cf9890fp+0, 0x1.11301d0125b51p+0,
    0x1.172b83c7d517bp+0, 0x1.1d4873168b9aap+0, 0x1.2387a6e756238p+0, 0x1.29e9df51fdee1p+0,
    0x1.306fe0a31b715p+0, 0x1.371a7373aa9cbp+0, 0x1.3dea64c123422p+0, 0x1.44e086061892dp+0,
    0x1.4bfdad5362a27p+0, 0x1.5342b569d4f82p+0, 0x1.5ab07dd485429p+0, 0x1.6247eb03a5585p+0,
    0x1.6a09e667f3bcdp+0, 0x1.71f75e8ec5f74p+0, 0x1.7a11473eb0187p+0, 0x1.82589994cce13p+0,
    0x1.8ace5422aa0dbp+0, 0x1.93737b0cdc5e5p+0, 0x1.9c49182a3f090p+0, 0x1.a5503b23e255dp+0,
    0x1.ae89f995ad3adp+0, 0x1.b7f76f2fb5e47p+0, 0x1.c199bdd85529cp+0, 0x1.cb720dcef9069p+0,
    0x1.d5818dcfba487p+0, 0x1.dfc97337b9b5fp+0, 0x1.ea4afa2a490dap+0, 0x1.f50765b6e4540p+0,
};

/* Added and taken away again, it leaves the nearest integer. */
#define ROUND_TO_INTEGER 0x1.8p52

#define OVERFLOWS 0x1.62e42ep6f  /* from above this: infinity */
#define VANISHES (-0x1.9fe368p6f) /* below this: 0 */

/* 2^exponent for what a double holds without loss. */
static double power_of_two(int exponent)
{
    const uint64_t bits = (uint64_t)(exponent + 1023) << 52;
    double power;

    memcpy(&power, &bits, sizeof power);
    return power;
}

float expf(float x)
{
    double scaled, nearest, r, low, high;
    int k;

    if (isnan(x)) {
        return x + x;
    }
    if (x > OVERFLOWS) {
        return INFINITY;
    }
    if (x < VANISHES) {
        return 0.0f;
    }
    scaled = 0x1.71547652b82fep+0 * 32.0 * (double)x;
    nearest = scaled + ROUND_TO_INTEGER - ROUND_TO_INTEGER;
    k = (int)nearest;
    r = scaled - nearest;
    high = 0x1.c6af84b912394p-5 / 32768.0 * r + 0x1.ebfce50fac4f3p-3 / 1024.0;
    low = 0x1.62e42ff0c52d6p-1 / 32.0 * r + 1.0;
    return (float)((high * (r * r) + low) *
                   (roots[(unsigned)k % 32u] * power_of_two((k - (int)((unsigned)k % 32u)) / 32)));
}
