# SPDX-License-Identifier: Apache-2.0
"""Checks of a backend's own simulator: it starts, and reports its counters."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from umakit import sim
from umakit.devices import HOST, Device, execute
from umakit.devices.build import compile_c
from umakit.devices.execution import UnansweredError
from umakit.devices.simulators import Simulator
from umakit.errors import DeviceError, UmakitError, short_path
from umakit.files.processes import TimeLimitError
from umakit.library.own_simulators import own_simulators, program_source
from umakit.library.roles import SIMULATOR_FOLDER
from umakit.machine.simulator_config import SimulatorSection
from umakit.registration.backend import Backend
from umakit.testing import simulator_program
from umakit.text.rendering import render
from umakit.tools.doctor.checks import Check, failed, ok, refused
from umakit.tools.doctor.staged import StagedDriver

SIMULATOR = "simulator"

PROGRAM = "umakit_doctor_start"

SECONDS = 60.0
"""Time limit for the start of a program apart from its answers, which have their own limit."""

MISSING = re.compile(r"ModuleNotFoundError: No module named '(umakit[\w.]*|simulator_program)'")
"""Python's message for a missing umakit, or a missing copy of its side of the protocol."""

ANSWERS = 3
"""Number of requests that are sent: the first, a reset, the counters."""


def staged_simulators(staged: StagedDriver) -> list[Simulator]:
    """Return the backend's own simulator in the layout of a library, if any."""
    name, folder = staged.backend.target_name, staged.folder
    return [
        Simulator(name, folder / SIMULATOR_FOLDER / name, folder / "src", files)
        for name, files in own_simulators({name: staged.backend}).items()
    ]


def time_limit(backend: Backend, device: Device) -> float | None:
    """Return the time limit in seconds of a run of a backend's linked simulator on the host.

    None without such a simulator: programs have a time limit for each answer, devices have their
    own limit.
    """
    section = backend.configuration.simulator
    return section.timeout if device is HOST and section and not section.program else None


def not_returned(backend: Backend, seconds: float) -> DeviceError:
    """Return the error of a simulator that exceeded its time limit."""
    return DeviceError(
        f"the simulator of {backend.target_name} did not return within {seconds:g} s "
        "([simulator] timeout in accel.toml)",
        where=short_path(backend.folder / "accel.toml"),
        fix="let its functions return, wait too when no interrupt comes, or give it more time with "
        "timeout",
    )


def start_checks(staged: StagedDriver) -> list[Check]:
    """Start the backend's own simulator on the host, if any, and check that it answers."""
    return [_start_check(staged, simulator) for simulator in staged_simulators(staged)]


def _start_check(staged: StagedDriver, simulator: Simulator) -> Check:
    section = staged.backend.configuration.filled_simulator
    assert section is not None
    limit = time_limit(staged.backend, HOST)
    seconds = SECONDS + ANSWERS * section.timeout if limit is None else limit
    where = short_path(staged.backend.folder / "accel.toml")
    try:
        program = _build(staged, simulator)
    except UmakitError as error:
        return refused(SIMULATOR, error)
    try:
        ended = execute(HOST, program, [], staged.folder, seconds)
    except (TimeLimitError, UnansweredError):  # a whole run has no longer than a call
        return refused(SIMULATOR, not_returned(staged.backend, seconds))
    except UmakitError as error:
        mend = "run it in a debugger: it fails before the driver's first access"
        return failed(SIMULATOR, error.what, where=where, mend=mend)
    kind, _, rest = ended.stdout.partition("\n")
    rest = rest.strip()
    if kind == "failed":
        return failed(SIMULATOR, rest, where=where, mend=_mend(section, rest))
    if ended.returncode != 0 or not kind.startswith("counts"):
        message = f"the simulator ended with exit code {ended.returncode} before a first access"
        return failed(
            SIMULATOR, message, where=where, mend="let create return: the program ended in it"
        )
    counted = kind.removeprefix("counts").split()
    text = f"{' '.join(section.program)} answers" if section.program else "it can be created"
    text += f" and counts {', '.join(counted)}" if counted else " and counts nothing"
    text += "" if "clock" in counted else ": its cycles are unknown"
    return ok(SIMULATOR, f"{text}; its standard error: {rest}" if rest else text)


def _mend(section: SimulatorSection, sentence: str) -> str:
    if not section.program:
        return "correct the table of the simulator: see umakit/own_simulator.h"
    missing = MISSING.search(sentence)
    copy = f"copy {simulator_program.__file__} next to it"
    if missing and missing[1] == "simulator_program":
        return copy
    if missing:
        name = section.program[0]
        return (
            f"{shutil.which(name) or name} has no umakit: name a Python that has, "
            f'program = ["{sys.executable}", ...], or activate its environment before, or {copy} '
            "and import simulator_program"
        )
    return "correct program in [simulator], or the program: see docs/simulator-protocol.md"


def _build(staged: StagedDriver, simulator: Simulator) -> Path:
    name, files = simulator.backend, simulator.files
    source = staged.folder / f"{PROGRAM}.c"
    text = render("doctor/start.c.j2", name=name, is_program=bool(files.program))
    source.write_text(text, encoding="utf-8")
    # The program's source is included, to show the state it keeps.
    rest = [each for each in files.sources if each != program_source(name)]
    others = Simulator(
        name, simulator.folder, simulator.headers, files.model_copy(update={"sources": rest})
    )
    kit = [staged.folder / "src" / Path(path).name
           for path in (*sim.SIMULATOR_SOURCES, *sim.COMMON_SOURCES)]  # fmt: skip
    flags = [f"-I{staged.folder / 'src'}", f"-I{simulator.folder}"]
    program = staged.folder / PROGRAM
    compile_c([source, *kit], program, flags, HOST, [others])
    return program
