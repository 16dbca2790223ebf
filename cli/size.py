# SPDX-License-Identifier: Apache-2.0
"""`uma size`: code, data and stack sizes of a compiled library on a device."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from umakit.cli import size_tables
from umakit.cli.console import console, print_json, progress, say_notices, say_wrapped
from umakit.cli.options import DEVICE_NAMES, ChosenCpuOption, device_of_library

from umakit.devices import find_device
from umakit.machine.cpu import GENERIC

HELP = """Code, constants, arena and stack of a compiled library, layer by layer.

The library is compiled with -Os and the flags of its CPU. "code" of a layer is its kernel and \
what only this layer calls; rows below the layers have the code that several layers share. "arena" \
is what is alive while the layer runs, "stack" the worst case from its kernel down. The total's \
stack is that of tvmgen_NAME_run_unpacked; a line below the table adds it up. Interrupts come on \
top, and so do code and stack of the functions named below the table. The simulator's code is not \
part of the total, because a board leaves it out.

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
    """Registered with the help text above."""
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
    out.print(size_tables.size_table(sizes))
    out.print()
    for line in size_tables.size_notes(sizes):
        say_wrapped(line)
