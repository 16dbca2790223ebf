# SPDX-License-Identifier: Apache-2.0
"""DYNAMIC_UPDATE_SLICE: equal to TensorFlow Lite Micro and to NumPy, wherever the update starts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from comparisons import examples
from hypothesis import given
from hypothesis import strategies as st
from tflite_cases import INFERENCES, Case, Tensor, assert_equals_micro, file_of, of

from umakit.errors import ModelError
from umakit.frontend import import_model

ZERO_POINTS = {"int8": 5}


def tensor(shape: tuple[int, ...], dtype: str) -> Tensor:
    scaled = dtype in ZERO_POINTS
    return Tensor(shape, dtype, 0.25 if scaled else 0.0, ZERO_POINTS.get(dtype, 0))


def starts(rank: int, dtype: str, seed: int) -> Tensor:
    """Near the data, and as far away as integers are."""
    values = np.random.default_rng(seed).integers(-2, 7, (INFERENCES, rank))
    limits = np.iinfo(dtype)
    values[0], values[1] = limits.min, limits.max
    return Tensor((rank,), dtype, values=values.astype(dtype))


@examples(4)
@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), min_size=1, max_size=4),
       st.integers(0, 2**32 - 1))  # fmt: skip
def test_updates_equal_those_of_tensorflow_lite_micro(
    sizes: list[tuple[int, int]], seed: int
) -> None:
    shape, update = tuple(max(pair) for pair in sizes), tuple(min(pair) for pair in sizes)
    assert_equals_micro(
        [
            Case("DYNAMIC_UPDATE_SLICE",
                 [tensor(shape, dtype), tensor(update, dtype), starts(len(shape), index, seed)],
                 [tensor(shape, dtype)])
            for dtype in ("float32", "int8", "int32")
            for index in ("int32", "int64")
        ],
        seed,
    )  # fmt: skip


def test_a_row_is_written_where_it_starts() -> None:
    data = Tensor((3, 2), "int32", values=np.zeros((3, 3, 2), np.int32))
    update = Tensor((1, 2), "int32", values=np.array([[[1, 2]], [[3, 4]], [[5, 6]]], np.int32))
    start = Tensor((2,), "int32", values=np.array([[1, 0], [9, 9], [-9, -9]], np.int32))
    result = Tensor((3, 2), "int32")
    found = assert_equals_micro([Case("DYNAMIC_UPDATE_SLICE", [data, update, start], [result])])
    np.testing.assert_array_equal(
        found["y0_0"],
        [[[0, 0], [1, 2], [0, 0]], [[0, 0], [0, 0], [3, 4]], [[5, 6], [0, 0], [0, 0]]],
    )


@pytest.mark.parametrize(
    "inputs, message",
    [
        ([tensor((2, 3), "int8"), tensor((3, 3), "int8"), of([0, 0])], "does not fit"),
        ([tensor((2, 3), "int8"), tensor((3,), "int8"), of([0, 0])], "does not fit"),
        ([tensor((2, 3), "int8"), tensor((1, 3), "int8"), of([0])], "each dimension"),
        ([tensor((2, 3), "int8"), tensor((1, 3), "int8"), of([0, 0], "float32")], "its start is"),
        ([tensor((2, 3), "int8"), tensor((1, 3), "int32"), of([0, 0])], "its update is int32"),
        ([tensor((2, 3), "int8"), Tensor((1, 3), "int8", 0.5, 5), of([0, 0])], "scale"),
        ([tensor((2, 3), "bool"), tensor((1, 3), "bool"), of([0, 0])], "bool"),
    ],
)
def test_what_is_no_update_is_refused(inputs: list[Tensor], message: str, tmp_path: Path) -> None:
    content, _, _ = file_of([Case("DYNAMIC_UPDATE_SLICE", inputs, [inputs[0]])])
    path = tmp_path / "net.tflite"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=message) as raised:
        import_model(path)
    assert "DYNAMIC_UPDATE_SLICE" in str(raised.value)
