# SPDX-License-Identifier: Apache-2.0
"""Names that must be valid in C, in Python and as file names.

Functions of this module turn any model name into ASCII letters, digits and underscores, which are
safe in C, CMake, Kconfig, YAML, shell lines and paths. `umakit.text.escaping` handles texts that
keep their characters.
"""

from __future__ import annotations

import hashlib
import re

INTERFACE_PREFIX = "tvmgen_"
"""Prefix of the C symbols of a model's interface, the same as in TVM's ahead-of-time compiler."""

INTERFACE_NAMES = (
    "run run_in run_unpacked status_string open_weights after_layer inputs outputs weights "
    "workspace_pools has_no_constants main"
).split()
"""Suffixes of the symbols that every model defines after its prefix."""

SIGNIFICANT = 63
"""Number of initial characters of an identifier that C compilers distinguish (C99, 5.2.4.1)."""

LONGEST_PART = 56
"""Maximum length of a model's name; with `tvmgen_` it makes an identifier of `SIGNIFICANT`."""

LONGEST_FILE_NAME = 100
"""Maximum length of the name of a driver's file in an export; file systems allow 255 bytes."""

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
    # Declared or defined by the headers that generated files include.
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
"""Functions of `math.h`; each has variants with the suffixes f and l."""

MEMORY_NAMES = frozenset("memcpy memset memmove memcmp".split())
MATH_HEADER, MEMORY_HEADER = "math.h", "string.h"

HELPER = re.compile(
    r"(?P<operation>maximum|minimum|at_least|at_most|quotient|remainder|shift_left|shift_right|"
    r"absolute|complement|rsqrt|sigmoid|(?P<target>u?int(8|16|32|64))_from)"
    r"_(?P<type>bool|u?int(8|16|32|64)|float(32|64))"
)
"""Names of the inline helper functions that generated files define."""

VECTOR_FUNCTIONS = ("erf", "exp", "fabs", "tanh")
"""Functions of floats that generated files define for vectors."""

ENVIRONMENT_NAMES = frozenset(
    # Keywords of C23, C++20, C++26 and of compilers.
    "char8_t co_await co_return co_yield concept consteval constinit contract_assert requires "
    "typeof_unqual near far huge pascal cdecl interrupt "
    # Object-like macros in C's and POSIX's headers. Function-like macros, such as `min(a, b)`,
    # change nothing unless a parenthesis follows.
    "I complex imaginary noreturn math_errhandling errno h_errno stdin stdout stderr environ "
    "signgam tzname basename strtodf fd_set physadr quad sys_errlist sys_nerr d_ino d_fileno "
    "h_addr s_addr s6_addr s6_addr16 s6_addr32 "
    "sa_handler sa_sigaction sigcontext_struct sched_priority st_atime st_ctime st_mtime "
    "sigev_notify_function sigev_notify_attributes "
    # Machines and systems that compilers predefine in their GNU mode.
    "unix linux i386 arm mips sparc sun sgi vax pdp11 hpux hppa ppc powerpc m68k mc68000 mc68010 "
    "mc68020 mc68030 mc68040 mc68332 _mips _cdecl _fastcall _pascal _stdcall _thiscall".split()
)
"""Identifiers that other language standards, system headers or compilers define."""

ENVIRONMENT_PATTERN = re.compile(
    # Two or more capitals, the usual form of macros (EOF, INT8_MAX, PI, B1, HIGH, registers of
    # microcontrollers), beyond any list.
    r"[A-Z][A-Z0-9_]+"
    r"|(PRI|SCN)[dioux]\w+|[LP]_(tmp|c)\w+|(AF|PF)_\w+|M_[A-Z0-9]\w*|si_[a-z_]+"
    # C++20 has atomic names as macros in clang's stdatomic.h.
    r"|atomic_\w+",
    re.ASCII,
)
"""Form of further identifiers that system headers or users' headers may define as macros."""

