# SPDX-License-Identifier: Apache-2.0
"""Backends with one fault each: `uma compile` ends in success or in one sentence."""

from __future__ import annotations

import collections
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from umakit import tvm_api
from umakit.testing import QuantizedNetwork, conv2d_model

ROOT = Path(__file__).parents[1]
BACKENDS = (
    "backends/vanilla_accelerator", "backends/strawberry_accelerator",
    "backends/chocolate_accelerator", "examples/lane_npu", "examples/nova_nn",
)  # fmt: skip
FILES = ("accel.toml", "backend.py", "passes.py", "patterns.py", "codegen.py", "strategies.py")
EVERY = 13 if "UMAKIT_EXAMPLES" in os.environ else 37
"""Of the mutations of a backend every so many is tried, fewer than in `make soak`; primes to the
counts of lines."""

RUN = """\
import io, sys, contextlib
from umakit.cli.main import run_command
for folder in sys.argv[3:]:
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        code = run_command(["compile", sys.argv[1], "-b", folder, "-o", f"{folder}/{sys.argv[2]}"])
    print("CODE", code, folder, repr(said.getvalue()))
"""


def mutations(folder: Path) -> Iterator[tuple[str, str, str]]:
    """Yield file, description and text: a word misspelt, a line deleted, a number changed."""
    for name in FILES:
        path = folder / name
        text = path.read_text() if path.is_file() else ""
        body = re.sub(r'"""(?:.|\n)*?"""', lambda found: " " * len(found[0]), text)
        for word in re.finditer(r"(?<![#\w])[A-Za-z_]\w{3,}", body):
            start, end = word.span()
            if "#" not in body[body.rfind("\n", 0, start) + 1 : start]:
                yield name, f"{word[0]} at {start}", f"{text[: end - 1]}{text[end:]}"
        lines = text.splitlines(keepends=True)
        for number in range(len(lines)):
            yield name, f"line {number + 1}", "".join(lines[:number] + lines[number + 1 :])
        for found in re.finditer(r"\b\d+\b", body):
            start, end = found.span()
            yield name, f"{found[0]} at {start}", f"{text[:start]}{int(found[0]) + 1}{text[end:]}"


def network(backend: str, folder: Path) -> Path:
    """A network in a file that the backend takes layers of."""
    model = QuantizedNetwork(8, 8, 4).conv2d(8).pool2d("max").dense(5).model("network")
    if "vanilla" in backend:
        model = conv2d_model(channels=3, height=8, width=8, filters=4, kernel=3)
    path = folder / "network.json"
    path.write_text(tvm_api.tvm.ir.save_json(model.module))
    return path


RUN_C = """\
import io, sys, contextlib
from umakit.cli.main import run_command
for folder in sys.argv[3:]:
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        library = f"{folder}/out"
        code = run_command(["compile", sys.argv[1], "-b", folder, "-o", library])
        if code == 0:
            said.truncate(said.seek(0))
            run = ["run", library, "-i", sys.argv[2], "-o", f"{folder}/results.npz"]
            code = run_command([*run, "--timeout", "5"])
    print("CODE", code, folder, repr(said.getvalue()))
"""

C_FAULTS = {
    "a comma less": (r"(?<=\w), (?=\w)", " "),
    "a brace less": (r"\n\}\n", "\n"),
    "a type misspelt": (r"\bu?int(?:8|16|32|64)_t\b", "itn32_t"),
    "a header misspelt": (r'(?<=#include ")(?=[\w/]+\.h)', "x"),
    "a function misspelt": (r"(?<=\w{4})(?=\()", "x"),
}
"""Forms in C files and their replacements. No program is made with any of them that computes
something else, unless both a function's definition and its only calls have the new name."""


