# SPDX-License-Identifier: Apache-2.0
"""The digits network on both designs, beside their models: results and cycles."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from umakit import find_backend
from umakit.tools.cosim import cosim_model

DIGITS = Path(__file__).parents[1] / "examples" / "digits" / "digits_int8.onnx"

START = 50
"""Cycles that the STARTs of a layer take in the designs, which the models do not have."""


@pytest.mark.parametrize("name", ["strawberry_accelerator", "small_chocolate_accelerator"])
def test_digits_run_on_the_design_as_on_its_model(name: str) -> None:
    if shutil.which("verilator") is None:
        assert "UMAKIT_CI" not in os.environ, "CI has Verilator"
        pytest.skip("verilator is not installed")
    result = cosim_model(DIGITS, [find_backend(name)])
    assert result.difference is None
    assert [layer.checked for layer in result.layers] == [True] * 5
    assert result.equal_accesses
    for layer in result.layers:
        assert layer.model_cycles is not None and layer.rtl_cycles is not None
        limit = max(START, 0.02 * layer.rtl_cycles)
        assert abs(layer.rtl_cycles - layer.model_cycles) <= limit, layer
