# SPDX-License-Identifier: Apache-2.0
"""Many single TensorFlow Lite operators in one file, compared with TensorFlow Lite Micro.

One library for all cases of a test: compiling C takes longer than anything else.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tflite_networks import Array, TfliteFile, micro_interpreter

import umakit

INFERENCES = 5


@dataclass(frozen=True)
class Tensor:
    """An input or result of an operator.

    Attributes:
        shape, dtype: of it.
        scale, zero_point: of quantized ones; a scale of 0 for none, several ones along `axis`.
        values: of a constant; of an input, one for each inference.
        constant: whether `values` are one constant.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"
    scale: float | tuple[float, ...] = 0.0
    zero_point: int = 0
    values: Array | None = None
    constant: bool = False
    axis: int = 0

    def drawn(self, random: np.random.Generator) -> Array:
        """Several values: extremes and noise."""
        size = (INFERENCES, *self.shape)
        if self.dtype == "bool":
            return random.integers(0, 2, size).astype(bool)
        if self.dtype == "float32":
            reals = random.normal(0, 3, size).astype(np.float32)
            reals[0] = np.round(reals[0] * 2) / 2
            return reals
        limits = np.iinfo(self.dtype)
        values = random.integers(limits.min, limits.max + 1, size, dtype=np.int64)
        values[0], values[1] = limits.min, limits.max
        return values.astype(self.dtype)


@dataclass(frozen=True)
class Case:
    """An operator with its inputs and results."""

    code: str
    inputs: Sequence[Tensor]
    results: Sequence[Tensor]
    options: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)


def of(array: Any, dtype: str = "int32", scale: float = 0.0, zero_point: int = 0) -> Tensor:
    """A constant."""
    values = np.asarray(array, dtype)
    return Tensor(values.shape, dtype, scale, zero_point, values, constant=True)


def file_of(cases: Sequence[Case]) -> tuple[bytes, dict[str, Tensor], list[str]]:
    """A file with all cases side by side; its inputs, and names of its outputs."""
    file, inputs, outputs = TfliteFile(), {}, {}
    for number, case in enumerate(cases):
        operands, results = [], []
        for place, tensor in enumerate(case.inputs):
            name = f"x{number}_{place}"
            operands.append(_add(file, tensor, name))
            if not tensor.constant:
                inputs[name] = (operands[-1], tensor)
        for place, tensor in enumerate(case.results):
            name = f"y{number}_{place}"
            results.append(_add(file, tensor, name))
            outputs[name] = results[-1]
        file.operator(case.code, operands, results, case.options, **case.values)
    content = file.finish([number for number, _ in inputs.values()], list(outputs.values()))
    return content, {name: tensor for name, (_, tensor) in inputs.items()}, list(outputs)


def _add(file: TfliteFile, tensor: Tensor, name: str) -> int:
    scale = {"scale": tensor.scale, "zero_point": tensor.zero_point} if tensor.scale else {}
    data = tensor.values if tensor.constant else None
    axis = tensor.axis
    return file.tensor(tensor.shape, tensor.dtype, data=data, name=name, axis=axis, **scale)  # type: ignore[arg-type]


def oracle(content: bytes, inputs: Mapping[str, Array], outputs: Sequence[str]) -> dict[str, Array]:
    """Outputs of TensorFlow Lite Micro, one row for each inference."""
    if not inputs:
        raise ValueError("a case needs an input: what has constants only is folded")
    interpreter = micro_interpreter(content)
    rows: dict[str, list[Array]] = {name: [] for name in outputs}
    for place in range(len(next(iter(inputs.values())))):
        for number, values in enumerate(inputs.values()):
            interpreter.set_input(values[place], number)
        interpreter.invoke()
        for number, name in enumerate(outputs):
            rows[name].append(interpreter.get_output(number))
    return {name: np.stack(values) for name, values in rows.items()}


def assert_equals_micro(
    cases: Sequence[Case], seed: int = 0, *, tolerance: float = 0.0
) -> dict[str, Array]:
    """Compile all cases as one library, whose C equals TensorFlow Lite Micro.

    Args:
        cases: operators.
        seed: of random inputs.
        tolerance: of float results, relative and absolute; integers are equal bit by bit.

    Returns:
        The outputs by name.
    """
    content, tensors, outputs = file_of(cases)
    random = np.random.default_rng(seed)
    inputs = {
        name: tensor.drawn(random) if tensor.values is None else tensor.values
        for name, tensor in tensors.items()
    }
    expected = oracle(content, inputs, outputs)
    found = run(content, inputs)
    for name in outputs:
        case = cases[int(name[1:].split("_")[0])]
        assert found[name].dtype == expected[name].dtype, case
        if expected[name].dtype == np.float32:
            np.testing.assert_allclose(
                found[name], expected[name], rtol=tolerance, atol=tolerance, err_msg=str(case)
            )
        else:
            np.testing.assert_array_equal(found[name], expected[name], str(case))
    return found


def run(content: bytes, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Outputs of the library that a file is compiled to."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cases.tflite"
        path.write_bytes(content)
        library = umakit.compile_model(path, [], Path(folder) / "library")
        return dict(umakit.run_library(library.path, dict(inputs)).outputs)
