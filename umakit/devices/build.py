# SPDX-License-Identifier: Apache-2.0
"""Building an exported library for a device. Imports neither TVM nor the pipeline."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from umakit.devices import HOST, Device
from umakit.devices.cpus import cpu_flags, device_for
from umakit.devices.designs import Design, DesignObjects, design_objects
from umakit.devices.device import SUPPORT
from umakit.devices.libraries import (
    CallableLibrary,
    Run,
    check_compiled,
    driver_libraries,
    libraries_of,
    library_objects,
    linker_arguments,
)
from umakit.devices.objects import (
    TIMES,
    calls_device,
    digest_of,
    modified,
    with_shared_objects,
    with_timed_device,
)
from umakit.devices.refused_sources import mend_of_missing_header, refusal_of_team
from umakit.devices.simulators import (
    WATCHDOG,
    WATCHING,
    Simulator,
    check_simulators,
    link_as_cxx,
    missing_table,
    simulator_objects,
    simulators_of,
)
from umakit.devices.waveforms import traced_main
from umakit.errors import BuildError, TooLargeError
from umakit.files.compiled_files import is_compiled, is_shared
from umakit.library.layout import RUNTIME, cache_folder
from umakit.library.metadata import read_description
from umakit.library.roles import SOURCE_FOLDER, device_source
from umakit.library.tar_files import library_folder
from umakit.machine.simulator_config import CXX_SUFFIXES
from umakit.text.rendering import render

FLAGS = ("-std=c99", "-O3", "-ffp-contract=off")
"""Compiler flags. Without -ffast-math and contraction, every device rounds like the host."""

KEPT_PROGRAMS = 4
"""Number of builds kept per library; older builds are deleted."""

NO_DESIGNS = DesignObjects()

DIAGNOSTIC = re.compile(
    r"error(?!: ld returned)|undefined reference|multiple definition|recompile with -f"
    r"|cannot find -l"
)
"""Form of error lines of compilers and linkers."""

MISSING_PACKAGE = re.compile(r"\.specs: No such file|cannot find -l")

MISSING_LIBRARY = re.compile(r"cannot find -l(?!(?:c|m|g|gcc|gcc_s|stdc\+\+|nosys)\b)([\w+.-]+\w)")
"""Form of the message of linkers for a library that is not the C compiler's."""

OWN_NAME = "umakit|tvmgen_|platform"
"""Starts of names of headers and functions that are umakit's, not a driver's."""

UNDEFINED_IN_DRIVER = re.compile(rf"undefined reference to `(?!{OWN_NAME}|_)")

OVERFLOW = re.compile(r"region `(\w+)' overflowed by (\d+) byte")
"""Form of the message of GNU's linker for a program that is too large."""


def compile_c(
    sources: list[Path],
    output: Path,
    flags: list[str],
    device: Device = HOST,
    simulators: Sequence[Simulator] = (),
    libraries: Sequence[CallableLibrary] = (),
    designs: DesignObjects = NO_DESIGNS,
) -> None:
    """Compile and link C sources.

    Args:
        sources: `.c` files, and C++ files, objects and libraries of drivers.
        flags: flags in addition to the C standard and optimization.
        simulators: backends' own simulators, possibly in C++.
    """
    compiler = device.compiler()
    name, folder = shlex.join(compiler), sources[0].parent
    check_simulators(simulators, device)

    def run(command: list[str]) -> None:
        call_compiler(command, name, folder, device)

    def run_any(command: Sequence[str], arguments: list[str]) -> None:
        of = next((each for each in simulators if f"{each.folder}/" in " ".join(arguments)), None)
        call_compiler(
            [*command, *arguments], shlex.join(command), of.folder if of else folder, device
        )

    compiled = [path for path in sources if is_compiled(path.name)]
    is_cxx = _has_cxx(sources, simulators, device, run_any) or bool(designs.objects)
    is_cxx |= any(each.is_cxx for each in simulators) or any(each.is_cxx for each in libraries)
    sources = [path for path in sources if path not in compiled]
    objects = library_objects(libraries, FLAGS, flags, device, run_any)
    flags = [*flags, *(word for each in libraries for word in each.words)]
    files = with_shared_objects(sources, [*compiler, *FLAGS], flags, run)
    # A shared library is part of a user's process, which must not be ended.
    watches = device.is_host and "-shared" not in flags
    files += [*simulator_objects(simulators, flags, device, run_any, watches), *objects]
    files += designs.objects
    linking = [*designs.linking, *linker_arguments(compiled)]
    linking += [f"-l{name}" for each in libraries for name in each.files.link]
    linking += [*(argument for each in simulators for argument in each.linking()), "-lm"]
    linking += [WATCHING] if watches and any(each.watched for each in simulators) else []
    if is_cxx:
        link_as_cxx(files, [*compiler, *FLAGS, *flags], output, linking, device, run_any)
        return
    linked = map(file_argument, files)
    run([*compiler, *FLAGS, *flags, *linked, "-o", file_argument(output), *linking])


