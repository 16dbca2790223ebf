# SPDX-License-Identifier: Apache-2.0
"""`nn.pad` of ONNX networks, of integers, with the integer of the padded value."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.operators.derivation.expressions import integers_of_result
from umakit.operators.drawings import layers
from umakit.operators.interface import Interface, Shape, four
from umakit.operators.islands import Island
from umakit.operators.kernels.loops import buffer, kernel, loop, unflatten
from umakit.operators.numeric.fixed_point import Arithmetic
from umakit.operators.offload.matching import NotReadable
from umakit.operators.parameters import Parameters, whole_range
from umakit.operators.registry import Recognition, Shapes, register, shape_of
from umakit.operators.tables.functions import quantized
from umakit.operators.tflite import ANY, TfliteNode, converts
from umakit.tvm_api import int32

relax, tirx = tvm_api.relax, tvm_api.tirx


@dataclass(frozen=True)
class Pad(Parameters):
    """Data padded with one value; networks have Relax's `nn.pad` instead.

    Attributes:
        before, after: number of padded elements before and after the data on each axis.
        pad_value: integer value of the padding.
    """

    operator: ClassVar[str] = "pad"

    before: tuple[int, ...]
    after: tuple[int, ...]
    pad_value: int

    @classmethod
    def of(cls, call: tvm_api.Call) -> Pad:
        """The parameters of a call of this operator or of Relax's `nn.pad`.

        Raises:
            NotReadable: the padding is not one integer.
        """
        if tvm_api.operator_name(call) != RELAX:
            return super().of(call)
        mode, dtype = str(call.attrs.pad_mode), tvm_api.dtype_of(call)
        if mode != "constant" or "int" not in dtype:
            raise NotReadable(f"a pad of {dtype}, {mode}: the accelerator pads with an integer")
        widths = [int(width) for width in call.attrs.pad_width]
        return cls(
            **whole_range(shape_of(call), dtype),
            before=tuple(widths[::2]),
            after=tuple(widths[1::2]),
            pad_value=int(call.attrs.pad_value),
        )


RELAX = "nn.pad"


def _kernel(parameters: Pad, shapes: Shapes, dtypes: list[str]) -> tvm_api.PrimFunc:
    (shape,), result = shapes, parameters.output_shape
    data, output = buffer("data", shape, dtypes[0]), buffer("output", result, dtypes[0])

    def one(i: tvm_api.PrimExpr) -> tvm_api.Stmt:
        place = unflatten(i, result)
        inside = [n - int32(first) for n, first in zip(place, parameters.before, strict=True)]
        conditions = [
            condition
            for n, size in zip(inside, shape, strict=True)
            for condition in (n >= int32(0), n < int32(size))
        ]
        value = tirx.const(parameters.pad_value, dtypes[0])
        return tirx.IfThenElse(
            tirx.all(*conditions),
            tirx.BufferStore(output, data[tuple(inside)], place),
            tirx.BufferStore(output, value, place),
        )

    return kernel([data, output], loop("i", math.prod(result), one))


def _sizes(parameters: Any, shapes: Mapping[str, Shape]) -> dict[str, int]:
    groups = {
        "data": four(shapes["data"]),
        "before": four(parameters.before, 0),
        "after": four(parameters.after, 0),
    }
    return {f"{name}_{axis}": n for name, four_ in groups.items() for axis, n in enumerate(four_)}


def _derive(island: Island) -> tvm_api.Expr:
    call, result = island.call, island.result
    moved = integers_of_result(island, island.operand())
    attributes = call.attrs
    value = tvm_api.float_argument(call.args[1]) if len(call.args) > 1 else None
    if value is None:
        value = float(getattr(attributes, "pad_value", 0.0))
    integer = int(quantized(np.array(value), result.scale, result.clip))
    widths = [int(width) for width in attributes.pad_width]
    padded = tvm_api.relax.op.nn.pad(moved, widths, pad_value=integer)
    return tvm_api.make_call(padded, span=result.span)


register(
    parameters=Pad,
    kernel_of_operands=_kernel,
    drawing=layers.pad(),
    interface=Interface(sizes=_sizes, names={"before": (), "after": ()}, relax=RELAX, clips=False),
    recognitions=(Recognition(("nn.pad",), _derive, (Arithmetic.ORT,)),),
)


@converts("PAD PADV2", *ANY, same_scale=True)
def convert(node: TfliteNode) -> tvm_api.Expr:
    """PAD with zeros, in integers the zero point; PADV2 with a given constant."""
    tensor = node.tensor(0)
    data = node.value(0)
    widths = node.integers(1)
    if len(widths) != 2 * len(tensor.shape) or min(widths, default=0) < 0:
        raise ModelError(f"its paddings are {widths}")
    fill: float = int(tensor.zero_points[0]) if tensor.scales.size else 0
    if len(node.inputs) > 2:
        values = node.constant(2).reshape(-1)
        if values.size != 1:
            raise ModelError(f"it pads with {values.size} values")
        fill = values[0].item()
    return relax.op.nn.pad(data, widths, pad_value=fill)
