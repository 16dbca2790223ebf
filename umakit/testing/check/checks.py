# SPDX-License-Identifier: Apache-2.0
"""The checks of each batch that has run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from umakit.backend.registry import built_in_backend
from umakit.devices import HOST, Device
from umakit.errors import UmakitError
from umakit.partition.report import CPU
from umakit.registration.backend import Backend
from umakit.testing.check.batch import (
    Batch,
    Member,
    build_batch,
    by,
    member_at,
    member_of,
    member_of_layer,
    run_batch,
)
from umakit.testing.check.cases import Case, LayerSettings
from umakit.testing.check.claims import claims_of
from umakit.testing.check.report import Failure
from umakit.testing.check.runs import FIRST_FAULT, OTHER_DATA, Event, LayerRun, RoundRun, text_of
from umakit.testing.differences import compare

Layer = Mapping[str, Any]

WRITE_IT = (
    "let the device write the result, and count it; a layer that the driver computes on the CPU"
    " is none of the accelerator's"
)


def old_data_is_not_read(batch: Batch) -> list[Failure]:
    """Runs after other data and with other bytes in unused memory give the same results."""
    found = []
    for run in batch.of_rounds(OTHER_DATA, FIRST_FAULT):
        for _, member, observed in _of_members(batch, run):
            if observed.differs:
                what = f"a second run with the same inputs: {_differing(batch, member, observed)}"
                hint = "it reads memory that it has not written, or the accelerator keeps old data"
                found.append(_failure(member, what, hint))
            if observed.damaged:
                what = f"in run {run.number + 1} it writes {observed.damaged[0]}"
                found.append(_failure(member, what))
        if run.has_stopped:
            found += _stopped(batch, run, f"run {run.number + 1}", _error_before(batch, run))
    return found


def maps_its_own_buffers(batch: Batch) -> list[Failure]:
    """Drivers map only tensors of the layer, and not more bytes."""
    return [
        _failure(
            member, f"the driver maps {observed.mapped[0]}",
            "map the bytes of the layer's tensors: what the device may write, and a cache drops,"
            " can be another tensor's",
        )
        for run in batch.of_rounds(0, 1)
        for _, member, observed in _of_members(batch, run)
        if observed.mapped
    ]  # fmt: skip


def counters_are_consistent(batch: Batch) -> list[Failure]:
    """Counters and events of simulated devices agree with each other and with the layer."""
    sizes = _sizes(batch.library.metadata["umakit"])
    found = []
    known: dict[tuple[str, str], bool] = {}
    for run in batch.of_rounds(0, FIRST_FAULT):
        for layer, member, observed in _of_members(batch, run):
            counted = observed.counters.get(layer["where"])
            if counted is None:
                continue
            written = [sizes[name] for name in layer["outputs"] if name in sizes]
            problems = [
                *_unknown(layer["where"], counted, known),
                *wrong_counters(counted, layer["macs"], sum(written)),
                *wrong_events(observed.events, counted),
            ]
            found += [
                _failure(member, each, WRITE_IT if "bytes written" in each else "")
                for each in problems
            ]
    return found


def faults_are_noticed(batch: Batch) -> list[Failure]:
    """A fault of the device ends with a status or a right result, and the next run is right."""
    found: list[Failure] = []
    place = -1
    for run in batch.of_rounds(FIRST_FAULT):
        each = run.round
        place = each.layer if each.layer >= 0 else place
        member = member_of_layer(batch, place)
        if member is None or each.is_reversed:
            continue  # the device has other data; the last run has shown whether it works
        what = _ended_wrong(batch, run) if each.layer >= 0 else _next_wrong(batch, run)
        if what:
            words = "with" if each.layer >= 0 else "in the run after one with"
            found.append(_failure(member, f"{words} {text_of(each.fault)}, {what}"))
    return found


def _ended_wrong(batch: Batch, run: RoundRun) -> str:
    if run.status is None:
        return f"{batch.program.ended(run)} in {batch.program.place(run)}"
    if run.failure:
        return f"the simulator cannot go on: {run.failure}"
    if run.status != 0:
        return ""
    found = _first_difference(batch, run)
    return f"the run returns status 0, and {found}" if found else ""


def _next_wrong(batch: Batch, run: RoundRun) -> str:
    if run.status != 0:
        return f"{batch.program.ended(run)} in {batch.program.place(run)}"
    return _first_difference(batch, run)


def _first_difference(batch: Batch, run: RoundRun) -> str:
    found = ((m, observed) for _, m, observed in _of_members(batch, run) if observed.differs)
    return next((_differing(batch, *each) for each in found), "")


def _unknown(
    device: str,
    counted: Mapping[str, tuple[int | None, int | None]],
    known: dict[tuple[str, str], bool],
) -> Iterator[str]:
    for name, (before, after) in counted.items():
        for value in (before, after):
            is_known = value is not None
            if known.setdefault((device, name), is_known) != is_known:
                yield f"the counter {name} is known in one layer and unknown in another"
                return


def wrong_counters(
    counted: Mapping[str, tuple[int | None, int | None]], macs: int, written: int
) -> Iterator[str]:
    """Yield the mistakes of a layer's counters.

    Args:
        counted: values before and after the layer by name; None if unknown.
        written: bytes of its results in memory.
    """
    passed: dict[str, int] = {}
    for name, (before, after) in counted.items():
        if before is not None and after is not None:
            passed[name] = after - before
            if after < before:
                yield f"the counter {name} goes back from {before} to {after}"
    for part, whole in (
        ("busy_cycles", "clock"), ("compute_cycles", "busy_cycles"), ("dma_cycles", "busy_cycles"),
        ("compute_cycles", "clock"), ("dma_cycles", "clock"),
    ):  # fmt: skip
        if part in passed and whole in passed and passed[part] > passed[whole]:
            yield f"it counts {passed[part]} {part}, more than {passed[whole]} of {whole}"
    if macs and passed.get("macs") == 0:
        yield f"it counts no multiply-accumulates, and the layer has {macs}"
    if passed.get("bytes_written", written) < written:
        count = passed["bytes_written"]
        yield f"the device counts {count} bytes written; the result has {written}"
    if macs and passed.get("bytes_read") == 0:
        yield "it counts no bytes read"


def wrong_events(
    events: Sequence[Event], counted: Mapping[str, tuple[int | None, int | None]]
) -> Iterator[str]:
    """Yield the mistakes of a layer's events; `counted` as in `wrong_counters`."""
    before, after = counted["clock"]
    cycles = None if before is None or after is None else after - before
    last: dict[tuple[str, str], Event] = {}
    for event in sorted(events, key=lambda each: (each.begin, each.end_of_busy)):
        text = f"{event.engine} {event.label}".strip()
        if not event.begin <= event.end_of_busy <= event.end:
            yield (
                f"its event {text} begins at {event.begin}, is busy to {event.end_of_busy} and"
                f" ends at {event.end}"
            )
        if cycles is not None and event.end > cycles:
            yield f"its event {text} ends at cycle {event.end} of the layer, which takes {cycles}"
        earlier = last.get((event.device, event.engine))
        if earlier is not None and event.begin < earlier.end_of_busy:
            yield (
                f"its event {text} begins at cycle {event.begin}, while the engine is busy with"
                f" {earlier.label or 'another one'} to {earlier.end_of_busy}"
            )
        last[event.device, event.engine] = event


