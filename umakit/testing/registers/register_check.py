# SPDX-License-Identifier: Apache-2.0
"""A check of the registers of a backend's device, before any layer runs on it."""

from __future__ import annotations

import contextlib
import functools
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from umakit import sim
from umakit.codegen.driver_names import device_file, is_simulated, kit_simulator
from umakit.devices import HOST, Device
from umakit.devices.build import compile_c, compiling_for
from umakit.devices.designs import design_objects, designs_for
from umakit.devices.execution import UNANSWERED, cause_of, simulator_failed, stop_error
from umakit.devices.simulators import Simulator
from umakit.errors import DeviceError, RegisterMapError, UmakitError, short_path
from umakit.files.processes import IDLE_SECONDS, Limits, Watch, started
from umakit.files.staging import temporary_folder
from umakit.library.driver_files import files_of_driver
from umakit.library.own_simulators import own_simulator_files, own_simulators
from umakit.library.roles import SIMULATOR_FOLDER, device_source
from umakit.machine.accelerator_config import AcceleratorConfig
from umakit.machine.registers.register_map import Register, RegisterMap, read_register_map
from umakit.registration.backend import Backend
from umakit.registration.buffer_alignment import MAP_FILE, check_map_alignment
from umakit.testing.registers.accesses import Access, BusError, RegisterReport
from umakit.testing.registers.comparison import compare
from umakit.text.rendering import render

SECONDS = 600.0
"""Limit of the processor time of a register check."""


def map_of(backend: Backend) -> tuple[RegisterMap, str] | None:
    """Return the register map of a backend's simulated device, and its name; None without one.

    The map is `registers.toml` in the backend's folder, or the map of umakit's simulator.
    """
    path, kind = backend.folder / MAP_FILE, kit_simulator(backend)
    name = short_path(path)
    if not is_simulated(backend):
        return None
    if not path.is_file():
        if kind is None:
            return None
        path = sim.source_directory() / "registers" / f"{kind}.toml"
        name = f"{kind}.toml of umakit"
    registers = _read(path, name, path.stat().st_mtime_ns if path.exists() else 0)
    if kind is None:
        check_map_alignment(registers, backend, path)
    return registers, name


@functools.lru_cache(maxsize=8)
def _read(path: Path, name: str, changed_at: int) -> RegisterMap:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        what = f"cannot be read: {error.strerror}"
        raise RegisterMapError(what, where=name) from None
    except UnicodeDecodeError:
        raise RegisterMapError("is not a text in UTF-8", where=name) from None
    return read_register_map(text, name)


def configured_values(
    registers: RegisterMap, configuration: AcceleratorConfig, where: str
) -> dict[str, int]:
    """Return the device-specific register values from `accel.toml`, by register."""
    found = {}
    for register in registers.registers:
        if isinstance(register.configured, str):
            value = _figure(configuration, register.configured)
            if value is None:
                raise RegisterMapError(
                    f"{register.name}: accel.toml has no number {register.configured}",
                    where=where,
                    fix="write SECTION.KEY, memory.NAME.KEY, or configured = true",
                )
            found[register.name] = value
    return found


def _figure(configuration: AcceleratorConfig, path: str) -> int | None:
    section, *keys = path.split(".")
    value: object = getattr(configuration, section, None)
    if section == "scratchpad":
        value = next(iter(configuration.scratchpads), None)
    elif section == "memory":
        name, keys = keys[0], keys[1:]
        value = next((each for each in configuration.memory if each.name == name), None)
    for key in keys:
        value = getattr(value, key, None)
    return value if isinstance(value, int) else None


def check_registers(backend: Backend, *, device: Device = HOST) -> RegisterReport | None:
    """Compare the registers of a backend's simulated device with their map.

    Returns:
        The differences; None if the backend has no simulated device, or no register map.

    Raises:
        RegisterMapError: the map is inconsistent.
        BuildError: a file of the simulator does not compile.
        LibraryError: a file is missing, or cannot be read.
        AcceleratorConfigError: `accel.toml` cannot be used.
    """
    found = map_of(backend)
    if found is None:
        return None
    registers, name = found
    configured = configured_values(registers, backend.configuration, name)
    with (
        temporary_folder("umakit-registers-") as folder,
        opened(backend, folder, device) as session,
    ):
        report = compare(session, registers, configured)
        report.map, report.accesses = name, session.accesses
        return report


PROGRAM = "umakit_check_registers"

MOST_ACCESSES = 400
"""Number of accesses sent at once; their answers fit the buffer of a pipe."""

OK, UNSUPPORTED = 0, 16
"""Two of `enum umakit_status`."""


