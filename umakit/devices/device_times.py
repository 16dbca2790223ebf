# SPDX-License-Identifier: Apache-2.0
"""Programs that time the calls of `umakit/device.h`. Imports no TVM.

The device that answers, a simulator or a file of a board, gets other names, and
`support/device_times.c` has its functions: so a driver is timed whose object or library was
compiled elsewhere too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from umakit.devices.device import SUPPORT
from umakit.devices.objects import compiling, with_shared_objects

FUNCTIONS = ("read32", "write32", "map", "unmap", "wait", "barrier")
"""Functions of `umakit/device.h`, without `umakit_device_`."""

DEFINITION = re.compile(
    rb"^[A-Za-z][\w \t*]*\bumakit_device_("
    + "|".join(FUNCTIONS).encode()
    + rb")\s*\([^;{}]*\)\s*\{",
    re.MULTILINE,
)
"""Form of the definition of such a function."""

RENAMED = [f"-Dumakit_device_{name}=umakit_untimed_{name}" for name in FUNCTIONS]

TIMES = SUPPORT / "device_times.c"


def device_sources(sources: Sequence[Path]) -> list[Path]:
    """Return the C sources that define the device; none if they do not define all functions."""
    found: dict[Path, set[bytes]] = {}
    for source in sources:
        if source.suffix == ".c":
            content = source.read_bytes()
            names = set(DEFINITION.findall(content)) if b"umakit_device_" in content else set()
            if names:
                found[source] = names
    complete = set().union(*found.values()) == {name.encode() for name in FUNCTIONS}
    return list(found) if complete else []


def with_timed_device(
    sources: Sequence[Path],
    devices: Sequence[Path],
    compiler: Sequence[str],
    flags: Sequence[str],
    folder: Path,
    run: Callable[[list[str]], None],
) -> list[Path]:
    """Return the sources of a program whose calls of the device are timed.

    Args:
        sources: sources of the program.
        devices: those of them that `device_sources` returned.
        compiler: the compiler and all arguments that it always gets.
        flags: the other flags of the program.
        folder: folder for objects.
        run: runs a command of the compiler.

    Raises:
        BuildError: the compiler refused a source.
    """
    command = [*compiler, *RENAMED]
    objects = []
    for number, path in enumerate(with_shared_objects(devices, command, flags, run)):
        found = path
        if path.suffix != ".o":
            found = folder / f"device_{number}.o"
            run([*command, *compiling(flags), "-c", str(path.absolute()), "-o", str(found)])
        objects.append(found)
    return [*(path for path in sources if path not in devices), *objects, TIMES]
