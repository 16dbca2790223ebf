# SPDX-License-Identifier: Apache-2.0
"""Description of a device: how to compile, link and run programs for it."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from umakit.errors import BuildError, MissingProgramError
from umakit.files.compilers import HOST_CXX_COMPILERS, host_compiler
from umakit.library.layout import HOSTED_PLATFORM, RUNTIME

SUPPORT = Path(__file__).parent / "support"
"""Folder with platform files, start-up code and linker scripts of bare-metal devices."""

TOOLCHAINS = Path(__file__).parent / "cmake"

BARE_METAL_PLATFORM = ("platform_semihosting.c", "semihosting.c")


@dataclass(frozen=True)
class Device:
    """A device that an exported library runs on.

    Attributes:
        name: value of `uma run --device`.
        description: description in one line.
        command: the C compiler; empty for the host's, which `$CC` overrides.
        architecture: compiler flags for the processor, needed in every call.
        size: the program that prints section sizes, such as binutils' `size`.
        packages: Debian packages of the compiler, its C library and the emulator.
        emulator: command that runs a program; empty if programs run natively.
        linking: flags for linking a program.
        start_up: stem of the start-up files in `SUPPORT`; empty if the device has an operating
            system.
        linker_script: stem of the linker script in `SUPPORT`; empty for that of the start-up files.
        replaced: files in `SUPPORT` with functions of `math.h` that replace those of the device's
            C library, which differ from the host's by more than 2 ULP.
        has_time: whether measured times are meaningful, which they are not under emulation.
        counts_instructions: whether the instructions of a run are counted.
        runs_rtl: whether designs of `[rtl]` answer in place of simulators.
        processors: architectures of the CPUs of `umakit.machine.cpu` that it runs code for.
        features: what its processor has of the features that these CPUs may need; None for all.
    """

    name: str
    description: str
    command: str = ""
    architecture: tuple[str, ...] = ()
    size: str = "size"
    packages: tuple[str, ...] = ()
    emulator: tuple[str, ...] = ()
    linking: tuple[str, ...] = ()
    start_up: str = ""
    linker_script: str = ""
    replaced: tuple[str, ...] = ()
    has_time: bool = False
    counts_instructions: bool = False
    runs_rtl: bool = False
    processors: tuple[str, ...] = ()
    features: tuple[str, ...] | None = None

    @property
    def is_host(self) -> bool:
        """Whether it is this machine."""
        return not self.command

    @property
    def is_bare_metal(self) -> bool:
        """Whether the device has no operating system."""
        return bool(self.start_up)

    @property
    def toolchain_file(self) -> Path | None:
        """The CMake toolchain file of the device; None for the host."""
        return TOOLCHAINS / f"toolchain-{self.name}.cmake" if self.command else None

    def compiler(self) -> list[str]:
        """The C compiler and its flags for the processor.

        Raises:
            MissingProgramError: the compiler is not installed.
            BuildError: `$CC` cannot be parsed.
        """
        if not self.command:
            return host_compiler()
        self._require(self.command)
        return [self.command, *self.architecture]

    def cxx_compiler(self, what: str) -> list[str]:
        """The C++ compiler and its flags for the processor.

        Args:
            what: what is in C++, for messages.

        Raises:
            BuildError: the device has no C++, or the compiler is not installed.
        """
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
            raise MissingProgramError(
                f"{what} is in C++, and {command} for {self.name} is not installed",
                fix=f"on Debian: apt-get install {package}, or run it on the host",
            )
        return [command, *self.architecture]

    def check_emulator(self) -> None:
        """Check that the emulator is installed.

        Raises:
            MissingProgramError: the emulator is not installed.
        """
        if self.emulator:
            self._require(self.emulator[0])

    def platform_sources(self, runtime: Path) -> list[Path]:
        """Return the platform's C files to link with `main.c` of a library's folder `runtime`."""
        replaced = [SUPPORT / name for name in self.replaced]
        if not self.is_bare_metal:
            return [runtime / HOSTED_PLATFORM, *replaced]
        start_up = (f"{self.start_up}.S", f"{self.start_up}.c")
        return [*(SUPPORT / name for name in (*start_up, *BARE_METAL_PLATFORM)), *replaced]

    def program_flags(self) -> list[str]:
        """Return the flags of a whole program in addition to those of `compiler`."""
        if not self.is_bare_metal:
            return [f"-I{RUNTIME}", *self.linking]
        # Unreferenced functions are omitted: memory is small.
        sections = ["-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections"]
        script = SUPPORT / f"{self.linker_script or self.start_up}.ld"
        placed = ["-nostartfiles", f"-L{SUPPORT}", "-T", str(script)]  # scripts include others
        return [f"-I{RUNTIME}", *sections, *placed, *self.linking]

    def run_command(self, program: Path, arguments: Sequence[str]) -> list[str]:
        """Return the command that runs a program; file names are relative to the working directory.

        Args:
            program: a program that was built for this device.
            arguments: arguments of `main`; without spaces on bare-metal devices.
        """
        if not self.is_bare_metal:
            return [*self.emulator, str(program), *arguments]
        escaped = [word.replace(",", ",,") for word in ("main", *arguments)]
        semihosting = ",".join(["enable=on", "target=native", *(f"arg={word}" for word in escaped)])
        return [*self.emulator, "-semihosting-config", semihosting, "-kernel", str(program)]

    def _require(self, program: str) -> None:
        if shutil.which(program) is None:
            raise MissingProgramError(
                f"the device {self.name} needs {program}, which is not installed",
                fix=f"on Debian: apt-get install {' '.join(self.packages)}",
            )
