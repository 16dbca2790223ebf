# SPDX-License-Identifier: Apache-2.0
"""Compiling and linking of backends' own simulators in a library. Imports no TVM."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from umakit.devices.device import SUPPORT, Device
from umakit.devices.libraries import Run, compiled_object, linker_arguments
from umakit.devices.objects import compiling, of_no_model, version_of
from umakit.errors import BuildError
from umakit.files.compiled_files import is_compiled
from umakit.library.metadata import read_description
from umakit.library.roles import ADAPTER, SIMULATOR_FOLDER, SOURCE_FOLDER, device_source
from umakit.library.schema import OwnSimulator
from umakit.library.tar_files import library_folder
from umakit.machine.simulator_config import CXX_SUFFIXES

FLAGS = ("-O2", "-ffp-contract=off")
"""Compiler flags of simulators; the version of C and C++ is the compiler's default."""

WATCHDOG = SUPPORT / "simulator_watchdog.c"
"""The C file that ends a program when a function of a linked simulator does not return."""

WATCHING = "-pthread"
"""Linker argument for programs with the watchdog."""


@dataclass(frozen=True)
class Simulator:
    """A backend's own simulator in a library.

    Attributes:
        headers: folder above `umakit/own_simulator.h`.
    """

    backend: str
    folder: Path
    headers: Path
    files: OwnSimulator

    @property
    def is_cxx(self) -> bool:
        return any(name.endswith(CXX_SUFFIXES) for name in self.files.sources)

    @property
    def watched(self) -> list[str]:
        """Definitions for `WATCHDOG`; none for a program, which its adapter watches."""
        if self.files.program:
            return []
        limit = f"-DUMAKIT_WATCHED_MILLISECONDS={round(self.files.timeout * 1000)}"
        return [f"-DUMAKIT_WATCHED={self.backend}", limit]

    def linking(self) -> list[str]:
        """Return the arguments that link its libraries."""
        return [
            argument
            for name in self.files.libraries
            for argument in (
                linker_arguments([self.folder / name]) if is_compiled(name) else [f"-l{name}"]
            )
        ]

    @property
    def compiled(self) -> list[Path]:
        """Its libraries and objects that are files."""
        return [self.folder / name for name in self.files.libraries if is_compiled(name)]

    def digest(self) -> bytes:
        """Return a digest of all files that its objects depend on."""
        return _digest((self.folder, "**/*"), (self.headers / "umakit", "*.h"))

    def adapter_digest(self) -> bytes:
        """Return a digest of the kit's adapter files, which many libraries share."""
        headers = (self.headers / "umakit", "*.h"), (self.folder / "umakit", "*.h")
        return _digest(*headers, *((self.folder, name) for name in ADAPTER))


def _digest(*places: tuple[Path, str]) -> bytes:
    """Return a digest of the matching files of each folder, and of their relative paths."""
    digest = hashlib.sha256()
    for root, form in places:
        for path in sorted(root.glob(form)):
            if path.is_file():
                digest.update(path.relative_to(root).as_posix().encode() + b"\0")
                digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.digest()


def simulators_of(library: Path) -> list[Simulator]:
    """Return the simulators of backends' own in an exported library, a folder or a tar file."""
    own: Mapping[str, OwnSimulator] = read_description(library).sources.own
    folder = library_folder(library) if own else library
    return [
        Simulator(name, folder / SIMULATOR_FOLDER / name, folder / SOURCE_FOLDER, files)
        for name, files in own.items()
    ]


def check_simulators(simulators: Sequence[Simulator], device: Device) -> None:
    """Refuse simulators that a device cannot run."""
    for simulator in simulators:
        program = simulator.files.program
        if program and not device.is_host:
            raise BuildError(
                f"the simulator of {simulator.backend} is a program, {program[0]}, which the host "
                f"starts, not {device.name}",
                fix="run it with --device host, or simulate the accelerator in C",
            )
        if simulator.is_cxx:
            device.cxx_compiler(f"the simulator of {simulator.backend}")


