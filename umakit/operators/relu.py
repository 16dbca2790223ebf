# SPDX-License-Identifier: Apache-2.0
"""RELU and RELU6 of TensorFlow Lite."""

from __future__ import annotations

from umakit.operators.tflite import QUANTIZED, imported, register_all

register_all(("RELU",), imported, "float32", *QUANTIZED)
register_all(("RELU6",), imported, "float32", *QUANTIZED, same_scale=True)
