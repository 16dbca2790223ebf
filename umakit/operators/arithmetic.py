# SPDX-License-Identifier: Apache-2.0
"""ADD, SUB and MUL of TensorFlow Lite."""

from __future__ import annotations

from umakit.operators.tflite import QUANTIZED, WHOLE, imported, register_all

register_all(("ADD", "SUB", "MUL"), imported, "float32", *QUANTIZED, *WHOLE, same_dtype=True)
