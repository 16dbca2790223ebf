/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tanh(x) in single precision, rounded once.
 *
 * glibc's own for 64-bit Arm and RISC-V is compiled with fused multiply-adds, which brings it up to
 * 3 ULP away from the same glibc on other processors. This one takes its place in the program.
 */
#include <math.h>

float tanhf(float x)
{
    return (float)tanh((double)x);
}
