# SPDX-License-Identifier: Apache-2.0
"""Order and running sums along an axis, against NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from comparisons import examples
from hypothesis import given
from hypothesis import strategies as st

import umakit
from umakit import tvm_api

relax = tvm_api.relax
Array = np.ndarray[Any, Any]
Operation = tuple[Callable[[Any], Any], Array]


def run(operations: Sequence[Operation], folder: Path) -> list[Array]:
    """Results of Relax operators, each with data of its own, compiled to C as one network."""
    builder = relax.BlockBuilder()
    inputs = [
        relax.Var(f"x{number}", tvm_api.tensor_type(data.shape, str(data.dtype)))
        for number, (_, data) in enumerate(operations)
    ]
    with builder.function("main", inputs):
        with builder.dataflow():
            results = []
            for (operation, _), x in zip(operations, inputs, strict=True):
                value = builder.emit(operation(x))
                several = isinstance(value.ty, relax.TupleType)
                results += [value[0], value[1]] if several else [value]
            result = builder.emit_output(relax.Tuple(results))
        builder.emit_func_output(result)
    library = umakit.compile_model(builder.get(), [], folder / "library")
    arrays = {str(x.name): data for x, (_, data) in zip(inputs, operations, strict=True)}
    return list(umakit.run_library(library.path, arrays).outputs.values())


def positions_in_order(data: Array, axis: int, largest: bool) -> Array:
    """Positions by NumPy's stable sort; NaN is the largest of all."""
    keys = data if data.dtype.kind == "f" else data.astype(object)
    if not largest:
        return np.argsort(keys, axis=axis, kind="stable")
    if data.dtype.kind == "f":
        return np.lexsort((-keys, ~np.isnan(keys)), axis=axis)
    return np.argsort(-keys, axis=axis, kind="stable")


@st.composite
def drawn_rows(draw: st.DrawFn) -> tuple[Array, int, int, bool]:
    """Data with ties, an axis of it, how many elements to take, and whether the largest."""
    shape = tuple(draw(st.lists(st.integers(1, 4), max_size=2)))
    axis, size = draw(st.integers(0, len(shape))), draw(st.integers(1, 17))
    shape = (*shape[:axis], size, *shape[axis:])
    dtype = draw(st.sampled_from("float32 float64 int8 uint8 int32 int64 uint64".split()))
    chance = np.random.default_rng(draw(st.integers(0, 2**32)))
    data = chance.integers(0 if dtype[0] == "u" else -5, 6, shape).astype(dtype)
    if dtype.startswith("float"):
        data[chance.random(shape) < 0.1] = np.nan
        data[chance.random(shape) < 0.1] = -np.inf
        data[(data == 0) & (chance.random(shape) < 0.5)] = -0.0
    elif draw(st.booleans()):
        limits = np.iinfo(dtype)
        data[chance.random(shape) < 0.3] = limits.min
        data[chance.random(shape) < 0.3] = limits.max
    return data, axis, draw(st.integers(1, size)), draw(st.booleans())


@given(st.lists(drawn_rows(), min_size=20, max_size=20))
@examples(2)
def test_topk(tmp_path_factory: Any, drawn: list[tuple[Array, int, int, bool]]) -> None:
    def topk(data: Array, axis: int, count: int, largest: bool) -> Operation:
        return lambda x: relax.op.topk(x, count, axis - data.ndim, "both", largest, "int64"), data

    results = iter(run([topk(*each) for each in drawn], tmp_path_factory.mktemp("topk")))
    for data, axis, count, largest in drawn:
        expected = np.take(positions_in_order(data, axis, largest), range(count), axis)
        values, positions = next(results), next(results)
        assert positions.dtype == np.int64
        np.testing.assert_array_equal(positions, expected)
        np.testing.assert_array_equal(values, np.take_along_axis(data, expected, axis))


def test_long_rows_are_sorted(tmp_path: Path) -> None:
    data = np.random.default_rng(0).integers(0, 500, (2, 1000)).astype(np.float32)
    operations: list[Operation] = []
    expected = []
    for largest in (False, True):
        order = positions_in_order(data, 1, largest)
        operations += [
            (lambda x, d=largest: relax.op.sort(x, 1, d), data),
            (lambda x, d=largest: relax.op.argsort(x, 1, d, "int32"), data),
            (lambda x, d=largest: relax.op.topk(x, 7, 1, "indices", d, "int32"), data),
        ]
        expected += [np.take_along_axis(data, order, 1), order, order[:, :7]]
    for result, wanted in zip(run(operations, tmp_path), expected, strict=True):
        np.testing.assert_array_equal(result, wanted)


SUMS: dict[str, Callable[[Array, int], Array]] = {
    "float32": lambda x, axis: np.cumsum(x, axis, np.float64).astype(np.float32),
    "float64": lambda x, axis: np.cumsum(x, axis),
    "int32": lambda x, axis: np.cumsum(x, axis, np.int32),
    "int64": lambda x, axis: np.cumsum(x, axis),
}


def test_running_sums_and_products(tmp_path: Path) -> None:
    chance = np.random.default_rng(1)
    operations: list[Operation] = []
    expected = []
    for dtype, sums in SUMS.items():
        data = chance.normal(0, 2**28, (3, 70, 2)).astype(dtype)
        negative = chance.normal(0, 2**28, (3, 70, 2)).astype(dtype)
        operations += [
            (lambda x: relax.op.cumsum(x, 1), data),
            # The sums may take the place of what is summed.
            (lambda x: relax.op.cumsum(relax.op.negative(x), -2, exclusive=True), negative),
            (lambda x: relax.op.cumsum(x), data),
        ]
        before = np.pad(sums(-negative, 1), ((0, 0), (1, 0), (0, 0)))[:, :-1]
        expected += [sums(data, 1), before, sums(data.reshape(-1), 0)]
    small = chance.integers(-128, 128, (2, 9)).astype(np.int8)
    operations.append((lambda x: relax.op.cumsum(x, 1, "int64"), small))
    expected.append(np.cumsum(small, 1, np.int64))
    results = run(operations, tmp_path)
    for result, wanted in zip(results, expected, strict=True):
        assert result.dtype == wanted.dtype
        np.testing.assert_array_equal(result, wanted)


def test_running_products(tmp_path: Path) -> None:
    factors = np.random.default_rng(3).normal(size=(4, 3)).astype(np.float32)
    (products,) = run([(lambda x: relax.op.cumprod(x, 0), factors)], tmp_path)
    np.testing.assert_allclose(products, np.cumprod(factors, 0, np.float64), rtol=1e-6)
