# SPDX-License-Identifier: Apache-2.0
"""`quantized.lookup` (data of 8 bits, table[256] of the result's dtype): any function of elements.

In ONNX networks, operators between a dequantize and a quantize of one tensor form such a function;
see `tables.functions`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from umakit import tvm_api
from umakit.operators.drawing import Random, Settings, Tensor
from umakit.operators.drawings.families import Fields, MadeOfOne, elements
from umakit.operators.interface import Interface
from umakit.operators.islands import Island, check_tflm
from umakit.operators.kernels.elementwise import elementwise_kernel
from umakit.operators.parameters import Pair, Parameters
from umakit.operators.registry import Shapes, register
from umakit.operators.tensors import Array, NoIntegerForm, Quantized, Scale
from umakit.tvm_api import Buffer, Expr, PrimExpr, PrimFunc, Stmt, int32, relax, tirx


@dataclass(frozen=True)
class Lookup(Parameters):
    """A function of each element, as a table that starts with the least integer.

    The values of the table are already clipped.

    Attributes:
        function: name of the function, for example `logistic`; empty without a name.
    """

    operator: ClassVar[str] = "lookup"

    function: str = ""

    def clipped(self, operands: Sequence[Expr], clip: Pair) -> tuple[Lookup, list[Expr]]:
        data, table = operands
        values = tvm_api.constant_array(table)
        assert values is not None
        return replace(self, clip=clip), [data, relax.const(np.clip(values, *clip))]


def tflm_activation(
    name: str,
    island: Island,
    source: Quantized,
    table_of: Callable[[Scale, Scale], Array],
    of_16_bits: Callable[[Island, Quantized], Expr] | None = None,
) -> Expr:
    """Return a call for an activation function with TensorFlow Lite Micro's arithmetic.

    A function of 8 bits is a table; the table for uint8 is the table for int8 plus 128.

    Args:
        table_of: (scale of the operand, scale of the result), both of int8 -> int8[256]; raises
            ValueError for unsupported scales.
        of_16_bits: (island, operand) -> call, for int16.
    """
    check_tflm(island.arithmetic)
    result = island.result
    dtypes = {source.scale.dtype, result.scale.dtype}
    try:
        if dtypes == {"int16"} and of_16_bits is not None:
            return of_16_bits(island, source)
        if dtypes in ({"int8"}, {"uint8"}):
            return _table_call(name, island, source, table_of)
    except ValueError as error:
        raise NoIntegerForm(str(error)) from None
    raise NoIntegerForm(f"there is no {name} of {source.scale.dtype} to {result.scale.dtype}")


def _table_call(
    name: str, island: Island, source: Quantized, table_of: Callable[[Scale, Scale], Array]
) -> Expr:
    result = island.result
    offset = 128 if result.scale.dtype == "uint8" else 0
    scales = [replace(scale, zero_point=scale.zero_point - offset, dtype="int8")
              for scale in (source.scale, result.scale)]  # fmt: skip
    table = table_of(*scales).astype(np.int32) + offset
    constant = relax.const(np.clip(table, *result.clip).astype(result.scale.dtype))
    parameters = Lookup(**result.common(island.arithmetic), function=name)
    return parameters.call([source.integers, constant], result.span)


def _kernel(parameters: Lookup, shapes: Shapes, dtypes: list[str]) -> PrimFunc:
    least = 128 if dtypes[0] == "int8" else 0

    def one(output: Buffer, place: list[PrimExpr], element: PrimExpr, table: Buffer) -> Stmt:
        return tirx.BufferStore(output, table[int32(element) + int32(least)], place)

    return elementwise_kernel(parameters, shapes, dtypes, ("data", "table"), one, tables=1)


def _drawn(common: Fields, data: Tensor, settings: Settings, random: Random) -> MadeOfOne:
    low, high = common["clip"]
    return Lookup(**common), [random.integers(low, high + 1, 256).astype(data.dtype)]


register(
    parameters=Lookup,
    kernel_of_operands=_kernel,
    takes_clip=True,
    drawing=elements(_drawn, dtype=("int8", "uint8")),
    interface=Interface(operands={"data": "", "table": ""}, names={"function": ()}, clips=False),
)
