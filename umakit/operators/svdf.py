# SPDX-License-Identifier: Apache-2.0
"""`quantized.svdf_state` and `quantized.svdf`, and SVDF of TensorFlow Lite: filters in time.

svdf_state  (data [B, I], weights int8[F, I], bias int32[F], state [B, F * M])
            -> the state with the oldest of M places of each filter left out and a new one behind
svdf        (state [B, F * M], weights [U, R * M], bias int32[U]) -> [B, U], with F = U * R

The source is TensorFlow Lite Micro's `svdf_common.cc`. The fused activation of integers is the
result's range, as in the source.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.operators.drawing import Input, NotDrawable, Random, Settings, Tensor
from umakit.operators.drawings.families import common_fields, zero_point_of
from umakit.operators.drawings.layers import FILTERS, Inputs, Made, layer
from umakit.operators.drawings.scales import weights_of
from umakit.operators.interface import Interface, named_axes
from umakit.operators.kernels import loops as ir
from umakit.operators.kernels.convolution import shifted
from umakit.operators.numeric.fixed_point import Array, quantize_multiplier
from umakit.operators.numeric.requantize import requantize
from umakit.operators.parameters import Parameters, whole_range
from umakit.operators.registry import Shapes, register
from umakit.operators.tensors import Scale
from umakit.operators.tflite import TfliteNode, converts
from umakit.operators.tflite_integers import (
    as_refusals,
    bias_without_zero_point,
    result_fields,
    scale_of,
)
from umakit.tvm_api import Expr, PrimExpr, Stmt, int32

relax, tirx = tvm_api.relax, tvm_api.tirx

STATE = 4
"""Position of the input tensor that is the state."""

NO_ACTIVATION, RELU = 0, 1
"""Values of the schema's enumeration `ActivationFunctionType`."""

BIAS_TOLERANCE = 1e-5
"""Largest difference between the scales of bias and products, from the reference."""


@dataclass(frozen=True)
class SvdfState(Parameters):
    """The state after an inference, with the sums of products of the data and each filter's
    weights.

    Attributes:
        multiplier, shift: factor from sums of products to the state's scale.
    """

    operator: ClassVar[str] = "svdf_state"

    multiplier: int
    shift: int


@dataclass(frozen=True)
class Svdf(Parameters):
    """Sums, for each unit, of the products of a state with weights over time.

    Attributes:
        multiplier, shift: factor from sums of products to the result's scale.
    """

    operator: ClassVar[str] = "svdf"

    multiplier: int
    shift: int


@dataclass(frozen=True)
class _Sizes:
    """Sizes: sequences, filters, time steps of a filter, filters per unit (rank), units."""

    batch: int
    filters: int
    memory: int
    rank: int
    units: int


@converts("SVDF", "float32", "int8", operand_dtypes=("int16",), states=(STATE,))
def convert(node: TfliteNode) -> list[Expr]:
    """Return the result and the new state."""
    options = node.options("SVDFOptions")
    if len(node.inputs) != STATE + 1:
        raise ModelError(f"it has {len(node.inputs)} inputs, not {STATE + 1}")
    sizes = _sizes(node, int(options.Rank()))
    function = int(options.FusedActivationFunction())
    if node.tensor(0).dtype == "float32":
        return _floats(node, sizes, function)
    if function not in (NO_ACTIVATION, RELU):
        raise ModelError(f"its fused activation {function} is not supported for integers")
    return _integers(node, sizes)


