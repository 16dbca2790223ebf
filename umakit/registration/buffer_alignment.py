# SPDX-License-Identifier: Apache-2.0
"""Alignment of buffers: requirements of a backend's register map, simulator and design, compared
with `alignment` of `[dma]`, the alignment that buffers have."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from umakit.errors import AcceleratorConfigError, BackendError, RegisterMapError, short_path
from umakit.files.compiled_files import is_compiled
from umakit.machine.config_faults import line_of_value
from umakit.machine.formulas import Language, parse_formula
from umakit.machine.registers.register_map import RegisterMap, read_register_map
from umakit.machine.simulator_config import simulator_files
from umakit.registration.backend import Backend

MAP_FILE = "registers.toml"

LEAST_DMA_ALIGNMENT = 4
"""Alignment in bytes that umakit's board device and MAC array require of every buffer."""

MOST_DMA_ALIGNMENT = 4096
"""Largest `alignment` of `[dma]`."""

_STATED = re.compile(r"^(?!\s*(?://|/?\*))[^\n]*?\bmap_alignment\s*=\s*([^,;}\n]+)", re.MULTILINE)
_DEFINED = re.compile(
    r"^[ \t]*(?:#[ \t]*define[ \t]+(\w+)[ \t]+(.+)"
    r"|(?:[\w:<> \t]*[ \t>])?(\w+)[ \t]*=(?!=)[ \t]*([^,;\n]+)[,;]?[ \t]*$)",
    re.MULTILINE,
)
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_CAST = re.compile(r"\(\s*(?:unsigned(?:\s+int)?|int|size_t|u?int\d+_t)\s*\)")
_SUFFIX = re.compile(r"\b(0[xX][0-9a-fA-F]+|\d+)[uUlL]+\b")


def _shifted(left: int, right: int) -> int:
    if right > 64:
        raise OverflowError
    return left << right


_C = Language(
    {
        ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
        ast.Div: operator.floordiv, ast.LShift: _shifted,
    }, {},
)  # fmt: skip
_LONGEST = 500


def check_buffer_alignment(backend: Backend) -> None:
    """Compare the required alignment of a backend's map, simulator and design with the buffers'."""
    path = backend.folder / MAP_FILE
    if path.is_file():
        try:
            registers = read_register_map(path.read_text(encoding="utf-8"), short_path(path))
        except (OSError, ValueError, RegisterMapError):
            pass  # `uma check` reports the fault
        else:
            check_map_alignment(registers, backend, path)
    stated = [("map_alignment", *each) for each in _alignments_of_simulator(backend)]
    design, file = backend.configuration.rtl, backend.configuration.path
    if design is not None and design.memory.alignment is not None and file is not None:
        place = short_path(line_of_value(file, "rtl.memory", "alignment"))
        stated.append(("alignment of [rtl.memory]", place, design.memory.alignment))
    for name, place, number in stated:
        if number & (number - 1):
            raise BackendError(
                f"{name} is {number}, no power of two",
                where=place,
                fix=f"write {1 << (number - 1).bit_length()}",
            )
        if number > buffer_alignment(backend):
            raise BackendError(
                f"{name} is {number}, but buffers begin at multiples of "
                f"{buffer_alignment(backend)}",
                where=place,
                fix=_advice(number, backend),
            )


def buffer_alignment(backend: Backend) -> int:
    return max(LEAST_DMA_ALIGNMENT, backend.configuration.dma.alignment)


def check_map_alignment(registers: RegisterMap, backend: Backend, path: Path) -> None:
    """Compare `multiple_of` of a register map's buffer addresses with the buffers' alignment."""
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
    """Yield place (file and line) and number of alignments that a backend's own simulator states.

    Values that are unknown here, such as calls, are left to the run.
    """
    try:
        section = backend.configuration.filled_simulator
        files = {} if section is None else simulator_files(section, backend.folder)
        texts = {
            path: path.read_text(encoding="utf-8", errors="replace")
            for path in files.values()
            if not is_compiled(path.name)
        }
    except (AcceleratorConfigError, OSError):
        return  # the export reports the missing file
    found: dict[str, set[str]] = {}
    for text in texts.values():
        for macro, value, variable, initial in _DEFINED.findall(_COMMENT.sub(" ", text)):
            found.setdefault(macro or variable, set()).add((value or initial).strip())
    names = {name: values.pop() for name, values in found.items() if len(values) == 1}
    names |= dict(each.partition("=")[::2] for each in backend.configuration.simulator_macros)
    for path, text in texts.items():
        for match in _STATED.finditer(text):
            number = _value(match[1].strip(), names)
            if number:
                line = text.count("\n", 0, match.start(1)) + 1
                yield f"{short_path(path)}:{line}", number


def _value(text: str, names: Mapping[str, str]) -> int | None:
    text, filled = "", _COMMENT.sub(" ", text)
    while filled != text and len(filled) < _LONGEST:
        text = filled
        filled = re.sub(
            r"\b[A-Za-z_]\w*", lambda m: f"({names[m[0]]})" if m[0] in names else m[0], text
        )
    try:
        found = parse_formula(_SUFFIX.sub(r"\1", _CAST.sub("", text)), (), language=_C).unlimited(
            {}
        )
    except (ArithmeticError, ValueError):
        return None
    return found if found > 0 else None
