# SPDX-License-Identifier: Apache-2.0
"""Running a program on a device until its end or a time limit.

Programs on this machine and in emulators have limits of processor time. For programs on another
machine, umakit only knows whether the machine answers. Silence ends the run and says nothing about
the program.
"""

from __future__ import annotations

import contextlib
import enum
import os
import re
import resource
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from umakit.devices.addresses import RPC
from umakit.devices.device import DEFAULT_TIMEOUT, SERIAL, Device
from umakit.devices.serial_run import SerialRun, SilentError, open_line
from umakit.devices.ssh_client import SshClient
from umakit.devices.ssh_run import LateError, run_over_ssh
from umakit.errors import AcceleratorConfigError, DeviceError, UmakitError
from umakit.files.processes import (
    IDLE_SECONDS,
    LATE_HINT,
    TIME_LIMIT,
    HangsError,
    Limits,
    TimeLimitError,
    beside,
    run_limited,
)

CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE)

UNANSWERED = 71
"""Exit code of a program in which a function of a linked simulator did not return; see
simulator_watchdog.c, which writes a sentence of `Cause.SILENT_SIMULATOR` as the last line."""

STOPPED = 70
"""Exit code of a bare-metal program that ended in a fault; see platform_semihosting.c."""

GRACE_SECONDS = 5.0
"""Maximum number of seconds after the time limit in which a program with designs or backends' own
simulators reports the call in which its driver waits."""


class Cause(enum.Enum):
    """Causes of a stop by a driver, a simulator or a design; each value is advice for users."""

    UNKNOWN = ""
    NO_INTERRUPT = (
        "the accelerator raised no interrupt within the cycles that its driver gives to "
        "umakit_device_wait: let it be raised when the work is done, or raise that limit"
    )
    LATE_DESIGN = LATE_HINT
    SILENT_SIMULATOR = "let the program answer, or give it more time with timeout"
    RESET_LEVEL = "set reset_level to the level that resets, or correct the design"
    INTERRUPT_LEVEL = "set interrupt_level to the level that interrupts, or correct the design"

    @property
    def contradicts_description(self) -> bool:
        """Whether the run contradicts the user's description of a design."""
        return self in (Cause.RESET_LEVEL, Cause.INTERRUPT_LEVEL)


TIMEOUT = 7, "timeout"
"""Status and text of UMAKIT_TIMEOUT of `umakit/status.h`; drivers may have a 7 of their own."""

SENTENCES = {
    "and the time limit of": Cause.LATE_DESIGN,  # rtl.h
    "([simulator] timeout in accel.toml)": Cause.SILENT_SIMULATOR,
    "reset_level of [rtl] in accel.toml": Cause.RESET_LEVEL,  # rtl_bench.h, rtl_registers.h
    "interrupt_level of [rtl] in accel.toml": Cause.INTERRUPT_LEVEL,  # rtl.h
}
"""Words by which sentences of the kit's C tell a cause: `umakit_host_fail` carries only a sentence,
which users of the C read too. Nothing but `cause_of` reads these sentences."""


def cause_of(sentence: str, status: int = 0) -> Cause:
    """Return the cause in the text of a status, or in the sentence of a simulator or a design."""
    if (status, sentence) == TIMEOUT:
        return Cause.NO_INTERRUPT
    found = (cause for words, cause in SENTENCES.items() if words in sentence)
    return next(found, Cause.UNKNOWN)


def stop_error(what: str, cause: Cause, **facts: Any) -> UmakitError:
    """Return an `AcceleratorConfigError` for a contradicted description of a design, else a
    `DeviceError`."""
    if cause.contradicts_description:
        return AcceleratorConfigError(what, fix=cause.value)
    return DeviceError(what, **facts)


def simulator_failed(name: str, why: str) -> str:
    return f"the simulator of {name} failed: {why}"


class CrashError(DeviceError):
    """The program ended in a fault of its own."""

    def __init__(self, what: str, where: str) -> None:
        fix = "`uma diff` names the layer, and a build with -fsanitize=address the line of C"
        super().__init__(what, where=where, fix=fix)


def fix_in_layer(error: DeviceError) -> str:
    """Return the advice on an error whose layer is known."""
    is_crash = isinstance(error, CrashError)
    return "a build with -fsanitize=address names the line of C" if is_crash else error.fix


