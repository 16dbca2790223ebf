# SPDX-License-Identifier: Apache-2.0
"""Random libraries of C functions, laid out as vendors lay theirs out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from random import Random

FOLDERS = ("Source/A", "Source/B", "Source/Sub Folder", "Source/C/deep", "port")

TYPES = """\
#pragma once
typedef struct { int a, b; } v_dims;
enum v_kind { V_ONE = 1, V_TWO };
#if defined(__GNUC__)
#define V_INLINE static inline __attribute__((always_inline))
#else
#define V_INLINE static inline
#endif
#define V_CAT_(a, b) a##b
#define V_CAT(a, b) V_CAT_(a, b)
#define V_MAX(a, b) ((a) > (b) ? (a) : (b))
"""

HEADER = """\
#ifndef V_H
#define V_H
#include "internal/types.h"
#ifdef __cplusplus
extern "C" {{
#endif
/* v_f0 v_f1 "v_f2" */
{prototypes}
#ifdef __cplusplus
}}
#endif
#endif
"""

STYLES = {
    "plain": "int {f}(int x)\n{{\n{body}}}\n",
    "static": "static int helper(int x)\n{{\n{body}}}\nint {f}(int x) {{ return helper(x); }}\n",
    "inline": '#include "{f}_in.h"\nint {f}(int x) {{ return in_{f}(x); }}\n',
    "paste": "#define DEF(n, b) int V_CAT(v_, n)(int x) {{ b }}\nDEF({tail}, {flat})\n",
    "list": (
        "#define LIST(X) X({tail}) X(other_{tail})\n"
        "#define D(n) int v_##n(int x) {{ {flat} }}\nLIST(D)\n"
    ),
    "twice": (
        '#define NAME {f}\n#include "{f}_impl.inc"\n#undef NAME\n'
        '#define NAME {f}_16\n#include "{f}_impl.inc"\n'
    ),
    "included": (
        '#define SUF {f}\n#include "templates/{f}_t.c"\n'
        "int {f}(int x) {{ return V_CAT(t_, SUF)(x); }}\n"
    ),
    "renamed": "#define {f}_name {f}\nint {f}_name(int x)\n{{\n{body}}}\n",
    "branches": (
        "#if V_DSP\nint {f}(int x) {{\n#else\n__attribute__((noinline)) int {f}(int x)\n{{\n"
        "#endif\n{body}}}\n"
    ),
    "old": "int {f}(x)\nint x;\n{{\n{body}}}\n",
    "table": (
        "typedef int (*fn_t)(int);\nstatic const fn_t t[] = {{ {callees} }};\n"
        "int {f}(int x)\n{{\n    unsigned k;\n    for (k = 0; k < sizeof t / sizeof t[0]; k++) {{\n"
        "        x += t[k] ? t[k](x) : 0;\n    }}\n    return x;\n}}\n"
    ),
    "pointer": (
        "int (*{f}_hook)(int) = {first};\n"
        "int {f}(int x)\n{{\n    if ({f}_hook) x += {f}_hook(x);\n{body}}}\n"
    ),
    "inside": 'int {f}(int x)\n{{\n#include "{f}_body.h"\n}}\n',
    "wrapped": "#define {upper}(T) T\n{upper}(int) {f}({upper}(int) x)\n{{\n{body}}}\n",
}
"""Texts of C files that define one function, by what is special in them."""

OTHERS = {
    "inline": (
        "{f}_in.h",
        '#ifndef G_{f}\n#define G_{f}\n#include "vendor.h"\n'
        "V_INLINE int in_{f}(int x)\n{{\n{body}}}\n"
        "V_INLINE int in2_{f}(int x) {{ return {any}(x); }}\n#endif\n",
    ),
    "twice": ("{f}_impl.inc", "int NAME(int x)\n{{\n{body}}}\n"),
    "included": ("templates/{f}_t.c", "static int V_CAT(t_, SUF)(int x)\n{{\n{body}}}\n"),
    "inside": ("{f}_body.h", "{body}"),
}
"""What those texts include beside them."""


@dataclass(frozen=True)
class VendorTree:
    """A library.

    Attributes:
        root: its folder.
        files: globs of its C files; `EXCLUDED` are included by others.
        used: functions that a program calls.
        program: the program, which prints a number.
    """

    root: Path
    files: list[str]
    used: list[str]
    program: str


EXCLUDED = ["**/templates/*.c"]


def vendor_tree(root: Path, seed: int) -> VendorTree:
    """Write a library of 6 to 18 functions `int v_fN(int)` that call each other."""
    random = Random(seed)
    functions = [f"v_f{number}" for number in range(random.randint(6, 18))]
    prototypes = "\n".join(f"int {name}(int x);" for name in functions)
    files = {
        "Include/vendor.h": HEADER.format(prototypes=prototypes),
        "Include/internal/types.h": TYPES,
    }
    for number, name in enumerate(functions):
        callees = [other for other in functions[number + 1 :] if random.random() < 0.18]
        _add(files, random, name, callees, functions)
    for path, text in files.items():
        ending = "\r\n" if random.random() < 0.15 else "\n"
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(text.replace("\n", ending).encode())
    if (root / "Source/A").is_dir() and random.random() < 0.5:
        (root / "Source/link").symlink_to("A")
    if random.random() < 0.3:
        first = next(path for path in files if path.endswith(".c") and "templates" not in path)
        (root / first).with_name("zz_link.c").symlink_to(Path(first).name)
    used = random.sample(functions, random.randint(1, 2))
    calls = " + ".join(f"{name}(i)" for name in used)
    program = (
        '#include <stdio.h>\n#include "vendor.h"\nint main(void)\n{\n    unsigned s = 0;\n'
        f"    for (int i = 0; i < 5; i++) s = s * 31u + (unsigned)({calls});\n"
        '    printf("%u\\n", s);\n    return 0;\n}\n'
    )
    globs = [f"{top}/**/*.c" for top in ("Source", "port") if (root / top).is_dir()]
    return VendorTree(root, globs, used, program)


def _add(
    files: dict[str, str], random: Random, name: str, callees: list[str], functions: list[str]
) -> None:
    style = random.choice(list(STYLES))
    folder = random.choice(FOLDERS)
    path = f"{folder}/{random.choice(['util.c', 'dot.c', *[f'{name}.c'] * 3])}"
    path = f"{folder}/{name}_2.c" if path in files else path
    calls = [f"x = V_MAX(x, 0) + {callee}(x % 1000);" for callee in callees]
    statements = [*calls, f"return x % 1000 * {random.randint(2, 9)} + {len(files)};"]
    comments = [f" // {random.choice(functions)}(x)" for _ in statements]
    pairs = zip(statements, comments, strict=True)
    values = {
        "f": name,
        "tail": name[2:],
        "upper": name.upper(),
        "body": "".join(f"    {statement}{comment}\n" for statement, comment in pairs),
        "flat": " ".join(statements),
        "callees": ", ".join(callees) or "0",
        "first": (callees or ["0"])[0],
        "any": random.choice(functions),
    }
    include = random.choice(['#include "vendor.h"\n', "#include <vendor.h>\n"])
    files[path] = include + STYLES[style].format(**values)
    if style in OTHERS:
        other, text = OTHERS[style]
        files[f"{folder}/{other.format(**values)}"] = text.format(**values)
