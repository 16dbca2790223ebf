# SPDX-License-Identifier: Apache-2.0
"""Drawn networks of integer convolutions and dense layers, with what other runtimes compute.

Each network has several layers side by side and one after the other, all of whose results are
outputs: compiling takes longer than all else, and a wrong result is not hidden by the next layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from networks import Array
from numpy_onnx import numpy_onnx
from onnx import TensorProto, helper
from qdq import Qdq, optimized_operators, runtime
from tflite_exactness import weights_and_bias
from tflite_networks import TfliteFile, micro_interpreter

INFERENCES = 2
MOST_LAYERS = 4
MOST_RESULTS = 40_000
"""Elements of a result, above which no layer follows: emulators are slow."""

channel_counts = st.one_of(st.integers(1, 20), st.integers(1, 70), st.sampled_from([16, 32, 64]))
sizes = st.integers(1, 9)
kernels = st.integers(1, 4)
strides = st.integers(1, 3)
seeds = st.integers(0, 2**32 - 1)


@dataclass(frozen=True)
class Network:
    """A model file with inputs, and its outputs as another runtime computes them.

    Attributes:
        content, suffix: of the file.
        inputs, expected: arrays by name, one row for each inference.
        has_dense: whether there is a dense layer.
    """

    content: bytes
    suffix: str
    inputs: dict[str, Array]
    expected: dict[str, Array]
    has_dense: bool

    def _repr_pretty_(self, printer: Any, _: bool) -> None:
        """Print little for Hypothesis, which warns of long texts."""
        shapes = {name: array.shape for name, array in self.expected.items()}
        printer.text(f"Network({self.suffix}, {shapes})")


# --- ONNX ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Image:
    """A quantized value [N, C, H, W] of an ONNX network."""

    name: str
    scale: float
    zero_point: int
    shape: tuple[int, ...]


class _Onnx(Qdq):
    """A network with several outputs, in the form of quantized ONNX files."""

    def __init__(self, draw: st.DrawFn) -> None:
        super().__init__(draw(st.sampled_from(["int8", "uint8"])), draw(seeds))
        self.draw = draw
        self.values: list[_Image] = []

    def image(self, shape: tuple[int, ...]) -> _Image:
        zero_point = self.zero_point()
        self.input(shape, 0.03, zero_point)
        self.nodes.pop()  # each user gets a DequantizeLinear of its own
        return self.keep(_Image(self.nodes[-1].output[0], 0.03, zero_point, shape))

    def keep(self, image: _Image) -> _Image:
        self.values.append(image)
        return image

    def real(self, image: _Image) -> str:
        return self.dequantize(image.name, image.scale, image.zero_point, self.dtype)

    def convolution(self, image: _Image) -> _Image | None:
        draw = self.draw
        batch, inputs, *size = image.shape
        kind = draw(st.sampled_from(["plain", "plain", "pointwise", "depthwise", "groups"]))
        outputs, groups = draw(channel_counts), 1
        if kind == "depthwise":
            groups, outputs = inputs, inputs * draw(st.integers(1, 2))
        elif kind == "groups":
            groups = draw(st.sampled_from([n for n in range(1, inputs + 1) if inputs % n == 0]))
            outputs = groups * draw(st.integers(1, 9))
        window = [1, 1] if kind == "pointwise" else [draw(kernels), draw(kernels)]
        reach = draw(st.sampled_from([0, 2, 6]))  # 6: windows wholly in the padding
        pads = [draw(st.integers(0, reach)) for _ in range(4)]
        steps = [draw(strides), draw(strides)]
        dilations = [draw(st.sampled_from([1, 1, 2, 3])) for _ in range(2)]
        result = [
            (size[axis] + pads[axis] + pads[axis + 2] - dilations[axis] * (window[axis] - 1) - 1)
            // steps[axis] + 1
            for axis in range(2)
        ]  # fmt: skip
        shape = (batch, outputs, *result)
        if min(result) < 1 or np.prod(shape) > MOST_RESULTS:
            return None
        taps = (outputs, inputs // groups, *window)
        weights, bias, scale = self.constants_of(taps, image)
        y = self.node(
            "Conv", self.real(image), weights, *bias, group=groups, strides=steps, pads=pads,
            dilations=dilations, kernel_shape=window,
        )  # fmt: skip
        return self.result(y, scale, shape)

    def dense(self, image: _Image) -> _Image | None:
        rows, inputs = image.shape[0], int(np.prod(image.shape[1:]))
        if inputs > 1500:
            return None
        outputs = self.draw(channel_counts)
        weights, bias, scale = self.constants_of((outputs, inputs), image)
        x = self.real(image)
        if len(image.shape) > 2:
            x = self.quantize(self.node("Flatten", x), image.scale, image.zero_point)
            x = self.dequantize(x, image.scale, image.zero_point, self.dtype)
        bias = bias or [self.bias(outputs, np.float32(image.scale) * self.deviation)]
        return self.result(self.node("Gemm", x, weights, *bias, transB=1), scale, (rows, outputs))

    def constants_of(self, shape: tuple[int, ...], image: _Image) -> tuple[str, list[str], float]:
        """Weights, perhaps bias, and a scale for which most results are not at their limits."""
        per_channel = self.draw(st.booleans()) and shape[0] > 1
        weights, self.deviation = self.weights(shape, "int8", per_channel)
        biased = self.draw(st.booleans())
        product = np.float32(image.scale) * self.deviation
        bias = [self.bias(shape[0], product)] if biased else []
        spread = 5000 * float(np.prod(shape[1:])) ** 0.5
        ratio = self.draw(st.sampled_from([1.0, 0.37, 0.1, 0.004]))
        return weights, bias, max(1e-6, float(product.max()) * spread / 50 * ratio)

    def result(self, y: str, scale: float, shape: tuple[int, ...]) -> _Image:
        zero_point = self.zero_point()
        return self.keep(_Image(self.quantize(y, scale, zero_point), scale, zero_point, shape))

    def finished(self) -> onnx.ModelProto:
        """The model, whose outputs are real numbers: ONNX Runtime keeps int8 ones in float32."""
        outputs = []
        for number, value in enumerate(self.values[1:]):
            name = f"y{number}"
            self.real(value)
            self.nodes[-1].output[0], self.nodes[-1].name = name, name
            outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, value.shape))
        graph = helper.make_graph(self.nodes, "g", self.inputs, outputs, self.constants)
        opsets = [helper.make_opsetid("", self.opset)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        return onnx.shape_inference.infer_shapes(model)


def _by_onnx_runtime(model: onnx.ModelProto, inputs: dict[str, Array]) -> dict[str, Array]:
    """Outputs of ONNX Runtime; of NumPy where it would compute a layer in floating point."""
    if optimized_operators(model) & {"Conv", "Gemm"}:
        return numpy_onnx(model, inputs)
    session = runtime(model)
    names = [each.name for each in session.get_outputs()]
    rows = [session.run(names, {"x0": values}) for values in inputs["x0"]]
    return {name: np.stack([row[i] for row in rows]) for i, name in enumerate(names)}


@st.composite
def onnx_networks(draw: st.DrawFn) -> Network:
    """Networks in NCHW of int8 or uint8 data."""
    net = _Onnx(draw)
    if draw(st.sampled_from([False, False, False, True])):
        image = net.image((draw(st.integers(1, 5)), draw(st.integers(1, 70))))
    else:
        image = net.image((draw(st.integers(1, 2)), draw(channel_counts), draw(sizes), draw(sizes)))
    for _ in range(2 * MOST_LAYERS):  # some that are drawn would be too large or empty
        source = draw(st.sampled_from(net.values))
        if len(source.shape) == 2 or draw(st.integers(0, 4)) == 0:
            net.dense(source)
        else:
            net.convolution(source)
        if len(net.values) > MOST_LAYERS:
            break
    if len(net.values) == 1:
        net.keep(image)
    model = net.finished()
    inputs = {"x0": net.random.uniform(-4, 4, (INFERENCES, *image.shape)).astype("f4")}
    expected = _by_onnx_runtime(model, inputs)
    has_dense = any(node.op_type == "Gemm" for node in net.nodes)
    return Network(model.SerializeToString(), ".onnx", inputs, expected, has_dense)


# --- TensorFlow Lite -----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Tensor:
    number: int
    scale: float
    zero_point: int
    shape: tuple[int, ...]


class _Tflite:
    """A network with several outputs in a TensorFlow Lite file of int8."""

    def __init__(self, draw: st.DrawFn, shape: tuple[int, ...]) -> None:
        self.draw, self.file = draw, TfliteFile()
        self.random = np.random.default_rng(draw(seeds))
        self.values = [self.value(shape, 0.05, "x")]
        self.has_dense = False

    def value(self, shape: tuple[int, ...], scale: float, name: str) -> _Tensor:
        zero_point = int(self.random.integers(-128, 128))
        number = self.file.tensor(shape, scale=scale, zero_point=zero_point, name=name)
        return _Tensor(number, scale, zero_point, shape)

    def layer(
        self, code: str, source: _Tensor, taps: tuple[int, ...], shape: tuple[int, ...],
        options: str, **values: Any,
    ) -> None:  # fmt: skip
        """A layer with weights."""
        outputs, axis = (taps[3], 3) if code == "DEPTHWISE_CONV_2D" else (taps[0], 0)
        per_channel = self.draw(st.booleans()) and code != "FULLY_CONNECTED"
        seed = int(self.random.integers(2**16))
        constants, product = weights_and_bias(
            self.file, taps, outputs, axis, source.scale, seed, per_channel
        )
        ratio = self.draw(st.sampled_from([1.0, 0.37, 0.1, 0.004]))
        scale = product * 5000 * float(np.prod(taps) / outputs) ** 0.5 / 50 * ratio
        y = self.value(shape, scale, f"y{len(self.values) - 1}")
        # TensorFlow Lite Micro needs the bias of depthwise convolutions.
        biased = self.draw(st.booleans()) or code == "DEPTHWISE_CONV_2D"
        inputs = [source.number, *(constants if biased else [constants[0], -1])]
        activation = self.draw(st.sampled_from([0, 0, 1, 3]))
        self.file.operator(
            code, inputs, [y.number], options, FusedActivationFunction=activation, **values
        )
        self.values.append(y)

    def convolution(self, source: _Tensor) -> None:
        draw, (batch, *size, inputs) = self.draw, source.shape
        depthwise = draw(st.booleans())
        padding = draw(st.sampled_from([0, 1]))
        window, steps = [draw(kernels), draw(kernels)], [draw(strides), draw(strides)]
        dilations = [draw(st.sampled_from([1, 1, 2])) for _ in range(2)]
        extents = [(k - 1) * d + 1 for k, d in zip(window, dilations, strict=True)]
        reaches = size if padding == 0 else [n - e + 1 for n, e in zip(size, extents, strict=True)]
        result = [-(-n // step) for n, step in zip(reaches, steps, strict=True)]
        multiplier = draw(st.integers(1, 2))
        outputs = inputs * multiplier if depthwise else draw(channel_counts)
        shape = (batch, *result, outputs)
        if min(result) < 1 or np.prod(shape) > MOST_RESULTS:
            return
        options = {
            "Padding": padding, "StrideH": steps[0], "StrideW": steps[1],
            "DilationHFactor": dilations[0], "DilationWFactor": dilations[1],
        }  # fmt: skip
        if depthwise:
            options["DepthMultiplier"] = multiplier
            code, name, taps = "DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions", (1, *window, outputs)
        else:
            groups = draw(
                st.sampled_from([n for n in (1, 1, 2, 3) if not (inputs % n + outputs % n)])
            )
            code, name, taps = "CONV_2D", "Conv2DOptions", (outputs, *window, inputs // groups)
        self.layer(code, source, taps, shape, name, **options)

    def dense(self, source: _Tensor) -> None:
        inputs = int(np.prod(source.shape[1:]))
        if inputs <= 1500:
            self.has_dense = True
            outputs = self.draw(channel_counts)
            self.layer(
                "FULLY_CONNECTED", source, (outputs, inputs), (source.shape[0], outputs),
                "FullyConnectedOptions",
            )  # fmt: skip

    def addition(self, source: _Tensor) -> None:
        """The sum of two values of a shape, perhaps of the same one."""
        others = [value for value in self.values if value.shape == source.shape]
        other = self.draw(st.sampled_from(others))
        scale = max(source.scale, other.scale) * self.draw(st.floats(0.6, 2.0))
        y = self.value(source.shape, scale, f"y{len(self.values) - 1}")
        operands = [source.number, other.number]
        activation = self.draw(st.sampled_from([0, 0, 1, 3]))
        self.file.operator(
            "ADD", operands, [y.number], "AddOptions", FusedActivationFunction=activation
        )
        self.values.append(y)


@st.composite
def tflite_networks(draw: st.DrawFn) -> Network:
    """Networks in NHWC of int8 data; the oracle is TensorFlow Lite Micro."""
    if draw(st.sampled_from([False, False, False, True])):
        shape: tuple[int, ...] = (draw(st.integers(1, 5)), draw(st.integers(1, 70)))
    else:
        shape = (draw(st.integers(1, 2)), draw(sizes), draw(sizes), draw(channel_counts))
    net = _Tflite(draw, shape)
    for _ in range(2 * MOST_LAYERS):  # some that are drawn would be too large or empty
        source = draw(st.sampled_from(net.values))
        if draw(st.integers(0, 5)) == 0:
            net.addition(source)
        elif len(source.shape) == 2 or draw(st.integers(0, 4)) == 0:
            net.dense(source)
        else:
            net.convolution(source)
        if len(net.values) > MOST_LAYERS:
            break
    if len(net.values) == 1:
        net.addition(net.values[0])
    outputs = net.values[1:]
    content = net.file.finish([net.values[0].number], [each.number for each in outputs])
    inputs = net.random.integers(-128, 128, (INFERENCES, *shape)).astype(np.int8)
    interpreter = micro_interpreter(content)
    expected: dict[str, list[Array]] = {f"y{number}": [] for number in range(len(outputs))}
    for values in inputs:
        interpreter.set_input(values, 0)
        interpreter.invoke()
        for number in range(len(outputs)):
            expected[f"y{number}"].append(interpreter.get_output(number))
    stacked = {name: np.stack(rows) for name, rows in expected.items()}
    return Network(content, ".tflite", {"x": inputs}, stacked, net.has_dense)


def networks() -> st.SearchStrategy[Network]:
    """Networks of both kinds of files."""
    return st.one_of(onnx_networks(), tflite_networks())