class SilenceError(TimeLimitError):
    """Another machine did not answer, so the state of its program is unknown."""


class UnansweredError(DeviceError):
    """A function of a linked simulator did not return in time."""


def default_limit(device: Device, description: Mapping[str, Any], inferences: int) -> float | None:
    """Return the default limit of a run in seconds, elsewhere of silence; None for no limit."""
    if device.is_emulated_or_remote:
        return device.timeout_seconds
    return DEFAULT_TIMEOUT * inferences if description["backends"] else None


def idle_limit(description: Mapping[str, Any]) -> float:
    """Return the limit of a library program's idle time in seconds.

    The watchdog of backends' own simulators has a shorter limit, because the watchdog can name the
    waiting function.
    """
    own = description["sources"].get("own", {})
    limits = [float(each["timeout"]) for each in own.values()]
    return max((each + min(each, GRACE_SECONDS) for each in limits), default=IDLE_SECONDS)


def execute(
    device: Device,
    program: Path,
    arguments: Sequence[str],
    folder: Path,
    timeout: float | None = None,
    *,
    idle: float = IDLE_SECONDS,
    progress: Path | None = None,
    runs_designs: bool = False,
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program and wait for its end.

    Args:
        arguments: arguments of `main`; file names are relative to the folder.
        timeout: limit in seconds for the program and for the loading command: of processor time, on
            other machines of silence; default: the device's limit, none on the host.
        idle: limit of idle time in seconds, on this machine; at most `timeout`.
        progress: file of results; each added result restarts `timeout`.
        runs_designs: whether designs are part of the program. Designs end the run themselves at the
            limit, with a sentence about the driver's wait.

    Raises:
        BuildError: the emulator is missing or does not start.
        TimeLimitError: the program or the loading command exceeded a limit.
        SilenceError: another machine did not answer.
        UnansweredError: a function of a linked simulator did not return in time.
        DeviceError: the program crashed, or could not be loaded.
    """
    device.check_emulator()
    if timeout is None and device.is_emulated_or_remote:
        timeout = device.timeout_seconds
    place = Path(os.path.realpath(program))
    variables = {**os.environ, **(environment or {})}
    limits = Limits(timeout, idle if timeout is None else min(idle, timeout), progress)
    if device.remote is not None:
        return _execute_remotely(device, place, arguments, folder, timeout)
    if device.own_file is not None:
        limits = replace(limits, idle=timeout)
        return _execute_own(device, place, arguments, folder, variables, limits)
    if runs_designs and timeout is not None:
        variables["UMAKIT_RTL_SECONDS"] = repr(timeout)
        limits = replace(limits, processor=timeout + min(timeout, GRACE_SECONDS))
    command = device.run_command(place, arguments, folder)
    result = run_limited(command, folder, variables, limits, where=device.name)
    _check_end(device, program, result)
    return result


def _execute_remotely(
    device: Device, program: Path, arguments: Sequence[str], folder: Path, timeout: float | None
) -> subprocess.CompletedProcess[str]:
    """Send a program to a machine and run it; errors as for `execute`."""
    limit = device.timeout_seconds if timeout is None else timeout
    try:
        result = run_remotely(device, program, arguments, folder, limit)
    except LateError:
        raise SilenceError(
            f"the program {TIME_LIMIT} {limit:g} s", where=device.name, fix=LATE_HINT
        ) from None
    _check_end(device, program, result)
    return result


def _execute_own(
    device: Device,
    program: Path,
    arguments: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    limits: Limits,
) -> subprocess.CompletedProcess[str]:
    """Load and run a program on a user's device; errors as for `execute`."""

    def run(
        command: Sequence[str], words: Sequence[str], what: str
    ) -> subprocess.CompletedProcess[str]:
        device.announce(command, words)
        try:
            return run_limited(command, folder, environment, limits, what=what, where=device.name)
        except HangsError:  # a program that waits for a board is idle too
            raise SilenceError(
                f"{what} {TIME_LIMIT} {limits.idle:g} s", where=device.name, fix=LATE_HINT
            ) from None

    loading = device.load_command(program, arguments, folder)
    if loading:
        loaded = run(loading, device.load, f"{loading[0]}, which loads the program,")
        if loaded.returncode != 0:
            said = (loaded.stderr.strip() or loaded.stdout.strip()).rpartition("\n")[2]
            raise DeviceError(
                f"the program was not loaded: {loading[0]} ended with {loaded.returncode}"
                + (f": {said}" if said else ""),
                where=device.name,
            )
    if device.output == SERIAL:
        result = _run_on_line(device, program, arguments, folder, environment, limits.processor)
    else:
        command = device.run_command(program, arguments, folder)
        result = run(command, device.run, "the program")
    _check_end(device, program, result)
    return result


def _run_on_line(
    device: Device,
    program: Path,
    arguments: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    timeout: float | None,
) -> subprocess.CompletedProcess[str]:
    """Run a program on a board with a serial line; errors as for `execute`."""
    limit = device.timeout_seconds if timeout is None else timeout
    with contextlib.ExitStack() as stack:
        line = stack.enter_context(open_line(device.port, device.baud, device.name))
        ended: Callable[[], str] = lambda: ""  # noqa: E731
        if device.run:
            command = device.run_command(program, arguments, folder, line.port)
            device.announce(command, device.run)
            ended = stack.enter_context(beside(command, folder, environment))
        run = SerialRun(line, arguments, folder, device.name, ended)
        try:
            return run.run(limit)
        except SilentError as error:
            raise SilenceError(
                f"the board sent nothing for {limit:g} s, {error}", where=device.name, fix=LATE_HINT
            ) from None


def check_memory(needed: int) -> None:
    """Refuse a host program whose static memory exceeds the available memory."""
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") + _swap()
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY:
        there = min(there, limit)
    if needed > there:
        raise DeviceError(
            f"the program needs {needed:,} B of memory for arena, constants, inputs and outputs, "
            f"and can have {there:,} B",
            where="host",
            fix="choose smaller dimensions, or run it on a machine with more memory",
        )


def _swap() -> int:
    try:
        text = Path("/proc/meminfo").read_text()
    except OSError:
        return 0
    total = re.search(r"^SwapTotal:\s*(\d+) kB", text, re.MULTILINE)
    return int(total[1]) * 1024 if total else 0


def _check_end(device: Device, program: Path, result: subprocess.CompletedProcess[str]) -> None:
    where = f"{device.name}: {program.name}" if device.is_emulated_or_remote else program.name
    if result.returncode < 0:
        number = -result.returncode
        first = (result.stderr.strip().splitlines() or [""])[0]
        what = f"the program was stopped by {signal_text(number)}" + (f": {first}" if first else "")
        raise CrashError(what, where) if number in CRASHES else DeviceError(what, where=where)
    if result.returncode == UNANSWERED:
        last = result.stderr.strip().rpartition("\n")[2]
        if cause_of(last) is Cause.SILENT_SIMULATOR:
            raise UnansweredError(
                last,
                where=device.name,
                fix="let it return, wait too when no interrupt comes, or give it more time with "
                "timeout",
            )
    if device.is_bare_metal and result.returncode == STOPPED:
        raise CrashError(f"the program was stopped by {result.stderr.strip()}", where)


def signal_text(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"


def run_remotely(
    device: Device, program: Path, arguments: Sequence[str], folder: Path, seconds: float
) -> subprocess.CompletedProcess[str]:
    """Run a program on a device with an address, and remove the copied files there."""
    assert device.remote is not None
    if device.remote.scheme == RPC:
        from umakit.devices.rpc_run import run_over_rpc

        return run_over_rpc(device.remote, program, arguments, folder, seconds)
    client = SshClient(device.remote, device.ssh_options)
    return run_over_ssh(client, program, arguments, folder, seconds)


FARTHEST = 2**15 - 1
"""Maximum distance of a library's status from the base of its backend."""


def stopped(description: Mapping[str, Any], status: int, text: str) -> tuple[str, int]:
    """Return a sentence on a stopped run, and the status that the driver's function returned."""
    for backend in description["backends"]:
        base = int(backend.get("status_base", 0))
        if base == status != 0:
            return f"the run stopped with a status of {backend['name']} that is out of range", 0
        if base and abs(status - base) <= FARTHEST:
            own = status - base
            return f"the run stopped with status {own} of {backend['name']}: {text}", own
    return f"the run stopped with status {status}: {text}", status
