# SPDX-License-Identifier: Apache-2.0
"""Operators that only move elements; they apply to integers directly if all have one scale.

In the arithmetic of ONNX Runtime, integers of another scale are converted first.
"""

from __future__ import annotations

from umakit import tvm_api
from umakit.floats import resampling
from umakit.operators.derivation.conversions import integers_of_result
from umakit.operators.islands import Island
from umakit.operators.numeric.fixed_point import Arithmetic
from umakit.operators.refusals import NoIntegerForm
from umakit.operators.registry import IntegerOperator, Recognition, register
from umakit.operators.tensors import Quantized

TFLM_OPERATORS = ("reshape", "permute_dims", "squeeze", "expand_dims", "concat")

ORT_OPERATORS = tuple(
    "reshape permute_dims squeeze expand_dims concat strided_slice broadcast_to flatten resample "
    "take tile repeat flip".split()
)


def _derive(island: Island) -> tvm_api.Expr:
    operands = _operands(island)
    if island.result.activation or any(
        operand.scale != island.result.scale for operand in operands
    ):
        raise NoIntegerForm("it changes the scale or clips")
    return _moved(island, [operand.integers for operand in operands])


def _derive_for_ort(island: Island) -> tvm_api.Expr:
    integers = [integers_of_result(island, operand) for operand in _operands(island)]
    operator = tvm_api.operator_name(island.call)
    if operator == resampling.OPERATOR and not resampling.moves_only(island.call):
        raise NoIntegerForm("ONNX Runtime interpolates in floating point")
    return _moved(island, integers)


def _operands(island: Island) -> list[Quantized]:
    """Return the tensors that are moved: the first operand, or the elements of a tuple."""
    first = island.call.args[0]
    items = first.fields if isinstance(first, tvm_api.RelaxTuple) else [first]
    return [island.dequantized(item) for item in items]


def _moved(island: Island, integers: list[tvm_api.Expr]) -> tvm_api.Call:
    call = island.call
    together = isinstance(call.args[0], tvm_api.RelaxTuple)
    moved = tvm_api.relax.Tuple(integers) if together else integers[0]
    operands = [moved, *call.args[1:]]
    return tvm_api.relax.Call(call.op, operands, call.attrs, None, island.result.span)


register(
    IntegerOperator(
        name="movement",
        recognitions=(
            Recognition(TFLM_OPERATORS, _derive, (Arithmetic.TFLM,)),
            Recognition(ORT_OPERATORS, _derive_for_ort, (Arithmetic.ORT,)),
        ),
    )
)
