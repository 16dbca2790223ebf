# SPDX-License-Identifier: Apache-2.0
"""ONNX LSTM, GRU and RNN: drawn networks compared with ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx_drawing import Array, Draw, Network, makes
from onnx_node_tests import run_model
from onnx_sweep import assert_right

from umakit.errors import ModelError

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
ACTIVATIONS = {"LSTM": 3, "GRU": 2, "RNN": 1}
FUNCTIONS = (
    "Sigmoid Tanh Relu Affine LeakyRelu ThresholdedRelu ScaledTanh HardSigmoid Elu Softsign "
    "Softplus"
).split()


@makes("LSTM GRU RNN")
def recurrent(draw: Draw) -> Network:
    kind = draw.operator
    draw.opset = draw.of([7, 14, 22])
    steps, batch, inputs, hidden = draw.shape(4)
    attributes: dict[str, Any] = {
        "hidden_size": hidden,
        **draw.attributes(direction=["forward", "reverse", "bidirectional"]),
    }
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    if draw.integer(0, 2) == 0:
        count = ACTIVATIONS[kind] * directions
        attributes["activations"] = [draw.of(FUNCTIONS) for _ in range(count)]
        draw_parameters(draw, attributes)
    if draw.integer(0, 3) == 0:
        attributes["clip"] = draw.of([0.3, 1.0])
    if kind == "GRU" and draw.flag():
        attributes["linear_before_reset"] = 1
    if kind == "LSTM" and draw.integer(0, 3) == 0:
        attributes["input_forget"] = 1
    size = GATES[kind] * hidden
    x = draw.array((steps, batch, inputs), limit=1)
    weights = [draw.array((directions, size, columns), limit=1) for columns in (inputs, hidden)]
    optional: list[Array | None] = [
        draw.array((directions, 2 * size), limit=1),
        draw.random.integers(1, steps + 1, batch).astype(np.int32),
        draw.array((directions, batch, hidden), limit=1),
    ]
    if kind == "LSTM":
        optional.append(draw.array((directions, batch, hidden), limit=1))
        optional.append(draw.array((directions, 3 * hidden), limit=1))
    optional = [value if draw.flag() else None for value in optional]
    everything = [x, *weights, *optional]
    constants = draw.of([(), (1, 2, 3, 7), tuple(range(1, len(everything)))])
    results = (0, 1, 2) if kind == "LSTM" else (0, 1)
    wanted = tuple(number for number in results if draw.flag()) or results
    return Network(attributes, list(everything), constants, wanted)


def draw_parameters(draw: Draw, attributes: dict[str, Any]) -> None:
    """Parameters of all activations that have some, or of none that have equal defaults."""
    names = attributes["activations"]
    if not {"Affine", "ScaledTanh", "ThresholdedRelu"} & set(names) and draw.flag():
        return
    alphas = "Affine LeakyRelu ThresholdedRelu ScaledTanh HardSigmoid Elu".split()
    given = [float(draw.of([0.2, 0.7])) for name in names if name in alphas]
    if given:
        attributes["activation_alpha"] = given
    given = [
        float(draw.of([0.3, 0.6])) for n in names if n in ("Affine", "ScaledTanh", "HardSigmoid")
    ]
    if given:
        attributes["activation_beta"] = given


@pytest.mark.parametrize("kind", GATES)
def test_drawn_networks_are_right(kind: str) -> None:
    assert_right(kind, 4)


def layer(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 14]>
    network (float[3, 2, 2] x, int32[2] lengths) => (float[3, 1, 2, 1] y)
    <float[1, 1, 2] w = {{1.0, -1.0}}, float[1, 1, 1] r = {{0.5}}, float[1, 3] b = {{1, 2, 3}},
     int32[1] one = {{3}}, int32[2] whole = {{3, 3}}, int32[2] some = {{3, 1}},
     int32[2] more = {{3, 4}}> {{ {text} }}""")


