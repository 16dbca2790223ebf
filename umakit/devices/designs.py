# SPDX-License-Identifier: Apache-2.0
"""Designs of `[rtl]` that implement `umakit/device.h` in place of a simulator.

A design stays in the folder of its backend: exported libraries contain no part of a design. Imports
no TVM.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from umakit.devices.device import Device
from umakit.devices.libraries import Run
from umakit.devices.objects import cached_object, version_of
from umakit.devices.verilator import HARNESS, DesignFiles, Verilated, ports_of, verilated
from umakit.errors import AcceleratorConfigError, InputError, short_path
from umakit.files.compiled_files import HOST_CXX_COMPILERS, host_compiler
from umakit.machine.accelerator_config import AcceleratorConfig, load_accelerator_config
from umakit.machine.config_faults import line_of_value
from umakit.machine.rtl_config import RtlSection, design_folders, design_sources, included_files
from umakit.machine.rtl_ports import Wiring, wiring_of
from umakit.text.rendering import render

if TYPE_CHECKING:
    from umakit.registration.backend import Backend

HARNESS_FLAGS = ("-std=c++17", "-O3")


@dataclass(frozen=True)
class Design:
    """The design of a backend.

    Attributes:
        section: `[rtl]` of `accel.toml`, with figures filled in.
        latency: memory latency in cycles, from a request to its first data.
        alignment: alignment of buffer addresses in bytes.
    """

    backend: str
    folder: Path
    section: RtlSection
    latency: int
    alignment: int
    bytes_per_cycle: int

    @property
    def files(self) -> DesignFiles:
        """Return the files for Verilator."""
        defines = self.section.defines
        return DesignFiles(
            self.section.top,
            tuple(design_sources(self.section, self.folder)),
            tuple(design_folders(self.section, self.folder)),
            tuple(included_files(self.section, self.folder)),
            dict(self.section.parameters),
            tuple(
                name if value is True else f"{name}={int(value)}"
                for name, value in defines.items()
                if value is not False
            ),
        )

    def digest(self) -> str:
        """Return a digest of all dependences of the design's objects except compilers."""
        digest = hashlib.sha256(
            repr([self.section, self.latency, self.alignment, self.bytes_per_cycle]).encode()
        )
        digest.update(self.files.digest())
        digest.update(_headers_in(HARNESS))
        return digest.hexdigest()


def designs_for(backends: Iterable[Backend], device: Device) -> list[Design]:
    """Return the designs of backends for a device; none for a device that runs no RTL."""
    if not device.runs_rtl:
        for each in backends:
            if each.configuration.is_only_rtl:
                raise _only_rtl(each.target_name)
        return []
    given = list(backends)
    found = [each for each in given if each.configuration.rtl is not None]
    if not found:
        raise InputError(
            "no accelerator that was given has a section [rtl] in its accel.toml",
            where=", ".join(short_path(each.folder / "accel.toml") for each in given),
            fix="describe its design there, as docs/your-rtl.md says",
        )
    return [design_from(each.configuration, each.folder) for each in found]


def design_of(folder: Path) -> Design:
    """Return the design of the backend in a folder."""
    path = folder / "accel.toml"
    return design_from(load_accelerator_config(path), folder)


def design_from(configuration: AcceleratorConfig, folder: Path) -> Design:
    """Return the design described by the configuration of the backend in a folder."""
    section = configuration.filled_rtl
    if section is None:
        raise AcceleratorConfigError(
            f"the accelerator {configuration.accelerator.name} has no section [rtl]",
            where=str(folder / "accel.toml"),
            fix="describe its design there, as docs/your-rtl.md says",
        )
    latency, alignment = section.memory.latency, section.memory.alignment
    return Design(
        configuration.accelerator.name,
        folder,
        section,
        configuration.dma.latency_cycles if latency is None else latency,
        configuration.dma.alignment if alignment is None else alignment,
        configuration.dma.bytes_per_cycle if configuration.has_dma else 0,
    )


def check_designs(
    designs: Sequence[Design], description: Mapping[str, Any], device: Device
) -> None:
    """Refuse designs that cannot run a library."""
    if designs and device.command:
        raise InputError(
            f"designs of [rtl] run on the host, not on {device.name}", fix="leave --device out"
        )
    simulated = {each["name"]: bool(each["simulated"]) for each in description["backends"]}
    for design in designs:
        if design.backend not in simulated:
            there = ", ".join(simulated) or "none"
            raise InputError(
                f"the library has no accelerator {design.backend}, whose design was given",
                fix=f"its accelerators are {there}",
            )
        if not simulated[design.backend]:
            raise InputError(
                f"the library was exported without a simulated {design.backend}",
                where=str(design.folder / "accel.toml"),
                fix='set simulator = "rtl" in [device], and export it again',
            )
    sources, answering = description["sources"], {design.backend for design in designs}
    for name in simulated:
        has_simulator = sources["devices"].get(name) or name in sources["own"]
        if simulated[name] and not has_simulator and name not in answering:
            raise _only_rtl(name)


