# SPDX-License-Identifier: Apache-2.0
"""Exceptions in a backend's own Python: one sentence with its file and line."""

from __future__ import annotations

import re
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper
from umakit.cli.main import run_command

from umakit.tools.scaffold import new_backend


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A convolution that the array computes."""
    path = tmp_path_factory.mktemp("model") / "one.onnx"
    node = helper.make_node("Conv", ["x", "w"], ["y"], "conv", pads=[1, 1, 1, 1])
    weights = helper.make_tensor("w", TensorProto.FLOAT, [2, 1, 3, 3], [1.0] * 18)
    graph = helper.make_graph(
        [node],
        "one",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 4, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2, 4, 4])],
        [weights],
    )
    opsets = [helper.make_opsetid("", 17)]
    made: onnx.ModelProto = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    path.write_bytes(made.SerializeToString())
    return path


CASES = {
    "tir_pass": (
        "passes.py", "    if tir.composite_name", "    raise KeyError('weights')\n",
        'a pass of TIR_PHASE_0 failed: KeyError: "weights" (PLACE); correct the pass',
    ),
    "strategy": (
        "strategies.py", "    strategy = OpStrategy()", "    strategy = OpStrategy(4)\n",
        'cannot be lowered: TypeError: "OpStrategy.__init__() takes 1 positional argument but 2 '
        'were given" (PLACE); correct its operator strategy',
    ),
    "compute": (
        "strategies.py", "        ifmap, weights = inputs", "        inputs[5]\n",
        'cannot be lowered: IndexError: "list index out of range" (PLACE)',
    ),
    "predicate": (
        "patterns.py", "    convolution = context", "    context.nope\n",
        "predicate of pattern 'conv2d' raised AttributeError: \"'PatternCheckContext' object has "
        "no attribute 'nope'\" (PLACE)",
    ),
    "includes": (
        "codegen.py", "    return", "    1 / 0\n",
        'includes raised ZeroDivisionError: "division by zero" (PLACE)',
    ),
    "import": (
        "backend.py", "from .codegen", "{}['x']\n", "cannot be imported: KeyError: 'x' (PLACE)",
    ),
    "leaves": (
        "backend.py", "from .codegen", "raise SystemExit(3)\n",
        "cannot be imported: SystemExit: 3 (PLACE)",
    ),
    "constructor": (
        "backend.py", "        super().__init__()", "        open('/missing')\n",
        "cannot be imported: FileNotFoundError: [Errno 2] No such file or directory: '/missing' "
        "(PLACE)",
    ),
}  # fmt: skip
"""Where a line is put in, which, and what is said of it."""

HOOK = 'fmt="c", includes=gen_includes'
HOOKS = {
    "raises": (
        "lambda texts: texts[99]",
        'replace_call_extern raised IndexError: "list index out of range" (PLACE)',
    ),
    "number": ("lambda texts: 5", "replace_call_extern returned int, which is not text"),
}


def error_of(model: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What `uma compile` says."""
    command = ["compile", str(model), "-b", str(folder), "-o", str(folder.parent / "out")]
    assert run_command(command) == 2
    error = re.sub(r"^\[.*\n", "", capsys.readouterr().err, flags=re.M)
    assert error.count("\n") == 1 and "Traceback" not in error, error
    assert not (folder.parent / "out").exists()
    return error


def line_of(path: Path, text: str) -> str:
    """Path and number of the first line with a text, as messages have them."""
    lines = path.read_text().splitlines()
    number = next(number for number, line in enumerate(lines, 1) if text in line)
    return f"{path}:{number}"


@pytest.mark.parametrize("case", CASES)
def test_an_exception_names_the_line_of_the_backend(
    case: str, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    file, before, line, wanted = CASES[case]
    folder = new_backend(f"npu_{case}_x", tmp_path, "vanilla").folder
    text = (folder / file).read_text()
    assert before in text
    (folder / file).write_text(text.replace(before, line + before, 1))
    place = line_of(folder / file, line.strip())
    error = error_of(model, folder, capsys)
    assert wanted.replace("PLACE", place) in error
    monkeypatch.setenv("UMAKIT_TRACEBACK", "1")
    run_command(["compile", str(model), "-b", str(folder), "-o", str(tmp_path / "out")])
    assert f'{file}", line {place.rpartition(":")[2]}' in capsys.readouterr().err


@pytest.mark.parametrize("case", HOOKS)
def test_a_hook_for_calls_that_fails_names_the_backend(
    case: str, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hook, wanted = HOOKS[case]
    folder = new_backend(f"npu_hook_{case}", tmp_path, "vanilla").folder
    path = folder / "backend.py"
    text = path.read_text()
    assert HOOK in text
    path.write_text(text.replace(HOOK, f"{HOOK}, replace_call_extern={hook}"))
    assert wanted.replace("PLACE", line_of(path, hook)) in error_of(model, folder, capsys)
