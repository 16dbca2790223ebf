# SPDX-License-Identifier: Apache-2.0
"""`make bench-cmsis`: quantization as TensorFlow Lite describes it, and the library."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tflite_networks import trained_model

ROOT = Path(__file__).parents[1]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    import cmsis

    return cmsis


@given(real=st.floats(1e-8, 1e3))
def test_a_multiplier_and_a_shift_are_the_nearest_to_a_factor(real: float) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "bench"))
        from cmsis_network import multiplier_and_shift

    multiplier, shift = multiplier_and_shift(real)
    assert 2**30 <= multiplier < 2**31
    unit = Fraction(2) ** (shift - 31)
    assert abs(multiplier * unit - Fraction(real)) <= unit / 2


def test_every_operator_of_the_networks_is_a_call(bench: Any) -> None:
    from cmsis_network import network_in_c

    network = network_in_c(trained_model("pretrainedResnet_quant.tflite"))
    assert len(network.layers) == 16 and network.input_bytes == 3072 and network.output_bytes == 10
    assert network.text.count("    if (arm_convolve_wrapper_s8(") == 9
    assert network.text.count("    if (arm_elementwise_add_s8(") == 3


def test_outputs_that_differ_are_counted(bench: Any) -> None:
    left = np.array([[-128, 127, 0]], np.int8)
    assert bench.differences(left, left) == "none"
    assert bench.differences(left, np.array([[127, 126, 0]], np.int8)) == "2 of 3, by up to 255"


def test_a_missing_checkout_is_said(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in (None, str(ROOT)):
        monkeypatch.delenv("CMSIS_NN", raising=False)
        if place:
            monkeypatch.setenv("CMSIS_NN", place)
        with pytest.raises(SystemExit, match=r"\$CMSIS_NN names no checkout of CMSIS-NN"):
            bench.main()


def test_a_checkout_is_compiled_for_a_cpu(bench: Any, tmp_path: Path) -> None:
    """Its integer functions alone: others need headers of the compiler's."""
    folder = tmp_path / "Source" / "Functions"
    folder.mkdir(parents=True)
    (tmp_path / "Include").mkdir()
    (tmp_path / "Include" / "own.h").write_text("int arm_own(void);\n")
    (folder / "arm_own_s8.c").write_text('#include "own.h"\nint arm_own(void) { return 1; }\n')
    (folder / "arm_own_f32.c").write_text("float32_t unknown;\n")
    library = bench.built_library(tmp_path, "cortex-m4", tmp_path / "built")
    assert b"arm_own_s8.o" in library.read_bytes()