def _only_rtl(name: str) -> InputError:
    return InputError(
        f"the accelerator {name} has no simulator: only its design in RTL answers",
        fix=f"uma run --rtl ./{name}, uma diff --rtl and uma check --rtl run on it",
    )


def wiring(design: Design) -> Wiring:
    """Return the assignment of a design's ports to signals, as read by Verilator."""
    path = design.folder / "accel.toml"
    try:
        found = wiring_of(design.section, ports_of(design.files))
    except AcceleratorConfigError as error:
        raise AcceleratorConfigError(
            error.what, where=error.where or _line(path, error.what), fix=error.fix
        ) from None
    width = found.memory_bits // 8
    if found.memory and design.bytes_per_cycle and width != design.bytes_per_cycle:
        raise AcceleratorConfigError(
            f"dma.bytes_per_cycle is {design.bytes_per_cycle}, and the memory bus of the design "
            f"has {width} bytes",
            where=line_of_value(path, "dma", "bytes_per_cycle"),
            fix="let both say the same, or predictions and RTL differ",
        )
    return found


def _line(path: Path, what: str) -> str:
    """Return the line of the `[rtl]` section or key at the start of a sentence."""
    key = what.split(":")[0].removeprefix("rtl").removeprefix(".").split(".")
    if key[0] in ("registers", "memory"):
        return line_of_value(path, f"rtl.{key[0]}", key[1] if len(key) > 1 else "prefix")
    return line_of_value(path, "rtl", key[0] or "top")


def check_ports(backends: Iterable[Backend], device: Device) -> None:
    """Refuse, before any compiling, designs with wrong ports and backends that cannot run."""
    for design in designs_for(backends, device):
        wiring(design)


def simulator_source(design: Design, found: Wiring, table: str = "") -> str:
    """Return the C++ file that connects a design to `umakit/device.h`.

    Args:
        table: stem of the function that returns the table of `umakit/own_simulator.h`; default: the
            backend.
    """
    section = design.section
    bus = section.memory.bus
    return render(
        "rtl/simulator.cc.j2",
        name=table or design.backend,
        top=section.top,
        clock=section.clock,
        reset=section.reset or None,
        reset_level=int(section.resets_high),
        reset_cycles=section.reset_cycles,
        begins_random=bool(section.reset),
        interrupt=section.interrupt or None,
        interrupt_level=int(section.interrupt_level == "high"),
        ties=dict(section.ties),
        widths=dict(found.widths),
        registers={"bus": section.registers.bus, "ports": dict(found.registers), "data_bits": 32},
        memory=None
        if bus == "none"
        else {
            "bus": bus,
            "ports": dict(found.memory),
            "data_bits": found.memory_bits,
            "latency": design.latency,
            "alignment": design.alignment,
        },
    )


@dataclass(frozen=True)
class DesignObjects:
    """Objects and linker arguments of designs in a program."""

    objects: tuple[Path, ...] = ()
    linking: tuple[str, ...] = ()


def design_objects(
    designs: Sequence[Design],
    headers: Path,
    run: Run,
    *,
    is_traced: bool = False,
    tables: Mapping[str, str] | None = None,
) -> DesignObjects:
    """Compile designs, each once per version of its files.

    Args:
        tables: stems of their table names, by backend; default: the backend.
    """
    objects: list[Path] = []
    linking: list[str] = []
    for design in designs:
        found = wiring(design)  # quick check before slow compilation
        compiled = verilated(design.files, is_traced=is_traced)
        text = simulator_source(design, found, (tables or {}).get(design.backend, ""))
        objects.append(_harness_object(text, compiled, headers, run))
        linking += compiled.linking
    return DesignObjects(tuple(objects), tuple(dict.fromkeys(linking)))


def _harness_object(text: str, compiled: Verilated, headers: Path, run: Run) -> Path:
    compiler = host_compiler("CXX", HOST_CXX_COMPILERS, "C++")
    flags = [*HARNESS_FLAGS, *(["-DUMAKIT_RTL_TRACE"] if compiled.is_traced else [])]
    key = repr([compiler, version_of(compiler[0]), flags, text, compiled.folder.name]).encode()
    key += _headers_in(HARNESS) + _headers_in(headers)

    def compile_to(output: Path) -> None:
        source = output.with_suffix(".cc")
        source.write_text(text, encoding="utf-8")
        includes = [f"-I{HARNESS}", f"-I{headers.absolute()}", *compiled.compiling]
        run(compiler, [*flags, *includes, "-c", str(source), "-o", str(output)])

    return cached_object(f"rtl_{compiled.top}", key, compile_to)


def _headers_in(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((folder / "umakit").glob("*.h")))
