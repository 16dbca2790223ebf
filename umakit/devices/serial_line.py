# SPDX-License-Identifier: Apache-2.0
"""Serial lines: a port of this machine, or a pseudo terminal for an emulator."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import termios
import time
import tty
from collections.abc import Iterator
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
            data: the bytes.
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

    A port is locked while it is open, so that bytes of two runs do not mix.

    Args:
        port: path of a port, or `PSEUDO` for a pseudo terminal.
        rate: bits a second, a key of `RATES`.
        device: name of the device, for messages.

    Raises:
        DeviceError: the port cannot be opened, or is in use.
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
    """Lock a port against other programs.

    Raises:
        OSError: the port is in use.
    """
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
