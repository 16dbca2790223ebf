# SPDX-License-Identifier: Apache-2.0
"""The section `[rtl]` of `accel.toml`: the design of an accelerator in SystemVerilog or Verilog."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field

from umakit.errors import AcceleratorConfigError
from umakit.machine.config_faults import Section, line_of_value
from umakit.machine.simulator_config import FIGURE, FolderPath

VERILOG_SUFFIXES = (".sv", ".v")
VHDL_SUFFIXES = (".vhd", ".vhdl")
INCLUDED_SUFFIXES = (".svh", ".vh", ".svi", ".inc", ".hex", ".mem", ".dat", ".vlt")
"""Files that designs read beside their sources: headers, memory contents, configurations."""

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
GLOB = re.compile(r"[A-Za-z0-9_+.*?/-]+")
NUMBER = re.compile(r"-?[0-9]+|[0-9]*'s?[bodhBODH][0-9a-fA-F_]+")

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
PACKAGE = re.compile(r"\bpackage\s+(?:automatic\s+|static\s+)?(\w+)\s*;")
USED_PACKAGE = re.compile(r"\b(\w+)\s*::")

Level = Literal["high", "low"]
RegisterBus = Literal["axi4-lite", "apb", "plain"]
MemoryBus = Literal["axi4", "plain", "none"]


def _check_identifier(name: str) -> str:
    if not IDENTIFIER.fullmatch(name):
        raise ValueError(f"{name!r} is not the name of a module, a port or a parameter")
    return name


def _check_prefix(name: str) -> str:
    if name and not IDENTIFIER.fullmatch(name):
        raise ValueError(f"{name!r} cannot be what names of ports begin with")
    return name


def _check_source(path: str) -> str:
    suffix = PurePosixPath(path).suffix
    if path.startswith("/") or ".." in path.split("/") or not GLOB.fullmatch(path):
        raise ValueError(f"{path!r} is not a path or glob below the backend's folder")
    if suffix in VHDL_SUFFIXES:
        raise ValueError(
            f"{path} is VHDL, which Verilator does not read; "
            "convert it to Verilog, for example with ghdl synth --out=verilog"
        )
    if suffix not in VERILOG_SUFFIXES:
        raise ValueError(f"{path} is neither SystemVerilog (.sv) nor Verilog (.v)")
    return path


def _check_parameter(value: int | str) -> int | str:
    if isinstance(value, str) and not (NUMBER.fullmatch(value) or FIGURE.fullmatch(value)):
        raise ValueError(
            f"{value!r} is neither a number, such as 8 or 16'h40, nor a figure, such as "
            "{array.rows}"
        )
    return value


def _check_alignment(value: int) -> int:
    if value & (value - 1):
        raise ValueError(f"{value} is not a power of two")
    return value


Identifier = Annotated[str, AfterValidator(_check_identifier)]
Prefix = Annotated[str, AfterValidator(_check_prefix)]
SourcePath = Annotated[str, AfterValidator(_check_source)]
Parameter = Annotated[int | str, AfterValidator(_check_parameter)]
Cycles = Annotated[int, Field(ge=0, le=1_000_000)]
Alignment = Annotated[int, Field(ge=1, le=4096), AfterValidator(_check_alignment)]


class RegistersSection(Section):
    """The bus of the driver's register accesses.

    Attributes:
        bus: `axi4-lite`, `apb` (3 or 4), or `plain`, a request with its response.
        prefix: prefix of the names of the ports; the rest is the signal's name in the
            specification, such as `awaddr` or `psel`, in capitals or not.
        ports: ports with other names, by the signal's name.
        volatile: offsets of counting or measuring registers, left out of comparisons with the model
            in addition to volatile registers of the register map.
    """

    bus: RegisterBus = "axi4-lite"
    prefix: Prefix = ""
    ports: dict[str, Identifier] = Field(default={})
    volatile: list[Annotated[int, Field(ge=0, le=2**32 - 4, multiple_of=4)]] = Field(default=[])


class BusMemorySection(Section):
    """The bus of the design's accesses to the host's memory.

    Attributes:
        bus: `axi4`, `plain`, or `none` for a design without access to memory.
        prefix, ports: as in `RegistersSection`.
        latency: cycles from a request to its first data; default: `latency_cycles` of `[dma]`.
        alignment: alignment of the addresses of buffers in bytes, a power of two; default:
            `alignment` of `[dma]`.
    """

    bus: MemoryBus = "axi4"
    prefix: Prefix = ""
    ports: dict[str, Identifier] = Field(default={})
    latency: Cycles | None = None
    alignment: Alignment | None = None


class RtlSection(Section):
    """A design in SystemVerilog or Verilog, compiled by Verilator.

    All paths are relative to the backend's folder and stay inside the folder.

    Attributes:
        top: the top module.
        sources: files, as paths or globs; files with packages are read before files that use the
            packages.
        parameters: values of the top's parameters: numbers, or figures of this file such as
            `{array.rows}`, `{data.size}` or a figure of `[machine]`.
        defines: macros of the preprocessor, `true` for one without a value.
        reset: the port of the reset; empty for none.
        reset_level: active level of the reset; default: `low` if the port's name ends in `n` or
            `b`, in front of `_i` or `_in`, or in `_ni`.
        reset_cycles: length of the reset in cycles.
        interrupt: the port of the interrupt; empty for none.
        interrupt_level: active level of the interrupt.
        ties: constant values of other inputs.
    """

    top: Identifier
    sources: list[SourcePath] = Field(min_length=1)
    include: list[FolderPath] = Field(default=[])
    parameters: dict[Identifier, Parameter] = Field(default={})
    defines: dict[Identifier, bool | int] = Field(default={})
    clock: Identifier = "clk"
    reset: Prefix = ""
    reset_level: Level | None = None
    reset_cycles: Annotated[int, Field(ge=1, le=10_000)] = 4
    interrupt: Prefix = ""
    interrupt_level: Level = "high"
    ties: dict[Identifier, Annotated[int, Field(ge=0, le=2**64 - 1)]] = Field(default={})
    registers: RegistersSection = RegistersSection()
    memory: BusMemorySection = BusMemorySection()

    @property
    def resets_high(self) -> bool:
        """Whether the reset's active level is 1."""
        if self.reset_level is not None:
            return self.reset_level == "high"
        name = self.reset.lower()
        bare = name.removesuffix("_i").removesuffix("_in")
        return not (bare.endswith(("n", "b")) or name.endswith("_ni"))

    def filled(self, figures: Mapping[str, int]) -> Self:
        """Return the section with figures instead of their names in `parameters`.

        Raises:
            ValueError: the name of a figure is unknown; names the key.
        """
        values: dict[str, int | str] = {}
        for name, value in self.parameters.items():
            found = FIGURE.fullmatch(value) if isinstance(value, str) else None
            if found and found[1] not in figures:
                there = ", ".join(sorted(figures))
                raise ValueError(
                    f"rtl.parameters: there is no figure {found[1]}; "
                    + (f"figures are {there}" if there else "the file has no figures")
                )
            values[name] = figures[found[1]] if found else value
        return self.model_copy(update={"parameters": values})


