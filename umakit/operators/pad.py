# SPDX-License-Identifier: Apache-2.0
"""`nn.pad` of ONNX networks, of integers, with the integer of the padded value."""

from __future__ import annotations

import numpy as np

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.operators.derivation.conversions import integers_of_result
from umakit.operators.islands import Island
from umakit.operators.numeric.fixed_point import Arithmetic
from umakit.operators.registry import IntegerOperator, Recognition, register
from umakit.operators.tables.functions import quantized
from umakit.operators.tflite import ANY, TfliteConverter, TfliteOperator, register_all

relax = tvm_api.relax


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
    IntegerOperator(
        name="pad",
        recognitions=(Recognition(("nn.pad",), _derive, (Arithmetic.ORT,)),),
    )
)


def convert(converter: TfliteConverter, operator: TfliteOperator) -> tvm_api.Expr:
    """PAD with zeros, in integers the zero point; PADV2 with a given constant."""
    tensor = converter.tensor(operator.inputs[0])
    data = converter.value(operator.inputs[0])
    widths = converter.integers(operator, 1)
    if len(widths) != 2 * len(tensor.shape) or min(widths, default=0) < 0:
        raise ModelError(f"its paddings are {widths}")
    fill: float = int(tensor.zero_points[0]) if tensor.scales.size else 0
    if len(operator.inputs) > 2:
        values = converter.constant(operator, 2).reshape(-1)
        if values.size != 1:
            raise ModelError(f"it pads with {values.size} values")
        fill = values[0].item()
    return relax.op.nn.pad(data, widths, pad_value=fill)


register_all(("PAD", "PADV2"), convert, *ANY, same_scale=True)