def _has_cxx(
    sources: Sequence[Path], simulators: Sequence[Simulator], device: Device, run: Run
) -> bool:
    """Whether sources, objects or libraries are C++; a missing C++ compiler is refused."""
    cxx_sources = [source for source in sources if source.suffix in CXX_SUFFIXES]
    for source in cxx_sources:
        device.cxx_compiler(source.name)
    compiled = [path for path in sources if is_compiled(path.name)]
    compiled += [path for each in simulators for path in each.compiled]
    compiled_cxx = check_compiled(compiled, device, run)
    if compiled_cxx:
        device.cxx_compiler(compiled_cxx)
    return bool(cxx_sources or compiled_cxx)


def compiling_for(device: Device, folder: Path) -> Run:
    """Return a function that compiles for a device; `folder` is named if a source is refused."""

    def run(command: Sequence[str], arguments: list[str]) -> None:
        call_compiler([*command, *arguments], shlex.join(command), folder, device)

    return run


@dataclass(frozen=True)
class Answering:
    """The parts of a library's program.

    Attributes:
        flags: compiler flags for sources of designs.
        answering: names of backends whose designs replace simulators.
    """

    sources: list[Path]
    simulators: list[Simulator]
    designs: DesignObjects = NO_DESIGNS
    flags: tuple[str, ...] = ()
    answering: tuple[str, ...] = ()


def what_answers(
    library: Path,
    designs: Sequence[Design],
    device: Device,
    folder: Path,
    *,
    is_traced: bool = False,
) -> Answering:
    """Return the files of a library, with designs in place of their backends' simulators."""
    sources, simulators = library_sources(library), simulators_of(library)
    devices = read_description(library).sources.devices
    designs = [each for each in designs if each.backend in devices]  # other designs have no layer
    if not designs:
        return Answering(sources, simulators)
    headers = library / SOURCE_FOLDER
    compiling = compiling_for(device, library)
    objects = design_objects(designs, headers, compiling, is_traced=is_traced)
    names = {each.backend for each in designs}
    replaced = {headers / path for name in names for path in devices[name]}
    kept = [path for path in sources if path not in replaced]
    for name in sorted(names):
        opening = folder / device_source(name)
        opening.write_text(_device_of(name, is_traced), encoding="utf-8")
        kept.append(opening)
    others = [each for each in simulators if each.backend not in names]
    flags = (f"-I{headers.absolute()}",)
    return Answering(kept, others, objects, flags, tuple(sorted(names)))


def _device_of(name: str, is_traced: bool) -> str:
    return render("rtl/design_device.c.j2", name=name, is_traced=is_traced)


def file_argument(path: Path) -> str:
    """Return a path that compilers mistake neither for an option nor for an `@` file."""
    return f"./{path}" if str(path).startswith(("-", "@")) else str(path)


def call_compiler(command: list[str], name: str, folder: Path, device: Device) -> None:
    """Run a compiler."""
    # Keep messages untranslated: they are parsed below.
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False, env=environment
        )
    except OSError as error:
        raise BuildError(f"cannot run {command[0]}: {error.strerror}") from None
    if result.returncode != 0:
        raise _refusal(device, name, result.stderr, folder)


