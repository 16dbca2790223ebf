# SPDX-License-Identifier: Apache-2.0
"""TensorFlow Lite operators that move elements: equal to TensorFlow Lite Micro bit by bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from comparisons import examples
from hypothesis import given
from hypothesis import strategies as st
from tflite_cases import INFERENCES, Case, Tensor, assert_equals_micro, file_of, of, run

from umakit.errors import InputError, ModelError, UmakitError
from umakit.frontend import import_model

sizes = st.integers(1, 4)
seeds = st.integers(0, 2**32 - 1)
SCALED = {"int8": 5, "uint8": 200, "int16": 0}
"""Zero points of quantized dtypes."""


def tensor(shape: Any, dtype: str, **facts: Any) -> Tensor:
    scale = 0.25 if dtype in SCALED else 0.0
    return Tensor(tuple(shape), dtype, scale, SCALED.get(dtype, 0), **facts)


def positions(shape: tuple[int, ...], below: int, seed: int) -> Tensor:
    random = np.random.default_rng(seed)
    values = random.integers(0, below, (INFERENCES, *shape)).astype(np.int32)
    return Tensor(shape, "int32", values=values)


@examples(3)
@given(st.lists(sizes, min_size=4, max_size=4), sizes, seeds)
def test_gather(shape: list[int], count: int, seed: int) -> None:
    n, h, w, c = shape
    cases = []
    for dtype in ("float32", "int8"):
        data = tensor(shape, dtype)
        options = "GatherOptions"
        cases += [
            Case("GATHER", [data, positions((2, count), h, seed)],
                 [tensor((n, 2, count, w, c), dtype)], options, {"Axis": 1}),
            Case("GATHER", [data, positions((), c, seed)], [tensor((n, h, w), dtype)], options,
                 {"Axis": -1}),
            Case("GATHER", [data, positions((n, count), w, seed)],
                 [tensor((n, h, count, c), dtype)], options, {"Axis": 2, "BatchDims": 1}),
            Case("GATHER", [data, positions((n, h, count), w, seed)],
                 [tensor((n, h, count, c), dtype)], options, {"Axis": 2, "BatchDims": 2}),
            Case("GATHER_ND", [data, positions((2, count, 2), min(n, h), seed)],
                 [tensor((2, count, w, c), dtype)]),
            Case("GATHER_ND", [data, positions((count, 4), min(shape), seed)],
                 [tensor((count,), dtype)]),
        ]  # fmt: skip
    assert_equals_micro(cases, seed)


@examples(3)
@given(st.lists(sizes, min_size=4, max_size=4), sizes, sizes, seeds)
def test_blocks(shape: list[int], rows: int, columns: int, seed: int) -> None:
    n, h, w, c = shape
    random = np.random.default_rng(seed)
    cases = []
    for dtype in ("float32", "int8"):
        block = {"BlockSize": rows}
        split, joined = (n, h, w, c * rows * rows), (n, h * rows, w * rows, c)
        cases.append(Case("DEPTH_TO_SPACE", [tensor(split, dtype)], [tensor(joined, dtype)],
                          "DepthToSpaceOptions", block))  # fmt: skip
        cases.append(Case("SPACE_TO_DEPTH", [tensor(joined, dtype)], [tensor(split, dtype)],
                          "SpaceToDepthOptions", block))  # fmt: skip
        tops = [int(random.integers(0, min(rows * h, rows + 1))) for _ in range(2)]
        widths = [[min(tops[0], rows * h - 1), 0], [0, int(random.integers(0, w * columns))]]
        inner = (n, h * rows - widths[0][0], w * columns - widths[1][1], c)
        blocks = (n * rows * columns, h, w, c)
        whole = (n, h * rows, w * columns, c)
        cases.append(Case("SPACE_TO_BATCH_ND",
                          [tensor(whole, dtype), of([rows, columns]), of([[0, 0], [0, 0]])],
                          [tensor(blocks, dtype)]))  # fmt: skip
        cases.append(Case("BATCH_TO_SPACE_ND",
                          [tensor(blocks, dtype), of([rows, columns]), of(widths)],
                          [tensor(inner, dtype)]))  # fmt: skip
        cases.append(Case("BATCH_TO_SPACE_ND", [tensor((n * rows, h, c), dtype), of([rows]),
                                                of([[0, 0]])],
                          [tensor((n, h * rows, c), dtype)]))  # fmt: skip
    assert_equals_micro(cases, seed)


@examples(3)
@given(st.lists(st.integers(2, 5), min_size=1, max_size=4), st.data(), seeds)
def test_borders_and_orders(shape: list[int], data: st.DataObject, seed: int) -> None:
    cases = []
    for dtype in ("float32", "int8"):
        for mode in (0, 1):
            limit = st.sampled_from([0, 1, min(shape) - 1])
            widths = data.draw(st.lists(st.tuples(limit, limit), min_size=len(shape),
                                        max_size=len(shape)))  # fmt: skip
            padded = [n + sum(pair) for n, pair in zip(shape, widths, strict=True)]
            cases.append(Case("MIRROR_PAD", [tensor(shape, dtype), of(widths)],
                              [tensor(padded, dtype)], "MirrorPadOptions",
                              {"Mode": mode}))  # fmt: skip
    first = data.draw(st.integers(0, len(shape) - 1))
    axes = list(range(first, data.draw(st.integers(first, len(shape) - 1)) + 1))
    for dtype in ("float32", "int8", "uint8", "int16", "int32", "int64", "bool"):
        cases.append(Case("REVERSE_V2", [tensor(shape, dtype), of(axes)], [tensor(shape, dtype)],
                          "ReverseV2Options"))  # fmt: skip
        larger = [2, *shape]
        cases.append(Case("BROADCAST_TO", [tensor([1] * len(shape), dtype), of(larger)],
                          [tensor(larger, dtype)], "BroadcastToOptions"))  # fmt: skip
    for dtype in ("float32", "int8", "int32"):
        cases.append(Case("FILL", [of(shape), tensor((), dtype)], [tensor(shape, dtype)],
                          "FillOptions"))  # fmt: skip
        cases.append(Case("ZEROS_LIKE", [tensor(shape, dtype)], [tensor(shape, dtype)],
                          "ZerosLikeOptions"))  # fmt: skip
        cases.append(Case("SHAPE", [tensor(shape, dtype)], [Tensor((len(shape),), "int32")],
                          "ShapeOptions", {"OutType": 2}))  # fmt: skip
    for dtype in ("float32", "int8", "int16"):
        row, column = [1, *shape[1:]], [*shape[:-1], 1]
        cases.append(Case("SELECT_V2", [Tensor(tuple(row), "bool"), tensor(column, dtype),
                                        tensor(shape, dtype)], [tensor(shape, dtype)]))  # fmt: skip
        cases.append(Case("SELECT_V2", [Tensor(tuple(shape), "bool"), tensor(shape, dtype),
                                        tensor([], dtype)], [tensor(shape, dtype)]))  # fmt: skip
    assert_equals_micro(cases, seed)


def test_padded_blocks_hold_what_stands_for_0() -> None:
    """NumPy is the oracle: TensorFlow Lite Micro pads with a number that it never initializes."""
    images = np.random.default_rng(2).integers(-128, 128, (3, 2, 3, 5, 4)).astype(np.int8)
    case = Case("SPACE_TO_BATCH_ND", [tensor((2, 3, 5, 4), "int8"), of([2, 3]),
                                      of([[1, 2], [0, 1]])],
                [tensor((12, 3, 2, 4), "int8")])  # fmt: skip
    (found,) = run(file_of([case])[0], {"x0_0": images}).values()
    padded = np.pad(images, [(0, 0), (0, 0), (1, 2), (0, 1), (0, 0)], constant_values=5)
    blocks = padded.reshape(3, 2, 3, 2, 2, 3, 4).transpose(0, 3, 5, 1, 2, 4, 6)
    np.testing.assert_array_equal(found, blocks.reshape(3, 12, 3, 2, 4))


def test_positions_out_of_range_end_the_run() -> None:
    values = np.array([[0, 3]], np.int32)
    for wrong in (3, -1):
        values[0, 1] = wrong
        case = Case("GATHER", [tensor((3, 2), "int8"), Tensor((2,), "int32", values=values)],
                    [tensor((2, 2), "int8")], "GatherOptions", {"Axis": 0})  # fmt: skip
        content, tensors, _ = file_of([case])
        with pytest.raises(UmakitError, match=r"out of range"):
            run(content, {"x0_0": np.zeros((1, 3, 2), np.int8), "x0_1": tensors["x0_1"].values})


IMAGE = tensor((1, 2, 2, 4), "int8")


def test_shapes_and_zeros_of_all_dtypes() -> None:
    pairs = [([3], [2, 3]), ([1, 4], [5, 1]), ([2, 3], [2, 3])]
    assert_equals_micro(
        [
            Case("BROADCAST_ARGS", [of(left, dtype), of(right, dtype)], [tensor((2,), dtype)])
            for dtype in ("int32", "int64")
            for left, right in pairs
        ]
        + [
            Case("ZEROS_LIKE", [tensor((2,), dtype)], [tensor((2,), dtype)], "ZerosLikeOptions")
            for dtype in ("float32", "int64")
        ]
    )


REFUSED = {
    "blocks that do not divide": (
        Case("SPACE_TO_DEPTH", [IMAGE], [IMAGE], "SpaceToDepthOptions", {"BlockSize": 3}),
        "its blocks of 3 do not divide 2 rows",
    ),
    "another scale": (
        Case("REVERSE_V2", [IMAGE, of([1])], [Tensor((1, 2, 2, 4), "int8", 0.5, 5)],
             "ReverseV2Options"),
        "would change the scale",
    ),
    "a border wider than the image": (
        Case("MIRROR_PAD", [IMAGE, of([[0, 0], [2, 0], [0, 0], [0, 0]])],
             [tensor((1, 4, 2, 4), "int8")], "MirrorPadOptions", {"Mode": 0}),
        "its paddings are",
    ),
    "int16, which TensorFlow Lite Micro lacks": (
        Case("GATHER", [tensor((3,), "int16"), of([0])], [tensor((1,), "int16")], "GatherOptions"),
        "GATHER that writes 'y0_0': tensor 'x0_0' is int16",
    ),
    "positions of 64 bits": (
        Case("GATHER", [tensor((3,), "int8"), of([0], "int64")], [tensor((1,), "int8")],
             "GatherOptions"),
        "its positions are int64",
    ),
}  # fmt: skip


@pytest.mark.parametrize("why", REFUSED)
def test_refusals(why: str, tmp_path: Path) -> None:
    case, message = REFUSED[why]
    path = tmp_path / "net.tflite"
    path.write_bytes(file_of([case])[0])
    with pytest.raises(ModelError, match=message) as refused:
        import_model(path)
    assert not isinstance(refused.value, InputError) and "y0_0" in str(refused.value)
