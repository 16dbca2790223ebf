# SPDX-License-Identifier: Apache-2.0
"""The backend `tiny_npu` of `docs/your-simulator.md` with the design of `docs/your-rtl.md`."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from umakit.cli.main import run_command

from umakit.devices import designs, verilator

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "your-rtl.md").read_text(encoding="utf-8")
SIMULATOR_PAGE = (ROOT / "docs" / "your-simulator.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"`tiny_npu/([\w./]+)`(?:, whole)?:\n\n```\w+\n(.*?)^```", re.M | re.S)
FILES = dict(BLOCK.findall(SIMULATOR_PAGE)) | dict(BLOCK.findall(PAGE))
"""Texts by path in the backend's folder; `accel.toml` is that of the page on RTL."""

DESIGN = "rtl/tiny_npu.sv"

NETWORK = ROOT / "examples" / "digits" / "digits_int8.onnx"

ONLY_RTL = {
    'simulator = "own"': 'simulator = "rtl"',
    '[simulator]\nsources = ["machine.cc"]\ndefines = ["LANES=8"]\n\n': "",
}
"""Replacements in `accel.toml` that leave the design alone to answer."""

needs_verilator = pytest.mark.skipif(
    shutil.which("verilator") is None and not os.environ.get("UMAKIT_CI"),
    reason="Verilator is not installed",
)


@contextlib.contextmanager
def fast_compilers() -> Iterator[None]:
    """Compiling a small design without optimization takes a third of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verilator, "CXX_FLAGS", ("-O0",))
        patch.setattr(designs, "HARNESS_FLAGS", ("-std=c++17", "-O0"))
        yield


def said_by_uma(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    """Run a command; return its exit code, and what it printed and reported, that on one line."""
    capsys.readouterr()
    code = run_command([str(word) for word in words])
    said = capsys.readouterr()
    return code, said.out, " ".join(said.err.split())


def write_backend(folder: Path, changes: Mapping[str, Mapping[str, str]] | None = None) -> Path:
    """Write the files of the pages, and return their folder.

    Args:
        folder: where to make it.
        changes: replacements of texts by file.
    """
    backend = folder / "tiny_npu"
    for name, text in FILES.items():
        for old, new in (changes or {}).get(name, {}).items():
            assert text.count(old) == 1, f"{name} has {text.count(old)} times {old}"
            text = text.replace(old, new)
        (backend / name).parent.mkdir(parents=True, exist_ok=True)
        (backend / name).write_text(text, encoding="utf-8")
    return backend
