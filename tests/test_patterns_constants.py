# SPDX-License-Identifier: Apache-2.0
"""Constants in the form that hardware reads: dtypes of shifts and multipliers, sums of weights."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from integer_backend import CONFIGURATION, Array, conv, dense, header_of, network, reason
from tflite_cases import Case, Tensor, file_of, of, oracle

from umakit import PassPhase, UMABackend, compile_model, patterns, run_library
from umakit.errors import BackendError

ROOT = Path(__file__).parents[1]
SUMS: dict[str, Any] = {"shift_dtype": "int32", "weight_sums": True}
PATTERNS = {
    "own_qconv2d": patterns.qconv2d(**SUMS),
    "own_qdepthwise": patterns.qdepthwise(**SUMS),
    "own_qdense": patterns.qdense(**SUMS),
    "own_qdense_wide": patterns.qdense(
        "qdense_wide", dtypes="int16", shift_dtype="int32", wide_multipliers=True,
        predicate=lambda layer: layer.rows == 2 or "not of two rows",
    ),
    "own_qdense_short": patterns.qdense(
        "qdense_short", dtypes="int16", multiplier_dtype="int16"
    ),
}  # fmt: skip


class OwnForms(UMABackend):
    """A backend whose driver, if it has one, reads constants in forms of its own."""

    def __init__(self, folder: Path, *, driver: bool) -> None:
        self._folder = folder / "forms_npu"
        super().__init__()
        for pattern in PATTERNS.values():
            self._register_pattern(*pattern)
        if driver:
            calls = {pattern.name: name for name, pattern in PATTERNS.items()}
            self._register_tir_pass(PassPhase.TIR_PHASE_0, patterns.driver_calls(**calls))
            self._register_codegen(includes=lambda: '#include "constants_driver.h"')
            self._register_driver(["constants_driver.c"], ["constants_driver.h"])

    @property
    def target_name(self) -> str:
        return "forms_npu"

    @property
    def folder(self) -> Path:
        if not self._folder.exists():
            self._folder.mkdir(parents=True)
            (self._folder / "accel.toml").write_text(CONFIGURATION.format(name="forms_npu"))
            text = (ROOT / "tests" / "constants_driver.c").read_text(encoding="utf-8")
            (self._folder / "constants_driver.c").write_text(text)
            (self._folder / "constants_driver.h").write_text(header_of(PATTERNS))
        return self._folder


random = np.random.default_rng(21)


def weights(*shape: int) -> Array:
    return random.integers(-127, 128, shape).astype(np.int8)


def linear(code: str, options: str, data: Tensor, result: Tensor, shape: Sequence[int],
           **values: Any) -> Case:  # fmt: skip
    outputs = result.shape[-1]
    wide = data.dtype == "int16"
    most = 2**30 if wide else 999
    bias = random.integers(-most, most, outputs).astype("int64" if wide else "int32")
    constants = [of(weights(*shape), "int8", 0.02), of(bias, str(bias.dtype), data.scale * 0.02)]
    return Case(code, [data, *constants], [result], options, values)


def image(*shape: int) -> Tensor:
    return Tensor(shape, "int8", 0.07, -11)


STEPS = {"StrideH": 2, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1}
WIDE = Tensor((2, 40), "int16", 0.001), Tensor((2, 7), "int16", 0.8)
CASES = [
    linear("CONV_2D", "Conv2DOptions", image(1, 7, 6, 5), image(1, 4, 6, 9), (9, 3, 3, 5), **STEPS),
    linear("DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions", image(1, 7, 6, 5), image(1, 4, 6, 5),
           (1, 3, 2, 5), **STEPS, DepthMultiplier=1),
    linear("FULLY_CONNECTED", "FullyConnectedOptions", image(3, 40), image(3, 8), (8, 40)),
    linear("FULLY_CONNECTED", "FullyConnectedOptions", *WIDE, (7, 40)),
    linear("FULLY_CONNECTED", "FullyConnectedOptions", Tensor((3, 40), "int16", 0.001),
           Tensor((3, 7), "int16", 0.8), (7, 40)),
]  # fmt: skip


@pytest.mark.parametrize("driver", [False, True], ids=["loops", "driver"])
def test_layers_equal_tensorflow_lite_micro(driver: bool, tmp_path: Path) -> None:
    content, tensors, outputs = file_of(CASES)
    given = np.random.default_rng(4)
    inputs = {name: each.drawn(given) for name, each in tensors.items()}
    wanted = oracle(content, inputs, outputs)
    path = tmp_path / "layers.tflite"
    path.write_bytes(content)
    library = compile_model(path, [OwnForms(tmp_path, driver=driver)], tmp_path / "library")
    assert {row.where for row in library.report.placements} == {"forms_npu"}
    found = run_library(library.path, inputs).outputs
    for name, expected in wanted.items():
        np.testing.assert_array_equal(found[name], expected, name)
        assert len(np.unique(expected)) > 5
    if driver:
        source = (library.path / "codegen/host/src/tvmgen_layers.c").read_text(encoding="utf-8")
        assert all(f" {name}(" in source for name in PATTERNS)


def test_arrays_are_what_numpy_makes_of_them(tmp_path: Path) -> None:
    seen: list[Any] = []

    def keep(layer: Any) -> bool:
        seen.append(layer)
        return True

    pattern = patterns.qconv2d(weight_layout="O/8 HWI 8o", **SUMS, predicate=keep)
    module = network(lambda b, x: conv(x, outputs=12), (1, 6, 5, 3))
    assert reason(module, pattern, folder=tmp_path) == ""
    layer = seen[0]
    stored = layer.stored_arrays()
    assert list(stored) == ["weights", "bias", "multipliers", "shifts", "weight_sums"]
    assert list(layer.POINTERS) == ["data", *stored, "result"]
    assert stored["shifts"].dtype == np.int32 and layer.shifts.dtype == np.int8
    sums = [int(channel.astype(int).sum()) for channel in layer.weights]
    assert stored["weight_sums"].tolist() == [*sums, 0, 0, 0, 0]
    assert layer.operand_bytes["weight_sums"] == layer.operand_bytes["shifts"] == 64


def test_forms_that_cannot_be_are_refused(tmp_path: Path) -> None:
    module = network(lambda b, x: dense(x), (1, 12))
    short = patterns.qdense(multiplier_dtype="int16")
    assert reason(module, short, folder=tmp_path) == (
        "multipliers of 31 bits for int8 data, rounding tflm: the accelerator has int16"
    )
    with pytest.raises(BackendError, match=re.escape("shifts of 'int64'")):
        patterns.qconv2d(shift_dtype="int64")
    with pytest.raises(BackendError, match="do not fit int16"):
        patterns.qdense(wide_multipliers=True, multiplier_dtype="int16")
    with pytest.raises(BackendError, match="weight_sums=True"):
        patterns.qconv2d_transpose(weight_sums=True)
