# SPDX-License-Identifier: Apache-2.0
"""Programs that time the calls of `umakit/device.h`. Imports no TVM.

The device's functions are renamed, and `support/device_times.c` defines functions with the original
names. Thus precompiled drivers are timed too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from umakit.devices.device import SUPPORT
from umakit.devices.objects import compiling, with_shared_objects

DEVICE = "umakit_simulator.c"
"""Name of the file with the functions of `umakit/device.h`, which dispatch to all simulators."""

FUNCTIONS = ("read32", "write32", "map", "unmap", "wait", "barrier")
"""Names of these functions, without the prefix `umakit_device_`."""

RENAMED = [f"-Dumakit_device_{name}=umakit_untimed_{name}" for name in FUNCTIONS]

TIMES = SUPPORT / "device_times.c"


def calls_device(sources: Sequence[Path]) -> bool:
    """Whether the sources of a program include a device for drivers."""
    return any(source.name == DEVICE for source in sources)


def with_timed_device(
    sources: Sequence[Path],
    compiler: Sequence[str],
    flags: Sequence[str],
    folder: Path,
    run: Callable[[list[str]], None],
) -> list[Path]:
    """Return the sources of a program with timed device calls.

    Args:
        sources: sources of a program with a device.
        compiler: the compiler and its constant arguments.
        flags: the other flags of the program.
        folder: folder for an object.
        run: runs a command of the compiler.

    Raises:
        BuildError: the compiler refused a source.
    """
    command = [*compiler, *RENAMED]
    (device,) = (source for source in sources if source.name == DEVICE)
    (found,) = with_shared_objects([device], command, flags, run)
    if found == device:  # its headers are not an exported library's
        found = folder / "device.o"
        run([*command, *compiling(flags), "-c", str(device.absolute()), "-o", str(found)])
    return [*(source for source in sources if source != device), found, TIMES]
