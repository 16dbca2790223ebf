# SPDX-License-Identifier: Apache-2.0
"""Tables and sentences of `uma cosim`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from umakit.cli.tables import new_table

if TYPE_CHECKING:
    from umakit.tools.cosim import CosimDifference, CosimLayer, CosimResult


def layer_table(result: CosimResult) -> Any:
    """Return a table of the layers: cycles of model and RTL, and what was compared."""
    right = ("model", "RTL", "model is off", "accesses", "bytes compared", "tiles")
    table = new_table("layer", "where", *right, right=right)
    for layer in result.layers:
        table.add_row(*_row(layer))
    if len(result.layers) > 1:
        table.add_section()
        table.add_row(*_total(result))
    return table


def _row(layer: CosimLayer) -> list[str]:
    accesses = None
    if layer.register_reads is not None and layer.register_writes is not None:
        accesses = layer.register_reads + layer.register_writes
    percent = layer.difference_percent
    tiles = "-" if layer.tiles is None else f"{layer.tiles}{' (first)' if layer.is_part else ''}"
    return [
        layer.name,
        layer.where if layer.checked else f"{layer.where} (model only)",
        _number(layer.model_cycles),
        _number(layer.rtl_cycles),
        "-" if percent is None else f"{percent:+.2f} %",
        _number(accesses),
        _number(layer.compared_bytes),
        tiles,
    ]


def _total(result: CosimResult) -> list[str]:
    checked = [layer for layer in result.layers if layer.checked]
    model = sum(layer.model_cycles or 0 for layer in checked)
    rtl = sum(layer.rtl_cycles or 0 for layer in checked)
    accesses = sum((each.register_reads or 0) + (each.register_writes or 0) for each in checked)
    return [
        "total",
        "",
        f"{model:,}",
        f"{rtl:,}",
        f"{100 * (model - rtl) / rtl:+.2f} %" if rtl else "-",
        f"{accesses:,}",
        f"{sum(layer.compared_bytes or 0 for layer in checked):,}",
        "",
    ]


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def window(difference: CosimDifference) -> str:
    """Return the cycles of a difference's window."""
    facts = difference.facts
    return f"{int(facts['first_cycle']):,} to {int(facts['last_cycle']):,} of the RTL"


def verdict(result: CosimResult) -> list[str]:
    """Return the sentences under the table."""
    difference = result.difference
    if difference is None:
        layers = sum(layer.checked for layer in result.layers)
        runs = "" if result.inferences == 1 else f" in {result.inferences} inferences"
        rate = result.cycles_per_second
        speed = "" if rate is None else f", {rate:,.0f} cycles a second"
        return [
            f"No difference in {layers} {'layer' if layers == 1 else 'layers'}{runs}; "
            f"{result.rtl_cycles:,} cycles of the RTL in {result.seconds:.1f} s{speed}"
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
    writes = facts.get("last_writes") or []
    if writes:
        shown = ", ".join(f"0x{int(o):x} = 0x{int(v):x}" for o, v in writes[-4:])
        lines.append(f"  last writes of registers: {shown}")
    return lines
