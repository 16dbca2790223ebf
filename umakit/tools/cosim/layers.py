# SPDX-License-Identifier: Apache-2.0
"""Layers of a co-simulation: division among processes, progress, and records."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from umakit.devices.cosimulation import Choice, CosimulationRun
from umakit.devices.designs import Design
from umakit.tools.cosim.result import CosimLayer

TOLD_FROM = 1 / 3
"""Share of the work after which the remaining time is reported: earlier, the start of the program
dominates."""


FIGURES = (
    "tiles model_cycles rtl_cycles model_access_cycles rtl_access_cycles compared_bytes "
    "register_reads register_writes waits"
).split()


def work_of(layer: Mapping[str, Any]) -> int:
    """Return the relative duration of a layer: predicted cycles, or multiplications."""
    return int(layer.get("predicted_cycles") or layer["macs"] or 1)


def parts_of(description: Mapping[str, Any], choice: Choice, jobs: int) -> list[Choice]:
    """Return a choice for each process, with layers of about equal total duration."""
    if choice.layers is None or jobs == 1:
        return [choice]
    described = description["layers"]

    def cost(number: int) -> int:
        return work_of(described[number])

    shares: list[list[int]] = [[] for _ in range(min(jobs, len(choice.layers)) or 1)]
    for number in sorted(choice.layers, key=cost, reverse=True):
        min(shares, key=lambda share: sum(map(cost, share))).append(number)
    return [replace(choice, layers=tuple(sorted(share))) for share in shares]


def layers_of(
    description: Mapping[str, Any],
    designs: Sequence[Design],
    chosen: Sequence[int] | None,
    progress: Callable[[str], None],
) -> Callable[[Mapping[str, Any]], None]:
    """Return a callback for records that reports progress, rate and remaining time."""
    described = description["layers"]
    answering = {design.backend for design in designs}
    numbers = [
        number
        for number, layer in enumerate(described)
        if layer["where"] in answering and (chosen is None or number in chosen)
    ]
    works = {number: work_of(described[number]) for number in numbers}
    started, lock = time.monotonic(), threading.Lock()
    done: dict[int, int] = {}

    def tell(record: Mapping[str, Any]) -> None:
        with lock:
            if "progress" in record:
                now = record["progress"]
                name = described[int(now["layer"])]["name"]
                progress(f"{name}: {int(now['rtl_cycles']):,} cycles of the RTL")
            number = record.get("layer")
            if not record.get("checked") or number not in works:
                return
            done[number] = done.get(number, 0) + int(record["rtl_cycles"] or 0)
            seconds = time.monotonic() - started
            rate = sum(done.values()) / seconds if seconds > 0 else 0
            share = sum(works[each] for each in done) / sum(works.values())
            left = f", about {seconds / share - seconds:,.0f} s left" if share >= TOLD_FROM else ""
            progress(
                f"{described[number]['name']}: {len(done)} of {len(numbers)} layers, "
                f"{rate:,.0f} cycles/s{left}"
            )

    return tell


def read_layers(
    description: Mapping[str, Any], runs: Sequence[CosimulationRun]
) -> tuple[CosimLayer, ...]:
    """Return the compared layers of runs, in order, without CPU steps."""
    found: dict[int, CosimLayer] = {}
    for run in runs:
        for record in run.layers:
            number = int(record["layer"])
            layer = description["layers"][number]
            if layer["where"] == "cpu" or record["backend"] != layer["where"]:
                continue
            checked = bool(record["checked"])
            if number in found and not checked:
                continue
            found[number] = CosimLayer(
                number=number,
                name=layer["name"],
                where=layer["where"],
                checked=checked,
                is_part=bool(record.get("detached")),
                stays=checked and not layer["outputs"],
                **{name: record.get(name) if checked else None for name in FIGURES},
            )
    return tuple(found[number] for number in sorted(found))
