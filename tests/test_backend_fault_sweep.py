# SPDX-License-Identifier: Apache-2.0
"""Each kind of exception in each kind of a backend's Python, through each command that runs it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from umakit.cli.main import run_command

from umakit.tools.scaffold import new_backend

DIGITS = Path(__file__).parents[1] / "examples" / "digits"
RAISING = (
    'raise KeyError("weights")', "None.length", "raise SystemExit(3)", 'open("/missing")',
    "raise MemoryError", "(lambda f: f(f))(lambda f: f(f))", "raise StopIteration", "assert 1 == 2",
    'raise TypeError("a type")', "1 / 0", 'raise OSError("text")', "raise RuntimeError",
    'raise ValueError("a value")',
)  # fmt: skip
VANILLA, CHOCOLATE = "vanilla", "chocolate"

Fault = Callable[[Path, str], None]
"""Puts a statement into a backend's Python."""


def replace(path: Path, old: str, new: str) -> None:
    """Replace the first occurrence of a text in a file."""
    found = path.read_text(encoding="utf-8")
    assert old in found, (path.name, old)
    path.write_text(found.replace(old, new, 1), encoding="utf-8")


def line(file: str, before: str) -> Fault:
    """The statement is a line of a function that is there."""
    indent = " " * (len(before) - len(before.lstrip()))
    return lambda folder, statement: replace(
        folder / file, before, f"{indent}{statement}\n{before}"
    )


def own(old: str, new: str, file: str = "backend.py") -> Fault:
    """The statement is a function `faulty`, which a line uses that replaces another text."""

    def apply(folder: Path, statement: str) -> None:
        first = "\n\nclass " if file == "backend.py" else "\n\ndef "
        function = f"\n\ndef faulty(*given, **named):\n    {statement}\n{first}"
        replace(folder / file, old, new)
        replace(folder / file, first, function)

    return apply


def planner(method: str) -> Fault:
    """The statement is a method of a planner of the backend's own."""

    def apply(folder: Path, statement: str) -> None:
        text = f"class Own(TilePlanner):\n    def {method}(self, *given):\n        {statement}"
        replace(folder / "backend.py", "TilePlanner(Hardware", "Own(Hardware")
        replace(folder / "backend.py", "\n\nclass ", f"\n\n{text}\n\n\nclass ")

    return apply


FIRST = "super().__init__()"
"""The line behind which a backend registers a function."""

PHASES = {
    "relax": ("PRE_PARTITIONING", "POST_PARTITIONING_0", "POST_PARTITIONING_1"),
    "tir": ("TIR_PHASE_1", "TIR_PHASE_2", "TIR_PHASE_3"),
}
CODE: dict[str, tuple[str, str, Fault]] = {
    "import": (VANILLA, "compile", line("backend.py", "from .codegen")),
    "constructor": (VANILLA, "compile", line("backend.py", "        super().__init__()")),
    "target_name": (VANILLA, "compile", line("backend.py", '        return "npu')),
    "predicate": (VANILLA, "compile", line("patterns.py", "    convolution = context")),
    "strategy": (VANILLA, "compile", line("strategies.py", "    strategy = OpStrategy()")),
    "compute": (VANILLA, "compile", line("strategies.py", "        ifmap, weights = inputs")),
    "driver call": (VANILLA, "compile", line("passes.py", "    if tir.composite_name")),
    "includes": (VANILLA, "compile", line("codegen.py", "    return")),
    "replace_call_extern": (
        VANILLA, "compile",
        own("includes=gen_includes", "includes=gen_includes, replace_call_extern=faulty"),
    ),
    "board_notes": (VANILLA, "compile", own(FIRST, f"{FIRST}; self._register_board_notes(faulty)")),
    "drawing": (
        VANILLA, "check",
        own('layouts="NCHW")', 'layouts="NCHW", drawing=patterns.drawn(faulty, size=(1, 2)))'),
    ),
    **{
        f"{kind} pass, {phase}": (
            VANILLA, "compile",
            own(FIRST, f"{FIRST}; self._register_{kind}_pass(PassPhase.{phase}, faulty)"),
        )
        for kind, phases in PHASES.items() for phase in phases
    },
    "predicate of a pattern of umakit": (
        CHOCOLATE, "check", own("planner.accepts", "faulty", "patterns.py"),
    ),
    "tir pass of tiles": (
        CHOCOLATE, "check", own("TIR_PHASE_0, layer_pass", "TIR_PHASE_0, faulty"),
    ),
    **{
        f"planner, {method}": (CHOCOLATE, command, planner(method))
        for method, command in {
            "accepts": "compile", "default": "compile", "tiles_of": "compile",
            "predict": "compile", "estimate": "compile",
        }.items()
    },
}  # fmt: skip
"""Which backend the Python is of, a command that runs it, and how the statement gets there."""


