# SPDX-License-Identifier: Apache-2.0
"""Reading ELF object files: code, read-only data, and references between sections.

Imports neither TVM nor the pipeline.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from umakit.devices.libraries import check_machine, read_file
from umakit.errors import BuildError
from umakit.files.compiled_files import ELF, is_shared, members

WRITE, ALLOCATED, EXECUTABLE = 1, 2, 4
"""Bits of the ELF field `sh_flags`."""

UNWINDING = (".eh_frame", ".ARM.ex", ".gcc_except")
"""Sections for exceptions and debuggers, which are omitted on a device."""

LINKER_SYMBOLS = ("_GLOBAL_OFFSET_TABLE_",)


@dataclass(frozen=True)
class Section:
    """A section that is loaded into the memory of the device.

    Attributes:
        sections: numbers of referenced sections of the same file.
        symbols: referenced external symbols.
    """

    size: int
    is_code: bool
    is_writable: bool
    sections: frozenset[int]
    symbols: frozenset[str]


@dataclass(frozen=True)
class ObjectFile:
    """An object file.

    Attributes:
        name: path of its source in `codegen/host/src`, without the suffix.
        sections: sections by number.
        exported: section number by name of a global symbol.
        local_functions: section number by name of a static function.
        merged: names of functions with the same code, which the compiler merged.
    """

    name: str
    machine: str
    sections: dict[int, Section]
    exported: dict[str, int]
    local_functions: dict[str, int]
    merged: tuple[frozenset[str], ...]

    @property
    def text_bytes(self) -> int:
        return sum(section.size for section in self.sections.values() if section.is_code)

    @property
    def read_only_bytes(self) -> int:
        """The size of read-only data in bytes: constants, strings, tables, and padding."""
        return sum(
            section.size
            for section in self.sections.values()
            if not section.is_code and not section.is_writable
        )


def read_object(path: Path, name: str) -> ObjectFile:
    try:
        with path.open("rb") as stream:
            return _read(ELFFile(stream), name)
    except (ELFError, OSError) as error:
        raise BuildError(
            f"the compiler did not write an ELF object ({error or 'unknown format'})",
            where=path.name,
            fix="choose a compiler for Linux or a bare-metal device",
        ) from None


def read_content(content: bytes, name: str) -> ObjectFile:
    try:
        return _read(ELFFile(io.BytesIO(content)), name)
    except ELFError:
        raise BuildError("is no ELF object", where=name, fix="compile it again") from None


def _read(elf: Any, name: str) -> ObjectFile:
    kept = {
        number: section
        for number, section in enumerate(elf.iter_sections())
        if section["sh_flags"] & ALLOCATED and not section.name.startswith(UNWINDING)
    }
    symbols = elf.get_section_by_name(".symtab")
    entries = list(symbols.iter_symbols()) if symbols is not None else []
    starts: dict[tuple[int, int], set[str]] = {}
    exported: dict[str, int] = {}
    local: dict[str, int] = {}
    for symbol in entries:
        number = symbol["st_shndx"]
        is_function = symbol["st_info"]["type"] == "STT_FUNC"
        if number not in kept or not symbol.name:
            continue
        if is_function:
            starts.setdefault((number, symbol["st_value"]), set()).add(symbol.name)
        if symbol["st_info"]["bind"] != "STB_LOCAL":
            exported[symbol.name] = number
        elif is_function:
            local[symbol.name] = number
    references = _references(elf, entries, set(kept))
    sections = {
        number: Section(
            section["sh_size"],
            bool(section["sh_flags"] & EXECUTABLE),
            bool(section["sh_flags"] & WRITE),
            frozenset(references[number][0]),
            frozenset(references[number][1]),
        )
        for number, section in kept.items()
    }
    merged = tuple(frozenset(names) for names in starts.values() if len(names) > 1)
    return ObjectFile(name, elf["e_machine"], sections, exported, local, merged)


def _references(
    elf: Any, symbols: list[Any], kept: set[int]
) -> dict[int, tuple[set[int], set[str]]]:
    found: dict[int, tuple[set[int], set[str]]] = {number: (set(), set()) for number in kept}
    for table in elf.iter_sections():
        if table["sh_type"] not in ("SHT_REL", "SHT_RELA") or table["sh_info"] not in kept:
            continue
        sections, names = found[table["sh_info"]]
        for relocation in table.iter_relocations():
            symbol = symbols[relocation["r_info_sym"]]
            number = symbol["st_shndx"]
            if number in kept:
                sections.add(number)
            elif number == "SHN_UNDEF" and symbol.name and symbol.name not in LINKER_SYMBOLS:
                names.add(symbol.name)
    return found


def compiled_objects(
    files: Sequence[Path], compiled: Collection[ObjectFile], example: Path, target: str
) -> dict[str, ObjectFile]:
    """Return the linked objects, in the order of files, by a name that no source has.

    Objects are linked whole; of static libraries, only members that define missing symbols. Shared
    libraries belong to the host, not to the program.
    """
    files = [path for path in files if not is_shared(path.name)]
    if not files:
        return {}
    wanted = read_file(example).machine
    for path in files:
        check_machine(path, read_file(path).machine, wanted, target)
    found: dict[str, ObjectFile] = {}
    for path in files:
        if path.suffix == ".o":
            found[path.name] = read_content(path.read_bytes(), path.name)
            continue
        rest = {
            f"{path.name}/{name}/{number}": data
            for number, (name, data) in enumerate(members(path.read_bytes(), str(path)))
            if data.startswith(ELF)
        }
        read = {name: read_content(data, name) for name, data in rest.items()}
        while taken := _next_member(read.values(), [*compiled, *found.values()]):
            found[taken] = read.pop(taken)
    return found


def _next_member(members_left: Iterable[ObjectFile], linked: Sequence[ObjectFile]) -> str:
    wanted = {
        symbol
        for item in linked
        for section in item.sections.values()
        for symbol in section.symbols
    }
    wanted -= {symbol for item in linked for symbol in item.exported}
    return next((item.name for item in members_left if wanted & item.exported.keys()), "")
