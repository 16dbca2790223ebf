# SPDX-License-Identifier: Apache-2.0
"""TensorFlow Lite operators that compute each element, or over axes: equal to TFLM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from comparisons import examples
from hypothesis import given
from hypothesis import strategies as st
from tflite_cases import INFERENCES, Case, Tensor, assert_equals_micro, file_of, of, run

from umakit.errors import ModelError
from umakit.frontend import import_model

shapes = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)
seeds = st.integers(0, 2**32 - 1)
TOLERANCE = 1e-5


def real(shape: Any, low: float = 0.0, high: float = 0.0, seed: int = 0) -> Tensor:
    """A float32 tensor, with values between two numbers if they are given."""
    values = None
    if low < high:
        random = np.random.default_rng(seed)
        values = random.uniform(low, high, (INFERENCES, *shape)).astype(np.float32)
    return Tensor(tuple(shape), values=values)


@examples(3)
@given(shapes, seeds)
def test_functions_of_floats(shape: tuple[int, ...], seed: int) -> None:
    plain = ("CEIL", "COS", "EXP", "FLOOR", "NEG", "ROUND", "SIN", "SQUARE")
    cases = [Case(code, [real(shape)], [real(shape)]) for code in plain]
    cases += [Case("LOG", [real(shape, 1e-6, 1e3, seed)], [real(shape)])]
    cases += [Case("SQRT", [real(shape, 0, 1e3, seed)], [real(shape)])]
    row = (1, *shape[1:])
    for code, options in (("FLOOR_DIV", "FloorDivOptions"), ("FLOOR_MOD", "FloorModOptions")):
        cases.append(Case(code, [real(shape), real(row, 0.5, 3, seed)], [real(shape)], options))
        cases.append(Case(code, [real(shape), real(row, -3, -0.5, seed)], [real(shape)], options))
    assert_equals_micro(cases, seed, tolerance=TOLERANCE)


def test_exact_functions_of_floats_at_ties_and_infinities() -> None:
    values = np.array(
        [[-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 8388607.5, -0.0, np.inf, -np.inf, 1e30, 0.49999997]],
        np.float32,
    )
    x = Tensor(values.shape[1:], values=values)
    codes = ("CEIL", "FLOOR", "NEG", "SQUARE")
    cases = [Case(code, [x], [Tensor(x.shape)]) for code in codes]
    finite = Tensor((8,), values=values[:, :8])
    cases.append(Case("ROUND", [finite], [Tensor((8,))]))
    assert_equals_micro(cases)


def test_limits_that_micro_lacks() -> None:
    """NumPy is the oracle: TensorFlow Lite Micro has neither operator."""
    values = np.random.default_rng(1).normal(0, 1, (4, 3, 5)).astype(np.float32)
    x = Tensor((3, 5))
    cases = [Case("RELU_N1_TO_1", [x], [x]), Case("RELU_0_TO_1", [x], [x])]
    found = run(file_of(cases)[0], {"x0_0": values, "x1_0": values})
    np.testing.assert_array_equal(found["y0_0"], np.clip(values, -1, 1))
    np.testing.assert_array_equal(found["y1_0"], np.clip(values, 0, 1))


@examples(3)
@given(shapes, seeds)
def test_logic_and_casts(shape: tuple[int, ...], seed: int) -> None:
    truth, column = Tensor(shape, "bool"), Tensor((*shape[:-1], 1), "bool")
    cases = [Case(code, [truth, column], [truth]) for code in ("LOGICAL_AND", "LOGICAL_OR")]
    cases += [Case("LOGICAL_NOT", [truth], [truth])]
    for source in ("int8", "int16", "int32", "float32", "bool"):
        x = real(shape, -120, 120, seed) if source == "float32" else Tensor(shape, source)
        for result in ("int8", "int16", "int32", "float32"):
            cases.append(Case("CAST", [x], [Tensor(shape, result)], "CastOptions"))
    assert_equals_micro(cases, seed)


@examples(3)
@given(shapes, st.data(), seeds)
def test_reductions(shape: tuple[int, ...], data: st.DataObject, seed: int) -> None:
    cases = []
    for code, dtype in (
        ("REDUCE_MAX", "float32"), ("REDUCE_MIN", "float32"), ("REDUCE_MAX", "int8"),
        ("REDUCE_MIN", "int8"), ("REDUCE_ALL", "bool"),
    ):  # fmt: skip
        axis = st.integers(-len(shape), len(shape) - 1)
        axes = data.draw(st.lists(axis, min_size=1, max_size=len(shape)))
        gone = {axis % len(shape) for axis in axes}
        keep = data.draw(st.booleans())
        result = tuple(
            1 if place in gone else extent
            for place, extent in enumerate(shape)
            if keep or place not in gone
        )
        scale = 0.5 if dtype == "int8" else 0.0
        cases.append(
            Case(code, [Tensor(shape, dtype, scale, 7), of(axes)],
                 [Tensor(result, dtype, scale, 7)], "ReducerOptions", {"KeepDims": keep})
        )  # fmt: skip
    assert_equals_micro(cases, seed)


REFUSED = {
    "a quantized function of floats": (
        Case("EXP", [Tensor((3,), "int8", 0.1)], [Tensor((3,), "int8", 0.1)]),
        "EXP that writes 'y0_0' is not supported as a quantized operator",
    ),
    "a change of scale": (
        Case("REDUCE_MAX", [Tensor((3,), "int8", 0.1), of([0])], [Tensor((1,), "int8", 0.2)],
             "ReducerOptions", {"KeepDims": True}),
        "REDUCE_MAX that writes 'y0_0' would change the scale",
    ),
    "an axis that is not there": (
        Case("REDUCE_MIN", [Tensor((3,)), of([1])], [Tensor((1,))], "ReducerOptions"),
        r"its axes are \[1\]",
    ),
    "a cast to 64 bits, which TensorFlow Lite Micro lacks": (
        Case("CAST", [Tensor((3,), "int32")], [Tensor((3,), "int64")], "CastOptions"),
        "CAST that writes 'y0_0' has dtypes",
    ),
    "numbers that are not logic": (
        Case("LOGICAL_NOT", [Tensor((3,), "int32")], [Tensor((3,), "int32")]),
        "LOGICAL_NOT that writes 'y0_0' has dtypes",
    ),
}  # fmt: skip


@pytest.mark.parametrize("why", REFUSED)
def test_refusals(why: str, tmp_path: Path) -> None:
    case, message = REFUSED[why]
    path = tmp_path / "net.tflite"
    path.write_bytes(file_of([case])[0])
    with pytest.raises(ModelError, match=message):
        import_model(path)
