# SPDX-License-Identifier: Apache-2.0
"""Tables and sentences of `uma sim MODEL`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from umakit.tools.columns import (
    UNKNOWN,
    Column,
    TextTable,
    count,
    known_count,
    known_percent,
    known_ratio,
)
from umakit.tools.energy.columns import NANOJOULES, energy_text
from umakit.tools.energy.picojoules import layer_energy
from umakit.tools.record import LayerRecord
from umakit.tools.sweeps.predict import PredictedNetwork
from umakit.tools.sweeps.sweep import Cost, Sweep, SweptMachine

FRONT = "*"
NOTE = "note"
COST_NAMES: dict[Cost, str] = {"cells": "cells", "scratchpad": "bytes of scratchpads"}


def network_table(network: PredictedNetwork) -> TextTable:
    """Return a table of a network's layers, with totals for the accelerator's layers."""
    columns = [
        Column("where", lambda layer: layer.where, is_text=True),
        Column("MACs", lambda layer: count(layer.macs),
               f"{sum(each.macs for each in network.run.offloaded):,}"),
        Column("cycles", lambda layer: known_count(layer.predicted_cycles),
               known_count(network.totals.predicted_cycles)),
        Column("/ bound", _own(_over_bound)),
        Column("bytes", _own(lambda layer: known_count(layer.predicted_bytes)),
               known_count(network.moved_bytes)),
        Column("utilisation",
               _own(lambda layer: _percent(layer.utilisation) if layer.macs else ""),
               _percent(network.utilisation)),
        Column("scratchpad", _own(lambda layer: known_count(layer.scratchpad_bytes)),
               known_count(network.largest_scratchpad_bytes)),
    ]  # fmt: skip
    if network.energy is not None:
        energy = _own(lambda layer: energy_text(layer_energy(layer)))
        columns.append(Column(NANOJOULES, energy, energy_text(network.accelerator_energy)))
    total = _total_label(network) if network.run.offloaded else ""
    return TextTable.of(network.layers, columns, total)


def _own(of: Callable[[LayerRecord], str]) -> Callable[[LayerRecord], str]:
    return lambda layer: "" if layer.on_cpu else of(layer)


def _over_bound(layer: LayerRecord) -> str:
    is_known = layer.predicted_cycles is not None and layer.bound
    return known_ratio((layer.predicted_cycles or 0) / (layer.bound or 1) if is_known else None)


def _total_label(network: PredictedNetwork) -> str:
    totals = network.totals
    if totals.predicted_layers == totals.layers:
        return "all on the accelerator"
    return f"on the accelerator ({totals.predicted_layers} of {totals.layers} predicted)"


def sweep_table(sweep: Sweep, simulate: bool) -> TextTable:
    """Return a table of the machines of a sweep, with the Pareto front marked.

    Args:
        simulate: whether the front's machines were simulated.
    """
    fixed = fixed_settings(sweep)
    keys = [key for key in sweep.machines[0].machine.settings if key not in fixed]
    columns = [
        *(_setting(key) for key in keys),
        Column("cycles", lambda each: known_count(each.machine.cycles)),
        Column("bytes", lambda each: known_count(each.machine.moved_bytes)),
        Column("offloaded", lambda each: _percent(each.machine.offloaded_share)),
        Column("cells", lambda each: known_count(each.machine.cells)),
        Column("scratchpad", lambda each: known_count(each.machine.scratchpad_bytes)),
    ]
    if any(each.machine.picojoules is not None for each in sweep.machines):
        columns.append(Column(NANOJOULES, _nanojoules))
    if simulate:
        columns += [
            Column("simulated", _simulated(lambda each: known_count(each.simulated.cycles))),
            Column("difference", _simulated(lambda each: known_percent(each.difference_percent))),
        ]
    numbers = {text: f"({number})" for number, text in enumerate(notes_of(sweep), start=1)}
    if numbers:
        columns.append(Column(NOTE, lambda each: numbers.get(_note(each, sweep), ""), is_text=True))
    return TextTable.of(
        sweep.machines, columns,
        name=lambda each: FRONT if each.on_front else "",
        style=lambda each: "bold green" if each.on_front else "",
    )  # fmt: skip


def _setting(key: str) -> Column:
    return Column(".\n".join(key.rsplit(".", 1)), lambda each: _value(each.machine.settings[key]))


def _nanojoules(each: SweptMachine) -> str:
    """Return a machine's energy; `>=` in front marks a lower bound."""
    if each.machine.picojoules is None:
        return UNKNOWN
    text = f"{each.machine.picojoules / 1000:,.3f}"
    return text if each.machine.energy_is_whole else f">= {text}"


def fixed_settings(sweep: Sweep) -> dict[str, object]:
    """Return the settings common to all machines; none for a single machine."""
    first, *others = [each.machine.settings for each in sweep.machines]
    if not others:
        return {}
    return {k: v for k, v in first.items() if all(each.get(k) == v for each in others)}


def notes_of(sweep: Sweep) -> list[str]:
    """Return notes on single machines, by their number in the table, counted from 1.

    A note gives the reason for missing cycles, or a remark of the machine's backend.
    """
    return list(dict.fromkeys(note for each in sweep.machines if (note := _note(each, sweep))))


def _note(each: SweptMachine, sweep: Sweep) -> str:
    if each.machine.refused:
        return f"refused: {each.machine.refused}"
    if each.simulated is not None and each.simulated.failed:
        return f"not simulated: {each.simulated.failed}"
    if each.machine.layers == 0:
        return "takes no layer"
    if each.machine.cycles is None:
        return f"{each.machine.predicted_layers} of {each.machine.layers} layers predicted"
    return "; ".join(n for n in each.machine.notices if n not in sweep.common_notices)


def _simulated(of: Callable[[Any], str]) -> Callable[[SweptMachine], str]:
    return lambda each: "" if each.simulated is None else of(each)


def _value(value: object) -> str:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return f"{value:,}" if is_number else _plain(value)


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _percent(value: float | None) -> str:
    return UNKNOWN if value is None else f"{100 * value:.1f} %"


def sweep_sentence(sweep: Sweep) -> str:
    """Return a sentence with the numbers of machines and of refused machines."""
    count, refused = len(sweep.machines), len(sweep.refused)
    text = f"{count} {'machine' if count == 1 else 'machines'}"
    fixed = [f"{key}={_plain(value)}" for key, value in fixed_settings(sweep).items()]
    text += f" with {', '.join(fixed)}" if fixed else ""
    text += f", {count - refused} predicted"
    return f"{text}, {refused} refused" if refused else text


def front_sentence(sweep: Sweep) -> str:
    costs = " and ".join(COST_NAMES[cost] for cost in sweep.costs)
    front = len(sweep.front)
    if not front:
        return f"No machine is on the front of cycles against {costs}: none has known figures"
    verb = "is" if front == 1 else "are"
    return f"{front} {verb} on the front of cycles against {costs} (marked {FRONT})"