RESERVED_START = re.compile(r"__|_[A-Z]")
"""Prefixes of identifiers that are reserved for the implementation (C99, 7.1.3)."""

OWN_START = re.compile(r"(tvmgen|umakit)_", re.IGNORECASE)
"""Prefixes of symbols and macros of generated files and of umakit's headers."""

FILE_DEVICES = re.compile(r"con|prn|aux|nul|(com|lpt)[0-9]", re.IGNORECASE)
"""File names that Windows reserves for devices, with any extension."""


def header_of(name: str) -> str | None:
    """Return the C library header of a function that kernels may call; None for other functions."""
    stem = name[:-1] if name.endswith(("f", "l")) else name
    if name in MATH_NAMES or stem in MATH_NAMES:
        return MATH_HEADER
    return MEMORY_HEADER if name in MEMORY_NAMES else None


def is_reserved(name: str) -> bool:
    """Return whether a name already has a meaning in generated C."""
    return name in C_RESERVED or header_of(name) is not None or HELPER.fullmatch(name) is not None


def is_macro(name: str) -> bool:
    """Return whether a compiler or a user's header may define a macro of that name."""
    return name in ENVIRONMENT_NAMES or ENVIRONMENT_PATTERN.fullmatch(name) is not None


def is_identifier(name: str) -> bool:
    return re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) is not None


def c_identifier(name: str) -> str:
    """Return a valid C identifier derived from `name`: `input.1` becomes `input_1`.

    Keywords and possible macros get a trailing underscore. Names that start with a digit or a
    reserved prefix get a leading `n`. Names of more than `SIGNIFICANT` characters are cut and end
    in a digest.
    """
    text = re.sub(r"\W+", "_", name, flags=re.ASCII) or "unnamed"
    if text[0].isdigit() or RESERVED_START.match(text) or OWN_START.match(text):
        text = f"n{text}"
    text = cut(text, name, SIGNIFICANT)
    return f"{text}_" if is_reserved(text) or is_macro(text) else text


def symbol_part(name: str) -> str:
    """Return a name that is valid after a prefix in a C symbol and as a file name.

    For example, `conv/1:0` becomes `conv_1_0`.

    Unlike `c_identifier`, this function keeps keywords such as `default`. Names of more than
    `LONGEST_PART` characters are cut and end in a digest.
    """
    text = cut(re.sub(r"\W+", "_", name, flags=re.ASCII) or "unnamed", name, LONGEST_PART)
    return f"{text}_" if FILE_DEVICES.fullmatch(text) else text


def plain_file_name(name: str) -> str:
    """Return a file name for an export, unchanged if no build system has to quote it.

    In other names special characters become underscores, and a digest keeps them distinct:
    `my_npu.h` stays, `my npu.h` becomes `my_npu_2ef026f5.h`.
    """
    if len(name) <= LONGEST_FILE_NAME and re.fullmatch(r"\w[\w.+-]*", name, flags=re.ASCII):
        return name
    stem, dot, suffix = name.rpartition(".")
    stem, suffix = (stem, suffix) if dot else (name, "")
    plain = re.sub(r"\W+", "_", stem, flags=re.ASCII)[: LONGEST_FILE_NAME // 2]
    ending = re.sub(r"\W+", "_", suffix, flags=re.ASCII)[:8]
    return f"{plain}_{_digest(name)}{dot}{ending}"


def cut(text: str, name: str, most: int) -> str:
    """Return a text, cut to `most` characters with a digest of `name` if longer."""
    if len(text) <= most:
        return text
    digest = _digest(name)
    return f"{text[: most - len(digest) - 1]}_{digest}"


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def unique(name: str, taken: set[str]) -> str:
    """Return `name`, or `name_2`, `name_3`, ... if it is taken, and add the result to `taken`.

    The comparison ignores case, because macro names are derived from these names too.
    """
    candidate, number = name, 1
    while candidate.lower() in taken:
        number += 1
        candidate = f"{name}_{number}"
    taken.add(candidate.lower())
    return candidate
