# SPDX-License-Identifier: Apache-2.0
"""Frames of the protocol on serial lines, which `support/serial.h` describes."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

MARK = b"\xa5umk"
HEAD = struct.Struct("<BBH")
CHECKSUM = struct.Struct("<I")
MOST_BYTES = 4096
"""Maximum size of a payload of a board; `UMAKIT_SERIAL_CHUNK` is at most that."""

CHUNK = 256
"""Maximum size of the words for main, which is `UMAKIT_SERIAL_CHUNK` unless a board changes it."""


@dataclass(frozen=True)
class Frame:
    """A frame: its type, a letter; its number and its payload."""

    type: str
    number: int
    payload: bytes = b""

    def encoded(self) -> bytes:
        """Return the bytes of the frame on the line."""
        checked = HEAD.pack(ord(self.type), self.number, len(self.payload)) + self.payload
        return MARK + checked + CHECKSUM.pack(zlib.crc32(checked))


class FrameReader:
    """Finds frames in the bytes of a line.

    What is no frame, or is damaged, is skipped.

    Attributes:
        skipped: number of bytes that were skipped.
    """

    def __init__(self) -> None:
        self._data = bytearray()
        self.skipped = 0

    def add(self, data: bytes) -> list[Frame]:
        """Add bytes of the line, and return the frames that are complete with them."""
        self._data += data
        frames = []
        while (frame := self._next()) is not None:
            frames.append(frame)
        return frames

    @property
    def begun(self) -> int:
        """Number of bytes that have arrived of a frame that is not complete."""
        return len(self._data) if self._data.startswith(MARK) else 0

    def _next(self) -> Frame | None:
        while True:
            self._skip_to_mark()
            if len(self._data) < len(MARK) + HEAD.size:
                return None
            type_, number, size = HEAD.unpack_from(self._data, len(MARK))
            begin, end = len(MARK), len(MARK) + HEAD.size + size
            if size <= MOST_BYTES:
                if len(self._data) < end + CHECKSUM.size:
                    return None
                checked = bytes(self._data[begin:end])
                if CHECKSUM.unpack_from(self._data, end)[0] == zlib.crc32(checked):
                    del self._data[: end + CHECKSUM.size]
                    return Frame(chr(type_), number, checked[HEAD.size :])
            self._skip(1)  # a frame may begin within what only looked like one

    def _skip_to_mark(self) -> None:
        """Skip what is before the next mark, or before what may become one."""
        place = self._data.find(MARK)
        if place < 0:
            kept = next(n for n in range(len(MARK) - 1, -1, -1) if self._data.endswith(MARK[:n]))
            place = len(self._data) - kept
        self._skip(place)

    def _skip(self, count: int) -> None:
        del self._data[:count]
        self.skipped += count
