# SPDX-License-Identifier: Apache-2.0
"""Tables and sentences of `uma sim MODEL`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from umakit.cli.tables import UNKNOWN, Table, known_count, new_table

if TYPE_CHECKING:
    from umakit.tools.record import LayerRecord
    from umakit.tools.sweeps import PredictedNetwork, Sweep, SweptMachine

FRONT = "*"
NANOJOULES = "nJ"
NARROWEST_NAME = 16
"""Minimum width of the names of layers in columns of the terminal."""

COST_NAMES = {"cells": "cells", "scratchpad": "bytes of scratchpads"}


def network_table(network: PredictedNetwork) -> Table:
    """Return a table of a network's layers, with totals for the accelerator's layers."""
    from umakit.tools.energy.columns import energy_text
    from umakit.tools.energy.picojoules import layer_energy

    right = ["MACs", "cycles", "/ bound", "bytes", "utilisation", "scratchpad"]
    has_energy = network.energy is not None
    right += [NANOJOULES] if has_energy else []
    table = new_table("layer", "where", *right, right=right)
    table.columns[0].min_width = NARROWEST_NAME
    for layer in network.layers:
        cells = _layer_cells(layer)
        if has_energy:
            cells.append("" if layer.on_cpu else energy_text(layer_energy(layer)))
        table.add_row(layer.name, layer.where, *cells)
    if network.offloaded:
        table.add_section()
        table.add_row(
            _total_label(network), "",
            f"{sum(each.macs for each in network.offloaded):,}",
            known_count(network.totals.predicted_cycles),
            "",
            known_count(network.moved_bytes),
            _percent(network.utilisation),
            known_count(network.largest_scratchpad_bytes),
            *([energy_text(network.accelerator_energy)] if has_energy else []),
            style="bold",
        )  # fmt: skip
    return table


def _total_label(network: PredictedNetwork) -> str:
    totals = network.totals
    if totals.predicted_layers == totals.layers:
        return "all on the accelerator"
    return f"on the accelerator ({totals.predicted_layers} of {totals.layers} predicted)"


def _layer_cells(layer: LayerRecord) -> list[str]:
    macs = f"{layer.macs:,}" if layer.macs else ""
    if layer.on_cpu:
        return [macs, UNKNOWN, "", "", "", ""]
    ratio = UNKNOWN
    if layer.predicted_cycles is not None and layer.bound:
        ratio = f"{layer.predicted_cycles / layer.bound:.3f}"
    return [
        macs,
        known_count(layer.predicted_cycles),
        ratio,
        known_count(layer.predicted_bytes),
        _percent(layer.utilisation) if layer.macs else "",
        known_count(layer.scratchpad_bytes),
    ]


def sweep_table(sweep: Sweep, simulate: bool) -> Table:
    """Return a table of the machines of a sweep, with the Pareto front marked.

    Args:
        simulate: whether the front's machines were simulated.
    """
    fixed = fixed_settings(sweep)
    keys = [key for key in sweep.machines[0].machine.settings if key not in fixed]
    headers = [".\n".join(key.rsplit(".", 1)) for key in keys]
    right = [*headers, "cycles", "bytes", "offloaded", "cells", "scratchpad"]
    has_energy = any(each.machine.picojoules is not None for each in sweep.machines)
    right += [NANOJOULES] if has_energy else []
    right += ["simulated", "difference"] if simulate else []
    numbers = {text: number for number, text in enumerate(notes_of(sweep), start=1)}
    table = new_table("", *right, *(["note"] if numbers else []), right=right)
    for column in table.columns:
        if column.header in ("", "note"):  # short columns, worthless if cut
            column.min_width = max(len(FRONT), len(str(column.header)))
    for each in sweep.machines:
        machine = each.machine
        cells = [
            *(_value(machine.settings[key]) for key in keys),
            known_count(machine.cycles),
            known_count(machine.moved_bytes),
            _percent(machine.offloaded_share),
            known_count(machine.cells),
            known_count(machine.scratchpad_bytes),
        ]
        cells += [_nanojoules(each)] if has_energy else []
        cells += _simulated(each) if simulate else []
        style = "bold green" if each.on_front else ""
        number = numbers.get(_note(each, sweep))
        note = [f"({number})" if number else ""] if numbers else []
        table.add_row(FRONT if each.on_front else "", *cells, *note, style=style)
    return table


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


def _simulated(each: SweptMachine) -> list[str]:
    if each.simulated is None:
        return ["", ""]
    off = each.difference_percent
    return [known_count(each.simulated.cycles), UNKNOWN if off is None else f"{off:+.2f} %"]


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
