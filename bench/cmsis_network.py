# SPDX-License-Identifier: Apache-2.0
"""C that computes a TensorFlow Lite network in int8 by calls of CMSIS-NN.

Multipliers, shifts and paddings are derived here, from the file and TensorFlow Lite's
documentation of its quantization, and share no code with umakit's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tflite

ALIGNMENT = 16
SOFTMAX_INTEGER_BITS = 5
ADD_LEFT_SHIFT = 20

OPERATORS = {
    value: name for name, value in vars(tflite.BuiltinOperator).items() if isinstance(value, int)
}


@dataclass
class Source:
    """C as it is written: constants, statements that are run once, and those of each layer."""

    constants: list[str] = field(default_factory=list)
    preparation: list[str] = field(default_factory=list)
    layers: list[tuple[str, str]] = field(default_factory=list)

    def array(self, name: str, dtype: str, values: Any) -> str:
        """Define a constant array and return its name."""
        text = ", ".join(str(int(value)) for value in np.asarray(values).ravel())
        # The quantization parameters of CMSIS-NN are pointers to what is not const.
        self.constants.append(f"static const {dtype} {name}[] = {{{text}}};")
        return name


class Tensor:
    """A tensor of the file."""

    def __init__(self, model: Any, graph: Any, index: int) -> None:
        tensor = graph.Tensors(index)
        self.name = f"tensor_{index}"
        self.shape = [int(length) for length in np.atleast_1d(tensor.ShapeAsNumpy())]
        quantization = tensor.Quantization()
        self.scale: Any = np.atleast_1d(quantization.ScaleAsNumpy()).astype(np.float64)
        zero = quantization.ZeroPointAsNumpy() if quantization.ZeroPointLength() else [0]
        self.zero = int(np.atleast_1d(zero)[0])
        self.buffer = model.Buffers(tensor.Buffer()).DataAsNumpy()

    @property
    def bytes(self) -> int:
        """Its size where it is of int8."""
        return math.prod(self.shape)

    def values(self, dtype: str) -> Any:
        """The constant's values."""
        return np.frombuffer(bytes(self.buffer), dtype)

    @property
    def dims(self) -> str:
        """Its four lengths as CMSIS-NN takes them."""
        return _dims(*[1] * (4 - len(self.shape)), *self.shape)


def _dims(n: int, h: int, w: int, c: int) -> str:
    return f"&(cmsis_nn_dims){{{n}, {h}, {w}, {c}}}"


def multiplier_and_shift(real: float) -> tuple[int, int]:
    """Return a factor as a multiplier with 31 fractional bits and a shift to the left."""
    fraction, shift = math.frexp(real)
    multiplier = math.floor(fraction * 2**31 + 0.5)
    if multiplier == 2**31:
        return 2**30, shift + 1
    return multiplier, shift


def _limits(options: Any, output: Tensor) -> tuple[int, int]:
    kind = options.FusedActivationFunction()
    low, high = -128, 127
    one = 1 / output.scale[0]
    if kind in (tflite.ActivationFunctionType.RELU, tflite.ActivationFunctionType.RELU6):
        low = max(low, output.zero)
    if kind == tflite.ActivationFunctionType.RELU6:
        high = min(high, output.zero + round(6 * one))
    return low, high


def _padding(options: Any, length: int, out: int, kernel: int, stride: int) -> int:
    if options.Padding() == tflite.Padding.VALID:
        return 0
    return max(0, (out - 1) * stride + kernel - length) // 2


def _options(operator: Any, kind: Any) -> Any:
    options = kind()
    table = operator.BuiltinOptions()
    options.Init(table.Bytes, table.Pos)
    return options


def _per_channel(source: Source, name: str, x: Tensor, weights: Tensor, y: Tensor) -> str:
    count = y.shape[-1]
    scales = np.broadcast_to(weights.scale, count)
    pairs = [multiplier_and_shift(x.scale[0] * scale / y.scale[0]) for scale in scales]
    multipliers = source.array(f"{name}_multipliers", "int32_t", [pair[0] for pair in pairs])
    shifts = source.array(f"{name}_shifts", "int32_t", [pair[1] for pair in pairs])
    return f"&(cmsis_nn_per_channel_quant_params){{(int32_t *){multipliers}, (int32_t *){shifts}}}"


