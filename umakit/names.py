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
    "wchar_t xor xor_eq NULL main status arena workspace inputs outputs".split()
)


def c_identifier(name: str) -> str:
    """A valid C identifier that looks like `name`: `input.1` becomes `input_1`.

    A reserved word gets a trailing underscore, a leading digit a leading `n`.
    """
    text = re.sub(r"\W+", "_", name, flags=re.ASCII) or "unnamed"
    if text[0].isdigit():
        text = f"n{text}"
    return f"{text}_" if text in C_RESERVED else text


def unique(name: str, taken: set[str]) -> str:
    """`name`, or `name_2`, `name_3`, ... when it is taken; the answer is added to `taken`."""
    candidate, number = name, 1
    while candidate in taken:
        number += 1
        candidate = f"{name}_{number}"
    taken.add(candidate)
    return candidate