def _of_members(batch: Batch, run: RoundRun) -> Iterator[tuple[Layer, Member, LayerRun]]:
    for layer, observed in zip(_layers(batch), run.layers, strict=False):
        member = member_at(batch, layer["name"])
        if member is not None:
            yield layer, member, observed


def _layers(batch: Batch) -> Sequence[Layer]:
    layers: Sequence[Layer] = batch.library.metadata["umakit"]["layers"]
    return layers


def _stopped(batch: Batch, run: RoundRun, name: str, hint: str) -> list[Failure]:
    member = member_of_layer(batch, run.completed)
    if member is None:
        return []
    what = f"in {name} {batch.program.ended(run)} in {batch.program.place(run)}"
    return [_failure(member, what, hint)]


def _error_before(batch: Batch, run: RoundRun) -> str:
    """Return advice on a run that stops after an error in the device; may be empty."""
    layers = _layers(batch)
    layer = layers[run.completed]["where"] if run.completed < len(layers) else ""
    if not run.round.follows_error or layer not in batch.program.wrong_writes:
        return ""
    offset, value = batch.program.wrong_writes[layer]
    return (
        f"before this run 0x{value:X} was written to 0x{offset:03X}, which is read only: a driver"
        " clears errors that other software has left before it starts its own work"
    )


def _failure(member: Member, what: str, fix: str = "") -> Failure:
    return Failure(member.case.pattern, f"{member.title}: {what}", member.case, fix)


