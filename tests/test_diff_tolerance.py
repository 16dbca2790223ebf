# SPDX-License-Identifier: Apache-2.0
"""`uma diff --integer-tolerance`: hardware whose integers are off by some LSB."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from test_diff_quantized import planted
from test_patterns_quantized_onnx import DIGITS, onnx_npu
from umakit.cli.main import run_command

from umakit.testing.differences import HISTOGRAM_REACH, Tolerance, compare
from umakit.tools.diff import diff_model

TYPES = [np.dtype(name) for name in ("int8", "uint8", "int16", "int32")]
SUM = "a[OUTPUT_ZERO_POINT],\n"


@given(st.data(), st.sampled_from(TYPES), st.integers(0, 3))
def test_integers_are_counted_by_difference(data: Any, dtype: Any, lsb: int) -> None:
    shape = data.draw(hnp.array_shapes(max_dims=3, max_side=4))
    near = st.integers(0, 40) if data.draw(st.booleans()) else None
    got, wanted = (data.draw(hnp.arrays(dtype, shape, elements=near)) for _ in range(2))
    item = compare(got, wanted, Tolerance(lsb=lsb))
    pairs = list(zip(got.flat, wanted.flat, strict=True))
    away = [int(one) - int(other) for one, other in pairs]
    assert item.differing == sum(abs(each) > lsb for each in away)
    assert item.agrees == (max(map(abs, away)) <= lsb) and item.exact == (not any(away))
    reach = HISTOGRAM_REACH
    assert item.histogram == Counter(max(-reach, min(reach, each)) for each in away)


def test_the_largest_element_of_a_row() -> None:
    wanted = np.array([[1, 5, 3], [7, 7, 0], [2, 1, 0]], "int8")
    got = np.array([[1, 4, 3], [6, 8, 0], [1, 2, 0]], "int8")
    assert compare(got, wanted).top_1 == (3, 2)  # either of two equal ones is the largest
    assert compare(got[0], wanted[0]).top_1 == (1, 1)
    assert compare(got[None], wanted[None]).top_1 is None  # an image, not rows of classes
    assert compare(got[:, :1], wanted[:, :1]).top_1 is None


@pytest.fixture(scope="module")
def inexact(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """An accelerator whose convolutions are one LSB too large in every third column."""
    npu = onnx_npu(tmp_path_factory.mktemp("inexact"))
    return planted(npu, (SUM, SUM.replace(",", " + (x % 3 == 2),")))


def test_differences_within_the_tolerance_agree(inexact: Any) -> None:
    result = diff_model(DIGITS, [inexact], integer_tolerance=1, most=2)
    assert result.agrees and result.blame is None and result.inferences == 2
    convolutions = [layer for layer in result.layers if layer.where == inexact.target_name]
    counted = [layer.own.histogram for layer in convolutions if layer.own]
    inexact_ones = [each for each in counted if each and set(each) == {0, 1}]
    assert len(inexact_ones) >= 2
    assert all(layer.own and layer.own.exact for layer in result.layers if layer.where == "cpu")
    for layer in result.layers[:-1]:  # both inferences are counted
        assert layer.own and layer.own.histogram
        assert sum(layer.own.histogram.values()) == 2 * layer.own.elements
    assert result.layers[-1].own and result.layers[-1].own.histogram is None  # float32
    document = json.loads(json.dumps(result.as_json()))
    assert document["integer_tolerance"] == 1
    assert document["layers"][0]["own"]["histogram"].keys() <= {"0", "1"}
    (output,) = document["outputs"].values()
    assert output["top_1"]["rows"] == 2


def test_without_tolerance_it_is_wrong(inexact: Any) -> None:
    result = diff_model(DIGITS, [inexact], most=1)
    assert not result.agrees and result.blame and result.blame.layer.where == inexact.target_name
    assert result.as_json()["integer_tolerance"] == 0


def test_the_table_of_differences(
    inexact: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("umakit.cli.diff.find_backends", lambda names: [inexact])
    monkeypatch.setenv("COLUMNS", "120")
    assert run_command(["diff", str(DIGITS), "--integer-tolerance", "1", "--most", "3"]) == 0
    printed = capsys.readouterr().out
    assert "elements by LSB        exact    +1\n" in printed
    row = [line.split() for line in printed.splitlines() if line.startswith("pool1  ")][1]
    assert row == ["pool1", "768"]  # three inferences of 256 elements, none of which differs
    assert "tolerance 1e-05 and 1 LSB" in printed
    assert re.search(r"output logits: off by 0\.\d+ at most; .* same in [0-3] of 3 rows", printed)
    assert re.search(r"all 8 layers agree within 1 LSB, [4-7] exactly", printed)


def test_another_rounding_than_the_formats(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["diff", str(DIGITS), "--rounding", "tflm", "--most", "1"]
    assert run_command(command) == 0
    printed = capsys.readouterr()
    assert "compared with umakit's CPU kernels, 1 inference" in printed.out
    assert "rounded as tflm" in printed.err and "--integer-tolerance" in printed.err
    assert run_command([*command, "--integer-tolerance", "2"]) == 0
    assert "compared with ONNX Runtime, 1 inference" in capsys.readouterr().out


def test_a_negative_tolerance_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["diff", str(DIGITS), "--integer-tolerance", "-1"]) == 2
    assert "--integer-tolerance" in capsys.readouterr().err
