# SPDX-License-Identifier: Apache-2.0
"""`uma doctor`: reports missing prerequisites of a first run."""

from __future__ import annotations

from typing import Annotated

import typer
from umakit.cli.console import print_json, progress, say, say_wrapped
from umakit.cli.options import DEVICE_NAMES, JsonOption, device_of

from umakit.devices import find_device

HELP = """What is missing before a backend's first run, and what to do about each.

With a BACKEND, its Python, accel.toml, passes, patterns, memories and driver are checked, and a \
small network is compiled, run and compared. Without one, Python, packages, compilers and \
emulators. Nothing is written into your folders.

Exit code: 0 if there are no errors, 1 if there are; 2 if there is no such backend."""

EPILOG = """Examples:  uma doctor vanilla_accelerator

uma doctor ./my_npu --device qemu-cortex-m3

uma doctor --json"""

FOUND_ERRORS = 1


def doctor(
    backend: Annotated[
        str | None,
        typer.Argument(help="Name or folder of an accelerator.", show_default=False),
    ] = None,
    device: Annotated[
        str, typer.Option(help=f"Where the first network is to run: {DEVICE_NAMES}.")
    ] = "host",
    as_json: JsonOption = False,
) -> int:
    machine = find_device(device_of(device, None if backend is None else [backend]))
    with progress() as tell:
        tell("starting")
        from umakit.tools.doctor import examine_backend, examine_machine

        if backend is None:
            diagnosis = examine_machine(machine, tell)
        else:
            diagnosis = examine_backend(backend, machine, tell)
    if as_json:
        print_json(diagnosis.as_json())
    else:
        for check in diagnosis.checks:
            place = f"{check.where}: " if check.where else ""
            say_wrapped(f"{check.status:<8} {check.name}: {place}{check.message}")
            if check.mend:
                say_wrapped(f"{'':<8} to do: {check.mend}")
        found = diagnosis.as_json()
        say("")
        say(f"{_count(found['errors'], 'error')}, {_count(found['warnings'], 'warning')}")
    return FOUND_ERRORS if diagnosis.has_errors else 0


def _count(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"
