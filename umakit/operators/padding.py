# SPDX-License-Identifier: Apache-2.0
"""PAD and PADV2 of TensorFlow Lite."""

from __future__ import annotations

from typing import Any

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.operators.tflite import ANY, TfliteConverter, TfliteOperator, register_all

relax = tvm_api.relax


def pad(converter: TfliteConverter, operator: TfliteOperator) -> Any:
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


register_all(("PAD", "PADV2"), pad, *ANY, same_scale=True)
