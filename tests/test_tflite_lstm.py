# SPDX-License-Identifier: Apache-2.0
"""UNIDIRECTIONAL_SEQUENCE_LSTM of TensorFlow Lite: drawn layers next to TensorFlow Lite Micro."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from comparisons import examples
from hypothesis import given
from hypothesis import strategies as st
from tflite_networks import Array, TfliteFile
from tflite_states import assert_states_equal_micro

from umakit.errors import ModelError
from umakit.frontend import import_model

all_sizes = st.tuples(*(st.integers(1, most) for most in (3, 4, 6, 5)))
"""Sequences, steps, inputs, hidden units."""

zero_points = st.integers(-128, 127)
clips = st.sampled_from([0.0, 0.25, 1.0, 10.0])
exponents = st.integers(-15, -9)
"""Of the cell state's scale."""

seeds = st.integers(0, 2**32 - 1)
TOLERANCE = 1e-5
GATES, TANH, RELU = 4, 4, 1
INPUTS = 24
HIDDEN, CELL = 18, 19
WIDE = {"int8": "int32", "int16": "int64"}
"""Biases by dtype of the data."""


def layer(
    file: TfliteFile, name: str, sizes: tuple[int, ...], seed: int, *, dtype: str,
    zeros: tuple[int, int] = (0, 0), exponent: int = -11, clip: float = 0.0,
    time_major: bool = False, activation: int = TANH, omitted: int = 0, peephole: bool = False,
    cell_scale: float = 0.0, result_zero: int | None = None, hidden: str = "",
    units_of_cell: int = 0, diagonal: bool = False, bias_dtype: str = "", weights_zero: int = 0,
    rank: int = 3,
) -> tuple[int, int]:  # fmt: skip
    """Add an LSTM; returns numbers of its data and its result.

    Args:
        file: that it is added to.
        name: what names of its tensors start with.
        sizes: see `all_sizes`.
        seed: of weights and scales.
        dtype: of data and result.
        zeros: zero points of data and of hidden state.
        exponent: the scale of the cell state as a power of two.
        clip: of the cell state, 0 for none.
        time_major: whether time is the first axis.
        activation: of the schema.
        omitted: number of an input to omit, 0 for none.
        peephole: whether it has one.
        cell_scale, result_zero, hidden: of cell state, result and hidden state, where they are not
            those that fit.
        units_of_cell, bias_dtype, weights_zero, rank: of cell state, biases, weights and data,
            where they are not those that fit.
        diagonal: whether the file calls the recurrent weights diagonal.
    """
    batch, steps, inputs, units = sizes
    random, floats = np.random.default_rng(seed), dtype == "float32"
    half = 128.0 if dtype == "int8" else 32768.0
    spread = float(random.choice([0.3, 1.0, 4.0]))
    rows = (steps, batch) if time_major else (batch, steps)
    data_scale = float(np.float32(random.uniform(1, 4) * spread / half))
    hidden_scale = float(np.float32(random.uniform(0.3, 1.0) / half))

    def tensor(kind: str, shape: tuple[int, ...], kept: str, scale: float = 0.0,
               zero_point: int = 0, **facts: Any) -> int:  # fmt: skip
        if not floats:
            facts |= {"scale": scale, "zero_point": zero_point}
        return file.tensor(shape, kept, name=f"{name}_{kind}", **facts)

    def weights(number: int, columns: int) -> int:
        shape = (units, columns)
        if floats:
            values: Array = random.normal(0, 0.7, shape).astype(np.float32)
            return tensor(f"weights{number}", shape, dtype, data=values)
        values = random.integers(-127, 128, shape).astype(np.int8)
        scale = float(np.float32(random.uniform(0.3, 1.5) / 128 / np.sqrt(columns)))
        return tensor(f"weights{number}", shape, "int8", scale, weights_zero, data=values)

    def bias(number: int) -> int:
        if floats:
            values: Array = random.normal(0, 0.5, units).astype(np.float32)
            return tensor(f"bias{number}", (units,), dtype, data=values)
        most = int(half * 64)
        kind = bias_dtype or WIDE[dtype]
        values = random.integers(-most, most, units).astype(kind)
        return tensor(f"bias{number}", (units,), kind, data_scale / 128, data=values)

    operands = [-1] * INPUTS
    operands[0] = tensor("data", (*rows, inputs)[-rank:], dtype, data_scale, zeros[0])
    for gate in range(GATES):
        operands[1 + gate] = weights(1 + gate, inputs)
        operands[5 + gate] = weights(5 + gate, units)
        operands[12 + gate] = bias(12 + gate)
    cell = "int16" if not floats or units_of_cell else dtype
    states = ((HIDDEN, "hidden", hidden or dtype), (CELL, "cell", cell))
    for place, kind, kept in states:
        scale = hidden_scale if place == HIDDEN else cell_scale or 2.0**exponent
        zero = zeros[1] if place == HIDDEN else 0
        shape = (batch, units_of_cell if place == CELL and units_of_cell else units)
        operands[place] = tensor(kind, shape, kept, scale, zero, variable=True)
    if peephole:
        operands[9] = tensor("peephole", (units,), "int16", 0.1, data=np.ones(units, np.int16))
    if omitted:
        operands[omitted] = -1
    zero = zeros[1] if result_zero is None else result_zero
    y = tensor("result", (*rows, units), dtype, hidden_scale, zero)
    file.operator(
        "UNIDIRECTIONAL_SEQUENCE_LSTM", operands, [y], "UnidirectionalSequenceLSTMOptions",
        FusedActivationFunction=activation, CellClip=clip, TimeMajor=time_major,
        DiagonalRecurrentTensors=diagonal,
    )  # fmt: skip
    return operands[0], y


