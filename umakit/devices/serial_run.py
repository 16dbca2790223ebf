# SPDX-License-Identifier: Apache-2.0
"""Running a program on a board with a serial line to this machine."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import struct
import subprocess
import termios
import time
import tty
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from umakit.errors import DeviceError

PSEUDO = "pty"
"""Name of a port that is made for a run; `{port}` is its path."""

RATES = {
    int(name[1:]): getattr(termios, name)
    for name in dir(termios)
    if name[0] == "B" and name[1:].isdecimal() and name != "B0"
}
"""Constants of termios by bits a second."""


class LineEndedError(Exception):
    """The other side of the line is gone."""


class SerialLine:
    """An open line.

    Attributes:
        port: path of the port; for a pseudo terminal, of the other side's port.
    """

    def __init__(self, descriptor: int, port: str) -> None:
        self._descriptor, self.port = descriptor, port

    def read(self, seconds: float) -> bytes:
        """Return bytes that arrive within a time; empty if none arrive.

        Raises:
            LineEndedError: the other side is gone.
        """
        ready, _, _ = select.select([self._descriptor], [], [], max(0.0, seconds))
        if not ready:
            return b""
        try:
            data = os.read(self._descriptor, 65536)
        except BlockingIOError:
            return b""
        except OSError:
            raise LineEndedError from None
        if not data:
            raise LineEndedError
        return data

    def write(self, data: bytes, until: float) -> bool:
        """Write bytes; False if the other side does not take them in time.

        Args:
            until: deadline on the clock `time.monotonic`.

        Raises:
            LineEndedError: the other side is gone.
        """
        while data:
            seconds = max(0.0, until - time.monotonic())
            _, ready, _ = select.select([], [self._descriptor], [], seconds)
            if not ready:
                return False
            try:
                data = data[os.write(self._descriptor, data) :]
            except BlockingIOError:
                continue
            except OSError:
                raise LineEndedError from None
        return True


@contextlib.contextmanager
def open_line(port: str, rate: int, device: str) -> Iterator[SerialLine]:
    """Open a line, and close it after the block.

    A port stays locked, so that bytes of two runs do not mix.
    """
    with contextlib.ExitStack() as stack:
        if port == PSEUDO:
            own, other = os.openpty()
            stack.callback(os.close, own)
            stack.callback(os.close, other)  # keep the terminal open without another user
            tty.setraw(other)
            os.set_blocking(own, False)
            yield SerialLine(own, os.ttyname(other))
            return
        try:
            own = os.open(port, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
            stack.callback(os.close, own)
            _lock(own)
            stack.callback(_unlock, own)
            _configure(own, rate)
        except (OSError, termios.error) as error:
            number, text = (*error.args, "")[:2]
            raise DeviceError(
                f"the port {port} cannot be opened: {text or number}",
                where=device,
                fix=_advice(port, number == errno.EBUSY),
            ) from None
        yield SerialLine(own, port)


def _lock(descriptor: int) -> None:
    """Lock a port against other programs."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise OSError(errno.EBUSY, "another program has it") from None
    # For programs that ignore locks; root may open the port nevertheless. The exclusive mode ends
    # with the last descriptor of the port.
    fcntl.ioctl(descriptor, termios.TIOCEXCL)


def _unlock(descriptor: int) -> None:
    """Release a port, even if the other side of a pseudo terminal stays open."""
    with contextlib.suppress(OSError):
        fcntl.ioctl(descriptor, termios.TIOCNXCL)


def _configure(descriptor: int, rate: int) -> None:
    """Put a port into raw mode, and discard earlier input."""
    tty.setraw(descriptor)
    attributes = termios.tcgetattr(descriptor)
    attributes[2] |= termios.CLOCAL | termios.CREAD
    attributes[4] = attributes[5] = RATES[rate]
    termios.tcsetattr(descriptor, termios.TCSANOW, attributes)
    termios.tcflush(descriptor, termios.TCIOFLUSH)


def _advice(port: str, is_taken: bool) -> str:
    if is_taken:
        return "wait until that run has ended, or end it"
    if not Path(port).exists():
        return "connect the board, or correct port"
    return "see who may read and write it, and whether another program has it"


GREETING_SECONDS = 0.5
"""Time after which words for main are sent again to a silent board."""

ANSWER_SECONDS = 0.1
"""Time after which words are sent again to a board that has reported its start: it may have read
earlier words, and words that arrive during its answer could be damaged."""

LOOK_SECONDS = 0.05
"""Interval for checking whether the command that runs the board has ended."""

VERSION = b"\1"


class SilentError(Exception):
    """The board's program did not end in time; the text states its progress."""


