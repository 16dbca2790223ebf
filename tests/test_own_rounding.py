# SPDX-License-Identifier: Apache-2.0
"""Roundings of an accelerator's own: `rounding="own:FUNCTION"` and `rounding="float32"`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from integer_backend import DRIVERS, SUM, Array, Npu, common, network, relax
from numpy_fixed_point import quantize_multiplier
from tflite_networks import tflite_micro, trained_model
from umakit.cli.main import run_command

from umakit import compile_model, patterns, run_library
from umakit.errors import BackendError, InputError
from umakit.operators.dense import Dense
from umakit.tools.diff import diff_model

RESNET = "pretrainedResnet_quant.tflite"

TRUNCATES = """\
#pragma once
#include <stdint.h>

/* Rounds towards minus infinity. */
static inline int32_t npu_round(int32_t sum, int32_t multiplier, int32_t shift)
{
    return (int32_t)(((int64_t)sum * multiplier) >> (31 - shift));
}
"""

TRUNCATED_BY_THE_DRIVER = (
    (
        "    return rounding == ORT ?",
        "    if (rounding == 3) {\n"
        "        const int64_t divisor = INT64_C(1) << (31 - shift);\n"
        "        const int64_t product = value * multiplier;\n"
        "        return (product - ((product % divisor) + divisor) % divisor) / divisor;\n"
        "    }\n"
        "    return rounding == ORT ?",
    ),
)


def own_npu(
    folder: Path, rounding: str = "own:npu_round", *, driver: bool = True, **options: Any
) -> Npu:
    """A backend of layers with weights and of sums, with its own rounding of them."""
    given = {"rounding": rounding, **options}
    registrations = [
        patterns.qconv2d(**given),
        patterns.qdepthwise(**given),
        patterns.qdense(weight_layout="IO", **given),
    ]
    if rounding != "float32":
        registrations.insert(0, patterns.qconv2d_add(**given))
        registrations.append(patterns.qadd(rounding=rounding))
    npu = Npu(folder, registrations, DRIVERS | SUM if driver else None)
    (npu.folder / "npu_round.h").write_text(TRUNCATES, encoding="utf-8")
    npu._register_codegen(includes=lambda: '#include "npu_round.h"\n#include "integer_driver.h"')
    npu._register_driver(
        ["integer_driver.c"] if driver else [], ["npu_round.h", "integer_driver.h"]
    )
    text = (npu.folder / "integer_driver.c").read_text(encoding="utf-8")
    for old, new in TRUNCATED_BY_THE_DRIVER:
        assert old in text, old
        text = text.replace(old, new, 1)
    text = text.replace("> ORT", "> 3")  # what it refuses
    (npu.folder / "integer_driver.c").write_text(text, encoding="utf-8")
    return npu


def dense(folder: Path, rounding: str, scales: int) -> tuple[Array, Array, dict[str, Any]]:
    """The results of a fully connected layer on a backend without driver, and what it read."""
    random = np.random.default_rng(scales)
    weights = random.integers(-127, 128, (7, 30)).astype(np.int8)
    bias = random.integers(-3000, 3000, 7).astype(np.int32)
    factors = [quantize_multiplier(float(f)) for f in random.uniform(1e-4, 2e-3, scales)]
    multipliers, shifts = (np.array(each) for each in zip(*factors, strict=True))
    parameters = Dense(**common((9, 7)), input_zero_point=-5)
    constants = [weights, bias, multipliers.astype(np.int32), shifts.astype(np.int8)]
    module = network(lambda _, x: parameters.call([x, *map(relax.const, constants)], None), (9, 30))
    npu = own_npu(folder, rounding, driver=False)
    library = compile_model(module, [npu], folder / "library", name="net")
    assert [row.where for row in library.report.placements] == [npu.target_name]
    x = random.integers(-128, 128, (9, 30)).astype(np.int8)
    (output,) = run_library(library.path, {"x": x}).outputs.values()
    sums = (x.astype(np.int64) + 5) @ weights.T.astype(np.int64) + bias
    return output, sums, {"multipliers": multipliers.astype(np.int64), "shifts": shifts}


@pytest.mark.parametrize("scales", [1, 7])
def test_the_c_function_rounds_the_sums(scales: int, tmp_path: Path) -> None:
    output, sums, factors = dense(tmp_path, "own:npu_round", scales)
    exact = (sums * factors["multipliers"]) >> (31 - factors["shifts"])  # floor, in NumPy
    np.testing.assert_array_equal(output, np.clip(exact + 3, -128, 127))


@pytest.mark.parametrize("scales", [1, 7])
def test_float32_factors_round_ties_to_even(scales: int, tmp_path: Path) -> None:
    output, sums, factors = dense(tmp_path, "float32", scales)
    factor = np.ldexp(factors["multipliers"].astype(np.float32), factors["shifts"] - 31)
    products = sums.astype(np.float32) * factor.astype(np.float32)
    assert products.dtype == np.float32
    np.testing.assert_array_equal(output, np.clip(np.rint(products) + 3, -128, 127))


@pytest.fixture(scope="module")
def npu(tmp_path_factory: pytest.TempPathFactory) -> Npu:
    return own_npu(tmp_path_factory.mktemp("own"))


def test_diff_is_exact_with_the_same_rounding(npu: Npu, tmp_path: Path) -> None:
    path = trained_model(RESNET)
    result = diff_model(path, [npu], most=1)
    assert result.agrees and result.blame is None
    offloaded = [layer for layer in result.layers if layer.where != "cpu"]
    assert len(offloaded) >= 10 and all(layer.own and layer.own.exact for layer in offloaded)
    assert {layer.reference for layer in offloaded} == {"cpu"}
    assert any("rounded by npu_round" in notice for notice in result.notices)


def test_a_driver_that_rounds_otherwise_is_found(tmp_path: Path) -> None:
    npu = own_npu(tmp_path)
    driver = npu.folder / "integer_driver.c"
    text = driver.read_text(encoding="utf-8").replace("rounding == 3", "rounding == 30")
    driver.write_text(text, encoding="utf-8")
    result = diff_model(trained_model(RESNET), [npu], most=1)
    assert result.blame is not None and result.blame.layer.number == 0
    assert "never off by more than one: rounding" in result.blame.explanation


def test_a_tolerance_compares_with_the_models_rounding(npu: Npu, tmp_path: Path) -> None:
    path = trained_model(RESNET)
    library = compile_model(path, [npu], tmp_path / "library", name="net")
    assert any("npu_round" in notice for notice in library.notices)
    rows = library.metadata["umakit"]["operators"]
    assert {row.get("rounding") for row in rows if row["where"] != "cpu"} == {"own:npu_round"}
    result = diff_model(path, [], library=library.path, integer_tolerance=4, most=1)
    assert result.agrees and {layer.reference for layer in result.layers} == {"tflite-micro"}
    largest = [layer.own.largest for layer in result.layers if layer.own]
    assert 1 <= max(largest) <= 4  # a sum behind a convolution is rounded four times
    with pytest.raises(InputError, match=r"npu_round rounds layers .* --integer-tolerance"):
        diff_model(path, [], library=library.path)


def test_the_effect_on_a_network_is_small(npu: Npu, tmp_path: Path) -> None:
    """Truncation of ten layers changes the scores, and few of the classes."""
    path = trained_model(RESNET)
    library = compile_model(path, [npu], tmp_path / "library", name="net")
    inputs = np.random.default_rng(5).integers(-128, 128, (20, 1, 32, 32, 3)).astype(np.int8)
    (output,) = run_library(library.path, {"input_1_int8": inputs}).outputs.values()
    expected = tflite_micro(path.read_bytes(), inputs)
    away = np.abs(output.astype(int) - expected)
    assert 0 < away.max() < 60
    assert (output.argmax(-1) == expected.argmax(-1)).mean() > 0.7


@pytest.mark.parametrize(
    ("pattern", "options", "message"),
    [
        ("qconv2d", {"rounding": "own"}, "names no C function"),
        ("qconv2d", {"rounding": "own:3x"}, "names no C function"),
        ("qconv2d", {"rounding": ["own:f", "tflm"]}, "takes layers of every rounding"),
        ("qconv2d", {"rounding": "nearest"}, "'nearest' is unknown"),
        ("qdense", {"rounding": "own:f", "dtypes": ["int8", "int16"]}, "data of int16 have 64"),
        ("qadd", {"rounding": "float32"}, "sums of two tensors have three"),
        ("qconv2d_add", {"rounding": "float32"}, "sums of two tensors have three"),
    ],
)
def test_mistakes_are_refused(pattern: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(BackendError, match=message):
        getattr(patterns, pattern)(**options)


def test_rows_of_the_offload_report_name_the_rounding(
    npu: Npu, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("umakit.cli.main.find_backends", lambda names: [npu])
    assert run_command(["partition", str(trained_model(RESNET)), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row.get("rounding") for row in rows if row["where"] == "cpu"} == {None}
    assert {row.get("rounding") for row in rows if row["where"] != "cpu"} == {"own:npu_round"}
