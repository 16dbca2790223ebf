# SPDX-License-Identifier: Apache-2.0
"""What `uma check` looks at in runs besides results: memory, old data, counters, faults."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from umakit import find_backend
from umakit.errors import TooLargeError
from umakit.testing import check_layer
from umakit.testing.check.batch import Batch, Member
from umakit.testing.check.cases import Case, read_case
from umakit.testing.check.checks import wrong_counters, wrong_events
from umakit.testing.check.report import CheckReport, Counts, Failure
from umakit.testing.check.runs import FAULTS, Event, planned_rounds, text_of
from umakit.testing.check.session import Session, outcome_of

ROOT = Path(__file__).parents[1]
STRAWBERRY = "strawberry_accelerator"
MAPPED = "umakit_device_map(device, memory, (size_t)bytes, direction, &bus_address)"
ROW = "OFFSET(DMA_ROW_BYTES), bytes)"
LATER = "bytes + (direction == UMAKIT_FROM_DEVICE ? 1u : 0u)"

BUGS = {
    "writes one byte more than it mapped": (
        [(ROW, f"OFFSET(DMA_ROW_BYTES), {LATER})")],
        "qdense of 1x3: the run stopped with status 3: address or size out of range in layer 0",
    ),
    "maps one byte more than the result has": (
        [(MAPPED, MAPPED.replace("(size_t)bytes", "(size_t)bytes + 1u"))],
        "the driver maps bytes 0 to 3 to read of input case0_0_0, which has 3 bytes",
    ),
    "maps and writes one byte more": (
        [
            (MAPPED, MAPPED.replace("(size_t)bytes", f"(size_t){LATER}")),
            (ROW, f"OFFSET(DMA_ROW_BYTES), {LATER})"),
        ],
        "it writes byte 0 behind output",
    ),
    "keeps data of the run before": (
        [
            (
                "    return copy(source, scratchpad_offset, bytes, UMAKIT_TO_DEVICE);",
                "    static int is_there;\n"
                "    return is_there++ > 9 ? UMAKIT_OK"
                " : copy(source, scratchpad_offset, bytes, UMAKIT_TO_DEVICE);",
            )
        ],
        "a second run with the same inputs: element [0, 0] of the result 1x2",
    ),
    "does not clear an error that was there": (
        [("MASK(CONTROL_CLEAR) | engine->start", "engine->start")],
        "in run 3 the run stopped with status 2: no such register, or not with this access",
    ),
    "takes a copy that stopped for a whole one": (
        [("        if (left != 0u) {", "        if (left != 0u && engine != &dma_engine) {")],
        "and says that it is done, the run returns status 0, and element [0, 0]",
    ),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_driver_is_caught_that(bug: str, tmp_path: Path) -> None:
    edits, wanted = BUGS[bug]
    copy = tmp_path / STRAWBERRY
    shutil.copytree(ROOT / "backends" / STRAWBERRY, copy)
    driver = copy / f"{STRAWBERRY}.c"
    text = driver.read_text(encoding="utf-8")
    for old, new in edits:
        assert text.count(old) == 1
        text = text.replace(old, new)
    driver.write_text(text, encoding="utf-8")
    report = check_layer(find_backend(str(copy)), "qdense outputs=2 inputs=3 seed=3")
    assert report.failures and wanted in report.failures[0].what


def test_the_unmodified_driver_passes_all_of_them() -> None:
    report = check_layer(find_backend(STRAWBERRY), "qdense outputs=2 inputs=3 seed=3")
    assert report.passed, report.failures


class Small(Session):
    """A device for as many layers together as their seeds add up to."""

    def __init__(self, room: int) -> None:
        self.room, self.builds = room, 0

    def batch_of(
        self, cases: Sequence[tuple[Case, bool]], timeout: float | None = None
    ) -> tuple[Batch, list[Failure]]:
        self.builds += 1
        if sum(each.layers[0].seed for each, _ in cases) > self.room:
            raise TooLargeError("the program is too large")
        one = np.zeros(1)
        members = [
            Member(each, [], number, {}, True, ran=True, got=one)
            for number, (each, _) in enumerate(cases)
        ]
        return cast(Batch, SimpleNamespace(members=members)), []


@given(st.lists(st.integers(0, 12), max_size=40), st.integers(0, 30))
def test_what_does_not_fit_leaves_the_others_alone(seeds: list[int], room: int) -> None:
    cases = [(read_case(f"qdense seed={seed}"), True) for seed in seeds]
    outcome = outcome_of(Small(room), cases)
    too_large = sum(seed > room for seed in seeds)
    assert len(outcome.does_not_fit) == too_large
    assert len(outcome.ran) == len(seeds) - too_large
    assert not outcome.failures and not outcome.not_run


def test_a_report_says_what_was_not_run() -> None:
    report = CheckReport("npu", 0, {"qconv2d": Counts(9, 0, 1, 0, not_run=8)})
    assert "8 of 9 drawn layers were not run" in report.left_out
    assert "qconv2d 8" in report.left_out
    assert "<skipped" in report.as_junit()
    assert report.as_json()["operators"]["qconv2d"]["not_run"] == 8


KNOWN = {
    "clock": (100, 200), "busy_cycles": (50, 140), "compute_cycles": (10, 60),
    "dma_cycles": (40, 80), "macs": (0, 64), "bytes_read": (0, 20), "bytes_written": (0, 8),
}  # fmt: skip


@pytest.mark.parametrize(
    "name, values, wanted",
    [
        ("clock", (200, 100), "goes back from 200 to 100"),
        ("busy_cycles", (0, 101), "101 busy_cycles, more than 100 of clock"),
        ("dma_cycles", (0, 95), "95 dma_cycles, more than 90 of busy_cycles"),
        ("macs", (7, 7), "no multiply-accumulates"),
        ("bytes_written", (0, 7), "7 bytes written; the result has 8"),
        ("bytes_read", (3, 3), "no bytes read"),
        ("macs", (None, None), ""),
        ("clock", (None, None), ""),
    ],
)
def test_counters_that_cannot_be_are_found(
    name: str, values: tuple[int | None, int | None], wanted: str
) -> None:
    assert list(wrong_counters(KNOWN, 64, 8)) == []
    found = " ".join(wrong_counters({**KNOWN, name: values}, 64, 8))
    assert wanted in found and bool(found) == bool(wanted)


def test_events_that_cannot_be_are_found() -> None:
    first, second = Event("a", "dma", "load", 0, 10, 20), Event("a", "dma", "store", 10, 20, 30)
    other = Event("a", "array", "products", 5, 15, 15)
    assert list(wrong_events([first, second, other], KNOWN)) == []
    for event, wanted in (
        (Event("a", "dma", "store", 9, 20, 30), "while the engine is busy with load to 10"),
        (
            Event("a", "dma", "store", 10, 20, 101),
            "ends at cycle 101 of the layer, which takes 100",
        ),
        (Event("a", "dma", "store", 20, 10, 30), "begins at 20, is busy to 10 and ends at 30"),
    ):
        (found,) = wrong_events([first, event], KNOWN)
        assert wanted in found


def test_every_kind_of_fault_is_tried_in_every_layer_of_a_case() -> None:
    layers = [{"where": name, "macs": 9} for name in ("cpu", "npu", "npu")]
    tried = {(each.layer, each.fault) for each in planned_rounds(layers, ["npu"], 1)}
    assert tried >= {(layer, fault) for layer in (1, 2) for fault in FAULTS}
    assert {fault.kind for fault in FAULTS} == {1, 2, 3, 4, 5}
    assert len({text_of(fault) for fault in FAULTS}) == len(FAULTS)
    batched = planned_rounds(layers * 50, ["npu"], 100)
    assert {each.fault.kind for each in batched if each.layer >= 0} == {1, 2, 3, 4, 5}
    assert planned_rounds(layers, [], 1)[-1].device == ""


def test_long_runs_are_repeated_less_often() -> None:
    short, long = (
        planned_rounds([{"where": "npu", "macs": macs}] * 50, ["npu"], 50)
        for macs in (10, 1_000_000)
    )
    assert len(short) > len(long) > 3
    assert len(planned_rounds([{"where": "npu", "macs": 10**9}] * 50, ["npu"], 50)) == 3