class Session:
    """Registers of the device in a program."""

    def __init__(
        self, program: subprocess.Popen[str], watch: Watch, name: str, written: Path
    ) -> None:
        self._program, self._watch = program, watch
        self._name, self._written = name, written
        self.accesses = 0

    def run(self, accesses: Sequence[Access]) -> list[int]:
        """Make accesses in order; return the values of the reads."""
        answers: list[int] = []
        for first in range(0, len(accesses), MOST_ACCESSES):
            answers += self._batch([_line(a) for a in accesses[first : first + MOST_ACCESSES]])
        self.accesses += len(accesses)
        return [
            answer for answer, access in zip(answers, accesses, strict=True) if access.value is None
        ]

    def reset(self) -> bool:
        """Bring the device into its power-on state; return whether it supports that."""
        (status,) = self._batch(["z"])
        if status not in (OK, UNSUPPORTED):
            raise DeviceError(f"the reset of the simulator of {self._name} failed with {status}")
        return status == OK

    def _batch(self, lines: Sequence[str]) -> list[int]:
        assert self._program.stdin is not None
        assert self._program.stdout is not None
        self._watch.is_asked = True
        with contextlib.suppress(BrokenPipeError):
            self._program.stdin.write("\n".join([*lines, "", ""]))
            self._program.stdin.flush()
        answers = []
        for _ in lines:
            answer = self._program.stdout.readline()
            if not answer or answer.startswith("!"):
                raise self._failure(answer.removeprefix("!").strip())
            value, *response = answer.split()
            number = int(value, 16)
            answers.append(BusError(number, *response) if response else number)
        self._watch.is_asked = False
        return answers

    def _failure(self, sentence: str) -> UmakitError:
        if sentence:
            return stop_error(simulator_failed(self._name, sentence), cause_of(sentence))
        code = self._program.wait()
        try:
            self._watch.check(f"the simulator of {self._name}", "")
        except DeviceError as error:
            return error
        last = self._written.read_text(errors="replace").strip().rpartition("\n")[2]
        if code == UNANSWERED and last:
            return DeviceError(last)
        return DeviceError(
            f"the simulator of {self._name} ended with exit code {code} at an access to a register"
            + (f": {last}" if last else "")
        )


def _line(access: Access) -> str:
    if access.value is None:
        return f"r {access.offset:x}"
    return f"w {access.offset:x} {access.value:x}"


@contextlib.contextmanager
def opened(backend: Backend, folder: Path, device: Device = HOST) -> Iterator[Session]:
    """Build a program around the simulated device of a backend, and start it."""
    command = [str(_built(backend, folder, device))]
    written = folder / "written.txt"
    section = backend.configuration.filled_simulator
    limits = Limits(SECONDS, section.timeout if section is not None else IDLE_SECONDS)
    with (
        written.open("w") as errors,
        started(
            command, folder, limits=limits,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
        ) as (program, watch),
    ):  # fmt: skip
        watch.is_asked = False
        yield Session(program, watch, backend.target_name, written)


def _built(backend: Backend, folder: Path, device: Device) -> Path:
    name = backend.target_name
    files: dict[str, bytes] = {
        path: text.encode("utf-8") for path, text in files_of_driver(backend).items()
    }
    files |= own_simulator_files({name: backend})
    files[f"src/{PROGRAM}.c"] = render("check/registers.c.j2", name=name).encode("utf-8")
    designs = designs_for([backend], device)
    if designs:
        files[f"src/{device_source(name)}"] = render("device/own_device.c.j2", name=name).encode()
    for place, content in files.items():
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    kind = kit_simulator(backend)
    sources = [*sim.SIMULATOR_SOURCES, *sim.COMMON_SOURCES]
    sources += sim.KINDS[kind].sources if kind is not None else ()
    names = [f"{PROGRAM}.c", *(Path(each).name for each in sources)]
    if designs:
        names.append(device_source(name))
    elif kind is not None:
        names.append(device_file(name, "c"))
    simulators = [
        Simulator(name, folder / SIMULATOR_FOLDER / name, folder / "src", found)
        for found in own_simulators({name: backend}).values()
        if not designs
    ]
    program = folder / PROGRAM
    compile_c(
        [folder / "src" / each for each in names],
        program,
        [f"-I{folder / 'src'}"],
        device,
        simulators,
        designs=design_objects(designs, folder / "src", compiling_for(device, folder)),
    )
    return program


def _registers(backend: Backend) -> list[Register]:
    found = map_of(backend)
    return [] if found is None else found[0].registers


def volatile_of(backend: Backend) -> list[int]:
    """Return offsets of registers that count or measure, and so differ in time."""
    section = backend.configuration.rtl
    offsets = set(section.registers.volatile) if section is not None else set()
    return sorted(offsets | {each.offset for each in _registers(backend) if each.volatile})


def doorbells_of(backend: Backend) -> list[int]:
    """Return offsets of registers whose writes start commands, as far as the map defines."""
    found = map_of(backend)
    if found is None:
        return []
    registers = found[0]
    start = "" if registers.job is None else registers.job.start.split(".")[0]
    return [
        each.offset
        for each in registers.registers
        if each.access == "wo" or each.write == "command" or each.name == start
    ]


def idle_register(backend: Backend) -> int | None:
    """Return the offset of a register that can be read without effect; None without one.

    The register is the device's identity, or the lowest read-only register that is not 0 after
    power-on.
    """
    found = map_of(backend)
    if found is None:
        return None
    job = found[0].job
    if job is not None and job.identity:
        return found[0].place(job.identity)[0].offset
    fixed = (
        each
        for each in found[0].registers
        if each.access == "ro" and each.reset and not each.volatile
    )
    return min((each.offset for each in fixed), default=None)


def named_register(backend: Backend, offset: int) -> str | None:
    """Return the name of a register in the map; None if there is no map, or a hole."""
    return next((each.name for each in _registers(backend) if each.offset == offset), None)
