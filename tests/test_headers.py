# SPDX-License-Identifier: Apache-2.0
"""Shipped and generated headers compile alone, as C99 and as C++, without a warning.

Headers of sums of products are for generated kernels only, and are C99: they have `restrict`.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from execution import vanilla
from networks import Graph, save
from strict import CPP_WARNINGS, WARNINGS

import umakit

ROOT = Path(__file__).parents[1]
INCLUDES = [ROOT / "sim" / "include", ROOT / "umakit" / "devices" / "support"]
INCLUDES += sorted((ROOT / "backends").glob("*_accelerator"))
SHIPPED = sorted(
    header for folder in INCLUDES for header in folder.rglob("*.h")
)  # fmt: skip
C_ONLY = "dot_products"
"""Start of the names of headers that are no C++."""

LANGUAGES = [
    (compiler, standard)
    for compiler, standards in {
        "gcc": ["c99"], "clang": ["c99"], "g++": ["c++11", "c++17"], "clang++": ["c++11", "c++17"],
    }.items()
    for standard in standards
    if shutil.which(compiler)
]  # fmt: skip


def assert_compile(headers: list[Path], includes: list[Path], folder: Path) -> None:
    """Each header alone, in a source file of its own, with every compiler that is here."""
    assert headers
    sources = {}
    for number, header in enumerate(headers):
        source = folder / f"include{number}.c"
        source.write_text(f'#include "{header}"\n\nextern int umakit_test;\n', encoding="utf-8")
        sources[source] = header
    flags = [f"-I{folder}" for folder in includes]
    for compiler, standard in LANGUAGES:
        language = ["-x", "c++"] if "++" in compiler else []
        warnings = CPP_WARNINGS if language else WARNINGS
        command = [compiler, f"-std={standard}", *warnings, *flags, "-fsyntax-only", *language]
        chosen = [
            source
            for source, header in sources.items()
            if not language or not header.name.startswith(C_ONLY)
        ]
        result = subprocess.run([*command, *chosen], capture_output=True, text=True, check=False)
        assert result.returncode == 0, f"{compiler} -std={standard}: {result.stderr}"


def test_headers_of_simulator_and_drivers(tmp_path: Path) -> None:
    assert_compile(SHIPPED, INCLUDES, tmp_path)


def test_headers_of_an_exported_library(tmp_path: Path) -> None:
    graph = Graph()
    x = graph.input("x", 1, 3, 8, 8)
    graph.output(graph.node("Relu", graph.conv(x, 4)))
    library = umakit.compile_model(save(graph.model(), tmp_path), [vanilla()], tmp_path / "library")
    headers = sorted(library.path.rglob("*.h"))
    assert_compile(
        headers, sorted({h.parent for h in headers} | {h.parents[1] for h in headers}), tmp_path
    )


@pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")
def test_a_function_called_like_a_struct_would_be_seen(tmp_path: Path) -> None:
    header = tmp_path / "bad.h"
    header.write_text("struct thing { int x; };\nvoid thing(int x);\n", encoding="utf-8")
    with pytest.raises(AssertionError, match="Wshadow"):
        assert_compile([header], [], tmp_path)
