# SPDX-License-Identifier: Apache-2.0
"""`quantized.dense` (data [rows, I], weights, bias, multipliers, shifts): fully connected layers.

Weights are int8[O, I], the bias int32[O].
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.operators.derivation.weights import Layer, constant_operands, read_layer
from umakit.operators.drawings import families
from umakit.operators.islands import Island
from umakit.operators.kernels import loops as ir
from umakit.operators.kernels.convolution import Constants, as_operands, constants_of, shifted
from umakit.operators.numeric.fixed_point import Arithmetic
from umakit.operators.offload import constraints as _c
from umakit.operators.offload.constraints import Constraint
from umakit.operators.offload.pattern_families import WeightedPattern
from umakit.operators.offload.reference import dense_loops
from umakit.operators.offload.weighted import DENSE, Weighted
from umakit.operators.parameters import Parameters
from umakit.operators.registry import Order, Recognition, register, shape_of
from umakit.operators.tensors import NoIntegerForm
from umakit.operators.tflite import QUANTIZED, TfliteNode, check_wide_bias, converts
from umakit.tvm_api import Call, PrimFunc, int32, relax, tirx


@dataclass(frozen=True)
class Dense(Parameters):
    """A fully connected layer.

    Attributes:
        input_zero_point: zero point of the data.
    """

    operator: ClassVar[str] = "dense"

    input_zero_point: int


def _derive_biased(island: Island) -> Call | None:
    found = read_layer(island, ("matmul",))
    return None if found is None else _layer(*found)


def _derive_with_weights(island: Island) -> Call | None:
    return _derive_biased(island) if _has_weights(island) else None


def _has_weights(island: Island) -> bool:
    """Whether the right operand of a product is one constant matrix, and the left is data."""
    if tvm_api.operator_name(island.definition(island.call.args[0])) != "dequantize":
        return False
    right = island.definition(island.call.args[1])
    while tvm_api.operator_name(right) in ("permute_dims", "reshape", "dequantize"):
        right = island.definition(right.args[0])
    weights = tvm_api.constant_array(right)
    return weights is not None and weights.ndim == 2


def _layer(island: Island, layer: Layer) -> Call:
    result, source = island.result, layer.source
    if layer.weights.integers.ndim != 2:
        raise NoIntegerForm("the weights are not a matrix")
    weights = layer.weights.transposed([1, 0])
    outputs, inputs = weights.integers.shape
    shape = tvm_api.static_shape(source.integers) or ()
    rows = int(np.prod(shape[:-1]))
    operands = constant_operands(result, replace(layer, weights=weights))
    fields = result.common(layer.arithmetic) | {"output_shape": (rows, outputs)}
    parameters = Dense(**fields, input_zero_point=source.scale.zero_point)
    reshape = relax.op.reshape
    data = source.integers
    if len(shape) != 2:
        data = island.emit(tvm_api.make_call(reshape(data, (rows, inputs)), span=result.span))
    call = parameters.call([data, *operands], result.span)
    if len(shape) == 2:
        return call
    return tvm_api.make_call(reshape(island.emit(call), result.shape), span=result.span)


def _kernel(parameters: Dense, call: Call) -> tuple[PrimFunc, list[tvm_api.Expr]]:
    data = call.args[0]
    constants = constants_of(call).without_zero_point(parameters.input_zero_point)
    function = _loops(parameters, shape_of(data), tvm_api.dtype_of(data), constants)
    if parameters.input_zero_point != 0:
        function = function.with_attr(ir.BIAS_HAS_ZERO_POINT, "yes")
    return function, [data, *as_operands(constants.arrays())]


def _loops(
    parameters: Dense, data_shape: tuple[int, ...], data_dtype: str, layer: Constants
) -> PrimFunc:
    """Kernel (data, weights, bias, multipliers, shifts, output) of a fully connected layer.

    The bias must include the data's zero point.
    """
    rows, inputs = data_shape
    data = ir.buffer("data", data_shape, data_dtype)
    weights, bias, multipliers, shifts = layer.buffers()
    output = ir.buffer("output", parameters.output_shape, parameters.output_dtype)
    block = min(ir.BLOCK, parameters.output_shape[1])
    accumulator = ir.accumulators(block, layer.bits)

    def one_block(row: tvm_api.PrimExpr, first: tvm_api.PrimExpr) -> tvm_api.Stmt:
        return ir.sequence(
            tirx.AllocBuffer(accumulator),
            ir.loop("channel", block, lambda c: ir.set_to(accumulator, c, bias[first + c])),
            ir.loop("product", inputs, lambda i: ir.add_products(
                accumulator, [shifted(data[row, i], 0)],
                [weights[first + int32(c), i] for c in range(block)],
            )),
            ir.loop("channel", block, lambda c: ir.store_rescaled(
                output, [row, first + c], ir.total_of(accumulator, c),
                layer.factor(multipliers, shifts, first + c), parameters,
            )),
        )  # fmt: skip

    body = ir.loop(
        "row", rows,
        lambda row: ir.blocks(parameters.output_shape[1], lambda first: one_block(row, first)),
    )  # fmt: skip
    return ir.kernel([data, weights, bias, multipliers, shifts, output], body)


def _macs(call: Call, output: tuple[int, ...]) -> int:
    weights = tvm_api.static_shape(call.args[1])
    return math.prod(output) * math.prod(weights[1:]) if weights else 0


# --- offered to backends -------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class QDense(Dense, Weighted):
    """A fully connected layer with bias, activation and requantization."""

    AXES: ClassVar[str] = DENSE

    @property
    def rows(self) -> int:
        """Number of rows of the data."""
        return self.data_shape[0]

    @property
    def inputs(self) -> int:
        """Number of elements of a row of the data."""
        return self.weights_shape[1]

    @property
    def outputs(self) -> int:
        """Number of elements of a row of the result."""
        return self.weights_shape[0]

    @property
    def scalars(self) -> dict[str, int]:
        return {
            "rows": self.rows,
            "inputs": self.inputs,
            "outputs": self.outputs,
            "scales": self.scales,
            "input_zero_point": self.input_zero_point,
            **self.ending(),
        }

    def reference_kernel(self) -> PrimFunc:
        return dense_loops(self)


@dataclass(frozen=True, eq=False)
class qdense(WeightedPattern):
    """An integer fully connected layer.

    Attributes:
        rows: largest number of rows of the data.
        input_multiple: required divisor of the number of inputs.
        output_multiple: required divisor of the number of outputs.
        weight_layout: the driver gets the weights in it, for example `IO` or `O/8 I 8o`. Bias,
            multipliers and shifts are filled up to whole blocks of O as well.
    """

    KIND = QDense
    OPERATOR = Dense

    name: str = "qdense"
    rows: int | None = field(default=None, kw_only=True)
    input_multiple: int | None = field(default=None, kw_only=True)
    output_multiple: int | None = field(default=None, kw_only=True)
    weight_layout: str = field(default=DENSE, kw_only=True)

    def _constraints(self) -> list[Constraint]:
        return [
            _c.at_most(self.rows, "rows", lambda layer: layer.rows),
            _c.multiple_of(self.input_multiple, "inputs", lambda layer: layer.inputs),
            _c.multiple_of(self.output_multiple, "outputs", lambda layer: layer.outputs),
            *super()._constraints(),
        ]


register(
    parameters=Dense,
    kernel=_kernel,
    recognitions=(
        Recognition(("matmul",), _derive_with_weights, (Arithmetic.TFLM,), Order.SPECIAL),
        Recognition(("matmul",), _derive_biased, (Arithmetic.ORT,)),
        Recognition(("add",), _derive_biased, order=Order.SPECIAL),
    ),
    takes_clip=True,
    macs=_macs,
    drawing=families.fully_connected(Dense),
    patterns=(qdense,),
)


WEIGHTS_NOT_SHUFFLED = 0
"""Value of the schema's enumeration `FullyConnectedOptionsWeightsFormat`."""


@converts("FULLY_CONNECTED", "float32", *QUANTIZED, weights=True)
def convert(node: TfliteNode) -> tvm_api.Expr:
    """FULLY_CONNECTED of rows; data of more dimensions are flattened here, unlike in TVM."""
    options = node.options("FullyConnectedOptions")
    check_wide_bias(node, options=options)
    if options.WeightsFormat() != WEIGHTS_NOT_SHUFFLED:
        raise ModelError("its weights are shuffled")
    inputs = node.shape(1)[-1]
    data = node.value(0)
    shape = tvm_api.static_shape(data) or ()
    rows = math.prod(shape) // inputs
    result_shape = node.result.shape
    if rows * inputs != math.prod(shape):
        raise ModelError(f"its data of shape {list(shape)} is not rows of {inputs}")
    if shape != (rows, inputs):
        data = node.emit(relax.op.reshape(data, (rows, inputs)))
    result = node.emit(node.imported({0: data}))
    if tvm_api.static_shape(result) == result_shape:
        return result
    return relax.op.reshape(result, result_shape)
