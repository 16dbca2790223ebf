# SPDX-License-Identifier: Apache-2.0
"""`uma size`: code, data and stack sizes of a compiled library on a device."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from umakit.cli.console import console, print_json, progress, say_notices, say_wrapped
from umakit.cli.options import DEVICE_NAMES, ChosenCpuOption, device_of_library
from umakit.cli.tables import Table, text_table

from umakit.cpu.description import GENERIC
from umakit.devices import find_device
from umakit.tools.columns import Column, TextTable, count

if TYPE_CHECKING:
    from umakit.tools.size import LibrarySize

HELP = """Code, constants, arena and stack of a compiled library, layer by layer.

The library is compiled with the flags of its CPU and -Os, or the -O that CC has. "code" of a \
layer is its kernel and what only this layer calls; rows below the layers have the code that \
several layers share. "arena" is what is alive while the layer runs, "stack" the worst case from \
its kernel down. The total's stack is that of tvmgen_NAME_run_unpacked; a line below the table \
adds it up. Interrupts come on top, and so do code and stack of the functions named below the \
table. The simulator's code is not part of the total, because a board leaves it out.

The stack needs gcc 10 or later; CC chooses the host's compiler."""


def size(
    library: Annotated[
        Path,
        typer.Argument(
            help="What `uma compile` wrote, or a model, which is compiled without accelerators.",
            show_default=False,
        ),
    ],
    device: Annotated[str, typer.Option(help=f"What to compile for: {DEVICE_NAMES}.")] = "host",
    cpu: ChosenCpuOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    from umakit.tools.model_or_library import library_of, unused_backends
    from umakit.tools.size import library_size

    machine = find_device(device_of_library(device, library))
    with progress() as tell, library_of(library, cpu, GENERIC, tell) as given:
        sizes = library_size(given.library, progress=tell, device=machine, cpu=given.cpu)
        unused = unused_backends(given.library)
    say_notices([*given.notices, *map(str, unused)], as_json)
    if as_json:
        print_json({**sizes.as_json(), "unused_backends": [each.as_json() for each in unused]})
        return
    out = console()
    out.print(size_table(sizes))
    out.print()
    for line in size_notes(sizes):
        say_wrapped(line)


def size_table(sizes: LibrarySize) -> Table:
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