class SerialRun:
    """A program's conversation with this machine.

    Args:
        words: arguments of `main`, without its name; the first two are files in the folder.
        ended: returns the exit status of the command that runs the board, as text; empty while it
            runs.
    """

    def __init__(
        self,
        line: SerialLine,
        words: Sequence[str],
        folder: Path,
        device: str,
        ended: Callable[[], str] = lambda: "",
    ) -> None:
        self._line, self._folder, self._device, self._ended = line, folder, device, ended
        self._files = set(words[:2])
        payload = b"".join(word.encode() + b"\0" for word in ("main", *words))
        if len(payload) > CHUNK:
            raise DeviceError(
                f"the words for main have {len(payload)} bytes, a frame has {CHUNK}", where=device
            )
        self._greeting = Frame("A", 0, payload)
        self._reader = FrameReader()
        self._inputs, self._outputs = b"", bytearray()
        self._outputs_name = ""
        self._report, self._messages = bytearray(), bytearray()
        self._last: int | None = None
        self._due = 0.0
        self._code: int | None = None

    def run(self, seconds: float) -> subprocess.CompletedProcess[str]:
        """Let the program run until its end.

        Returns:
            Report, messages and exit code of the program. Outputs are written to their file, of a
            failed run as far as received.

        Raises:
            SilentError: the board sent nothing for that time.
            DeviceError: the line ended, frames were lost, or the board broke the protocol.
        """
        try:
            self._talk(seconds)
        finally:
            if self._outputs_name:
                (self._folder / self._outputs_name).write_bytes(self._outputs)
        assert self._code is not None  # as _talk sees to
        texts = (part.decode("utf-8", "replace") for part in (self._report, self._messages))
        return subprocess.CompletedProcess([], self._code, *texts)

    def _talk(self, seconds: float) -> None:
        """Answer the board until its program ends, or the board is silent for some seconds."""
        until = time.monotonic() + seconds
        while self._code is None:
            now = time.monotonic()
            if now >= until:
                raise SilentError(self._state())
            if self._last is None and now >= self._due:
                self._send(self._greeting, until)
                self._due = now + GREETING_SECONDS
            ended = self._ended()  # before the last output is read
            try:
                data = self._line.read(0 if ended else min(LOOK_SECONDS, until - now))
            except LineEndedError:
                raise self._error(f"the line ended {self._state()}") from None
            if ended and not data:
                raise self._error(f"{ended} {self._state()}")
            for frame in self._reader.add(data):
                until = time.monotonic() + seconds
                self._take(frame, until)

    def _state(self) -> str:
        """Return the progress of the run as a clause."""
        if self._reader.begun:
            return f"in the middle of a frame, after {self._reader.begun} bytes of it"
        noise = f"; {self._reader.skipped} bytes are none" if self._reader.skipped else ""
        if self._last is None:
            return f"before the board answered with a frame{noise}"
        return f"after frame {self._last} of the board{noise}"

    def _error(self, what: str) -> DeviceError:
        return DeviceError(what, where=self._device)

    def _send(self, frame: Frame, until: float) -> None:
        try:
            taken = self._line.write(frame.encoded(), until)
        except LineEndedError:
            raise self._error(f"the line ended {self._state()}") from None
        if not taken:
            raise SilentError(f"{self._state()}; it reads nothing")

    def _take(self, frame: Frame, until: float) -> None:
        """Act on a frame of the board."""
        if frame.type == "S":
            if frame.payload != VERSION:
                raise self._error("the board has another version of the protocol of serial.h")
            if self._last is not None:
                raise self._error(f"the board started again after its frame {self._last}")
            self._due = time.monotonic() + ANSWER_SECONDS
            return
        if self._code is not None:
            return
        wanted = frame.number if self._last is None else (self._last + 1) % 256
        if frame.number != wanted:
            raise self._error(
                f"frames of the board were lost or damaged: {frame.number} came in place of "
                f"{wanted}"
            )
        self._last = frame.number
        if frame.type == "O":
            self._open(frame)
        elif frame.type == "R" and len(frame.payload) == 4:
            size = int.from_bytes(frame.payload, "little")
            data, self._inputs = self._inputs[:size], self._inputs[size:]
            self._send(Frame("D", frame.number, data), until)
        elif frame.type == "X" and len(frame.payload) == 4:
            self._code = int.from_bytes(frame.payload, "little")
        elif frame.type in self._streams:
            self._streams[frame.type].extend(frame.payload)
        else:
            raise self._error(f"the board sent a frame of the unknown type {frame.type!r}")

    @property
    def _streams(self) -> dict[str, bytearray]:
        return {"W": self._outputs, "P": self._report, "C": self._messages}

    def _open(self, frame: Frame) -> None:
        names = frame.payload.decode("utf-8", "replace").split("\0")[:2]
        if len(names) < 2 or not set(names) <= self._files:  # other files are not the board's
            raise self._error(f"the board asked for the files {' and '.join(map(repr, names))}")
        self._inputs = (self._folder / names[0]).read_bytes()
        self._outputs_name = names[1]


MARK = b"\xa5umk"
HEAD = struct.Struct("<BBH")
CHECKSUM = struct.Struct("<I")
MOST_BYTES = 4096
"""Maximum size of a payload of a board; `UMAKIT_SERIAL_CHUNK` is at most that."""

CHUNK = 256
"""Maximum size of the words for main: the default of `UMAKIT_SERIAL_CHUNK`."""


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
    """Finds frames in the bytes of a line; bytes outside intact frames are skipped."""

    def __init__(self) -> None:
        self._data = bytearray()
        self.skipped = 0

    def add(self, data: bytes) -> list[Frame]:
        """Add bytes of the line, and return newly completed frames."""
        self._data += data
        frames = []
        while (frame := self._next()) is not None:
            frames.append(frame)
        return frames

    @property
    def begun(self) -> int:
        """Number of received bytes of an incomplete frame."""
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
            self._skip(1)  # a frame may begin within a false one

    def _skip_to_mark(self) -> None:
        """Skip bytes before the next mark, or before the possible start of a mark."""
        place = self._data.find(MARK)
        if place < 0:
            kept = next(n for n in range(len(MARK) - 1, -1, -1) if self._data.endswith(MARK[:n]))
            place = len(self._data) - kept
        self._skip(place)

    def _skip(self, count: int) -> None:
        del self._data[:count]
        self.skipped += count
