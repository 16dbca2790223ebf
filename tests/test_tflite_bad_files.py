# SPDX-License-Identifier: Apache-2.0
"""TensorFlow Lite files that are not taken: one line that names the reason, and nothing written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tflite
from tflite_networks import TfliteFile, micro_interpreter
from umakit.cli.main import run_command

from umakit.errors import ModelError
from umakit.frontend import import_model
from umakit.quantized import quantize_to_integers

KNOWN: dict[str, Any] = {"scale": 0.1}
STATEFUL = (
    "VAR_HANDLE", "READ_VARIABLE", "CALL_ONCE", "WHILE", "IF", "LSTM", "RNN",
    "BIDIRECTIONAL_SEQUENCE_LSTM", "UNIDIRECTIONAL_SEQUENCE_RNN",
)  # fmt: skip


def single(
    code: str = "RELU", *, shape: tuple[int, ...] = (1, 4), subgraphs: int = 1, custom: str = "",
    scale: Any = 0.1, **tensor: Any,
) -> bytes:  # fmt: skip
    """One operator from `x` to `y`, with something wrong with `x`."""
    file = TfliteFile()
    x = file.tensor(shape, scale=scale, name="x", **tensor)
    y = file.tensor([1, 4], **KNOWN, name="y")
    file.operator(code, [x], [y], custom=custom)
    return file.finish([x], [y], subgraphs)


def unread(**tensor: Any) -> bytes:
    """An addition of `x` and a tensor with something wrong with it."""
    file = TfliteFile()
    x, y = (file.tensor([1, 4], **KNOWN, name=name) for name in "xy")
    scale = tensor.pop("scales", 0.1)
    odd = file.tensor([1, 4], scale=scale, name="odd", **tensor)
    file.operator("ADD", [x, odd], [y], "AddOptions")
    return file.finish([x], [y])


def edited(
    operators: Any,
    shape: tuple[int, ...] = (1, 4),
    result: tuple[int, ...] = (1, 4),
    more: str = "",
    **tensor: Any,
) -> bytes:
    """A file whose operators a function of (file, x, y) adds."""
    file = TfliteFile()
    x = file.tensor(shape, **KNOWN, name="x", **tensor)
    y = file.tensor(result, **KNOWN, name="y")
    operators(file, x, y)
    return file.finish([x, file.tensor([1], more, name="z")] if more else [x], [y])


def other_code(newer: int) -> bytes:
    """A ReLU whose field for codes above 126 says something else."""
    file = single("RELU")
    table = tflite.Model.GetRootAsModel(file, 0).OperatorCodes(0)._tab
    place = table.Pos + table.Offset(10)
    return file[:place] + newer.to_bytes(4, "little", signed=True) + file[place + 4 :]


BAD = {
    "nothing": (b"", "is not a TensorFlow Lite file"),
    "half of a file": (single()[:300], "is truncated or damaged"),
    "another format": (b"PK\x03\x04" + bytes(100), "is not a TensorFlow Lite file"),
    "an operator that is not supported": (
        single("FLOOR"), "operator FLOOR that writes 'y' is not supported as a quantized operator"
    ),
    "a custom operator": (single("CUSTOM", custom="Magic"), "CUSTOM Magic that writes 'y'"),
    "no scale": (single(scale=()), "tensor 'x' has no scale"),
    "a scale of no number": (single(scale=float("nan")), "has scales that are not positive"),
    "a dynamic shape": (single(shape=(1, -1)), "tensor 'x' has the dynamic shape"),
    "a sparse tensor": (single(sparse=True), "tensor 'x' is sparse"),
    "a variable": (unread(variable=True), "tensor 'odd' is a variable, which outlives"),
    "a variable with values": (
        unread(variable=True, data=np.ones((1, 4), np.int8)), "'odd' is a variable with values"
    ),
    "a variable as input": (single(variable=True), "the variable 'x' is an input or an output"),
    "several subgraphs": (single(subgraphs=2), "has 2 subgraphs; only one is supported"),
    "values behind the flatbuffer": (unread(offset=4096), "'odd' lie behind the flatbuffer"),
    "too few values": (
        unread(data=np.ones(3, np.int8)), "tensor 'odd' has 3 bytes of values"
    ),
    "two codes of an operator": (other_code(84), "operator LOGICAL_OR that writes 'y'"),
    "scales along no axis": (
        unread(data=np.ones(4, np.int8), axis=7, scales=[0.1, 0.2]),
        "has 2 scales, which is not its size along axis 7",
    ),
    "a tensor that nothing writes": (unread(), "'odd' is read before it is written"),
    "a file that went through Vela": (
        single("CUSTOM", custom="ethos-u"), "CUSTOM ethos-u that writes 'y' is not an operator of "
        "TensorFlow Lite: the file went through Vela; give umakit the file from before Vela",
    ),
    "an element type of 4 bits": (
        unread(dtype="int4", data=np.ones(2, np.int8)), "'odd' has the unsupported type INT4"
    ),
    "an input of 4 bits": (
        single(dtype="int4"), "tensor 'x' is type INT4, which it does not take"
    ),
    "an input of 4 bits that nothing reads": (
        edited(lambda f, x, y: f.operator("RELU", [x], [y]), more="int4"),
        "tensor 'z' has the unsupported type INT4; convert the model with inputs",
    ),
    "no elements": (single("RESHAPE", shape=(0,)), "tensor 'x' of shape [0] has no elements"),
    "two results": (
        edited(lambda f, x, y: f.operator("RESHAPE", [x], [y, f.tensor([4], name="z", **KNOWN)])),
        "has 2 outputs, not 1",
    ),
    "no input": (edited(lambda f, x, y: f.operator("RELU", [], [y])), "RELU has no input"),
    "an input that is a constant": (
        edited(lambda f, x, y: f.operator("RELU", [x], [y]), data=np.ones((1, 4), np.int8)),
        "an input is a constant",
    ),
    "a tensor that is written twice": (
        edited(lambda f, x, y: [f.operator("RELU", [x], [y]) for _ in range(2)]),
        "a tensor is written twice",
    ),
    "an output that nothing writes": (
        edited(lambda f, x, y: f.operator("RELU", [x], [f.tensor([1, 4], name="z", **KNOWN)])),
        "an output is never written",
    ),
    "a tensor that is not there": (
        edited(lambda f, x, y: f.operator("RELU", [77], [y])), "there is no tensor of some number"
    ),
    "an operator code that is not there": (
        edited(lambda f, x, y: f.operator("RELU", [x], [y], index=9)), "is no operator code 9"
    ),
    "an empty input": (
        edited(lambda f, x, y: f.operator("RESHAPE", [x], [y]), shape=(0,), result=(0,)),
        "tensor 'x' of shape [0] has no elements",
    ),
    **{code: (single(code), f"operator {code} that writes 'y' is not supported")
       for code in STATEFUL},
}  # fmt: skip


@pytest.mark.parametrize("why", BAD)
def test_a_command_ends_with_one_line_and_writes_nothing(
    why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content, message = BAD[why]
    path = tmp_path / "net.tflite"
    path.write_bytes(content)
    code = run_command(["compile", str(path), "--output", str(tmp_path / "library")])
    output, error = capsys.readouterr()
    (line,) = [line for line in error.splitlines() if not line.startswith("[")]
    assert (code, output) == (2, "")
    assert line.startswith("error: ") and message in line and "net.tflite" in line
    assert "; " in line and "(docs/refusals.md#" in line
    assert [entry.name for entry in tmp_path.iterdir()] == ["net.tflite"]


def test_the_larger_code_of_an_operator_counts(tmp_path: Path) -> None:
    """The newer field of a ReLU (19) says multiplication (18)."""
    path = tmp_path / "net.tflite"
    path.write_bytes(other_code(18))
    micro_interpreter(path.read_bytes())
    assert import_model(path).outputs[0].name == "y"


def imported(content: bytes, folder: Path) -> bool:
    """Whether a file is taken; any other exception than a `ModelError` goes on."""
    path = folder / "net.tflite"
    path.write_bytes(content)
    try:
        quantize_to_integers(import_model(path))
    except ModelError as error:
        assert "\n" not in str(error)
        return False
    return True


def test_no_beginning_of_a_file_is_taken_for_the_whole(tmp_path: Path) -> None:
    content = single()
    assert imported(content, tmp_path)
    for length in range(len(content)):
        assert not imported(content[:length], tmp_path), length
