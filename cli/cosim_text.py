# SPDX-License-Identifier: Apache-2.0
"""Tables and sentences of `uma cosim`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from umakit.cli.tables import new_table

if TYPE_CHECKING:
    from umakit.tools.cosim import CosimDifference, CosimLayer, CosimResult


LEAST_NAME = 12
"""Minimum width of names of layers in columns."""

IN_SCRATCHPAD = "in scratchpad"
"""In place of the compared bytes of a layer that stores nothing."""

STAYS = (
    f"{IN_SCRATCHPAD}: a layer stores nothing there, and is compared with what a later one stores; "
    "--sample and --layers let each store its result."
)


PARTS = (
    "accesses, cycles and bytes: accesses are those of the whole layer, cycles those of its first "
    "tiles, in which the RTL took part, and bytes those of the buffers that these were compared in."
)


def layer_table(result: CosimResult, width: int) -> Any:
    """Return a table of the layers: cycles of model and RTL, and numbers of compared items.

    Args:
        result: the co-simulation.
        width: columns of the terminal; long layer names are shortened to fit.
    """
    parts = any(layer.is_part for layer in result.layers)
    right = ["model", "RTL", "difference", "accesses", "in cycles", "bytes"]
    right += ["tiles"] if parts else []
    rows = []
    for layer in result.layers:
        tiles = [_number(layer.tiles)] if parts else []
        where = layer.where if layer.checked else f"{layer.where} (model only)"
        rows.append([where, *_figures([layer]), *tiles])
    if len(result.layers) > 1:
        checked = [layer for layer in result.layers if layer.checked]
        rows.append(["", *_figures(checked), *([""] if parts else [])])
    columns = ["where", *right]
    others = sum(max(len(cell) for cell in cells) + 3 for cells in zip(columns, *rows, strict=True))
    names = shortened([layer.name for layer in result.layers], max(LEAST_NAME, width - others))
    table = new_table("layer", *columns, right=right)
    for name, row in zip(names, rows, strict=False):
        table.add_row(name, *row)
    if len(rows) > len(names):
        table.add_section()
        table.add_row("total", *rows[-1], style="bold")
    return table


def shortened(names: Sequence[str], width: int) -> list[str]:
    """Return names with long middles cut out; unchanged if two names would become equal.

    Args:
        width: maximum number of characters, at least 3.
    """
    begin = (width - 1) // 3
    end = width - 1 - begin
    short = [
        name if len(name) <= width else f"{name[:begin]}\N{HORIZONTAL ELLIPSIS}{name[-end:]}"
        for name in names
    ]
    return short if len(set(short)) == len(set(names)) else list(names)


def _figures(layers: Sequence[CosimLayer]) -> list[str]:
    model, rtl = _sum(layers, "model_cycles"), _sum(layers, "rtl_cycles")
    reads, writes = _sum(layers, "register_reads"), _sum(layers, "register_writes")
    off = None if model is None or not rtl else 100 * (model - rtl) / rtl
    return [
        _number(model),
        _number(rtl),
        "-" if off is None else f"{off:+.2f} %",
        _number(None if reads is None or writes is None else reads + writes),
        _number(_sum(layers, "rtl_access_cycles")),
        IN_SCRATCHPAD
        if layers and all(layer.stays for layer in layers)
        else _number(_sum(layers, "compared_bytes")),
    ]


def _sum(layers: Sequence[CosimLayer], name: str) -> int | None:
    figures = [getattr(layer, name) for layer in layers]
    return None if not figures or None in figures else sum(figures)


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def wave_sentence(difference: CosimDifference) -> str:
    """Return a sentence about the waveform of a difference."""
    facts = difference.facts
    gave_up = facts.get("gave_up_cycle")
    if (gave_up is None or difference.wave_cycles is None) and "written_cycle" not in facts:
        command = f"cycles {facts['first_cycle']:,} to {facts['last_cycle']:,}"
        if difference.kind == "failure":
            command = f"begins in cycle {facts['first_cycle']:,}"
            return (
                f"Wrote {difference.wave}: waveform up to the failure; the last command {command}"
            )
        return f"Wrote {difference.wave}: waveform of the layer; the last command is in {command}"
    assert difference.wave_cycles is not None
    first, last = difference.wave_cycles
    if "written_cycle" in facts:
        return (
            f"Wrote {difference.wave}: waveform of cycles {first:,} to {last:,}; the first wrong "
            f"write is in cycle {facts['written_cycle']:,}"
        )
    text = (
        f"Wrote {difference.wave}: waveform of cycles {first:,} to {last:,}; the last command "
        f"begins in cycle {facts['first_cycle']:,}, and the RTL was given up in cycle {gave_up:,}"
    )
    return f"{text}, which is too late for the file" if (gave_up or 0) > last else text


def verdict(result: CosimResult) -> list[str]:
    """Return the sentences under the table."""
    difference = result.difference
    stays = [STAYS] if any(layer.stays for layer in result.layers) else []
    stays += [PARTS] if any(layer.is_part for layer in result.layers) else []
    if difference is None:
        layers = sum(layer.checked for layer in result.layers)
        runs = "" if result.inferences == 1 else f" in {result.inferences} inferences"
        rate = result.cycles_per_second
        speed = "" if rate is None else f", {rate:,.0f} cycles a second"
        return [
            f"No difference in {layers} {'layer' if layers == 1 else 'layers'}{runs}; "
            f"{result.rtl_cycles:,} cycles of the RTL in {result.seconds:.1f} s{speed}",
            "Register accesses take as long as the bus of the RTL takes, in the model too."
            if result.equal_accesses
            else "Register accesses take another time in the model than on the bus of the RTL.",
            *stays,
        ]
    facts = difference.facts
    place = [f"layer {difference.layer}"]
    if facts.get("tile") is not None:
        place.append(f"tile {facts['tile']}")
    if facts.get("command") is not None:
        place.append(f"command {facts['command']}")
    if facts.get("access") is not None:
        place.append(f"register access {facts['access']}")
    if facts.get("register"):
        place.append(f"register {facts['register']}")
    lines = [f"First difference: {', '.join(place)}", f"  {difference.sentence}"]
    lines += _place_in_memory(facts)
    writes = facts.get("last_writes") or []
    if writes:
        names = facts.get("last_write_names") or [None] * len(writes)
        shown = ", ".join(
            f"{name or f'0x{int(offset):x}'} = 0x{int(value):x}"
            for name, (offset, value) in [*zip(names, writes, strict=True)][-4:]
        )
        lines.append(f"  last writes of registers: {shown}")
    return lines


def _place_in_memory(facts: Mapping[str, Any]) -> list[str]:
    """Return a line about the differing buffer and element, and the cycles of their writes.

    Empty if the difference is not in memory.
    """
    if "buffer_bytes" not in facts:
        return []
    names = facts.get("pointer_names") or []
    text = f"the buffer that {' and '.join(names)} point{'s' * (len(names) == 1)} to"
    text = text if names else "the buffer"
    if "written_cycle" in facts:
        text += f": byte {facts['written_byte']:,} was written wrong first"
        text += f", in cycle {facts['written_cycle']:,}"
    elif "written_byte" in facts:
        text += ": the RTL never wrote the bytes that differ"
    else:
        text += f": byte {facts['byte']:,} is wrong"
    if "element" in facts:
        shape = "x".join(map(str, facts["shape"]))
        text += f"; it is in element {facts['element']} of the result {shape}"
    return [f"  {text}"]
