# SPDX-License-Identifier: Apache-2.0
"""Description of a device: compiling, linking and running of its programs."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from umakit.devices.addresses import RPC, Address
from umakit.errors import BuildError, MissingProgramError, one_line
from umakit.files.compiled_files import HOST_CXX_COMPILERS, host_compiler
from umakit.library.layout import HOSTED_PLATFORM, RUNTIME

SUPPORT = Path(__file__).parent / "support"
"""Folder with platform files, start-up code and linker scripts of bare-metal devices."""

TOOLCHAINS = Path(__file__).parent / "cmake"

FILES, SEMIHOSTING, SERIAL = "files", "semihosting", "serial"
"""Transport of a program's inputs, outputs and report: files opened by the program, files opened by
a debugger or an emulator, or frames on a serial line."""

PLATFORMS = {
    SEMIHOSTING: ("platform_semihosting.c", "semihosting.c"),
    SERIAL: ("platform_serial.c",),
}
"""Files in `SUPPORT` with the platform of devices without an operating system."""

DEFAULT_TIMEOUT = 600.0
"""Time limit in seconds of emulated programs, and on the host of each inference with an
accelerator, whose driver may wait for ever. Other programs of the host have no default limit."""


@dataclass(frozen=True)
class Device:
    """A device for exported libraries.

    Attributes:
        name: value of `uma run --device`.
        command: the C compiler; empty for the host's, which `$CC` overrides.
        architecture: compiler flags for the processor, needed in every call.
        load: words of the command that is run before `run`; empty for none.
        run: words of the command that runs a program, with placeholders; empty if programs run
            natively.
        output: `FILES`, or `SEMIHOSTING` or `SERIAL` for a device without an operating system.
        port: path of a serial port, or `pty` for a pseudo terminal of each run.
        linker_script: the linker script; None for the compiler's default.
        replaced: C files with `math.h` functions that replace the device's C library, which differs
            from the host's by more than 2 ULP.
        has_time: whether measured times are meaningful; false under emulation.
        counts_instructions: whether the instructions of a run are counted.
        timeout_seconds: default time limit of a run in seconds; unused without `run`.
        runs_rtl: whether designs of `[rtl]` replace simulators.
        processors: architectures of the CPUs of `umakit.cpu` whose code the device runs.
        features: features of the processor that these CPUs may need; None for all.
        own_file: user's TOML file of the device; None for a device of umakit.
        remote: address of the machine that runs programs; None for this machine.
        folder_name: name of the folder of programs in a library; empty for the device's name.
    """

    name: str
    description: str
    command: str = ""
    architecture: tuple[str, ...] = ()
    size: str = "size"
    packages: tuple[str, ...] = ()
    load: tuple[str, ...] = ()
    run: tuple[str, ...] = ()
    linking: tuple[str, ...] = ()
    output: str = FILES
    port: str = ""
    baud: int = 115_200
    sources: tuple[Path, ...] = ()
    linker_script: Path | None = None
    replaced: tuple[Path, ...] = ()
    has_time: bool = False
    counts_instructions: bool = False
    timeout_seconds: float = DEFAULT_TIMEOUT
    runs_rtl: bool = False
    processors: tuple[str, ...] = ()
    features: tuple[str, ...] | None = None
    own_file: Path | None = None
    remote: Address | None = None
    ssh_options: tuple[str, ...] = ()
    folder_name: str = ""

    @property
    def is_host(self) -> bool:
        """Whether the device is this machine."""
        return not self.command

    @property
    def is_bare_metal(self) -> bool:
        """Whether the device has no operating system."""
        return self.output != FILES

    @property
    def toolchain_file(self) -> Path | None:
        """The CMake toolchain file of the device; None for the host and devices of users."""
        if self.is_host or self.own_file is not None or self.remote is not None:
            return None
        return TOOLCHAINS / f"toolchain-{self.name}.cmake"

    def compiler(self) -> list[str]:
        """Return the C compiler and its flags for the processor."""
        if not self.command:
            return host_compiler()
        self._require(self.command)
        if self.own_file is not None or self.remote is not None:
            words = self.command, *self.architecture
            announce(f"compiles with: {shlex.join(words)}", (self.own_file or self.name, words))
        return [self.command, *self.architecture]

    def cxx_compiler(self, what: str) -> list[str]:
        """Return the C++ compiler and its flags; `what` names the C++ code in messages."""
        if not self.command:
            return host_compiler("CXX", HOST_CXX_COMPILERS, "C++")
        if self.is_bare_metal:
            raise BuildError(
                f"{what} is in C++, which {self.name} has no library for",
                fix="run it on the host, or write it in C",
            )
        command = f"{self.command.removesuffix('gcc')}g++"
        if shutil.which(command) is None:
            package = next((f"g++{name[3:]}" for name in self.packages if name[:4] == "gcc-"), "")
            mend = f"on Debian: apt-get install {package}, or " if package else ""
            raise MissingProgramError(
                f"{what} is in C++, and {command} for {self.name} is not installed",
                fix=f"{mend}run it on the host",
            )
        return [command, *self.architecture]

    def check_emulator(self) -> None:
        """Check that the programs that load and run programs are installed."""
        for command in (self.load, self.run):
            if command:
                self._require(command[0])

    def platform_sources(self, runtime: Path) -> list[Path]:
        """Return the platform's C files to link with `main.c` of a library's folder `runtime`."""
        if self.is_loaded:
            return [SUPPORT / "platform_rpc.c", *self.sources, *self.replaced]
        if not self.is_bare_metal:
            return [runtime / HOSTED_PLATFORM, *self.sources, *self.replaced]
        platform = (SUPPORT / name for name in PLATFORMS[self.output])
        return [*self.sources, *platform, *self.replaced]

    def program_flags(self) -> list[str]:
        """Return the flags of a whole program in addition to those of `compiler`."""
        placed: list[str] = []
        linking = self.linking
        if self.is_loaded:
            from umakit.tvm_api import ffi_headers  # imports TVM

            linking = tuple(flag for flag in linking if flag != "-static")
            # Rename the main function, and include TVM's headers.
            placed += ["-shared", "-fPIC", "-Dmain=umakit_main", *ffi_headers()]
        if self.is_bare_metal:
            # Unreferenced functions are omitted: memory is small.
            placed += ["-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections"]
            placed.append("-nostartfiles")
            # The board's files include headers of the platform.
            placed += [f"-I{SUPPORT}"] if self.own_file is not None else []
            placed += ["-DUMAKIT_BOARD_HAS_TIME"] if self.has_time else []
        if self.linker_script is not None:
            folders = dict.fromkeys([self.linker_script.parent, SUPPORT])  # scripts include others
            placed += [*(f"-L{each}" for each in folders), "-T", str(self.linker_script)]
        return [f"-I{RUNTIME}", *placed, *linking]

    @property
    def is_emulated_or_remote(self) -> bool:
        """Whether programs run elsewhere than on the processor of this machine."""
        return bool(self.run or self.load or self.remote)

    def run_command(
        self, program: Path, arguments: Sequence[str], folder: Path, port: str = ""
    ) -> list[str]:
        """Return the command that runs a program; file names are relative to the working directory.

        Args:
            arguments: arguments of `main`; without spaces on bare-metal devices.
            port: path of a serial port.
        """
        if not self.run and not self.load:
            return [str(program), *arguments]
        return self._command(self.run, program, arguments, folder, port)

    def load_command(self, program: Path, arguments: Sequence[str], folder: Path) -> list[str]:
        """Return the command to run before `run_command`; empty for none."""
        return self._command(self.load, program, arguments, folder)

    @property
    def is_loaded(self) -> bool:
        """Whether programs are shared objects loaded by TVM's server."""
        return self.remote is not None and self.remote.scheme == RPC

    def announce(self, command: Sequence[str], words: Sequence[str]) -> None:
        """Print a command of a user's file on standard error before its first run; commands of the
        same words in the file are announced once, even for several programs."""
        if self.own_file is not None:
            announce(f"runs: {shlex.join(command)}", (self.own_file, tuple(words)))

    def _command(
        self,
        words: Sequence[str],
        program: Path,
        arguments: Sequence[str],
        folder: Path,
        port: str = "",
    ) -> list[str]:
        escaped = [word.replace(",", ",,") for word in ("main", *arguments)]
        values = {
            "program": str(program),
            "folder": str(folder),
            "port": port,
            "semihosting": ",".join(
                ["enable=on", "target=native", *(f"arg={word}" for word in escaped)]
            ),
        }
        return filled(words, values, arguments)

    def _require(self, program: str) -> None:
        if shutil.which(program) is None:
            mend = f"on Debian: apt-get install {' '.join(self.packages)}"
            if not self.packages:
                mend = f"install it, or correct {self.own_file}"
            raise MissingProgramError(
                f"the device {self.name} needs {program}, which is not installed", fix=mend
            )


