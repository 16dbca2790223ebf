# SPDX-License-Identifier: Apache-2.0
"""ONNX operators that umakit imports itself, compared with NumPy."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import IR_VERSION, Array
from onnx import TensorProto, helper, numpy_helper
from onnx_node_tests import run_model

from umakit.errors import ModelError

FEW = settings(max_examples=8, deadline=None)

SPECIAL = [0.0, -0.0, 1.5, -1.5, 3.0, -3.0, 1e30, -1e-30, np.inf, -np.inf, np.nan]
"""Values at which remainders and reductions go wrong."""


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: dict[str, Array],
    outputs: dict[str, Any],
    constants: dict[str, Array] | None = None,
    opset: int = 21,
) -> onnx.ModelProto:
    """A model; outputs are given by name as an element type and a shape."""
    graph = helper.make_graph(
        nodes,
        "network",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in inputs.items()
        ],
        [helper.make_tensor_value_info(n, *type_) for n, type_ in outputs.items()],
        [numpy_helper.from_array(a, n) for n, a in (constants or {}).items()],
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=IR_VERSION
    )


def run(
    operator: str,
    inputs: Sequence[Array],
    expected: Array,
    *,
    constants: Sequence[Array] = (),
    opset: int = 21,
    **attributes: Any,
) -> None:
    """Compare an operator of some inputs and, after them, constants with what NumPy says."""
    names = [f"x{number}" for number in range(len(inputs) + len(constants))]
    given_inputs = dict(zip(names, inputs, strict=False))
    given_constants = dict(zip(names[len(inputs) :], constants, strict=True))
    node = helper.make_node(operator, names, ["y"], "layer", **attributes)
    elements = helper.np_dtype_to_tensor_dtype(expected.dtype)
    outputs = {"y": (elements, expected.shape)}
    model = model_of([node], given_inputs, outputs, given_constants, opset)
    with tempfile.TemporaryDirectory() as folder:
        got = run_model(model, list(inputs), Path(folder))
    assert not isinstance(got, str), got
    assert got[0].dtype == expected.dtype
    np.testing.assert_allclose(got[0], expected, rtol=1e-5, atol=1e-6)


def refusal(model: onnx.ModelProto, folder: Path) -> str:
    """The message that refuses a model."""
    with pytest.raises(ModelError) as error:
        run_model(model, [], folder)
    return str(error.value)


# --- arithmetic ---------------------------------------------------------------------------------


INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]


def shifted(value: int, amount: int, direction: str, dtype: str) -> int:
    """BitShift in integers of any size, wrapped to the type in the end."""
    bits = np.dtype(dtype).itemsize * 8
    amount = bits if not 0 <= amount < bits else amount
    result = value << amount if direction == "LEFT" else value >> amount
    result &= (1 << bits) - 1
    return result - (1 << bits) if dtype[0] == "i" and result >> (bits - 1) else result


@FEW
@given(st.sampled_from(INTEGERS), st.sampled_from(["LEFT", "RIGHT"]), st.data())
def test_shift_by_any_amount(dtype: str, direction: str, data: st.DataObject) -> None:
    limits = np.iinfo(dtype)
    bits = limits.bits
    values = data.draw(
        st.lists(st.integers(int(limits.min), int(limits.max)), min_size=6, max_size=6)
    )
    near = [bits - 1, bits, bits + 1, 0, 1, int(limits.max)]
    far = [-1, -bits, int(limits.min), 5, bits // 2, bits - 2] if limits.min else near
    amounts = data.draw(st.permutations(near)) + data.draw(st.permutations(far))
    values = values + values
    expected = [shifted(v, a, direction, dtype) for v, a in zip(values, amounts, strict=True)]
    arrays = [np.array(values, dtype), np.array(amounts, dtype)]
    opset = 28 if limits.min else 11
    run("BitShift", arrays, np.array(expected, dtype), opset=opset, direction=direction)


@pytest.mark.parametrize("fmod", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_remainder_of_every_kind_of_float(dtype: str, fmod: int) -> None:
    x, y = (array.reshape(-1).astype(dtype) for array in np.meshgrid(SPECIAL, SPECIAL))
    with np.errstate(all="ignore"):
        expected = (np.fmod if fmod else np.mod)(x, y)
    run("Mod", [x, y], expected, opset=28 if not fmod else 13, fmod=fmod)


@pytest.mark.parametrize("positive", [0, 1])
@pytest.mark.parametrize("negative", [0, 1])
def test_infinity_of_each_sign(positive: int, negative: int) -> None:
    x = np.array(SPECIAL, np.float32)
    expected = (np.isposinf(x) & bool(positive)) | (np.isneginf(x) & bool(negative))
    run("IsInf", [x], expected, detect_positive=positive, detect_negative=negative)


@pytest.mark.parametrize(("shape", "axis"), [((4,), 1), ((4, 3), 1), ((3,), 2), ((3,), -1)])
@pytest.mark.parametrize("operator", ["Add", "Div"])
def test_broadcast_before_opset_7(operator: str, shape: tuple[int, ...], axis: int) -> None:
    random = np.random.default_rng(0)
    x, y = random.random((2, 4, 3)).astype("float32"), random.random(shape).astype("float32") + 1
    trailing = 3 - len(shape) - axis % 3
    other = y.reshape(*shape, *[1] * trailing)
    expected = x + other if operator == "Add" else x / other
    run(operator, [x, y], expected, opset=6, broadcast=1, axis=axis)


# --- dropout ------------------------------------------------------------------------------------


def dropout_model(training: bool | None, ratio: float) -> onnx.ModelProto:
    node = helper.make_node("Dropout", ["x", "ratio", "training"], ["y", "mask"], "layer")
    constants = {"ratio": np.array(ratio, np.float32)}
    inputs = {"x": np.zeros((2, 3), np.float32)}
    if training is None:
        inputs["training"] = np.array(False)
    else:
        constants["training"] = np.array(training)
    outputs = {"y": (TensorProto.FLOAT, (2, 3)), "mask": (TensorProto.BOOL, (2, 3))}
    return model_of([node], inputs, outputs, constants)


@pytest.mark.parametrize(("training", "ratio"), [(False, 0.5), (True, 0.0)])
def test_dropout_that_drops_nothing(training: bool, ratio: float, tmp_path: Path) -> None:
    x = np.random.default_rng(0).random((2, 3)).astype(np.float32)
    got = run_model(dropout_model(training, ratio), [x], tmp_path)
    assert not isinstance(got, str)
    np.testing.assert_array_equal(got[0], x)
    np.testing.assert_array_equal(got[1], np.ones((2, 3), bool))


@pytest.mark.parametrize(("training", "reason"), [(True, "at random"), (None, "at run time")])
def test_dropout_in_training_is_refused(training: bool | None, reason: str, tmp_path: Path) -> None:
    message = refusal(dropout_model(training, 0.5), tmp_path)
    assert "operator Dropout of node 'layer'" in message and reason in message


# --- reductions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("empty", [False, True], ids=["no axes", "empty axes"])
@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        ("ReduceL1", np.abs),
        ("ReduceL2", np.abs),
        ("ReduceLogSum", np.log),
        ("ReduceSumSquare", np.square),
        ("ReduceLogSumExp", np.array),
        ("ReduceMean", np.array),
    ],
)
def test_reduction_over_no_axis(operator: str, expected: Any, empty: bool) -> None:
    x = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
    x = np.abs(x) if operator == "ReduceLogSum" else x
    axes = [np.array([], np.int64)] if empty else []
    run(operator, [x], expected(x), constants=axes, noop_with_empty_axes=1, opset=18)


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_log_of_a_sum_of_exponentials(dtype: str, keepdims: int) -> None:
    rows = [[np.inf, 1], [-np.inf, -np.inf], [-np.inf, 2], [1e3, 1e3], [-1e3, -1e3], [np.nan, 1]]
    x = np.array(rows, dtype)
    with np.errstate(all="ignore"):
        expected = np.logaddexp.reduce(x, axis=1, keepdims=bool(keepdims))
    run("ReduceLogSumExp", [x], expected, constants=[np.array([-1])], opset=18, keepdims=keepdims)


# --- sequences ----------------------------------------------------------------------------------


@FEW
@given(st.integers(-3, 3), st.integers(-3, 2), st.integers(-4, 3))
def test_insert_erase_and_look_up(insert: int, erase: int, at: int) -> None:
    """Positions from both ends, as those of a Python list."""
    arrays = [np.full((2,), value, np.float32) for value in range(4)]
    elements = arrays[:3]
    del elements[erase]
    inserted = max(-2, min(2, insert))
    elements.insert(inserted, arrays[3])
    found = max(-3, min(2, at))
    nodes = [
        helper.make_node("SequenceConstruct", ["x0", "x1", "x2"], ["s0"]),
        helper.make_node("SequenceErase", ["s0", "erase"], ["s1"]),
        helper.make_node("SequenceInsert", ["s1", "x3", "insert"], ["s2"]),
        helper.make_node("SequenceAt", ["s2", "at"], ["y"]),
        helper.make_node("SequenceLength", ["s2"], ["n"]),
        helper.make_node("ConcatFromSequence", ["s2"], ["z"], axis=1, new_axis=1),
    ]
    model = model_of(
        nodes,
        {f"x{number}": array for number, array in enumerate(arrays)},
        {"y": (TensorProto.FLOAT, (2,)), "n": (TensorProto.INT64, ()), "z": (1, (2, 3))},
        {
            "erase": np.array(erase, np.int64),
            "insert": np.array(inserted, np.int32),
            "at": np.array(found, np.int64),
        },
    )
    with tempfile.TemporaryDirectory() as folder:
        got = run_model(model, arrays, Path(folder))
    assert not isinstance(got, str)
    np.testing.assert_array_equal(got[0], elements[found])
    assert got[1] == 3
    np.testing.assert_array_equal(got[2], np.stack(elements, 1))


@pytest.mark.parametrize(
    ("sizes", "bounds"),
    [
        (None, [(0, 1), (1, 2)]),
        (np.array(3), [(0, 3), (3, 5)]),
        (np.array([1, 4]), [(0, 1), (1, 5)]),
    ],
    ids=["one by one", "equal parts", "given sizes"],
)
def test_split_to_sequence(sizes: Array | None, bounds: Any, tmp_path: Path) -> None:
    x = np.arange(10, dtype=np.float32).reshape(2, 5)
    keep = 1 if sizes is not None else 0
    parts = [x[:, begin:end] if keep else x[:, begin] for begin, end in bounds]
    inputs = ["x"] if sizes is None else ["x", "sizes"]
    nodes = [helper.make_node("SplitToSequence", inputs, ["s"], axis=-1, keepdims=keep)]
    nodes += [helper.make_node("SequenceAt", ["s", f"p{i}"], [f"y{i}"]) for i in range(2)]
    constants = {f"p{i}": np.array(i, np.int64) for i in range(2)}
    if sizes is not None:
        constants["sizes"] = sizes
    outputs = {f"y{i}": (TensorProto.FLOAT, part.shape) for i, part in enumerate(parts)}
    got = run_model(model_of(nodes, {"x": x}, outputs, constants), [x], tmp_path)
    assert not isinstance(got, str)
    for part, wanted in zip(got, parts, strict=True):
        np.testing.assert_array_equal(part, wanted)


def test_positions_outside_of_a_sequence_are_refused(tmp_path: Path) -> None:
    x = np.zeros((2,), np.float32)
    nodes = [
        helper.make_node("SequenceConstruct", ["x", "x"], ["s"]),
        helper.make_node("SequenceAt", ["s", "p"], ["y"], "layer"),
    ]
    constants = {"p": np.array(2, np.int64)}
    message = refusal(model_of(nodes, {"x": x}, {"y": (1, (2,))}, constants), tmp_path)
    assert "operator SequenceAt of node 'layer' has the position 2" in message


def test_a_sequence_as_output_is_refused(tmp_path: Path) -> None:
    node = helper.make_node("SequenceConstruct", ["x"], ["s"])
    model = model_of([node], {"x": np.zeros((2,), np.float32)}, {})
    element = helper.make_tensor_type_proto(TensorProto.FLOAT, (2,))
    output = helper.make_value_info("s", helper.make_sequence_type_proto(element))
    model.graph.output.append(output)
    assert "output 's' is of the kind sequence" in refusal(model, tmp_path)


def test_an_input_without_elements_is_refused(tmp_path: Path) -> None:
    node = helper.make_node("Relu", ["x"], ["y"])
    model = model_of([node], {"x": np.zeros((2, 0), np.float32)}, {"y": (1, (2, 0))})
    assert "dimension 1 of input 'x' is 0" in refusal(model, tmp_path)