def c_mutations(folder: Path) -> Iterator[tuple[str, str, str]]:
    """Yield file, description and text: one form of `C_FAULTS` replaced in a C file."""
    for path in sorted(path for path in folder.rglob("*.*") if path.suffix in (".c", ".h", ".cc")):
        text = path.read_text()
        comments = r"/\*(?:.|\n)*?\*/|//[^\n]*"
        body = re.sub(comments, lambda found: re.sub(r"[^\n]", " ", found[0]), text)
        for what, (form, new) in C_FAULTS.items():
            for found in list(re.finditer(form, body))[:: 3 * EVERY]:
                start, end = found.span()
                line = text.count("\n", 0, start) + 1
                name = path.relative_to(folder).as_posix()
                yield name, f"{what} in line {line}", f"{text[:start]}{new}{text[end:]}"


SOAK = pytest.mark.skipif("UMAKIT_EXAMPLES" not in os.environ, reason="make soak")


@pytest.mark.soak
@pytest.mark.parametrize(
    "backend", [BACKENDS[0], *(pytest.param(each, marks=SOAK) for each in BACKENDS[1:])]
)
def test_every_fault_is_one_sentence(backend: str, tmp_path: Path) -> None:
    source = ROOT / backend
    folders = {}
    for number, (name, what, text) in enumerate(mutations(source)):
        if number % EVERY:
            continue
        folder = tmp_path / str(number) / source.name
        shutil.copytree(source, folder, ignore=shutil.ignore_patterns("__pycache__"))
        (folder / name).write_text(text)
        folders[str(folder)] = f"{name}: {what}"
    model = network(backend, tmp_path)
    # In a process of its own: what a backend registers with TVM stays there.
    command = [sys.executable, "-c", RUN, str(model), "out", *folders]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    answers = re.findall(r"^CODE (\d+) (\S+) (.*)$", ended.stdout, re.MULTILINE)
    assert len(answers) == len(folders), ended.stderr[-2000:]
    counts = collections.Counter(code for code, _, _ in answers)
    print(f"{source.name}: {len(answers)} faults, exit codes {dict(counts)}")
    wrong = [
        f"{folders[folder]}: {code} {said}"
        for code, folder, said in answers
        if code not in ("0", "2")
        or "Traceback" in said
        or (code == "2" and Path(folder).joinpath("out").exists())
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.soak
@SOAK
@pytest.mark.parametrize("backend", BACKENDS)
def test_faults_in_c_are_named_by_file_and_line(backend: str, tmp_path: Path) -> None:
    source, inputs = ROOT / backend, tmp_path / "inputs.npz"
    is_float = "vanilla" in backend
    shape, dtype = ((1, 3, 8, 8), np.float32) if is_float else ((1, 8, 8, 4), np.int8)
    numbers = np.random.default_rng(7).integers(-9, 9, shape).astype(dtype)
    np.savez(inputs, data=numbers)
    folders = {}
    faults = [("README.md", "none", (source / "README.md").read_text()), *c_mutations(source)]
    for number, (name, what, text) in enumerate(faults):
        folder = tmp_path / str(number) / source.name
        shutil.copytree(source, folder, ignore=shutil.ignore_patterns("__pycache__"))
        (folder / name).write_text(text)
        folders[str(folder)] = f"{name}: {what}"
    model = network(backend, tmp_path)
    command = [sys.executable, "-c", RUN_C, str(model), str(inputs), *folders]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    answers = re.findall(r"^CODE (\d+) (\S+) (.*)$", ended.stdout, re.MULTILINE)
    assert len(answers) == len(folders), ended.stderr[-2000:]
    counts = collections.Counter(code for code, _, _ in answers)
    print(f"{source.name}: {len(answers)} faults, exit codes {dict(counts)}")
    assert answers[0][0] == "0", answers[0]
    right = np.load(f"{next(iter(folders))}/results.npz")
    wrong = [
        f"{folders[folder]}: {code} {said}"
        for code, folder, said in answers
        if "Traceback" in said
        or code not in ("0", "2")
        or (code == "2" and not re.search(r"\.(?:c|h|cc|py|toml):\d+: ", said))
        or (code == "0" and not _are_equal(right, np.load(f"{folder}/results.npz")))
    ]
    assert not wrong, "\n".join(wrong)


def _are_equal(some: Mapping[str, Any], others: Mapping[str, Any]) -> bool:
    return [*some] == [*others] and all(np.array_equal(some[key], others[key]) for key in some)
