# SPDX-License-Identifier: Apache-2.0
"""QUANTIZE and DEQUANTIZE of TensorFlow Lite."""

from __future__ import annotations

from typing import Any

from umakit.operators.tflite import (
    QUANTIZED,
    TfliteConverter,
    TfliteOperator,
    imported,
    register_all,
)


def quantize(converter: TfliteConverter, operator: TfliteOperator) -> Any:
    """QUANTIZE, of integers a change of scale; the islands decide how reals are rounded."""
    return converter.island(operator, lambda data: data)


TO_FLOAT = tuple((dtype, "float32") for dtype in QUANTIZED)

register_all(
    ("QUANTIZE",), quantize, ("float32", "int8"), ("float32", "int16"), ("int8", "int8"),
    ("int8", "uint8"), ("int8", "int16"), ("uint8", "int8"), ("int16", "int8"),
    ("int16", "int16"), ("float32", "uint8"), ("uint8", "uint8"),
)  # fmt: skip
register_all(("DEQUANTIZE",), imported, *TO_FLOAT, asymmetric=TO_FLOAT)