def _convolution(source: Source, name: str, operator: Any, tensors: list[Tensor]) -> str:
    """Return the calls of a convolution, depthwise or not."""
    x, weights, bias, y = tensors
    is_depthwise = weights.shape[0] == 1 and name.startswith("depthwise")
    kind = tflite.DepthwiseConv2DOptions if is_depthwise else tflite.Conv2DOptions
    options = _options(operator, kind)
    kernel = weights.shape[1:3]
    strides = options.StrideH(), options.StrideW()
    pads = [
        _padding(options, x.shape[axis + 1], y.shape[axis + 1], kernel[axis], strides[axis])
        for axis in range(2)
    ]
    low, high = _limits(options, y)
    function = "arm_depthwise_conv_wrapper_s8" if is_depthwise else "arm_convolve_wrapper_s8"
    parameters = "cmsis_nn_dw_conv_params" if is_depthwise else "cmsis_nn_conv_params"
    ratio = f" {y.shape[3] // x.shape[3]}," if is_depthwise else ""
    dilation = f"{{{options.DilationWFactor()}, {options.DilationHFactor()}}}"
    source.constants.append(
        f"static const {parameters} {name}_parameters = {{{-x.zero}, {y.zero},{ratio} "
        f"{{{strides[1]}, {strides[0]}}}, {{{pads[1]}, {pads[0]}}}, {dilation}, "
        f"{{{low}, {high}}}}};"
    )
    values = source.array(f"{name}_weights", "int8_t", weights.values("int8"))
    biases = source.array(f"{name}_bias", "int32_t", bias.values("<i4"))
    channels = _dims(1, 1, 1, y.shape[3])
    source.preparation.append(
        f"need({function}_get_buffer_size(&{name}_parameters, {x.dims}, {weights.dims}, {y.dims}));"
    )
    return (
        f"{function}(&context, &{name}_parameters, {_per_channel(source, name, x, weights, y)}, "
        f"{x.dims}, {x.name}, {weights.dims}, {values}, {channels}, {biases}, {y.dims}, {y.name})"
    )


def _dense(source: Source, name: str, operator: Any, tensors: list[Tensor]) -> str:
    x, weights, bias, y = tensors
    low, high = _limits(_options(operator, tflite.FullyConnectedOptions), y)
    multiplier, shift = multiplier_and_shift(x.scale[0] * weights.scale[0] / y.scale[0])
    values = source.array(f"{name}_weights", "int8_t", weights.values("int8"))
    biases = source.array(f"{name}_bias", "int32_t", bias.values("<i4"))
    outputs, inputs = weights.shape
    kernel, out = _dims(inputs, 1, 1, outputs), _dims(1, 1, 1, outputs)
    # With vectors, sums of weights are prepared once.
    source.constants.append(f"static int32_t {name}_sums[{outputs}];")
    source.preparation.append(
        f"if (arm_fully_connected_s8_get_buffer_size({kernel}) > 0) {{\n"
        f"        (void)arm_vector_sum_s8({name}_sums, {inputs}, {outputs}, {values}, {-x.zero}, "
        f"0, {biases});\n    }}"
    )
    return (
        f"arm_fully_connected_s8(&(cmsis_nn_context){{{name}_sums, sizeof {name}_sums}}, "
        f"&(cmsis_nn_fc_params){{{-x.zero}, 0, {y.zero}, {{{low}, {high}}}}}, "
        f"&(cmsis_nn_per_tensor_quant_params){{{multiplier}, {shift}}}, "
        f"{_dims(1, 1, 1, inputs)}, {x.name}, {kernel}, {values}, {out}, {biases}, {out}, {y.name})"
    )


def _add(source: Source, name: str, operator: Any, tensors: list[Tensor]) -> str:
    left, right, y = tensors
    low, high = _limits(_options(operator, tflite.AddOptions), y)
    twice = 2 * max(left.scale[0], right.scale[0])
    of_left = multiplier_and_shift(left.scale[0] / twice)
    of_right = multiplier_and_shift(right.scale[0] / twice)
    of_output = multiplier_and_shift(twice / (2**ADD_LEFT_SHIFT * y.scale[0]))
    return (
        f"arm_elementwise_add_s8({left.name}, {right.name}, {-left.zero}, {of_left[0]}, "
        f"{of_left[1]}, {-right.zero}, {of_right[0]}, {of_right[1]}, {ADD_LEFT_SHIFT}, {y.name}, "
        f"{y.zero}, {of_output[0]}, {of_output[1]}, {low}, {high}, {y.bytes})"
    )


def _average_pool(source: Source, name: str, operator: Any, tensors: list[Tensor]) -> str:
    x, y = tensors
    options = _options(operator, tflite.Pool2DOptions)
    low, high = _limits(options, y)
    kernel = options.FilterHeight(), options.FilterWidth()
    strides = options.StrideH(), options.StrideW()
    pads = [
        _padding(options, x.shape[axis + 1], y.shape[axis + 1], kernel[axis], strides[axis])
        for axis in range(2)
    ]
    source.preparation.append(f"need(arm_avgpool_s8_get_buffer_size({y.shape[2]}, {x.shape[3]}));")
    return (
        f"arm_avgpool_s8(&context, &(cmsis_nn_pool_params){{{{{strides[1]}, {strides[0]}}}, "
        f"{{{pads[1]}, {pads[0]}}}, {{{low}, {high}}}}}, {x.dims}, {x.name}, "
        f"{_dims(1, kernel[0], kernel[1], 1)}, {y.dims}, {y.name})"
    )


