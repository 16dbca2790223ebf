# SPDX-License-Identifier: Apache-2.0
"""A simulator in Python, as a program that umakit starts: `[simulator] program` in `accel.toml`.

This file implements the program's side of `docs/simulator-protocol.md`. It needs only Python's
standard library: import it, or copy it next to your model.

    class Model(Simulator):
        def write(self, offset, value): ...

    serve(Model())
"""

from __future__ import annotations

import os
import struct
import sys
from typing import BinaryIO

__all__ = ["COUNTERS", "UNKNOWN", "VERSION", "HostMemoryError", "Simulator", "serve"]

VERSION = 1
"""Version of the protocol."""

UNKNOWN = 2**64 - 1
"""A counter that the simulator does not have."""

COUNTERS = (
    "clock", "busy_cycles", "compute_cycles", "dma_cycles", "macs", "bytes_read", "bytes_written",
)  # fmt: skip
"""Names of the counters, in the order of the protocol."""

MOST_BYTES = 65_536
"""Maximum number of bytes of host memory in one frame."""

HEADER = struct.Struct("<I4sI")


class HostMemoryError(Exception):
    """The kit refused an access to host memory.

    Attributes:
        status: a status of `umakit/status.h`: 3 if the range is not mapped in one buffer, or 5 if
            it is mapped for the other direction.
    """

    def __init__(self, status: int, address: int, size: int) -> None:
        super().__init__(f"status {status} for {size} bytes at bus address {address:#x}")
        self.status = status


class Simulator:
    """The requests of the kit to a simulator; subclasses override supported requests.

    Addresses and sizes are in bytes, times in cycles of the device's clock.
    """

    connection: _Connection

    def reset(self) -> None:
        """Reset registers, memories, clock and counters to their power-on state."""

    def read(self, offset: int) -> int:
        """Return the value of a register, 32 bits."""
        return 0

    def write(self, offset: int, value: int) -> None:
        """Store a value in a register, 32 bits."""

    def wait(self, cycles: int) -> bool:
        """Let at most `cycles` pass until the interrupt is raised; return whether it is raised."""
        return True

    def counters(self) -> dict[str, int | None]:
        """Return totals since the last reset by name, see `COUNTERS`; missing or None: unknown."""
        return {}

    def load(self, address: int, size: int) -> bytes:
        """Read host memory that the driver mapped.

        Raises:
            HostMemoryError: the kit refused the access.
        """
        parts = []
        for start in range(0, size, MOST_BYTES):
            count = min(MOST_BYTES, size - start)
            answer = self.connection.ask(b"LOAD", struct.pack("<II", address + start, count))
            self._check(answer, address + start, count)
            parts.append(answer[4:])
        return b"".join(parts)

    def store(self, address: int, data: bytes) -> None:
        """Write host memory that the driver mapped.

        Raises:
            HostMemoryError: the kit refused the access.
        """
        for start in range(0, len(data), MOST_BYTES):
            part = data[start : start + MOST_BYTES]
            place = struct.pack("<II", address + start, len(part))
            answer = self.connection.ask(b"STOR", place + part)
            self._check(answer, address + start, len(part))

    def event(
        self, engine: str, label: str, begin: int, end: int, end_of_busy: int | None = None
    ) -> None:
        """Report a finished action of an engine, for the timeline.

        Args:
            engine: name of the engine, at most 23 bytes.
            label: description of the action, at most 31 bytes.
            begin: first cycle, on the counter `clock`.
            end: the cycle from which the action's effect is visible.
            end_of_busy: the cycle in which the engine can take the next action; default: `end`.
        """
        busy, texts = end if end_of_busy is None else end_of_busy, (engine.encode(), label.encode())
        head = struct.pack("<QQQII", begin, busy, end, *map(len, texts))
        self.connection.send(b"NOTE", head + b"".join(texts))

    def fail(self, sentence: str) -> None:
        """End the run with a reason, in one sentence without a full stop."""
        self.connection.send(b"FAIL", sentence.encode())
        raise SystemExit(1)

    @staticmethod
    def _check(answer: bytes, address: int, size: int) -> None:
        (status,) = struct.unpack_from("<I", answer)
        if status != 0:
            raise HostMemoryError(status, address, size)


class _Connection:
    """Frames from and to the kit; `number` identifies the current request."""

    def __init__(self, source: BinaryIO, sink: BinaryIO) -> None:
        self.source, self.sink, self.number = source, sink, 0

    def send(self, name: bytes, payload: bytes = b"") -> None:
        self.sink.write(HEADER.pack(len(payload), name, self.number) + payload)
        self.sink.flush()

    def receive(self) -> tuple[bytes, bytes]:
        header = self.source.read(HEADER.size)
        if len(header) < HEADER.size:
            raise SystemExit(0)
        size, name, self.number = HEADER.unpack(header)
        return name, self.source.read(size)

    def ask(self, name: bytes, payload: bytes) -> bytes:
        self.send(name, payload)
        answer, content = self.receive()
        if answer != name.lower():
            raise SystemExit(f"{name!r} was answered by {answer!r}")
        return content


def serve(simulator: Simulator) -> None:
    """Answer the kit on standard input and output until it closes them.

    The simulator's printed output goes to standard error: standard output carries frames only.
    """
    source = os.fdopen(os.dup(0), "rb")
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    connection = simulator.connection = _Connection(source, sink)
    while True:
        name, payload = connection.receive()
        connection.send(name.lower(), _answer(simulator, name, payload))


def _answer(simulator: Simulator, name: bytes, payload: bytes) -> bytes:
    if name == b"HELO":
        return struct.pack("<I", VERSION)
    if name == b"RSET":
        simulator.reset()
        return b""
    if name == b"READ":
        return struct.pack("<I", simulator.read(*struct.unpack("<I", payload)))
    if name == b"WRIT":
        simulator.write(*struct.unpack("<II", payload))
        return b""
    if name == b"WAIT":
        return struct.pack("<I", bool(simulator.wait(*struct.unpack("<Q", payload))))
    if name == b"CNTR":
        found = simulator.counters()
        values = [found.get(counter) for counter in COUNTERS]
        return struct.pack("<7Q", *(UNKNOWN if value is None else value for value in values))
    sys.exit(f"the kit sent {name!r}, which is not in version {VERSION} of the protocol")