def simulator_objects(
    simulators: Sequence[Simulator],
    flags: Sequence[str],
    device: Device,
    run: Run,
    watches: bool = False,
) -> list[Path]:
    """Return the objects of simulators, from the cache or compiled.

    Args:
        flags: flags of the program; linker flags are ignored.
        watches: whether the program ends when a function of a linked simulator does not return.
    """
    objects = []
    adapter: set[str] = set()
    for simulator in simulators:
        content = simulator.digest()
        folders = [simulator.folder, *(simulator.folder / i for i in simulator.files.include)]
        given = [
            *FLAGS,
            *of_no_model(flags),
            *(f"-D{define}" for define in simulator.files.defines),
        ]
        includes = [f"-I{folder}" for folder in (*folders, simulator.headers)]
        for name in simulator.files.sources:
            if name in adapter:
                continue
            if simulator.files.program and name in ADAPTER:
                adapter.add(name)
            is_cxx = name.endswith(CXX_SUFFIXES)
            compiler = device.cxx_compiler(name) if is_cxx else device.compiler()
            instead = []
            if watches and simulator.watched and name == device_source(simulator.backend):
                table = f"{simulator.backend}_simulator"
                instead = [f"-D{table}=umakit_watched_{simulator.backend}"]
            path = str((simulator.folder / name).absolute())
            arguments = [*given, *instead, *includes, "-c", path]
            of_kit = name in adapter
            # Folder paths vary per library; the digest covers the files in them.
            own = [*given, *instead, *simulator.files.include]
            depends = [*FLAGS, *of_no_model(flags)] if of_kit else own
            key = repr([compiler, version_of(compiler[0]), depends, name]).encode()
            used = simulator.adapter_digest() if of_kit else content
            objects.append(compiled_object(Path(name).stem, key + used, run, compiler, arguments))
    if watches:
        objects += [_watchdog(each, flags, device, run) for each in simulators if each.watched]
    return objects


def _watchdog(simulator: Simulator, flags: Sequence[str], device: Device, run: Run) -> Path:
    compiler = device.compiler()
    given = [*FLAGS, *of_no_model(flags), *simulator.watched]
    headers = _digest((simulator.headers / "umakit", "*.h"))
    key = repr([compiler, version_of(compiler[0]), given]).encode()
    key += WATCHDOG.read_bytes() + headers
    arguments = [*given, f"-I{simulator.headers}", "-c", str(WATCHDOG)]
    return compiled_object(WATCHDOG.stem, key, run, compiler, arguments)


def link_as_cxx(
    files: Sequence[Path],
    compiler: Sequence[str],
    output: Path,
    arguments: Sequence[str],
    device: Device,
    run: Run,
) -> None:
    """Link a program or shared library with C++ objects."""
    with tempfile.TemporaryDirectory(dir=output.parent) as temporary:
        objects = []
        for number, path in enumerate(files):
            if path.suffix == ".o":
                objects.append(path.absolute())
                continue
            objects.append(Path(temporary).absolute() / f"{number}.o")
            is_cxx = path.suffix in CXX_SUFFIXES
            command = device.cxx_compiler(path.name) if is_cxx else [compiler[0]]
            given = [
                flag
                for flag in compiling(compiler[1:])
                if not (is_cxx and flag.startswith("-std="))  # the compiler's default version
            ]
            run(command, [*given, "-c", str(path.absolute()), "-o", str(objects[-1])])
        linker = device.cxx_compiler(output.name)
        kept = [flag for flag in compiler[1:] if not flag.startswith("-std=")]
        run(linker, [*kept, *map(str, objects), "-o", str(output.absolute()), *arguments])


def missing_table(messages: str) -> str:
    """Return advice on an undefined `NAME_simulator`; empty if none is undefined."""
    for word in messages.replace("`", " ").replace("'", " ").split():
        if word.endswith("_simulator") and "undefined" in messages:
            return (
                f"define {word} in a source of [simulator] in accel.toml"
                ' (in C++ as extern "C"), as umakit/own_simulator.h says'
            )
    return ""
