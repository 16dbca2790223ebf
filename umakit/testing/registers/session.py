# SPDX-License-Identifier: Apache-2.0
"""The registers of a backend's simulated device, in a program that is built around it."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from umakit import sim
from umakit.codegen.driver_names import device_file, kit_simulator
from umakit.devices import HOST, Device
from umakit.devices.build import compile_c, compiling_for
from umakit.devices.designs import design_objects, designs_for
from umakit.devices.execution import UNANSWERED, stop_error
from umakit.devices.simulators import Simulator
from umakit.errors import DeviceError, UmakitError
from umakit.files.processes import IDLE_SECONDS, Limits, Watch, started
from umakit.library.export import files_of_driver
from umakit.library.own_simulators import own_simulator_files, own_simulators
from umakit.library.roles import SIMULATOR_FOLDER, device_source
from umakit.registration.backend import Backend
from umakit.testing.registers.accesses import Access, BusError
from umakit.text.rendering import render

PROGRAM = "umakit_check_registers"

MOST_ACCESSES = 400
"""Accesses that are sent at once; their answers fit the buffer of a pipe."""

OK, UNSUPPORTED = 0, 16
"""Two of `enum umakit_status`."""


class Session:
    """Registers of the device that a program has.

    Args:
        program: the program, built of `check/registers.c.j2`.
        watch: watch of the process.
        name: of the backend, for messages.
        written: file with what the simulator prints.

    Attributes:
        accesses: how many there were.
    """

    def __init__(
        self, program: subprocess.Popen[str], watch: Watch, name: str, written: Path
    ) -> None:
        self._program, self._watch = program, watch
        self._name, self._written = name, written
        self.accesses = 0

    def run(self, accesses: Sequence[Access]) -> list[int]:
        """Make accesses in their order; return what the reads give.

        Raises:
            DeviceError: the simulator failed.
        """
        answers: list[int] = []
        for first in range(0, len(accesses), MOST_ACCESSES):
            answers += self._batch([_line(a) for a in accesses[first : first + MOST_ACCESSES]])
        self.accesses += len(accesses)
        return [
            answer for answer, access in zip(answers, accesses, strict=True) if access.value is None
        ]

    def reset(self) -> bool:
        """Bring the device into its state after power-on; return whether it can be.

        Raises:
            DeviceError: the simulator failed.
        """
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
        """Return why there is no answer: the simulator's sentence, or how the program ended."""
        if sentence:
            return stop_error(f"the simulator of {self._name} failed: {sentence}")
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
def opened(
    backend: Backend, folder: Path, seconds: float, device: Device = HOST
) -> Iterator[Session]:
    """Build a program around the simulated device of a backend, and start it.

    Args:
        backend: the backend.
        folder: an empty folder, for files.
        seconds: of processor time after which the program is ended.
        device: this machine, with the simulator or the design of the backend.

    Raises:
        BuildError: a file does not compile.
        LibraryError: a file is missing, or cannot be read.
        AcceleratorConfigError: `accel.toml` cannot be used.
    """
    command = [str(_built(backend, folder, device))]
    written = folder / "written.txt"
    section = backend.configuration.filled_simulator
    limits = Limits(seconds, section.timeout if section is not None else IDLE_SECONDS)
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