def _refusal(device: Device, compiler: str, messages: str, folder: Path) -> BuildError:
    overflows = OVERFLOW.findall(messages)
    if overflows:
        regions = " and ".join(f"{name} by {int(size):,} bytes" for name, size in overflows)
        return TooLargeError(
            f"the program is too large for {device.name}: it overflows {regions}",
            fix="choose a device with more memory or a smaller network",
        )
    too_large = re.search(r'#error "(this network needs [^"]*)"', messages)
    if too_large:
        return TooLargeError(
            too_large[1].replace("this target", device.name),
            fix="choose a device with 64 bits or a smaller network",
        )
    if "relocation truncated" in messages:
        return TooLargeError(
            "the program has more static memory than the compiler's code model reaches",
            fix=f"run it with CC='{compiler} -mcmodel=large'",
        )
    lines = [line for line in messages.splitlines() if DIAGNOSTIC.search(line)]
    first = lines[0] if lines else (messages.strip() or "no message").splitlines()[-1]
    of_team = refusal_of_team(compiler, messages, folder)
    if of_team and not missing_table(messages):
        return of_team
    fix = _missing(device, messages) or f"compile {folder} by hand to see the rest"
    return BuildError(f"{compiler} refused: {first.strip()}", fix=fix)


def _missing(device: Device, messages: str) -> str:
    header = mend_of_missing_header(messages, device)
    if header:
        return header
    library = MISSING_LIBRARY.search(messages)
    if library:
        return f"set LIBRARY_PATH to the folder of lib{library[1]}.a for {device.name}"
    if device.packages and MISSING_PACKAGE.search(messages):
        return f"on Debian: apt-get install {' '.join(device.packages)}"
    if "recompile with -fPIC" in messages:
        return "compile the objects and libraries of the driver and the simulator with -fPIC"
    if missing_table(messages):
        return missing_table(messages)
    if UNDEFINED_IN_DRIVER.search(messages):
        return "if a driver has it, name its C file in _register_driver of the backend"
    return ""


def library_sources(library: Path) -> list[Path]:
    """Return the source files of an exported library, a folder or a tar file.

    C and C++ files come first, then objects and libraries in linking order. `libraries_of` returns
    the files of libraries of C functions, which are excluded here.
    """
    folder = library_folder(library) / SOURCE_FOLDER
    others = {path for each in libraries_of(library) for path in each.paths}
    sources = (path for path in folder.rglob("*.c*") if path.suffix in (".c", *CXX_SUFFIXES))
    return [*sorted(path for path in sources if path not in others), *driver_libraries(library)]


@dataclass(frozen=True)
class RunnerOptions:
    """Options of the program that runs a library: its measurements, and its processor.

    Attributes:
        most_commands: maximum number of recorded commands per layer, with `profile`.
        each_inference: whether each inference is reported separately, with `profile`.
        is_traced: whether designs can write waveforms; layers are then measured one by one.
    """

    profile: bool = False
    most_commands: int = 0
    each_inference: bool = False
    designs: Sequence[Design] = ()
    is_traced: bool = False
    cpu: str = ""

    def macros(self, interface: str) -> list[str]:
        """Return the compiler flags of the measurements, for the library's `tvmgen_NAME` prefix."""
        prefix = f"-D{interface.upper()}"
        flags = [f"{prefix}_PROFILE"] if self.profile or self.is_traced else []
        flags += [f"{prefix}_TIMELINE={self.most_commands}u"] if self.most_commands else []
        return [*flags, *([f"{prefix}_EACH_INFERENCE"] if self.each_inference else [])]


PLAIN_RUNNER = RunnerOptions()


