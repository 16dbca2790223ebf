# SPDX-License-Identifier: Apache-2.0
"""Alignment of buffers: what register maps, simulators and designs of a backend ask for, compared
with `alignment` of `[dma]`, which buffers have."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from umakit.errors import AcceleratorConfigError, BackendError, RegisterMapError, short_path
from umakit.files.compiled_files import is_compiled
from umakit.machine.registers.register_map import RegisterMap, read_register_map
from umakit.machine.simulator_config import simulator_files
from umakit.registration.backend import Backend

MAP_FILE = "registers.toml"

LEAST_DMA_ALIGNMENT = 4
"""Bytes: what umakit's device of a board and its MAC array ask of every buffer."""

MOST_DMA_ALIGNMENT = 4096
"""Largest `alignment` of `[dma]`."""

_STATED = re.compile(r"^(?!\s*(?://|/?\*))[^\n]*?\bmap_alignment\s*=\s*([^,;}\n]+)", re.MULTILINE)
_DEFINED = re.compile(
    r"^\s*(?:#\s*define\s+|[\w:<>\s]*?\b(?=\w+\s*=[^=]))(\w+)\s*=?\s*\(?(\d\w*)\)?\s*[,;]?\s*$",
    re.MULTILINE,
)
_NUMBER = re.compile(r"\(?(0[xX][0-9a-fA-F]+|\d+)[uUlL]*\)?(?:\s*<<\s*(\d+)[uUlL]*)?")


def check_buffer_alignment(backend: Backend) -> None:
    """Compare what a backend's map, simulator and design ask of addresses with what buffers have.

    Raises:
        BackendError: one of them asks for more; its subclass says whose file it is.
    """
    path = backend.folder / MAP_FILE
    if path.is_file():
        try:
            registers = read_register_map(path.read_text(encoding="utf-8"), short_path(path))
        except (OSError, ValueError, RegisterMapError):
            registers = None  # `uma check` says what is wrong with it
        if registers is not None:
            check_map_alignment(registers, backend, path)
    for place, number in _alignments_of_simulator(backend):
        if number & (number - 1):
            raise BackendError(
                f"map_alignment is {number}, no power of two",
                where=place,
                fix=f"write {1 << (number - 1).bit_length()}",
            )
        if number > buffer_alignment(backend):
            raise BackendError(
                f"map_alignment is {number}, but buffers begin at multiples of "
                f"{buffer_alignment(backend)}",
                where=place,
                fix=_advice(number, backend),
            )


def buffer_alignment(backend: Backend) -> int:
    """Return the alignment of an accelerator's buffers in bytes."""
    return max(LEAST_DMA_ALIGNMENT, backend.configuration.dma.alignment)


def check_map_alignment(registers: RegisterMap, backend: Backend, path: Path) -> None:
    """Compare `multiple_of` of a register map's addresses of buffers with what buffers have.

    Raises:
        RegisterMapError: the map asks for more.
    """
    needed, given = registers.buffer_alignment, backend.configuration.dma.alignment
    if needed > given:
        (word, *_) = (each for each in registers.buffers() if each.multiple_of == needed)
        raise RegisterMapError(
            f"{word.name} is an address that is a multiple of {needed}, but buffers begin at "
            f"multiples of {given}",
            where=_line_of(path, needed),
            fix=_advice(needed, backend),
        )


def _line_of(path: Path, needed: int) -> str:
    """Return file and line of the first `multiple_of` of a number in a register map."""
    lines = path.read_text(encoding="utf-8").splitlines()
    stated = re.compile(rf"\s*multiple_of\s*=\s*{needed}\b")
    number = next((number for number, line in enumerate(lines, 1) if stated.match(line)), 0)
    return f"{short_path(path)}:{number}" if number else short_path(path)


def _advice(needed: int, backend: Backend) -> str:
    if needed > MOST_DMA_ALIGNMENT:
        return f"write at most {MOST_DMA_ALIGNMENT}"
    file = short_path(backend.folder / "accel.toml")
    return f"write alignment = {needed} into the section [dma] of {file}"


def _alignments_of_simulator(backend: Backend) -> Iterator[tuple[str, int]]:
    """Yield file, line and number of what a simulator of the backend's own states.

    A text that is no number, or the name of one, is left to the run.
    """
    try:
        section = backend.configuration.filled_simulator
        found = {} if section is None else simulator_files(section, backend.folder)
        texts = {
            path: path.read_text(encoding="utf-8", errors="replace")
            for path in found.values()
            if not is_compiled(path.name)
        }
    except (AcceleratorConfigError, OSError):
        return  # export says which file is missing
    names = dict(each.partition("=")[::2] for each in backend.configuration.simulator_macros)
    for text in texts.values():
        names = dict(_DEFINED.findall(text)) | names
    for path, text in texts.items():
        for match in _STATED.finditer(text):
            number = _value(match[1].strip(), names)
            if number:
                line = text.count("\n", 0, match.start(1)) + 1
                yield f"{short_path(path)}:{line}", number


def _value(text: str, names: Mapping[str, str]) -> int | None:
    match = _NUMBER.fullmatch(names.get(text, text))
    return None if match is None else int(match[1], 0) << int(match[2] or 0)