_said: set[Hashable] = set()


def announce(sentence: str, occasion: Hashable) -> None:
    """Print a sentence on standard error unless this process has done so on the same occasion."""
    if occasion not in _said:
        _said.add(occasion)
        print(one_line(sentence), file=sys.stderr, flush=True)


PLACEHOLDER = re.compile(r"\{(\w+)\}")

ARGUMENTS = "{arguments}"


def placeholders_in(words: Iterable[str]) -> list[str]:
    """Return the names of the placeholders in words, in order."""
    return [name for word in words for name in PLACEHOLDER.findall(word)]


def filled(
    words: Iterable[str], values: Mapping[str, str], arguments: Sequence[str] | None = None
) -> list[str]:
    """Return words with placeholders replaced by values.

    A value is never split into words, and placeholders in a value are not replaced.

    Args:
        words: words of a command; placeholders without a value stay.
        values: values by placeholder name.
        arguments: values of `{arguments}`. A word `{arguments}` becomes one word per value; within
            a longer word, values are separated by blanks. None keeps the placeholder.
    """
    known = dict(values)
    if arguments is not None:
        known["arguments"] = " ".join(arguments)
    found: list[str] = []
    for word in words:
        if word == ARGUMENTS and arguments is not None:
            found += arguments
        else:
            found.append(PLACEHOLDER.sub(lambda match: known.get(match[1], match[0]), word))
    return found