@examples(2)
@given(
    st.tuples(all_sizes, all_sizes), st.tuples(zero_points, zero_points), exponents, clips,
    st.booleans(), seeds,
)  # fmt: skip
def test_integers(
    sizes: tuple[tuple[int, ...], ...], zeros: tuple[int, int], exponent: int, clip: float,
    time_major: bool, seed: int,
) -> None:  # fmt: skip
    file = TfliteFile()
    facts: dict[str, Any] = {"exponent": exponent, "clip": clip}
    ends = [
        layer(file, "narrow", sizes[0], seed, dtype="int8", zeros=zeros, time_major=time_major,
              **facts),
        layer(file, "wide", sizes[1], seed, dtype="int16", time_major=not time_major, **facts),
    ]  # fmt: skip
    assert_states_equal_micro(file.finish([x for x, _ in ends], [y for _, y in ends]), seed)


@examples(2)
@given(all_sizes, clips, st.booleans(), seeds)
def test_floats(sizes: tuple[int, ...], clip: float, time_major: bool, seed: int) -> None:
    file = TfliteFile()
    x, y = layer(file, "one", sizes, seed, dtype="float32", clip=clip, time_major=time_major)
    assert_states_equal_micro(file.finish([x], [y]), seed, tolerance=TOLERANCE)


@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize(("clip", "time_major"), [(0.0, False), (0.25, True)])
def test_options_are_those_of_micro(dtype: str, clip: float, time_major: bool) -> None:
    file = TfliteFile()
    x, y = layer(file, "one", (2, 3, 4, 2), 9, dtype=dtype, clip=clip, time_major=time_major)
    tolerance = TOLERANCE if dtype == "float32" else 0.0
    assert_states_equal_micro(file.finish([x], [y]), 9, tolerance=tolerance)


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "an activation": ({"activation": RELU}, "its fused activation 1 is not supported"),
    "coupled gates": ({"omitted": 1}, "weights or biases of a gate are omitted"),
    "peepholes": ({"peephole": True}, "it has peepholes, a projection or a normalization"),
    "a scale of the cell": ({"cell_scale": 0.0007}, "of its cell state is not a power of two"),
    "a result of its own": ({"result_zero": 3}, "another scale or zero point than its hidden"),
    "a state of another width": ({"hidden": "int16"}, "its states are int16 and int16"),
    "diagonal weights": ({"diagonal": True}, "its recurrent weights are diagonal"),
    "data without time": ({"rank": 2}, "its data is not a sequence of rows"),
    "a cell of another size": ({"units_of_cell": 3}, "shapes of its tensors do not fit each other"),
    "wide biases": ({"bias_dtype": "int64"}, "biases of its gates are int64, int64, int64, int64,"),
    "a zero point of weights": ({"weights_zero": 1}, "tensor 'one_weights1' has a zero point"),
}


@pytest.mark.parametrize("why", BAD)
def test_what_is_not_taken_is_refused(why: str, tmp_path: Path) -> None:
    changes, message = BAD[why]
    file, path = TfliteFile(), tmp_path / "one.tflite"
    x, y = layer(file, "one", (1, 2, 3, 4), 7, dtype="int8", **changes)
    path.write_bytes(file.finish([x], [y]))
    with pytest.raises(ModelError, match="LSTM that writes 'one_result'") as raised:
        import_model(path)
    assert message in str(raised.value)
