# SPDX-License-Identifier: Apache-2.0
"""Names that must be valid in C and Python."""

from __future__ import annotations

import re

C_RESERVED = frozenset(
    "auto break case char const continue default do double else enum extern float for goto if "
    "inline int long register restrict return short signed sizeof static struct switch typedef "
    "union unsigned void volatile while _Bool _Complex _Imaginary asm typeof bool true false "
    # C++ keywords, because the header must be usable from C++.
    "alignas alignof and and_eq bitand bitor catch char16_t char32_t class compl const_cast "
    "constexpr decltype delete dynamic_cast explicit export friend mutable namespace new noexcept "
    "not not_eq nullptr operator or or_eq private protected public reinterpret_cast "
    "static_assert static_cast template this thread_local throw try typeid typename using virtual "
    "wchar_t xor xor_eq main status arena workspace inputs outputs "
    # What the headers that generated files include declare or define.
    "NULL NAN INFINITY HUGE_VAL offsetof size_t ptrdiff_t "
    "int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t intptr_t uintptr_t "
    "intmax_t uintmax_t isnan isinf isfinite isnormal signbit fpclassify AFTER_LAYER "
    "j0 j1 jn y0 y1 yn".split()
)
MATH_NAMES = frozenset(
    "acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 "
    "fabs fdim floor fma fmax fmin fmod frexp gamma hypot ilogb ldexp lgamma llrint llround log "
    "log10 log1p log2 logb lrint lround modf nan nearbyint nextafter nexttoward pow remainder "
    "remquo rint round scalb scalbln scalbn significand sin sinh sqrt tan tanh tgamma trunc".split()
)
"""Functions of `math.h`, each of which has variants that end in f and l."""

MEMORY_NAMES = frozenset("memcpy memset memmove memcmp".split())
MATH_HEADER, MEMORY_HEADER = "math.h", "string.h"

HELPER = re.compile(
    r"(maximum|minimum|absolute|complement|rsqrt|sigmoid)_(u?int(8|16|32|64)|float(32|64))"
)
"""Inline functions that generated files define."""


def header_of(name: str) -> str | None:
    """The header of C's library that declares a function which kernels may call, or None."""
    stem = name[:-1] if name.endswith(("f", "l")) else name
    if name in MATH_NAMES or stem in MATH_NAMES:
        return MATH_HEADER
    return MEMORY_HEADER if name in MEMORY_NAMES else None


def is_reserved(name: str) -> bool:
    """Whether a name means something in generated C already."""
    return name in C_RESERVED or header_of(name) is not None or HELPER.fullmatch(name) is not None


def c_identifier(name: str) -> str:
    """A valid C identifier that looks like `name`: `input.1` becomes `input_1`.

    A reserved word gets a trailing underscore, a leading digit a leading `n`.
    """
    text = re.sub(r"\W+", "_", name, flags=re.ASCII) or "unnamed"
    if text[0].isdigit():
        text = f"n{text}"
    return f"{text}_" if is_reserved(text) else text


def symbol_part(name: str) -> str:
    """What may follow a prefix in a C symbol: `default` stays `default`."""
    return re.sub(r"\W+", "_", name, flags=re.ASCII) or "unnamed"


def unique(name: str, taken: set[str]) -> str:
    """`name`, or `name_2`, `name_3`, ... when it is taken; the answer is added to `taken`.

    Names that differ in case only count as equal, because macros are made of them too.
    """
    candidate, number = name, 1
    while candidate.lower() in taken:
        number += 1
        candidate = f"{name}_{number}"
    taken.add(candidate.lower())
    return candidate
