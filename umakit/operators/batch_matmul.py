# SPDX-License-Identifier: Apache-2.0
"""`quantized.batch_matmul` (left [..., M, K], right [..., K, N]), whose leading axes broadcast.

The formulas are from TensorFlow Lite Micro's `batch_matmul.cc` and ONNX Runtime's `QLinearMatMul`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.operators.drawings import pairs
from umakit.operators.interface import PAIR, TFLM, Interface, matrices
from umakit.operators.islands import Island, arithmetic_of
from umakit.operators.kernels import loops as ir
from umakit.operators.kernels.elementwise import broadcast
from umakit.operators.multipliers import fixed_points, multiplier_of, reduced_multipliers
from umakit.operators.numeric.fixed_point import Arithmetic
from umakit.operators.parameters import Pair, Parameters
from umakit.operators.registry import Order, Recognition, Shapes, register
from umakit.operators.tensors import NoIntegerForm, Quantized
from umakit.operators.tflite import TfliteNode, converts
from umakit.tvm_api import Expr, PrimExpr, Stmt, int32, int64, relax, tirx


@dataclass(frozen=True)
class BatchMatmul(Parameters):
    """Products of two matrices, neither of which is constant.

    Attributes:
        zero_points: zero points of the operands.
        multiplier, shift: multiplier and shift of the accumulators. Accumulators of 16-bit operands
            have 64 bits, and multipliers then 15 bits in the arithmetic of TensorFlow Lite Micro.
        adjoint: 1 for an operand with swapped last two axes, else 0.
    """

    operator: ClassVar[str] = "batch_matmul"

    zero_points: Pair
    multiplier: int
    shift: int
    adjoint: Pair


def _derive_for_tflm(island: Island) -> Expr:
    result = island.result
    (left, left_adjoint), (right, right_adjoint) = (
        _matrix(island, argument) for argument in island.call.args
    )
    factor = float(left.scale.scale) * float(right.scale.scale) / float(result.scale.scale)
    scaled = fixed_points([factor])
    if left.scale.dtype == "int16":
        scaled = reduced_multipliers(scaled)
    parameters = BatchMatmul(
        **result.common(island.arithmetic),
        zero_points=(left.scale.zero_point, right.scale.zero_point),
        multiplier=int(scaled.multipliers[0]),
        shift=int(scaled.shifts[0]),
        adjoint=(left_adjoint, right_adjoint),
    )
    return parameters.call([left.integers, right.integers], result.span)


def _matrix(island: Island, expression: Expr) -> tuple[Quantized, int]:
    """Return a dequantized tensor, and 1 if its last two axes are swapped, else 0."""
    call = island.definition(expression)
    if tvm_api.operator_name(call) != "permute_dims":
        return island.dequantized(expression), 0
    island.check_node(call)
    rank = len(tvm_api.static_shape(call) or ())
    order = list(range(rank))[::-1] if call.attrs.axes is None else list(call.attrs.axes)
    if [int(axis) for axis in order] != [*range(rank - 2), rank - 1, rank - 2]:
        raise NoIntegerForm("axes of an operand of a product change their order")
    return island.dequantized(call.args[0]), 1


def _derive_for_ort(island: Island) -> Expr | None:
    """Return the call; None for a constant right operand, a fully connected layer."""
    definition = island.definition(island.call.args[1])
    if tvm_api.operator_name(definition) != "dequantize":
        return None
    if tvm_api.constant_array(island.definition(definition.args[0])) is not None:
        return None
    result = island.result
    left, right = island.operands()
    shapes = [tvm_api.static_shape(operand.integers) or () for operand in (left, right)]
    if min(len(shape) for shape in shapes) < 2:
        raise NoIntegerForm("an operand is a vector")
    arithmetic = arithmetic_of(left.scale, right.scale, result.scale)
    kind: type[np.floating[Any]] = np.float32 if arithmetic is Arithmetic.ORT else np.float64
    factor = kind(left.scale.scale) * kind(right.scale.scale) / kind(result.scale.scale)
    at_most = left.scale.magnitude * right.scale.magnitude * shapes[0][-1]
    multiplier, shift = multiplier_of(float(factor), at_most, arithmetic)
    parameters = BatchMatmul(
        **result.common(arithmetic),
        zero_points=(left.scale.zero_point, right.scale.zero_point),
        multiplier=multiplier,
        shift=shift,
        adjoint=(0, 0),
    )
    return parameters.call([left.integers, right.integers], result.span)


def _kernel(parameters: BatchMatmul, shapes: Shapes, dtypes: list[str]) -> tvm_api.PrimFunc:
    """Return the kernel (left, right, output) of matrix products, whose leading axes broadcast.

    If rows of the right matrix are contiguous, the elements of a tile of a result row are
    accumulated together; if columns are contiguous, the elements are accumulated one by one.
    """
    operands = ir.buffers(("left", "right"), shapes, dtypes)
    output = ir.buffer("output", parameters.output_shape, parameters.output_dtype)
    *batch, rows, columns = parameters.output_shape
    depth = shapes[0][-2] if parameters.adjoint[0] else shapes[0][-1]
    wide = any(dtype.endswith("16") for dtype in dtypes)
    width = 1 if parameters.adjoint[1] else min(ir.TILE, columns)
    accumulator = _accumulators(width, wide)
    factor = (int32(parameters.multiplier), int32(parameters.shift))

    def element(side: int, number: PrimExpr, outer: PrimExpr, inner: PrimExpr) -> PrimExpr:
        shape = shapes[side]
        places = broadcast(ir.unflatten(number, batch), shape[:-2]) if batch else []
        if parameters.adjoint[side]:
            outer, inner = inner, outer
        value = int32(operands[side][(*places, outer, inner)]) - int32(parameters.zero_points[side])
        return int64(value) if wide else value

    def one_row(number: PrimExpr, row: PrimExpr) -> Stmt:
        def one_tile(first: PrimExpr, count: ir.Extent) -> Stmt:
            def term(k: PrimExpr, c: PrimExpr) -> Stmt:
                product = element(0, number, row, k) * element(1, number, k, first + c)
                return ir.add_to(accumulator, c, product)

            place = [*ir.unflatten(number, batch), row]
            return ir.sequence(
                tirx.AllocBuffer(accumulator),
                ir.loop("column", count, lambda c: ir.set_to(accumulator, c, int32(0))),
                ir.loops([("product", depth), ("column", count)], term),
                ir.loop("column", count, lambda c: ir.store_rescaled(
                    output, [*place, first + c], ir.total_of(accumulator, c), factor, parameters
                )),
            )  # fmt: skip

        if parameters.adjoint[1]:
            return ir.loop("column", columns, lambda column: one_tile(column, 1))
        return ir.tiles(columns, one_tile)

    body = ir.loops([("number", math.prod(batch)), ("row", rows)], one_row)
    return ir.kernel([*operands, output], body)


def _accumulators(count: int, wide: bool) -> tvm_api.Buffer:
    """Return a local array of accumulators, of 64 bits if `wide`, as in the references.

    64-bit accumulators are signed: they cannot overflow, and TVM would assume that values cast from
    unsigned accumulators are positive.
    """
    return (
        tirx.decl_buffer([count], "int64", "sum", scope="local") if wide else ir.accumulators(count)
    )


def _macs(call: tvm_api.Call, output: tuple[int, ...]) -> int:
    left = tvm_api.static_shape(call.args[0])
    adjoint = int(call.attrs["adjoint"][0])
    return math.prod(output) * left[-2 if adjoint else -1] if left else 0


register(
    parameters=BatchMatmul,
    kernel_of_operands=_kernel,
    recognitions=(
        Recognition(("matmul",), _derive_for_tflm, (Arithmetic.TFLM,)),
        Recognition(("matmul",), _derive_for_ort, (Arithmetic.ORT,), Order.SPECIAL),
    ),
    takes_clip=True,
    macs=_macs,
    drawing=pairs.matrix_products(BatchMatmul),
    interface=Interface(operands=PAIR, sizes=matrices, rounding=TFLM),
)


MOST_MATMUL_AXES = 5
"""Maximum number of axes of an operand of BATCH_MATMUL."""


@converts("BATCH_MATMUL", "float32", "int8", "int16", same_dtype=True)
def convert(node: TfliteNode) -> Expr:
    """BATCH_MATMUL of matrices whose leading axes broadcast."""
    options = node.options("BatchMatMulOptions")
    operands = []
    adjoints = (options.AdjX(), options.AdjY())
    for position, (_, adjoint) in enumerate(zip(node.inputs, adjoints, strict=True)):
        rank = len(node.shape(position))
        if not 2 <= rank <= MOST_MATMUL_AXES:
            raise ModelError(f"an operand has {rank} axes")
        value = node.dequantized(position)
        if adjoint:
            order = [*range(rank - 2), rank - 1, rank - 2]
            value = node.emit(relax.op.permute_dims(value, order))
        operands.append(value)
    return node.quantized(relax.op.matmul(*operands))
