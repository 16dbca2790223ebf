# SPDX-License-Identifier: Apache-2.0
"""Costs of single commands, beside loops over folds, rows and bursts, and SCALE-Sim."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path

import pytest
from comparisons import examples
from hypothesis import given
from hypothesis import strategies as st
from umakit.cli.main import run_command

from umakit.errors import AcceleratorConfigError, InputError
from umakit.machine.accelerator_config import AcceleratorConfig
from umakit.machine.bounds import lower_bound
from umakit.machine.costs import Cost
from umakit.machine.hardware import Hardware
from umakit.machine.systolic import Dataflow, Product

REFERENCE = Path(
    os.environ.get("UMAKIT_REFERENCE", Path(__file__).parents[2] / "shared" / "reference")
)
FIGURES = REFERENCE / "scalesim_cycles.csv"

SIZES = st.integers(1, 40)


def hardware(rows: int, columns: int, **features: object) -> Hardware:
    return Hardware(
        rows, columns, 4096, dataflows=tuple(Dataflow), depthwise=True, **features  # type: ignore[arg-type]
    )  # fmt: skip


def folds(dataflow: Dataflow, product: Product, device: Hardware) -> list[int]:
    """What moves through the array in each fold, by walking over the blocks of the product."""
    m, n, k = product.m, product.n, product.k
    rows, columns = device.rows, device.columns
    found = []
    if dataflow is Dataflow.OUTPUT_STATIONARY:
        for channel in range(0, n, columns):
            channels = min(columns, n - channel)
            groups = 1
            while device.pack_columns and channels < columns and (groups + 1) * channels <= columns:
                groups += 1
            found += [k for _ in range(0, m, rows * groups)]
    elif dataflow is Dataflow.WEIGHT_STATIONARY:
        for _ in range(0, k, rows):
            found += [m for _ in range(0, n, columns)]
    else:
        for _ in range(0, k, rows):
            found += [n for _ in range(0, m, columns)]
    return found


@examples(300)
@given(
    m=SIZES, n=SIZES, k=SIZES, rows=st.integers(1, 9), columns=st.integers(1, 9),
    drain=st.integers(0, 9), dataflow=st.sampled_from(list(Dataflow)), preload=st.booleans(),
    pack=st.booleans(), at_once=st.integers(1, 5),
)  # fmt: skip
def test_a_job_costs_what_its_folds_cost(
    m: int, n: int, k: int, rows: int, columns: int, drain: int, dataflow: Dataflow,
    preload: bool, pack: bool, at_once: int,
) -> None:  # fmt: skip
    device = hardware(rows, columns, drain_cycles=drain, preload=preload, pack_columns=pack,
                      preload_rows=at_once)  # fmt: skip
    product = Product(m, n, k)
    found = device.array_cost(dataflow, product)
    stays = 0 if dataflow is Dataflow.OUTPUT_STATIONARY else rows
    if preload:
        stays = len(range(0, stays, at_once))
    busy = 0
    for through in folds(dataflow, product, device):
        if preload:  # the next fold's operand that stays comes in beside
            busy += max(through, stays)
        else:
            busy += stays + through + rows + columns - 2 + drain
    tail = stays + rows + columns - 2 + drain if preload else 0
    assert found == Cost(busy, tail, m * n * k)
    assert found.cycles == busy + tail
    assert found.cycles * device.cells >= found.macs


def test_without_preload_jobs_cost_what_scale_sim_says() -> None:
    if not FIGURES.exists():
        if os.environ.get("UMAKIT_CI"):
            pytest.fail(f"there is no {FIGURES}; UMAKIT_REFERENCE names the folder")
        pytest.skip(f"there is no {FIGURES}; UMAKIT_REFERENCE names the folder")
    with FIGURES.open() as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        product = Product(*(int(row[name]) for name in "MNK"))
        device = hardware(int(row["array_rows"]), int(row["array_cols"]))
        found = device.array_cost(Dataflow.named(row["dataflow"]), product)
        assert (found.cycles, found.tail) == (int(row["scalesim_total_cycles"]) + 1, 0)


def test_depthwise_channels_lie_on_columns() -> None:
    # 8 channels of a 3 x 3 window on 16 columns: two groups of positions at a time.
    product = Product(100, 8, 9)
    flow = Dataflow.OUTPUT_STATIONARY
    plain = hardware(16, 16, preload=True).array_cost(flow, product, depthwise=True)
    packed = hardware(16, 16, preload=True, pack_columns=True).array_cost(
        flow, product, depthwise=True
    )
    assert (plain.busy, packed.busy) == (7 * 9, 4 * 9)


@examples(100)
@given(
    planes=st.integers(1, 4), rows=st.integers(1, 5), row_bytes=st.integers(1, 70),
    width=st.integers(1, 16), latency=st.integers(0, 20), burst=st.sampled_from([0, 1, 8, 64]),
)  # fmt: skip
def test_a_transfer_costs_what_its_rows_cost(
    planes: int, rows: int, row_bytes: int, width: int, latency: int, burst: int
) -> None:
    numbers = {"bytes_per_cycle": width, "latency_cycles": latency, "burst_bytes": burst}
    blocking = ahead = 0
    for _ in range(planes * rows):
        blocking += sum(latency for _ in range(0, row_bytes, burst or row_bytes))
        blocking += len(range(0, row_bytes, width))
        ahead += len(range(0, row_bytes, width))
    assert hardware(4, 4, **numbers).transfer_cost(planes, rows, row_bytes) == Cost(blocking, 0)
    outstanding = hardware(4, 4, outstanding=True, **numbers)
    assert outstanding.transfer_cost(planes, rows, row_bytes) == Cost(ahead, latency)


def test_a_pool_takes_lanes_of_channels() -> None:
    assert hardware(4, 4, pooling_lanes=8, preload=True).pool_cost(10, 9, 20) == Cost(270, 0)


def test_the_bound_is_the_larger_of_compute_and_memory() -> None:
    device = hardware(16, 16, bytes_per_cycle=8)
    bound = lower_bound(device, 256 * 100 + 1, {"data": 8 * 70 + 1})
    assert (bound.compute, bound.memory, bound.cycles) == (101, 71, 101)
    assert lower_bound(device, 256, {"data": 8 * 70}).cycles == 70


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: Hardware(4, 4, 64).array_cost(Dataflow.WEIGHT_STATIONARY, Product(1, 1, 1)),
            "the array cannot be weight_stationary; choose output_stationary",
        ),
        (
            lambda: Hardware(4, 4, 64).array_cost(
                Dataflow.OUTPUT_STATIONARY, Product(1, 1, 1), depthwise=True
            ),
            "no depthwise mode",
        ),
        (
            lambda: hardware(4, 4).array_cost(
                Dataflow.INPUT_STATIONARY, Product(1, 1, 1), depthwise=True
            ),
            "depthwise convolutions cannot be input_stationary",
        ),
        (lambda: Hardware(4, 4, 64).pool_cost(1, 1, 1), "no pooling stage"),
    ],
)  # fmt: skip
def test_what_the_hardware_cannot_do(call: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()  # type: ignore[operator]


def configuration(**sections: object) -> AcceleratorConfig:
    values = {
        "accelerator": {"name": "test"},
        "array": {"rows": 16, "columns": 8},
        "memory": [
            {
                "name": "scratchpad", "size": 4096, "banks": 8, "address": "offset",
                "reachable_by": ["accelerator"],
            }
        ],
        **sections,
    }  # fmt: skip
    return AcceleratorConfig.model_validate(values)


def test_hardware_is_what_the_configuration_says() -> None:
    config = configuration(
        array={
            "rows": 16, "columns": 8, "dataflows": ["weight_stationary", "output_stationary"],
            "drain_cycles": 3, "depthwise": True, "pooling_lanes": 5, "preload": True,
            "preload_rows": 3, "pack_columns": True, "accumulator_bytes": 1024,
        },
        dma={
            "bytes_per_cycle": 32, "latency_cycles": 7, "burst_bytes": 64, "alignment": 2,
            "outstanding": True,
        },
        device={"simulator": "systolic_array", "command_queue": 6, "completion": "polling"},
    )  # fmt: skip
    found = Hardware.of(config)
    assert found == Hardware(
        rows=16, columns=8, scratchpad_bytes=4096, scratchpad_banks=8,
        dataflows=(Dataflow.WEIGHT_STATIONARY, Dataflow.OUTPUT_STATIONARY), drain_cycles=3,
        preload=True, preload_rows=3, pack_columns=True, depthwise=True, pooling_lanes=5,
        accumulator_bytes=1024, bytes_per_cycle=32, latency_cycles=7, burst_bytes=64,
        outstanding=True, alignment=2, command_queue=6, completion="polling",
    )  # fmt: skip
    assert (found.bank_bytes, found.cells) == (512, 128)


def test_what_a_configuration_leaves_out_is_switched_off() -> None:
    assert Hardware.of(configuration()) == Hardware(16, 8, 4096, 8)


def test_tiles_need_a_scratchpad() -> None:
    with pytest.raises(AcceleratorConfigError, match="test: tiles need one scratchpad, not 0"):
        Hardware.of(configuration(memory=[]))


def test_uma_sim_overlaps_folds_and_packs_columns(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["sim", "--gemm", "100,8,9", "--rows", "16", "--cols", "16", "--json"]
    figures = []
    for options in ([], ["--preload"], ["--preload", "--pack-columns"]):
        assert run_command([*arguments, *options]) == 0
        found = json.loads(capsys.readouterr().out)
        figures.append((found["folds"], found["cycles"], found["tail_cycles"]))
    assert figures == [(7, 7 * 39, 0), (7, 7 * 9 + 30, 30), (4, 4 * 9 + 30, 30)]