def _sizes(node: TfliteNode, rank: int) -> _Sizes:
    """Return the sizes of the layer, checked against all tensors."""
    data, features, times, state = (node.shape(i) for i in (0, 1, 2, STATE))
    result = node.result.shape
    if any(len(shape) != 2 or 0 in shape for shape in (data, features, times, state, result)):
        raise ModelError("one of its tensors is not a matrix")
    filters, memory = times
    if rank < 1 or filters % rank:
        raise ModelError(f"its {filters} filters are not a multiple of its rank {rank}")
    sizes = _Sizes(data[0], filters, memory, rank, filters // rank)
    fits = (
        features == (filters, data[1])
        and state == (data[0], filters * memory)
        and result == (data[0], sizes.units)
    )
    if not fits:
        raise ModelError("the shapes of its tensors do not fit each other")
    return sizes


def _bias(node: TfliteNode, units: int, dtype: str) -> Array:
    """Return the bias; zeros without a bias."""
    if not node.has(3):
        return np.zeros(units, dtype)
    bias = node.constant(3)
    if bias.shape != (units,) or bias.dtype != np.dtype(dtype):
        raise ModelError(f"its bias is {bias.dtype}{list(bias.shape)}, not {dtype}[{units}]")
    return np.asarray(bias)


def _floats(node: TfliteNode, sizes: _Sizes, function: int) -> list[Expr]:
    op, emit = relax.op, node.emit
    data, features, times, state = (node.value(i) for i in (0, 1, 2, STATE))
    if any(tvm_api.dtype_of(item) != "float32" for item in (features, times, state)):
        raise ModelError("its weights or its state are not float32")
    filters, memory = sizes.filters, sizes.memory
    new = emit(op.matmul(data, emit(op.permute_dims(features, [1, 0]))))
    new = emit(op.reshape(new, (sizes.batch, filters, 1)))
    if memory > 1:
        places = emit(op.reshape(state, (sizes.batch, filters, memory)))
        kept = emit(op.strided_slice(places, [2], [1], [memory]))
        new = emit(op.concat([kept, new], 2))
    new = emit(op.reshape(new, (sizes.batch, filters * memory)))
    rows = emit(op.reshape(new, (sizes.batch, sizes.units, sizes.rank * memory)))
    weights = emit(op.reshape(times, (1, sizes.units, sizes.rank * memory)))
    total = emit(op.sum(emit(op.multiply(rows, weights)), [2]))
    bias = _bias(node, sizes.units, "float32")
    result = emit(op.add(total, relax.const(bias)))
    return [node.quantized(result, function), new]


def _integers(node: TfliteNode, sizes: _Sizes) -> list[Expr]:
    data, features, times, state = (scale_of(node.tensor(i)) for i in (0, 1, 2, STATE))
    if times.dtype != state.dtype or (data.dtype, features.dtype) != ("int8", "int8"):
        raise ModelError(
            f"its data is {data.dtype}, its weights {features.dtype} and {times.dtype}, its state "
            f"{state.dtype}, which its kernel does not take together"
        )
    if features.zero_point or times.zero_point:
        raise ModelError("its weights have a zero point")
    result = scale_of(node.result)
    _check_bias(node, state, times)
    # In float32, like the reference.
    with as_refusals():
        first = quantize_multiplier(float(data.scale * features.scale / state.scale))
        second = quantize_multiplier(float(state.scale * times.scale / result.scale))
    weights = node.constant(1)
    fields = whole_range(node.shape(STATE), state.dtype, zero_point=state.zero_point)
    no_bias = np.zeros(len(weights), np.int32)
    bias = relax.const(bias_without_zero_point(no_bias, weights, data.zero_point))
    operands = [node.value(0), relax.const(weights), bias, node.value(STATE)]
    updated = SvdfState(**fields, multiplier=first[0], shift=first[1])
    new = node.emit(updated.call(operands, None))
    over_time = node.constant(2).reshape(sizes.units, sizes.rank * sizes.memory)
    given = _bias(node, sizes.units, "int32")
    parameters = Svdf(**result_fields(node), multiplier=second[0], shift=second[1])
    bias = relax.const(bias_without_zero_point(given, over_time, state.zero_point))
    return [parameters.call([new, relax.const(over_time), bias], None), new]


def _check_bias(node: TfliteNode, state: Scale, times: Scale) -> None:
    if not node.has(3) or not node.tensor(3).scales.size:
        return
    bias = scale_of(node.tensor(3))
    if abs(float(bias.scale) - float(state.scale * times.scale)) >= BIAS_TOLERANCE:
        raise ModelError("its bias has another scale than the products of state and weights")


def _state_kernel(parameters: SvdfState, shapes: Shapes, dtypes: list[str]) -> tvm_api.PrimFunc:
    (batch, inputs), (filters, _) = shapes[0], shapes[1]
    memory = shapes[3][1] // filters
    data, weights, bias, state = ir.buffers(("data", "weights", "bias", "state"), shapes, dtypes)
    output = ir.buffer("output", parameters.output_shape, parameters.output_dtype)
    total, zero = ir.accumulators(1), int32(0)
    low, high = parameters.clip
    span = high - low

    def place(f: PrimExpr, m: PrimExpr) -> PrimExpr:
        return f * int32(memory) + m

    def one(b: PrimExpr, f: PrimExpr) -> Stmt:
        def keep(m: PrimExpr) -> Stmt:
            return tirx.BufferStore(output, state[b, place(f, m + int32(1))], [b, place(f, m)])

        value = requantize(
            ir.total_of(total, zero), int32(parameters.multiplier), int32(parameters.shift),
            parameters.arithmetic,
        )  # fmt: skip
        limited = tirx.min(tirx.max(value, int32(low)), int32(high))
        if parameters.output_zero_point:
            # The reference limits before adding the zero point: the sum wraps around.
            statements, limited = ir.bound("limited", limited)
            lifted = limited + int32(parameters.output_zero_point - low)
            limited = (lifted & int32(span)) + int32(low)
        else:
            statements = []
        return ir.sequence(
            *([ir.loop("m", memory - 1, keep)] if memory > 1 else []),
            ir.set_to(total, zero, bias[f]),
            ir.loop("i", inputs, lambda i: ir.add_products(
                total, [shifted(data[b, i], 0)], [weights[f, i]]
            )),
            *statements,
            tirx.BufferStore(
                output, limited.astype(parameters.output_dtype), [b, place(f, int32(memory - 1))]
            ),
        )  # fmt: skip

    body = ir.sequence(tirx.AllocBuffer(total), ir.loops([("b", batch), ("f", filters)], one))
    return ir.kernel([data, weights, bias, state, output], body)


def _kernel(parameters: Svdf, shapes: Shapes, dtypes: list[str]) -> tvm_api.PrimFunc:
    (batch, _), (units, length) = shapes[0], shapes[1]
    state, weights, bias = ir.buffers(("state", "weights", "bias"), shapes, dtypes)
    output = ir.buffer("output", parameters.output_shape, parameters.output_dtype)
    total, zero = ir.accumulators(1), int32(0)
    factor = (int32(parameters.multiplier), int32(parameters.shift))

    def one(b: PrimExpr, u: PrimExpr) -> Stmt:
        return ir.sequence(
            ir.set_to(total, zero, bias[u]),
            ir.loop("k", length, lambda k: ir.add_products(
                total, [shifted(state[b, u * int32(length) + k], 0)], [weights[u, k]]
            )),
            ir.store_rescaled(output, [b, u], ir.total_of(total, zero), factor, parameters),
        )  # fmt: skip

    body = ir.sequence(tirx.AllocBuffer(total), ir.loops([("b", batch), ("u", units)], one))
    return ir.kernel([state, weights, bias, output], body)


def _macs(call: tvm_api.Call, _: tuple[int, ...]) -> int:
    weights = tvm_api.static_shape(call.args[1]) or (0, 0)
    batch = (tvm_api.static_shape(call.args[0]) or (0,))[0]
    return batch * weights[0] * weights[1]


def _filtered(settings: Settings, data: Tensor | None) -> Inputs:
    batch, filters, memory = (int(settings[name]) for name in ("batch", "filters", "memory"))
    shape = (batch, int(settings["inputs"]))
    data = data or Tensor(shape, "int8", int(settings["input_zero_point"]))
    if data.shape != shape or data.dtype != "int8":
        raise NotDrawable("another kind of tensor")
    return data, Tensor((batch, filters * memory), "int16")


def _drawn_state(settings: Settings, inputs: Inputs, random: Random) -> Made:
    data, state = inputs
    drawn = {**settings, "dtype": "int8", "scales": 1}
    filters = int(settings["filters"])
    weights, bias, multipliers, shifts = weights_of(drawn, (filters, data.shape[1]), random)
    common = common_fields({**settings, "dtype": "int16", "clip": "none"}, state.shape, 0)
    parameters = SvdfState(**common, multiplier=int(multipliers[0]), shift=int(shifts[0]))
    return parameters, [Input(0), weights, bias, Input(1)]


def _states(settings: Settings, data: Tensor | None) -> Inputs:
    length = int(settings["units"]) * int(settings["filters"]) * int(settings["memory"])
    shape = (int(settings["batch"]), length)
    data = data or Tensor(shape, "int16")
    if data.shape != shape or data.dtype != "int16":
        raise NotDrawable("another kind of tensor")
    return (data,)


def _drawn(settings: Settings, inputs: Inputs, random: Random) -> Made:
    units = int(settings["units"])
    length = inputs[0].shape[1] // units
    weights = random.integers(-127, 128, (units, length)).astype(np.int16)
    bias = random.integers(-(2**20), 2**20, units).astype(np.int32)
    multiplier, shift = quantize_multiplier(float(random.uniform(0.5, 1.5)) / (2**17 * length))
    zero_point = zero_point_of(settings, "output_zero_point")
    common = common_fields(settings, (inputs[0].shape[0], units), zero_point)
    return Svdf(**common, multiplier=multiplier, shift=shift), [weights, bias]


register(
    parameters=SvdfState,
    kernel_of_operands=_state_kernel,
    macs=_macs,
    drawing=layer(
        _drawn_state,
        _filtered,
        FILTERS,
        ("inputs", "filters", "memory"),
        units=(),
        output_zero_point=(),
        clip=(),
        dtype=(),
    ),
    interface=Interface(
        operands={"data": "", "weights": "int8", "bias": "int32", "state": "int16"},
        axes=2,
        sizes=named_axes(data="batch inputs", weights="filters inputs", state="batch state_length"),
        checks=("data",),
        result="int16",
    ),
)
register(
    parameters=Svdf,
    kernel_of_operands=_kernel,
    takes_clip=True,
    macs=_macs,
    drawing=layer(
        _drawn,
        _states,
        FILTERS,
        ("units", "filters", "memory"),
        inputs=(),
        weights=(),
        scale=(),
        input_zero_point=(),
    ),
    interface=Interface(
        operands={"state": "int16", "weights": "int16", "bias": "int32"},
        axes=2,
        sizes=named_axes(state="batch state_length", weights="units length"),
        checks=("result",),
    ),
)
