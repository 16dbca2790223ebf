# SPDX-License-Identifier: Apache-2.0
"""RESIZE_BILINEAR of TensorFlow Lite."""

from __future__ import annotations

from typing import Any

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.operators.tflite import TfliteConverter, TfliteOperator, register_all

relax = tvm_api.relax


def resize_bilinear(converter: TfliteConverter, operator: TfliteOperator) -> Any:
    """RESIZE_BILINEAR of [N, H, W, C]."""
    options = converter.options(operator, "ResizeBilinearOptions")
    source, result = (converter.shape(item) for item in (operator.inputs[0], operator.outputs[0]))
    size = converter.integers(operator, 1)
    if len(source) != 4 or list(result[1:3]) != size:
        raise ModelError(f"its result has the shape {list(result)}")
    if options.AlignCorners() and options.HalfPixelCenters():
        raise ModelError("it aligns corners and has half-pixel centers")
    mode = "align_corners" if options.AlignCorners() else "asymmetric"
    if options.HalfPixelCenters():
        mode = "half_pixel"

    def function(data: Any) -> Any:
        return relax.op.image.resize2d(
            data, tuple(size), layout="NHWC", method="linear", coordinate_transformation_mode=mode
        )

    return converter.island(operator, function)


register_all(("RESIZE_BILINEAR",), resize_bilinear, "float32", "int8")
