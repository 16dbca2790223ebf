# SPDX-License-Identifier: Apache-2.0
"""Inline C functions of vectors of floats: exponential, hyperbolic tangent, error function.

The functions compute lane by lane, without branches, with errors of less than two units in the last
place. NaN, infinities, zeros with their sign, subnormal numbers and overflow are as in the
functions of `math.h`, but nothing sets `errno`.

- `exp`: W. Cody and W. Waite, "Software Manual for the Elementary Functions", 1980: x is n times
  ln(2) plus a rest. The upper part of ln(2) has so few digits that its product with n is exact.
  The polynomial of the rest is from `expf` in S. Moshier's Cephes library. The result is
  multiplied by 2^n in two steps, since 2^n need not be a normal number.
- `tanh`: the polynomial of Cephes' `tanhf` below 0.625, and 1 - 2 / (exp(2 x) + 1) above.
- `erf`: x + x P(x^2) below 59/64, and 1 - exp(-x Q(x)) above. P and Q were fitted in float64 with
  the smallest relative error, by C. Lawson's weights, each coefficient rounded before the next.
"""

from __future__ import annotations

import re

EXPONENTIAL = "exp"
"""Function that other vector functions call."""

BODIES = {
    "exp": """
    const VECTOR limited = at_most_VECTOR(broadcast_VECTOR(90.0f),
        at_least_VECTOR(broadcast_VECTOR(-105.0f), x));
    /* Adding 1.5 * 2^23 rounds to an integer, which is in the lowest bits then. */
    const VECTOR n = limited * 1.44269504f + 12582912.0f - 12582912.0f;
    const VECTOR r = limited - n * 0.693359375f + n * 2.12194440e-4f;
    const VECTOR p = ((((1.9875691500e-4f * r + 1.3981999507e-3f) * r + 8.3334519073e-3f) * r
        + 4.1665795894e-2f) * r + 1.6666665459e-1f) * r + 5.0000001201e-1f;
    const VECTOR half = n * 0.5f + 12582912.0f - 12582912.0f;
    const BITS scale = (BITS)(half + 12583039.0f) << 23;
    const BITS rest = (BITS)(n - half + 12583039.0f) << 23;

    return (p * r * r + r + 1.0f) * (VECTOR)scale * (VECTOR)rest;
""",
    "tanh": """
    const BITS sign = (BITS)x & 0x80000000u;
    const VECTOR a = (VECTOR)((BITS)x & 0x7fffffffu);
    const VECTOR z = a * a;
    const VECTOR p = (((-5.70498872745e-3f * z + 2.06390887954e-2f) * z - 5.37397155531e-2f) * z
        + 1.33314422036e-1f) * z - 3.33332819422e-1f;
    const VECTOR large = 1.0f - 2.0f / (exp_VECTOR(a + a) + 1.0f);
    const BITS is_small = (BITS)(a < 0.625f);
    const BITS result = ((BITS)(p * z * a + a) & is_small) | ((BITS)large & ~is_small);

    return (VECTOR)(result | sign);
""",
    "erf": """
    const BITS sign = (BITS)x & 0x80000000u;
    const VECTOR a = at_most_VECTOR(broadcast_VECTOR(4.0f), (VECTOR)((BITS)x & 0x7fffffffu));
    const VECTOR z = a * a;
    const VECTOR p = ((((-5.9945049e-4f * z + 4.9940380e-3f) * z - 2.6767349e-2f) * z
        + 1.1281844e-1f) * z - 3.7612498e-1f) * z + 1.2837915e-1f;
    const VECTOR q = (((((1.1300842e-5f * a - 3.2350642e-4f) * a + 3.6453379e-3f) * a
        - 2.3768190e-2f) * a + 1.0624403e-1f) * a + 6.3514698e-1f) * a + 1.2864956e-1f;
    const VECTOR large = 1.0f - exp_VECTOR(-(q * a + a));
    const BITS is_small = (BITS)(a < 0.921875f);
    const BITS result = ((BITS)(p * a + a) & is_small) | ((BITS)large & ~is_small);

    return (VECTOR)(result | sign);
""",
    "fabs": """
    return (VECTOR)((BITS)x & 0x7fffffffu);
""",
}
"""C text of each function of `x`."""


def vector_function(operation: str, vector: str) -> str:
    """Return the body of an inline function of a vector of floats.

    Args:
        operation: name of the function.
        vector: C type of argument and result, such as `float32x8`.
    """
    bits = vector.replace("float32", "uint32")
    return BODIES[operation].strip("\n").replace("VECTOR", vector).replace("BITS", bits)


def needed_helpers(operation: str, vector: str) -> set[str]:
    """Return the names of a vector function and of its required helpers.

    Args:
        operation: name of the function.
        vector: C type of the argument.
    """
    found = {f"{operation}_{vector}"}
    text = vector_function(operation, vector)
    for type_ in ("float32", "int32", "uint32"):
        found.add(f"vector_{vector.replace('float32', type_)}")
    for name in re.findall(rf"\b([a-z_]+)_{vector}\b", text):
        needs_more = name in BODIES and name != operation
        found |= needed_helpers(name, vector) if needs_more else {f"{name}_{vector}"}
    return found