def _softmax(source: Source, name: str, operator: Any, tensors: list[Tensor]) -> str:
    x, y = tensors
    options = _options(operator, tflite.SoftmaxOptions)
    bits = 31 - SOFTMAX_INTEGER_BITS
    real = min(options.Beta() * x.scale[0] * 2**bits, 2**31 - 1)
    multiplier, shift = multiplier_and_shift(real)
    least = -math.floor((2**SOFTMAX_INTEGER_BITS - 1) * 2**bits / 2**shift)
    row = x.shape[-1]
    call = f"arm_softmax_s8({x.name}, {x.bytes // row}, {row}, {multiplier}, {shift}, {least}, "
    return f"({call}{y.name}), ARM_CMSIS_NN_SUCCESS)"


def _reshape(source: Source, name: str, operator: Any, tensors: list[Tensor]) -> str:
    x, y = tensors[0], tensors[-1]
    return f"(memcpy({y.name}, {x.name}, {y.bytes}), ARM_CMSIS_NN_SUCCESS)"


WRITERS: dict[str, Callable[[Source, str, Any, list[Tensor]], str]] = {
    "CONV_2D": _convolution,
    "DEPTHWISE_CONV_2D": _convolution,
    "FULLY_CONNECTED": _dense,
    "ADD": _add,
    "AVERAGE_POOL_2D": _average_pool,
    "SOFTMAX": _softmax,
    "RESHAPE": _reshape,
}


@dataclass(frozen=True)
class Network:
    """C of a network.

    Attributes:
        text: the C, with `prepare`, which is called once, and `run`, of one inference.
        layers: names of the layers, in order.
        input_bytes, output_bytes: sizes of its input and output.
    """

    text: str
    layers: list[str]
    input_bytes: int
    output_bytes: int


def network_in_c(path: Path) -> Network:
    """Write a network as calls of CMSIS-NN.

    Args:
        path: a `.tflite` file in int8 with one input and one output.
    """
    model = tflite.Model.GetRootAsModel(path.read_bytes(), 0)
    graph = model.Subgraphs(0)
    source, activations = Source(), dict[str, int]()
    (first,), (last,) = graph.InputsAsNumpy(), graph.OutputsAsNumpy()
    ends = [Tensor(model, graph, int(index)) for index in (first, last)]
    activations[ends[0].name] = ends[0].bytes
    for index in range(graph.OperatorsLength()):
        operator = graph.Operators(index)
        code = model.OperatorCodes(operator.OpcodeIndex())
        kind = OPERATORS[max(code.BuiltinCode(), code.DeprecatedBuiltinCode())]
        if kind not in WRITERS:
            raise SystemExit(f"{path.name}: {kind} has no call of CMSIS-NN here")
        used = [*operator.InputsAsNumpy(), *operator.OutputsAsNumpy()]
        tensors = [Tensor(model, graph, int(each)) for each in used]
        activations[tensors[-1].name] = tensors[-1].bytes
        name = f"{kind.lower()}_{index}"
        source.layers.append((name, WRITERS[kind](source, name, operator, tensors)))
    return Network(
        _text(source, activations, ends), [name for name, _ in source.layers],
        ends[0].bytes, ends[1].bytes,
    )  # fmt: skip


def _text(source: Source, activations: dict[str, int], ends: list[Tensor]) -> str:
    calls = [
        f"    if ({call} != ARM_CMSIS_NN_SUCCESS) {{\n        return {index + 1};\n    }}\n"
        f"    after_layer({index});"
        for index, (_, call) in enumerate(source.layers)
    ]
    arrays = [
        f"static int8_t {name}[{size}] __attribute__((aligned({ALIGNMENT})));"
        for name, size in activations.items()
    ]
    return "\n".join([
        '#include "arm_nnfunctions.h"', '#include "network.h"', "#include <string.h>", "",
        *source.constants, *arrays, f"int8_t *const network_input = {ends[0].name};",
        f"const int8_t *const network_output = {ends[1].name};", "",
        "static int8_t scratch[SCRATCH_BYTES] __attribute__((aligned(16)));",
        "static cmsis_nn_context context = {scratch, SCRATCH_BYTES};", "",
        "static int is_too_large;", "",
        "static void need(int32_t size)", "{", "    is_too_large |= size > SCRATCH_BYTES;", "}", "",
        "int network_prepare(void)", "{", *(f"    {each}" for each in source.preparation),
        "    return is_too_large;", "}", "",
        "int network_run(void)", "{", *calls, "    return 0;", "}", "",
    ])  # fmt: skip
