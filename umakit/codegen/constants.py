# SPDX-License-Identifier: Apache-2.0
"""Constants as C definitions that are bit-exact and compile quickly when they are large."""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from umakit.codegen.c_types import c_type, hexadecimal_floats, integer_literal
from umakit.program.program import Program

LARGE = 64 * 1024
"""Minimum size in bytes of a constant that is printed as a string. Element by element a compiler
needs about a second and 50 MB of memory per MB."""

ROW = 512
"""Size in bytes of one string literal; C99 compilers must accept 4,095."""

BLOCK = 8192 * ROW
"""Number of bytes that are made text at once: a limit of the memory that it takes."""


def _code(byte: int) -> bytes:
    """Return the code of a byte in a string literal; later codes never change its meaning.

    No octal digit may follow a short octal code. Characters that could start a comment or a
    trigraph, or end a literal, are written in octal, too.
    """
    character = chr(byte)
    is_plain = character.isascii() and (character.isalpha() or character in PUNCTUATION)
    return character.encode() if is_plain else f"\\{byte:o}".encode()


PUNCTUATION = " !&()+,-.:;<=>[]^_{|}~"
_CODES = np.array([_code(byte) for byte in range(256)], dtype="S4").view(np.uint32)
_BEFORE = np.array([b'        "'], dtype="S12").view(np.uint32)
_AFTER = np.array([b'",\n'], dtype="S4").view(np.uint32)


def declaration(name: str, array: npt.NDArray[Any]) -> str:
    """Return `extern const ...;` for a constant, preceded by the type of a large constant."""
    definition = f"{_union(name, array)};\n" if is_large(array) else ""
    return f"{definition}extern const {_type_of(name, array)} {name}{_extent(array)};"


def definition(name: str, array: npt.NDArray[Any]) -> str:
    """Return the definition of a constant."""
    values = _string_rows(array) if is_large(array) else _element_list(array)
    return f"const {_type_of(name, array)} {name}{_extent(array)} = {{\n{values}\n}};\n"


def reference(name: str, array: npt.NDArray[Any]) -> str:
    """Return C text of a pointer to the constant's first element."""
    return f"{name}.values" if is_large(array) else name


def is_large(array: npt.NDArray[Any]) -> bool:
    """Whether a constant is printed as a string in a union."""
    return array.nbytes >= LARGE


def _type_of(name: str, array: npt.NDArray[Any]) -> str:
    return f"union {name}_data" if is_large(array) else c_type(str(array.dtype))


def _union(name: str, array: npt.NDArray[Any]) -> str:
    """Return a union of string and array; C99 initializes the first member, the string."""
    rows, element = -(-array.nbytes // ROW), c_type(str(array.dtype))
    return (
        f"union {name}_data {{\n    unsigned char bytes[{rows}][{ROW}];\n"
        f"    {element} values[{array.size}];\n}}"
    )


def _extent(array: npt.NDArray[Any]) -> str:
    return "" if is_large(array) else f"[{max(1, array.size)}]"


def _element_list(array: npt.NDArray[Any]) -> str:
    dtype, elements = str(array.dtype), array.ravel()
    if dtype in ("float32", "float64"):
        texts = hexadecimal_floats(elements)
    else:
        texts = [integer_literal(value, dtype) for value in elements.tolist()]
    wide = {4: 8, 8: 6}.get(array.dtype.itemsize, 16)
    per_line = 6 if dtype in ("float32", "float64") else wide
    lines = [
        "    " + ", ".join(texts[start : start + per_line])
        for start in range(0, len(texts), per_line)
    ]
    return ",\n".join(lines) or "    0"


def _string_rows(array: npt.NDArray[Any]) -> str:
    data = np.frombuffer(array.astype(array.dtype.newbyteorder("<")).tobytes(), dtype=np.uint8)
    whole = data.size // ROW * ROW
    texts = [_rows_of(data[at : min(at + BLOCK, whole)], ROW) for at in range(0, whole, BLOCK)]
    if whole < data.size:
        texts.append(_rows_of(data[whole:], data.size - whole))
    return "    {\n" + ",\n".join(texts) + "\n    }"


def _rows_of(data: npt.NDArray[np.uint8], row: int) -> str:
    """Return string literals of `row` bytes each."""
    codes = _CODES[data].reshape(-1, row)
    rows = np.zeros((len(codes), 3 + row + 1), codes.dtype)
    rows[:, :3], rows[:, 3:-1], rows[:, -1] = _BEFORE, codes, _AFTER
    # Codes of fewer than four characters end in NUL.
    return rows.tobytes().translate(None, b"\0").decode("ascii").removesuffix(",\n")


# Constants as one binary file, separate from the C code, with checksums for its loader.
# The file, little-endian throughout::
#     offset  bytes
#     0       8      magic "UMAKITWB"
#     8       4      version of this layout
#     12      4      offset of the data, equal to the size of the header
#     16      4      bytes of data
#     20      4      CRC-32 of the data (IEEE 802.3, as in zlib)
#     24      16     identity of the code for the data
#     40      20     zeros
#     60      4      CRC-32 of bytes 0 to 59
#     64             data, every constant at a multiple of 16


MAGIC = b"UMAKITWB"
VERSION = 1
HEADER_SIZE = 64
CONSTANT_ALIGNMENT = 16
IDENTITY_SIZE = 16


@dataclass(frozen=True)
class WeightsLayout:
    """The place of each constant in the data of a blob: bytes from the start, by tensor name."""

    offsets: dict[str, int]
    size: int


def layout_weights(program: Program) -> WeightsLayout:
    """Lay out the constants in the order of the program, each aligned."""
    offsets: dict[str, int] = {}
    end = 0
    for name, array in program.constants.items():
        offsets[name] = -(-end // CONSTANT_ALIGNMENT) * CONSTANT_ALIGNMENT
        end = offsets[name] + array.nbytes
    return WeightsLayout(offsets, end)


def code_identity(layout: WeightsLayout, code: Sequence[str]) -> bytes:
    """Return 16 bytes that identify the code of a network, independent of the values of weights.

    Args:
        code: C text of the kernels and of their calls.
    """
    digest = hashlib.sha256(repr((sorted(layout.offsets.items()), layout.size)).encode())
    for text in code:
        digest.update(text.encode() + b"\0")
    return digest.digest()[:IDENTITY_SIZE]


def weights_blob(program: Program, layout: WeightsLayout, identity: bytes) -> bytes:
    """Return the content of the file."""
    data = bytearray(layout.size)
    for name, array in program.constants.items():
        raw = array.astype(array.dtype.newbyteorder("<")).tobytes()
        data[layout.offsets[name] : layout.offsets[name] + len(raw)] = raw
    header = struct.pack(
        "<8sIIII16s20x", MAGIC, VERSION, HEADER_SIZE, layout.size, zlib.crc32(data), identity
    )
    return header + struct.pack("<I", zlib.crc32(header)) + bytes(data)