def build_runner(
    library: Path, interface: str, device: Device = HOST, options: RunnerOptions = PLAIN_RUNNER
) -> Path:
    """Build the program that runs a library on a device, unless it is up to date."""
    library = library_folder(library)
    flags = options.macros(interface)
    flags += [*device.program_flags(), *cpu_flags(library, device, options.cpu)]
    device = device_for(library, device, options.cpu)
    fingerprint = _fingerprint(library, [*flags, *_digests(library, device, options)], device)
    program = _build_folder(library, device) / f"run-{fingerprint}"
    if program.exists():
        return program
    programs = sorted(program.parent.glob(f"run-{'[0-9a-f]' * 16}"), key=modified)
    for stale in programs[:-KEPT_PROGRAMS]:
        stale.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(dir=program.parent) as temporary:
        built = Path(temporary) / program.name
        _compile_runner(library, interface, built, flags, device, options)
        built.replace(program)
    return program


def _digests(library: Path, device: Device, options: RunnerOptions) -> list[str]:
    """Return the digests of what a program is built from, apart from the library's own files."""
    answering = {each.backend for each in options.designs}
    simulators = [each for each in simulators_of(library) if each.backend not in answering]
    check_simulators(simulators, device)
    digests = [each.digest().hex() for each in simulators]
    watched = [word for each in simulators for word in each.watched] if device.is_host else []
    if watched:
        digests += [*watched, hashlib.sha256(WATCHDOG.read_bytes()).hexdigest()]
    brought = [*driver_libraries(library), *(path for each in simulators for path in each.compiled)]
    # Programs contain paths of shared libraries: relink after the folder has moved.
    digests += [str(path.absolute()) for path in brought if is_shared(path.name)]
    digests += [each.digest() for each in libraries_of(library)]
    opening = _device_of("", options.is_traced)
    digests += [text for each in options.designs for text in (each.digest(), opening)]
    digests += [hashlib.sha256(TIMES.read_bytes()).hexdigest()] if options.profile else []
    return digests


def _compile_runner(
    library: Path,
    interface: str,
    program: Path,
    flags: list[str],
    device: Device,
    options: RunnerOptions,
) -> None:
    """Compile the program of `build_runner`; generated files go into the folder of the program."""
    folder, runtime, is_traced = program.parent, library / "runtime", options.is_traced
    found = what_answers(library, options.designs, device, folder, is_traced=is_traced)
    main = runtime / "main.c"
    if is_traced:
        main = traced_main(main, interface, found.answering, folder)
    sources = [*found.sources, main, *device.platform_sources(runtime)]
    flags = [*flags, *found.flags]
    if options.profile and calls_device(sources):
        command, headers = device.compiler(), (library / SOURCE_FOLDER).absolute()
        flags += [f"-D{interface.upper()}_DEVICE_TIMES", f"-I{headers}"]
        run = partial(call_compiler, name=shlex.join(command), folder=library, device=device)
        sources = with_timed_device(sources, [*command, *FLAGS], flags, folder, run)
    libraries = libraries_of(library)
    compile_c(sources, program, flags, device, found.simulators, libraries, found.designs)


def _build_folder(library: Path, device: Device) -> Path:
    folder = library / "build" / (device.folder_name or device.name)
    try:
        # Do not follow a link out of the library: its target may belong to someone else.
        if folder.resolve().is_relative_to(library.resolve()):
            folder.mkdir(parents=True, exist_ok=True)
            if os.access(folder, os.W_OK):
                return folder
    except OSError:
        pass
    name = hashlib.sha256(os.fsencode(os.path.realpath(library))).hexdigest()[:16]
    return cache_folder(name, device.folder_name or device.name)


def _fingerprint(library: Path, flags: list[str], device: Device) -> str:
    cxx = os.environ.get("CXX", "")
    own = [] if device.own_file is None else [digest_of(device)]
    digest = hashlib.sha256(repr([device.compiler(), cxx, FLAGS, flags, *own]).encode())
    folders: list[tuple[Path, tuple[str, ...]]] = [
        (library, ("codegen/host/**/*.[ch]*", "codegen/host/lib/**/*.*", "runtime/*.[ch]"))
    ]
    if not device.is_host:
        folders += [(SUPPORT, ("*",)), (RUNTIME, ("*",))]
    for folder, patterns in folders:
        for path in sorted(path for pattern in patterns for path in folder.glob(pattern)):
            digest.update(str(path.relative_to(folder)).encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