def commands(model: str, backend: str) -> dict[str, list[str]]:
    """Each command that loads backends."""
    return {
        "partition": ["partition", model, "-b", backend],
        "compile": ["compile", model, "-b", backend, "-o", "library"],
        "report": ["report", model, "-b", backend],
        "report --compare": ["report", model, "--compare", backend, "vanilla_accelerator"],
        "diff": ["diff", model, "-b", backend, "--most", "1"],
        "sim": ["sim", model, "-b", backend],
        "sim --sweep": ["sim", model, "-b", backend, "--sweep", "array.rows=4,8", "--jobs", "1"],
        "tune": ["tune", model, "-b", backend, "--records", "records.json", "--trials", "2"],
        "calibrate": ["calibrate", backend, "--tiles", "12"],
        "check": ["check", backend, "--draws", "6", "--seconds", "10"],
        "check --jobs": ["check", backend, "--draws", "40", "--seconds", "10", "--jobs", "2"],
        "doctor": ["doctor", backend],
        "cosim": ["cosim", model, "-b", backend],
    }


CASES = [
    pytest.param(code, command, RAISING[number % len(RAISING)], id=f"{code}-{command}")
    for number, (code, command) in enumerate(itertools.product(CODE, commands("", "")))
]


@pytest.mark.soak
@pytest.mark.parametrize("code, command, statement", CASES)
def test_a_fault_in_the_python_of_a_backend_names_its_line(
    code: str, command: str, statement: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    tutorial, reached_by, fault = CODE[code]
    number = next(n for n, each in enumerate(CASES) if each.id == f"{code}-{command}")
    folder = new_backend(f"npu_{number}", tmp_path, tutorial).folder
    ran = tmp_path / "ran"
    if code == "drawing":
        replace(
            folder / "backend.py",
            "\nfrom .codegen",
            "\nfrom umakit import patterns\n\nfrom .codegen",
        )
    fault(folder, f'__import__("pathlib").Path({str(ran)!r}).touch(); {statement}')
    place = next(
        f"{path.name}:{number}"
        for path in folder.glob("*.py")
        for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if str(ran) in text
    )
    monkeypatch.chdir(tmp_path)
    model = DIGITS / ("digits_int8.onnx" if tutorial == CHOCOLATE else "digits.onnx")
    exit_code = run_command(commands(str(model), str(folder))[command])
    printed = capsys.readouterr()
    said = re.sub(r"\s+", " ", printed.err + printed.out)
    print(f"{code}, {command}, {statement}: {'ran' if ran.exists() else 'not run'}, {exit_code}")
    assert "Traceback" not in said and exit_code in (0, 1, 2, 3)
    assert ran.exists() or command != reached_by
    # A layer that has no drawing by a value is none, which the check counts.
    if ran.exists() and not (code == "drawing" and "ValueError" in statement):
        assert exit_code in (1, 2)  # 1: a failure that doctor, check or a sweep lists
        assert place in said
    assert not (tmp_path / "library").exists() or exit_code == 0
