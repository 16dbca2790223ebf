# SPDX-License-Identifier: Apache-2.0
"""Cycles of systolic arrays: SCALE-Sim's figures, the C of the simulator, and `uma sim`."""

from __future__ import annotations

import csv
import ctypes
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from systolic_stepped import DATAFLOWS, in_c, load, stepped
from umakit.cli.main import run_command

from umakit.errors import InputError
from umakit.machine.systolic import Dataflow, Product, SystolicArray, parse_product, systolic_cycles

REFERENCE = Path(
    os.environ.get("UMAKIT_REFERENCE", Path(__file__).parents[2] / "shared" / "reference")
)
FIGURES = REFERENCE / "scalesim_cycles.csv"

# Rows of SCALE-Sim 3.0.0 that are always at hand: (M, N, K, rows, columns) and cycles in the three
# dataflows.
SCALE_SIM = [
    ((196, 32, 72, 8, 8), (8600, 7848, 12150)),
    ((1024, 16, 27, 16, 16), (3648, 2140, 7936)),
    ((1, 64, 128, 8, 8), (1136, 2944, 1376)),
    ((7, 9, 5, 16, 16), (35, 53, 55)),
]


@pytest.fixture(scope="module")
def simulator(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return load(tmp_path_factory.mktemp("sim"))


def test_cycles_are_scale_sims_in_every_row_of_its_table(simulator: ctypes.CDLL) -> None:
    if not FIGURES.exists():
        if os.environ.get("UMAKIT_CI"):
            pytest.fail(f"there is no {FIGURES}; UMAKIT_REFERENCE names the folder")
        pytest.skip(f"there is no {FIGURES}; UMAKIT_REFERENCE names the folder")
    with FIGURES.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 48
    for row in rows:
        product = Product(*(int(row[name]) for name in "MNK"))
        array = SystolicArray(
            int(row["array_rows"]), int(row["array_cols"]), Dataflow.named(row["dataflow"])
        )
        expected = int(row["scalesim_total_cycles"]) + 1  # the index of the last cycle
        assert systolic_cycles(product, array).cycles == expected
        assert in_c(simulator, product, array).compute == expected


@pytest.mark.parametrize(("sizes", "expected"), SCALE_SIM)
def test_cycles_of_a_few_products(sizes: tuple[int, ...], expected: tuple[int, ...]) -> None:
    m, n, k, rows, columns = sizes
    found = [
        systolic_cycles(Product(m, n, k), SystolicArray(rows, columns, flow)).cycles
        for flow in DATAFLOWS
    ]
    assert tuple(found) == expected


@settings(max_examples=60, deadline=None)
@given(data=st.data(), dataflow=st.sampled_from(DATAFLOWS))
def test_python_and_c_and_the_stepped_array_agree(
    simulator: ctypes.CDLL, data: Any, dataflow: Dataflow
) -> None:
    def size(largest: int) -> int:
        return int(data.draw(st.integers(1, largest)))

    product = Product(size(30), size(30), size(30))
    array = SystolicArray(size(9), size(9), dataflow, size(5) - 1)
    expected = systolic_cycles(product, array)
    closed = in_c(simulator, product, array)
    assert (closed.folds, closed.compute, closed.drain, closed.slots) == (
        expected.folds, expected.compute_cycles, expected.drain_cycles, expected.slots,
    )  # fmt: skip
    random = np.random.default_rng(size(1000))
    a = random.integers(-128, 128, (product.m, product.k)).astype(np.int8)
    b = random.integers(-128, 128, (product.k, product.n)).astype(np.int8)
    result, cycles = stepped(simulator, a, b, array)
    np.testing.assert_array_equal(result, a.astype(np.int32) @ b.astype(np.int32))
    assert cycles == expected.cycles
    assert 0 < expected.utilisation <= expected.mapping_efficiency <= 1


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run_command(["sim", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_uma_sim_answers_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(
        capsys, "--gemm", "196,32,72", "--rows", "8", "--cols", "8", "--dataflow", "ws",
        "--drain", "8", "--json",
    )  # fmt: skip
    found = json.loads(out)
    assert code == 0
    assert found["cycles"] == 7848 + 8 * 36
    assert found["utilisation"] == pytest.approx(196 * 32 * 72 / (found["cycles"] * 64))
    assert (found["folds"], found["drain_cycles"]) == (36, 288)


def test_uma_sim_compares_all_dataflows_in_a_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    code, out, _ = run(capsys, "--gemm", "1024,16,27", "--dataflow", "all")
    assert code == 0
    assert "442,368 MACs on 16 x 16 cells" in out
    rows = {line.split()[0]: line.split() for line in out.splitlines()[3:]}
    assert {name: row[4] for name, row in rows.items()} == {
        "output_stationary": "3,648", "weight_stationary": "2,140", "input_stationary": "7,936",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gemm", "196,32"], "'196,32' is not a matrix product; write M,N,K, such as 196,32,72"),
        (["--gemm", "a,b,c"], "'a,b,c' is not a matrix product"),
        (["--gemm", "0,1,1"], "m is 0; choose 1 to 2147483647"),
        (["--gemm", "1,1,1", "--rows", "0"], "rows is 0; choose 1 to"),
        (["--gemm", "1,1,1", "--drain", "-1"], "drain cycles is -1; choose 0 to"),
        (["--gemm", "1,1,1", "--dataflow", "row"], "there is no dataflow 'row'; choose os, ws"),
    ],
)
def test_mistakes_are_told_in_a_sentence(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, error = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert message in error


def test_products_are_read_with_spaces() -> None:
    assert parse_product("196, 32, 72") == Product(196, 32, 72)
    with pytest.raises(InputError):
        parse_product("")