def test_lengths_that_do_not_fit_stop_the_network(tmp_path: Path) -> None:
    model = layer("y = RNN<hidden_size = 1>(x, w, r, , lengths)")
    x = np.ones((3, 2, 2), np.float32)
    for number, lengths in enumerate(([4, 1], [1, -1])):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert isinstance(run_model(model, [x, np.array(lengths, np.int32)], folder), str)


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ('activations = ["Affine"]', "activation Affine without a parameter"),
        ('activations = ["Sine"]', "activation 'Sine', which is not supported"),
        ('direction = "sideways"', "direction=sideways"),
    ],
)
def test_what_is_not_taken_is_named(attributes: str, words: str, tmp_path: Path) -> None:
    model = layer(f"y = RNN<hidden_size = 1, {attributes}>(x, w, r)")
    with pytest.raises(ModelError, match=words):
        run_model(model, [], tmp_path)


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ("x, r, r", r"W \[1, 1, 1\], R \[1, 1, 1\], which do not fit"),
        ("x, w, r, b", r"has a bias of shape \[1, 3\]"),
        ("x, w, r, , one", r"has \[1\] sequence_lens for 2 sequences"),
        ("x, w, r, , more", r"has sequence_lens \[3, 4\] for 3 steps"),
    ],
)
def test_inputs_that_do_not_fit_are_named(inputs: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=f"RNN.*{words}"):
        run_model(layer(f"y = RNN<hidden_size = 1>({inputs})"), [], tmp_path)


def test_too_few_activations_are_named(tmp_path: Path) -> None:
    model = layer('y = LSTM<hidden_size = 1, activations = ["Tanh"]>(x, w4, r4)')
    for name, columns in (("w4", 2), ("r4", 1)):
        values = np.ones((1, 4, columns), np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    with pytest.raises(ModelError, match=r"LSTM.*has 1 activations, not 3"):
        run_model(model, [], tmp_path)


@pytest.mark.parametrize("lengths", ["whole", "some"])
def test_constant_lengths_are_right(lengths: str, tmp_path: Path) -> None:
    model = layer(f"y = RNN<hidden_size = 1>(x, w, r, , {lengths})")
    x = np.random.default_rng(5).normal(0, 1, (3, 2, 2)).astype(np.float32)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    expected = session.run(None, {"x": x, "lengths": np.array([3, 3], np.int32)})[0]
    got = run_model(model, [x, np.array([3, 3], np.int32)], tmp_path)
    assert not isinstance(got, str), got
    np.testing.assert_allclose(got[0], expected, rtol=1e-5, atol=1e-6)


def test_the_batch_may_be_the_first_axis(tmp_path: Path) -> None:
    """The layout that ONNX Runtime lacks: the transposed tensors of the other one."""
    random = np.random.default_rng(6)
    x = random.normal(0, 1, (3, 2, 4)).astype(np.float32)
    state = random.normal(0, 1, (2, 2, 5)).astype(np.float32)
    weights = [random.normal(0, 0.5, (2, 15, n)).astype(np.float32) for n in (4, 5)]

    def model(layout: int, *shapes: tuple[int, ...]) -> onnx.ModelProto:
        value = onnx.helper.make_tensor_value_info
        shapes_of = dict(zip(("x", "h", "y", "last"), shapes, strict=True))
        values = {n: value(n, onnx.TensorProto.FLOAT, s) for n, s in shapes_of.items()}
        node = onnx.helper.make_node(
            "GRU", ["x", "w", "r", "", "", "h"], ["y", "last"], hidden_size=5,
            direction="bidirectional", layout=layout,
        )  # fmt: skip
        constants = [onnx.numpy_helper.from_array(w, n) for w, n in zip(weights, "wr", strict=True)]
        graph = onnx.helper.make_graph(
            [node], "network", [values["x"], values["h"]], [values["y"], values["last"]], constants
        )
        opsets = [onnx.helper.make_opsetid("", 14)]
        return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)

    usual = model(0, x.shape, state.shape, (3, 2, 2, 5), state.shape)
    session = onnxruntime.InferenceSession(usual.SerializeToString())
    outputs, last = session.run(None, {"x": x, "h": state})
    first = model(1, (2, 3, 4), state.shape, (2, 3, 2, 5), state.shape)
    got = run_model(first, [x.swapaxes(0, 1).copy(), state.swapaxes(0, 1).copy()], tmp_path)
    assert not isinstance(got, str), got
    np.testing.assert_allclose(got[0], outputs.transpose(2, 0, 1, 3), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(got[1], last.swapaxes(0, 1), rtol=1e-5, atol=1e-6)
