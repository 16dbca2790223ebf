# SPDX-License-Identifier: Apache-2.0
"""Operators: one file for each operator or family, and shared modules.

To add an integer operator, add a file that calls `registry.register`. The file holds the
operator's parameters, their derivation for the arithmetic of TensorFlow Lite Micro and of ONNX
Runtime, the CPU kernel, the conversion from TensorFlow Lite (`tflite.converts`) and the
driver's arguments (`interface`), or a pattern. No list has to be edited: all modules of the folder
are imported here.

    numeric/   multipliers in fixed point, float32 computed in integers
    tables/    lookup tables of functions
    kernels/   loops, windows and accumulators of CPU kernels
    offload/   base classes of the patterns of backends
    islands    real arithmetic between dequantize and quantize, replaced by integer operators
    interface  pointers, sizes and parameters for drivers
    registry   registry of integer operators, for the stages
    tflite     registry of the conversions from TensorFlow Lite
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache


@cache
def load() -> None:
    """Import every file of this folder, so that all operators are registered."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")


load()
