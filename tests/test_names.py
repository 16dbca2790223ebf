# SPDX-License-Identifier: Apache-2.0
"""Names become identifiers that nothing collides with, and texts that stay what they are.

The oracles are compilers: what they define, and what they make of a comment or a string.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hostile_names import HOSTILE, WORDS, names
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from umakit.text.escaping import c_comment, c_string, markdown_code, shell_word, shown, visible
from umakit.text.names import (
    LONGEST_FILE_NAME,
    LONGEST_PART,
    SIGNIFICANT,
    c_identifier,
    plain_file_name,
    symbol_part,
    unique,
)

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
COMPILERS = (
    "gcc",
    "clang",
    "arm-none-eabi-gcc",
    "riscv64-unknown-elf-gcc",
    "aarch64-linux-gnu-gcc",
    "arm-linux-gnueabihf-gcc",
)
HEADERS = (
    "assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal "
    "stdalign stdarg stdatomic stdbool stddef stdint stdio stdlib stdnoreturn string time uchar "
    "wchar wctype unistd fcntl sys/stat sys/types sys/socket netinet/in netdb dirent sched"
).split()
TARGETS = (
    "i386-linux-gnu armv7-linux-gnueabi mips-linux-gnu powerpc64-aix sparc-sun-solaris avr msp430 "
    "m68k-linux-gnu x86_64-w64-mingw32 x86_64-apple-darwin i686-freebsd"
).split()
KEPT = (
    "x X input input_1 data output Identity conv1 image float32 min max abs F assert exp2 index "
    "serving_default_x_0 StatefulPartitionedCall_0 _conv_Relu_output_0 labels h_0 c_0 alpha probs"
).split()
"""Names of inputs and outputs that are fine in C as they are, in every compiler and header."""


@pytest.mark.parametrize("name", [name for name in KEPT if name not in ("exp2", "abs")])
def test_names_that_are_fine_stay(name: str) -> None:
    assert c_identifier(name) == name


@settings(max_examples=100, deadline=None)
@given(names())
def test_identifiers(name: str) -> None:
    made = c_identifier(name)
    assert IDENTIFIER.fullmatch(made)
    assert len(made) <= SIGNIFICANT + 1
    assert not re.match(r"__|_[A-Z]|tvmgen_|umakit_|TVMGEN_", made)
    assert made not in WORDS or made in KEPT or made in ("data", "blob", "layers", "figures",
        "before", "pools", "weights", "workspace_size", "aligned", "unnamed"), made  # fmt: skip
    part = symbol_part(name)
    assert re.fullmatch(r"[A-Za-z0-9_]+", part)
    assert len(part) <= LONGEST_PART + 1
    assert part.lower() not in ("con", "nul", "aux", "prn")
    file_name = plain_file_name(name)
    assert re.fullmatch(r"\w[\w.+-]*", file_name, re.ASCII)
    assert len(file_name) <= LONGEST_FILE_NAME


@settings(max_examples=100, deadline=None)
@given(st.lists(names(), min_size=2, max_size=6))
def test_identifiers_of_one_interface_differ_whatever_their_case(drawn: list[str]) -> None:
    taken: set[str] = set()
    made = [unique(c_identifier(name), taken) for name in drawn]
    assert len({name.lower() for name in made}) == len(made)


def test_long_names_that_begin_alike_stay_apart() -> None:
    one, other = "layer/" * 60 + "a", "layer/" * 60 + "b"
    assert c_identifier(one) != c_identifier(other)
    assert symbol_part(one) != symbol_part(other)
    assert plain_file_name(f"{one}.c") != plain_file_name(f"{other}.c")
    assert plain_file_name("a b.c") != plain_file_name("a;b.c")
    assert plain_file_name("conv2d-v1.c") == "conv2d-v1.c"


def macros_of(compiler: str, folder: Path, flags: tuple[str, ...] = ()) -> set[str]:
    """Names that a compiler replaces wherever they stand, with each header that it has."""
    found: set[str] = set()
    texts = [f"#if __has_include(<{h}.h>)\n#include <{h}.h>\n#endif\n" for h in HEADERS]
    for number, text in enumerate(["", "".join(texts)] if not flags else [""]):
        (folder / f"{number}.c").write_text(text)
        command = [compiler, *flags, "-std=gnu17", "-D_GNU_SOURCE", "-dM", "-E", f"{number}.c"]
        listed = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        pairs = re.findall(r"^#define (\w+)(?: (.*))?$", listed.stdout, re.MULTILINE)
        found |= {name for name, body in pairs if body != name}
    return found


@pytest.mark.parametrize("compiler", COMPILERS)
def test_no_identifier_is_a_macro_of_a_compiler_or_a_header(compiler: str, tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    macros = macros_of(compiler, tmp_path)
    if compiler == "clang":
        for target in TARGETS:
            macros |= macros_of(compiler, tmp_path, ("-target", target))
    assert "__STDC__" in macros
    assert compiler not in ("gcc", "clang") or {"EOF", "errno", "linux"} <= macros
    assert not {name for name in macros if c_identifier(name) in macros}


def preprocessed(compiler: str, standard: str, text: str, folder: Path) -> str:
    (folder / "text.c").write_text(text, encoding="utf-8")
    command = [compiler, f"-std={standard}", "-Wall", "-Wextra", "-Werror", "-E", "-P", "text.c"]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@settings(
    max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(drawn=st.lists(names(), min_size=30, max_size=60))
def test_nothing_leaves_a_comment(compiler: str, drawn: list[str], tmp_path: Path) -> None:
    """What a compiler sees is the same, whatever the comments say."""
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    everything = [*HOSTILE, *drawn]
    text = "".join(f"int a{i}; /* {c_comment(n)} */ int b{i};\n" for i, n in enumerate(everything))
    plain = "".join(f"int a{i}; /* name */ int b{i};\n" for i in range(len(everything)))
    for standard in ("c99", "gnu17"):
        seen = preprocessed(compiler, standard, text, tmp_path)
        assert seen.split() == preprocessed(compiler, standard, plain, tmp_path).split()


def test_comments_stay_readable() -> None:
    assert c_comment("conv1/Relu + a\\b.c?") == "conv1/Relu + a\\b.c?"
    assert c_comment("x*/y/*z") == "x* /y/ *z"
    assert len(c_comment("x" * 100_000)) < 400


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_strings_hold_the_bytes_of_a_name(compiler: str, tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    given_names = [name[:1000] for name in HOSTILE]
    rows = ",\n".join(f"{{{c_string(name)}, sizeof {c_string(name)} - 1}}" for name in given_names)
    (tmp_path / "text.c").write_text(
        "#include <stdio.h>\n"
        f"static const struct {{ const char *text; size_t size; }} rows[] = {{\n{rows}}};\n"
        "int main(void)\n{\n    size_t i;\n"
        "    for (i = 0; i < sizeof rows / sizeof rows[0]; i++) {\n"
        "        (void)fwrite(rows[i].text, 1, rows[i].size, stdout);\n"
        '        (void)fputs("<END>", stdout);\n    }\n    return 0;\n}\n'
    )
    strict = ["-std=c99", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([compiler, *strict, "text.c", "-o", "text"], cwd=tmp_path, check=True)
    printed = subprocess.run([tmp_path / "text"], capture_output=True, check=True).stdout
    assert printed.split(b"<END>")[:-1] == [name.encode() for name in given_names]


@settings(max_examples=100, deadline=None)
@given(st.one_of(names(), st.text(st.characters(), max_size=10)))
def test_shown_texts_are_one_line_without_control_characters(text: str) -> None:
    line = shown(text, 200)
    assert line.isprintable()
    assert len(line.encode("utf-8")) <= 8000
    assert visible(visible(text)) == visible(text)
    if text.isprintable():
        assert visible(text) == text


@settings(max_examples=10, deadline=None)
@given(st.lists(names().filter(lambda name: "\0" not in name), min_size=20, max_size=40))
def test_a_shell_gets_a_word_as_it_was(drawn: list[str]) -> None:
    words = [name[:1000] for name in drawn]
    line = " ".join(["printf '%s\\0'", *(shell_word(word) for word in words)])
    printed = subprocess.run(["sh", "-c", line], capture_output=True, check=True).stdout
    expected = [f"./{word}" if word.startswith("-") else word for word in words]
    assert printed.split(b"\0")[:-1] == [word.encode() for word in expected]


@settings(max_examples=100, deadline=None)
@given(names())
def test_markdown_code_ends_where_it_began(name: str) -> None:
    made = markdown_code(name)
    fence = re.match("`+", made)
    assert fence is not None
    assert made.isprintable()
    inside = made[len(fence[0]) : -len(fence[0])]
    assert fence[0] not in re.findall("`+", inside)
