# SPDX-License-Identifier: Apache-2.0
"""Running a program on a device, until it ends or its time is over."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from umakit.devices.device import Device
from umakit.errors import BuildError, DeviceError

DEFAULT_TIMEOUT = 600.0
"""Seconds that an emulated program may take; the host's own is not watched unless asked for."""

CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE)
CRASH_HINT = "look for a driver that writes outside its buffers"

STOPPED = 70
"""Exit code of a bare-metal program that ended in a fault; see platform_semihosting.c."""


def execute(
    device: Device,
    program: Path,
    arguments: Sequence[str],
    folder: Path,
    timeout: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program and wait for it.

    Args:
        device: what it was built for.
        program: the file.
        arguments: of its `main`; file names are relative to the folder.
        folder: working directory.
        timeout: seconds; default: `DEFAULT_TIMEOUT` on emulators, none on the host.

    Returns:
        Its output, its messages and its exit code.

    Raises:
        BuildError: there is no emulator, or it does not start.
        DeviceError: the program crashed or did not end in time.
    """
    device.check_emulator()
    if timeout is None and device.emulator:
        timeout = DEFAULT_TIMEOUT
    command = device.run_command(program.resolve(), arguments)
    try:
        result = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=timeout,
        )
    except subprocess.TimeoutExpired:
        raise DeviceError(
            f"the program did not end within {timeout:g} s",
            where=device.name,
            fix="if it is only slow, give it more time with --timeout",
        ) from None
    except OSError as error:
        raise BuildError(f"cannot run {command[0]}: {error.strerror}") from None
    _check_end(device, program, result)
    return result


def _check_end(device: Device, program: Path, result: subprocess.CompletedProcess[str]) -> None:
    where = f"{device.name}: {program.name}" if device.emulator else program.name
    if result.returncode < 0:
        number = -result.returncode
        first = (result.stderr.strip().splitlines() or [""])[0]
        raise DeviceError(
            f"the program died of signal {number}" + (f" ({first})" if first else ""),
            where=where,
            fix=CRASH_HINT if number in CRASHES else "",
        )
    if device.is_bare_metal and result.returncode == STOPPED:
        raise DeviceError(
            f"the program died of {result.stderr.strip()}", where=where, fix=CRASH_HINT
        )
