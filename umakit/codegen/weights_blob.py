# SPDX-License-Identifier: Apache-2.0
"""Constants as one binary file, separate from the C code, with checksums for its loader.

The file, little-endian throughout::

    offset  bytes
    0       8      magic "UMAKITWB"
    8       4      version of this layout
    12      4      offset of the data, equal to the size of the header
    16      4      bytes of data
    20      4      CRC-32 of the data (IEEE 802.3, as in zlib)
    24      16     identity of the code for the data
    40      20     zeros
    60      4      CRC-32 of bytes 0 to 59
    64             data, every constant at a multiple of 16
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from umakit.program.program import Program

MAGIC = b"UMAKITWB"
VERSION = 1
HEADER_SIZE = 64
CONSTANT_ALIGNMENT = 16
IDENTITY_SIZE = 16


@dataclass(frozen=True)
class WeightsLayout:
    """The place of each constant in the data of a blob.

    Attributes:
        offsets: bytes from the start of the data, by tensor name.
        size: size of the data in bytes.
    """

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
        layout: layout of the constants.
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