def design_sources(section: RtlSection, folder: Path) -> list[Path]:
    """Return the files of a design in the order in which Verilator reads them."""
    found: dict[Path, None] = {}
    for source in section.sources:
        paths = sorted(path for path in folder.glob(source) if path.is_file())
        vhdl = [path.name for path in paths if path.suffix in VHDL_SUFFIXES]
        if vhdl:
            raise _fault(folder, "sources", source, f"{vhdl[0]} is VHDL", "convert it to Verilog")
        if not paths:
            raise _fault(
                folder,
                "sources",
                source,
                f"there is no file {source} in the backend's folder",
                "add it, or correct its path in [rtl]",
            )
        found |= dict.fromkeys(paths)
    return _packages_first(list(found))


def _packages_first(paths: Sequence[Path]) -> list[Path]:
    """Return files in their order, but behind the files of the packages that they use."""
    texts = {path: COMMENT.sub(" ", path.read_text("utf-8", "replace")) for path in paths}
    homes = {name: path for path in paths for name in PACKAGE.findall(texts[path])}
    ordered: dict[Path, None] = {}

    def visit(path: Path, above: tuple[Path, ...]) -> None:
        for name in USED_PACKAGE.findall(texts[path]):
            home = homes.get(name, path)
            if home not in ordered and home not in (path, *above):
                visit(home, (path, *above))
        ordered[path] = None

    for path in paths:
        if path not in ordered:
            visit(path, ())
    return list(ordered)


def design_folders(section: RtlSection, folder: Path) -> list[Path]:
    """Return the folders of included files."""
    for name in section.include:
        if not (folder / name).is_dir():
            raise _fault(
                folder,
                "include",
                name,
                f"there is no folder {name} in the backend's folder",
                "add it, or correct its path in [rtl]",
            )
    return [folder / name for name in section.include]


def included_files(section: RtlSection, folder: Path) -> Iterator[Path]:
    """Yield the files next to sources and in include folders that a design may read."""
    folders = {path.parent for path in design_sources(section, folder)}
    for each in sorted(folders | set(design_folders(section, folder))):
        for path in sorted(each.iterdir()):
            if path.is_file() and path.suffix in INCLUDED_SUFFIXES:
                yield path


def design_paths(section: RtlSection | None, folder: Path) -> Iterator[Path]:
    """Yield the existing files of a design; none without a section."""
    if section is not None:
        for source in section.sources:
            yield from sorted(path for path in folder.glob(source) if path.is_file())


def _fault(folder: Path, key: str, value: str, what: str, fix: str) -> AcceleratorConfigError:
    place = line_of_value(folder / "accel.toml", "rtl", key, value)
    return AcceleratorConfigError(f"rtl.{key}: {what}", where=place, fix=fix)
