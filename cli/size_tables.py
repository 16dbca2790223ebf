# SPDX-License-Identifier: Apache-2.0
"""The output of `uma size`: a table, and notes below the table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from umakit.cli.tables import Table, text_table

from umakit.tools.columns import Column, TextTable, count

if TYPE_CHECKING:
    from umakit.tools.size import LibrarySize


def size_table(sizes: LibrarySize) -> Table:
    """Return a table of the sizes of each layer and of the whole library, in bytes."""
    columns = (
        Column("where", lambda layer: layer.where, is_text=True),
        Column("code B", lambda layer: count(layer.own_text_bytes)),
        Column("constants B", lambda layer: count(layer.constants_bytes)),
        Column("arena B", lambda layer: count(layer.arena_bytes)),
        Column("stack B", lambda layer: _stack(layer.stack_bytes)),
    )
    table = text_table("layer", TextTable.of(sizes.layers, columns))
    for where, common in sizes.common_text_bytes.items():
        table.add_row("code that layers share", where, f"{common:,}")
    table.add_row("run functions, status texts", "", f"{sizes.shared_text_bytes:,}")
    table.add_section()
    others = (sizes.text_bytes, sizes.constants_bytes, sizes.arena_bytes)
    table.add_row("total", "", *map(count, others), _stack(sizes.stack_bytes), style="bold")
    return table


def size_notes(sizes: LibrarySize) -> list[str]:
    """Return notes on what the table omits, one line each."""
    lines = [f"compiled with {sizes.compiler}"]
    parts = [(f"of {key.rpartition(':')[2]}", size) for key, size in sizes.stack_chain.items()]
    deepest = max(sizes.layers, key=lambda layer: layer.stack_bytes or 0, default=None)
    if parts and deepest and sizes.stack_bytes == parts[0][1] + (deepest.stack_bytes or 0):
        parts[1:] = [(f"of {deepest.name}", deepest.stack_bytes or 0)]
    if parts:
        added = " + ".join(f"{size:,} {of}" for of, size in parts)
        lines.append(f"stack: {sizes.stack_bytes:,} B = {added}")
    if sizes.stack_findings:
        lines += [f"stack not bounded: {finding}" for finding in sizes.stack_findings]
    elif sizes.stack_external_calls:
        names = ", ".join(sizes.stack_external_calls)
        lines.append(f"stack: plus what the deepest of these needs: {names}")
    lost = [layer.name for layer in sizes.layers if layer.kernel and not layer.text_bytes]
    if lost:
        lines.append(
            f"no code of their own: {', '.join(lost)}; the compiler removed the kernel or put it "
            "into its caller, whose code is in run functions"
        )
    others = []
    if sizes.read_only_bytes:
        others.append(f"{sizes.read_only_bytes:,} B of strings, tables and padding")
    if sizes.static_bytes:
        others.append(f"{sizes.static_bytes:,} B of variables")
    if others:
        lines.append(f"also: {', '.join(others)}")
    if sizes.simulator_text_bytes:
        with_simulator = sizes.stack_with_simulator_bytes
        stack = f"; with it the stack is {with_simulator:,} B" if with_simulator else ""
        lines.append(f"not counted: {sizes.simulator_text_bytes:,} B of simulator code{stack}")
    return lines


def _stack(value: int | None) -> str:
    return "?" if value is None else count(value)
