# SPDX-License-Identifier: Apache-2.0
"""`uma check` of drivers whose layers stop a run: what each layer gets does not depend on the load,
and what has a result does not run again."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from busy import busy_machine
from hypothesis import given
from hypothesis import strategies as st

from umakit import find_backend
from umakit.testing import check_backend, check_layer
from umakit.testing.check import backend_check, rounds, session
from umakit.testing.check.cases import read_case
from umakit.testing.check.resumption import MOST_LATE, Resumption
from umakit.testing.check.rounds import Rounds
from umakit.testing.check.runs import FIRST_FAULT, LayerRun, Round, RoundRun
from umakit.testing.check.session import outcome_of

ROOT = Path(__file__).parents[1]
STRAWBERRY = "strawberry_accelerator"
COPY = "    return copy(source, scratchpad_offset, bytes, UMAKIT_TO_DEVICE);"

PLANTED = {
    11: ("return UMAKIT_BUS_ERROR;", "the run stopped with status 8"),
    13: ("abort();", "signal 6"),
    17: ("for (;;) {}", "did not end within 0.7 s of processor time"),
    19: ("pause();", "hangs: it used no processor time for 0.7 s"),
    23: ("if (fork() == 0) { for (;;) {} } wait(NULL);", "did not end within"),
}
"""What a copy into the device does by its bytes, and what is reported of the layer with as many."""

SIZES = (3, 11, 5, 13, 6, 17, 7, 10)
OTHERS = (3, 19, 4, 23, 9, 17, 8)
NOT_RUN = {9, 17, 8}
"""Of `OTHERS`: layers behind as many as may exceed a limit, of the same pattern."""


PLANTED_TEXT = "".join(
    f"    if (bytes == {size}) {{ {does} }}\n" for size, (does, _) in PLANTED.items()
)


def planted(folder: Path, does: str = PLANTED_TEXT) -> Path:
    """Write a backend whose driver does something before each copy into the device."""
    copy = folder / STRAWBERRY
    shutil.copytree(ROOT / "backends" / STRAWBERRY, copy)
    driver = copy / f"{STRAWBERRY}.c"
    text = driver.read_text(encoding="utf-8")
    assert text.count(COPY) == 1
    headers = "#include <stdlib.h>\n#include <sys/wait.h>\n#include <unistd.h>\n"
    driver.write_text(headers + text.replace(COPY, does + COPY), encoding="utf-8")
    return copy


def text_of(size: int) -> str:
    return f"qdense outputs=2 inputs={size} seed=3"


def test_layers_that_stop_a_run_are_named_on_a_busy_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "LAYER_SECONDS", 0.7)
    backend = find_backend(planted(tmp_path))
    with busy_machine():
        for sizes, not_run in ((SIZES, set()), (OTHERS, NOT_RUN)):
            one = session.Session(backend, tmp_path / str(sizes[1]))
            outcome = outcome_of(one, [(read_case(text_of(size)), True) for size in sizes])
            failures = {str(each.case): each.what for each in outcome.failures}
            wrong = [size for size in sizes if size in PLANTED and size not in not_run]
            assert list(failures) == [text_of(size) for size in wrong]
            for size in wrong:
                layer = f"in layer {sizes.index(size)}, case{sizes.index(size)}_"
                assert PLANTED[size][1] in failures[text_of(size)]
                assert layer in failures[text_of(size)]
            assert len(outcome.ran) == len(sizes) - len(not_run)
            assert len(outcome.not_run) == len(not_run)


def test_a_check_says_the_same_at_any_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "LAYER_SECONDS", 0.7)
    monkeypatch.setattr(backend_check, "reduced", lambda group, *_: group.failures[0])
    backend = find_backend(
        planted(tmp_path, "if (bytes % 4 == 3) { abort(); } if (bytes % 8 == 5) { for (;;) {} }")
    )
    found = []
    for load in (nullcontext(), busy_machine()):
        with cast("AbstractContextManager[None]", load):
            report = check_backend(backend, operators=["qdense"], draws=20, seconds=3600.0)
        found.append((report.passed, report.operators, report.failures))
    assert found[0] == found[1]
    whats = " ".join(each.what for each in found[0][2])
    counts = found[0][1]["qdense"]
    assert "signal 6" in whats and counts.failed > 1
    assert sum(each.layers for each in found[0][2]) + counts.not_examined == counts.failed


def test_cycles_are_those_of_buffers_at_begins_of_pages(tmp_path: Path) -> None:
    """As those of `uma report`, also where a copy takes a cycle for each word that it touches."""
    copy = tmp_path / "lane_npu"
    shutil.copytree(ROOT / "examples" / "lane_npu", copy)
    model = copy / "simulator" / "transfer.cc"
    text = model.read_text(encoding="utf-8")
    words = "divided_up(row_bytes, CHANNELS[channel].width)"
    assert text.count(words) == 1
    touched = words.replace("(row_bytes", "(address % CHANNELS[channel].width + row_bytes")
    model.write_text(text.replace(words, touched), encoding="utf-8")
    report = check_layer(find_backend(copy), "qdense outputs=32 inputs=64 seed=1")
    assert report.passed and report.cycles.layers == report.cycles.exact == 1


class Scripted:
    """A program whose cases do in each round without a fault what a table says.

    Attributes:
        ran: how often a layer ran in a round, by case, layer and number of the round.
    """

    def __init__(self, cases: list[int | None], table: Mapping[tuple[int, int], str]) -> None:
        self.cases, self.table = cases, table
        self.ran: Counter[tuple[int, int]] = Counter()

    def run(
        self,
        inputs: Mapping[str, Any],
        rounds: Mapping[int, Round],
        left_out: Collection[int] = (),
        known: Mapping[str, Any] | None = None,
        timeout: float | None = None,
    ) -> list[RoundRun]:
        assert (0 in rounds) != bool(known)
        found: list[RoundRun] = []
        for number, each in rounds.items():
            run = RoundRun(number, each, status=0)
            found.append(run)
            for layer, case in enumerate(self.cases):
                if layer in left_out:
                    run.layers.append(LayerRun())
                    run.completed += 1
                    continue
                self.ran[layer, number] += 1
                does = self.table.get((case if case is not None else -1, number), "")
                if number == 2 and does == "error" and not each.follows_error:
                    does = ""
                if does:
                    run.status = 3 if does in ("status", "error") else None
                    run.is_late = does == "late"
                    return found
                run.layers[-1].outputs[f"result{layer}"] = np.zeros(1, np.uint8)
                run.layers.append(LayerRun())
                run.completed += 1
        return found


ENDS = st.sampled_from(["", "", "", "status", "crash", "late"])


@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=12),
    st.lists(st.tuples(ENDS, ENDS, ENDS), min_size=7, max_size=7),
    st.integers(0, 7),
)
def test_each_case_has_results_or_stopped_and_runs_no_more_than_needed(
    cases: list[int], ends: list[tuple[str, str, str]], after_error: int
) -> None:
    table = {(case, number): does for case, row in enumerate(ends)
             for number, does in enumerate(row)}  # fmt: skip
    if not table.get((after_error, 2)):
        table[after_error, 2] = "error"
    planned = [Round(1), Round(2, is_reversed=True), Round(3, follows_error=True)]
    planned += [Round(4, device="npu")] * 3
    program = Scripted(cast("list[int | None]", cases), table)
    patterns = [[f"pattern{case % 2}"] for case in range(7)]
    resumption = Resumption(cast(Rounds, program), {}, program.cases, patterns, planned)
    resumption.run()

    numbers = [run.number for run in resumption.runs]
    stopping = {
        (cases[run.completed], run.number)
        for run in resumption.runs if run.has_stopped and not run.round.follows_error
    }  # fmt: skip
    late = Counter(patterns[case][0] for case, number in stopping if table[case, number] == "late")
    last = {case: layer for layer, case in enumerate(cases)}
    for case in set(cases):
        stop = next((number for number in range(3) if table.get((case, number)) not in
                     (None, "", "error")), None)  # fmt: skip
        given_up = late[patterns[case][0]] >= MOST_LATE
        done = [
            any(run.number == number and (not run.has_stopped or run.completed > last[case])
                and len(run.layers) > last[case] for run in resumption.runs)
            for number in range(3)
        ]  # fmt: skip
        if stop is None:
            assert all(done) or given_up
        else:
            assert (case, stop) in stopping or given_up
    if not stopping:
        assert set(numbers) == set(range(len(planned))) and FIRST_FAULT in numbers
    else:
        assert max(numbers) < FIRST_FAULT
    # In the first round, nothing runs twice but cases of several layers that began before a stop.
    for layer, case in enumerate(cases):
        if cases.count(case) == 1:
            assert program.ran[layer, 0] <= 1