def _differing(batch: Batch, member: Member, observed: LayerRun) -> str:
    name, offset = observed.differs[0]
    for output in batch.library.metadata["umakit"]["outputs"]:
        if output["c_name"] == name:
            size = np.dtype(output["dtype"]).itemsize
            place = [int(axis) for axis in np.unravel_index(offset // size, output["shape"])]
            return f"element {place} of the result {by(output['shape'])} of {member.title} differs"
    return f"byte {offset} of {name} of {member.title} differs"


def _sizes(description: Mapping[str, Any]) -> dict[str, int]:
    """Return the byte sizes of all tensors in memory that layers write, by C name."""
    pools = description["memory"]["pools"]
    placed = [item for pool in pools for item in pool["tensors"]]
    return {item["c_name"]: item["size_bytes"] for item in [*description["outputs"], *placed]}


BatchCheck = Callable[[Batch], Sequence[Failure]]
"""Takes a batch that has run, and returns the failures of its members."""

NO_TEXT = ("", "the predicate returned False")


def results_are_right(batch: Batch) -> list[Failure]:
    """Every result equals the reference's."""
    failures = []
    for each in batch.members:
        if each.got is None or each.wanted is None or not each.ran:
            continue
        found = compare(each.got, each.wanted)
        if not found.agrees:
            what = (
                f"element {list(found.first)} of the result {by(each.wanted.shape)} is "
                f"{each.got[found.first]} instead of {each.wanted[found.first]}, "
                f"{found.differing} of {found.elements} are wrong"
            )
            failures.append(_failure(each, what))
    return failures


def nothing_else_changes(batch: Batch) -> list[Failure]:
    """A layer writes only its result."""
    return [
        _failure(each, f"it writes {each.damaged[0]}") for each in batch.members if each.damaged
    ]


def runs_end_well(batch: Batch) -> list[Failure]:
    """Drivers return the status 0, and the program does not crash."""
    return [_failure(each, each.stopped, each.hint) for each in batch.members if each.stopped]


def accepted_layers_run(batch: Batch) -> list[Failure]:
    """Accepted layers run on the accelerator; layers on the CPU have a reason."""
    found = []
    for each in batch.members:
        if each.ran:
            continue
        name = each.case.pattern
        reason = each.reasons[0] if each.reasons else "no operator of that kind is left"
        if each.accepted:
            what = f"the pattern accepts the layer, which runs on the {CPU}: {reason}"
            found.append(Failure(name, what, each.case))
        elif any(reason in NO_TEXT for reason in each.reasons):
            found.append(
                Failure(
                    name, "the layer is refused without a reason", each.case,
                    "let the predicate return a sentence instead of False",
                )
            )  # fmt: skip
    return found


BATCH_CHECKS: list[BatchCheck] = [
    runs_end_well,
    accepted_layers_run,
    results_are_right,
    nothing_else_changes,
    old_data_is_not_read,
    maps_its_own_buffers,
    counters_are_consistent,
]
"""Checks of every batch, in order; the first failure of a case is reported."""

LAST_CHECKS: list[BatchCheck] = [faults_are_noticed]
"""Checks of batches without failures: they compare further runs with the first one."""


OTHERS = {"vanilla_accelerator": "conv2d", "strawberry_accelerator": "qdense"}
"""Reference backends, with the pattern of a layer to run next to the tested backend's."""

MOST_CASES = 6


def fails_beside_another(
    backend: Backend, cases: Sequence[Case], folder: Path, device: Device = HOST
) -> list[Failure]:
    """Return the failures of a network with layers of two backends."""
    own = {claim.name: claim for claim in claims_of(backend)}
    free = [(name, pattern) for name, pattern in OTHERS.items() if pattern not in own]
    if not free:
        return []
    name, pattern = free[0]
    other = built_in_backend(name)
    claims = own | {claim.name: claim for claim in claims_of(other) if claim.name == pattern}
    theirs = Case((LayerSettings(pattern),))
    mixed = [*cases[: MOST_CASES // 2], theirs, *cases[MOST_CASES // 2 : MOST_CASES], theirs]
    members = [member_of(case, number, claims, True) for number, case in enumerate(mixed)]
    try:
        batch = build_batch(members, [backend, other], folder, device)
        run_batch(batch)
    except UmakitError as error:
        what = f"a network with {name} next to it does not work: {error}"
        return [Failure(cases[0].pattern, what, None, error.fix)]
    found = [*runs_end_well(batch), *results_are_right(batch)]
    fix = "alone it is right: do both define or change the same?"
    return [
        replace(each, what=f"next to {name} in one network: {each.what}", fix=fix) for each in found
    ]
