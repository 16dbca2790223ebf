# SPDX-License-Identifier: Apache-2.0
"""Shrink of integers and floats, as `onnx_sweep` draws it: ONNX Runtime says what is right."""

from __future__ import annotations

from onnx_sweep import assert_right


def test_drawn_networks_are_right() -> None:
    assert_right("Shrink", 12)
