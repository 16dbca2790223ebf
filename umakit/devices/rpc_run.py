# SPDX-License-Identifier: Apache-2.0
"""Running a program through TVM's RPC server, with the client in a separate process."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from umakit.devices.addresses import Address
from umakit.devices.device import announce
from umakit.devices.ssh_run import LateError
from umakit.errors import BuildError, DeviceError, InputError, UmakitError

CONNECTING_SECONDS = 30.0
"""Time limit of all but the program: connecting, copying, loading."""

START_SECONDS = 60.0
"""Time limit for starting the process that talks to the server, which imports TVM."""

ENDED, SIGNALLED, LATE, LOST = range(4)
"""Endings of a program, as in platform_rpc.c."""

START_HINT = (
    "start it there with `python -m tvm.exec.rpc_server --port {port} --port-end {end}`, which "
    "needs cloudpickle: pip install cloudpickle"
)
OTHER_MACHINE = ("wrong ELF class", "invalid ELF header", "cannot open shared object file")
NO_ROOM = "there is no room for the program and its inputs"


class _Worker:
    """The process that talks to a server."""

    def __init__(self) -> None:
        self._messages: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, "-m", "umakit.devices.rpc_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._messages,
            start_new_session=True,  # Ctrl-C reaches only umakit, which then ends the process
        )
        self.is_new = True

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any] | None:
        """Return the answer to a request; end the process and return None after the time limit."""
        assert self._process.stdin is not None and self._process.stdout is not None
        until = time.monotonic() + seconds + (START_SECONDS if self.is_new else 0.0)
        self.is_new = False
        line = b""
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            with selectors.DefaultSelector() as selector:
                selector.register(self._process.stdout, selectors.EVENT_READ)
                while not line.endswith(b"\n"):
                    if not selector.select(max(0.0, until - time.monotonic())):
                        break
                    piece = os.read(self._process.stdout.fileno(), 65536)
                    if not piece:
                        line = self._last_words()
                        break
                    line += piece
        except OSError:
            line = self._last_words()
        except BaseException:
            self.end()
            raise
        if not line.endswith(b"\n"):
            self.end()
            return None
        found: dict[str, Any] = json.loads(line)
        return found

    def _last_words(self) -> bytes:
        """Return the answer for a process that has ended by itself."""
        self._messages.seek(0)
        said = self._messages.read().decode("utf-8", "replace").strip().rpartition("\n")[2]
        return json.dumps({"error": said or "it ended", "at": "start"}).encode() + b"\n"

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._messages):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


_workers: dict[int, _Worker] = {}
"""The worker of this process, by the number of the process: a fork starts its own."""


def _worker() -> _Worker:
    found = _workers.get(os.getpid())
    if found is None or not found.is_alive:
        if found is None:
            atexit.register(_end_workers)
        found = _workers[os.getpid()] = _Worker()
    return found


def _end_workers() -> None:
    found = _workers.pop(os.getpid(), None)
    if found is not None:
        found.end()


def machine_of_server(address: Address) -> str:
    """Return a server's processor in the words of `uname -m`."""
    given = _ask(address, {}, 0.0)
    return str(given["machine"])


def run_over_rpc(
    address: Address, library: Path, arguments: Sequence[str], folder: Path, seconds: float
) -> subprocess.CompletedProcess[str]:
    """Copy a shared object to a server, run its program, and fetch the output files.

    Args:
        arguments: arguments of `main`; first the input file in the folder, then the output file.
    """
    where = str(address)
    inputs, outputs = (*arguments, "", "")[:2]
    request = {
        "library": str(library),
        "words": list(arguments),
        "inputs": str(folder / inputs) if inputs else "",
        "folder": str(folder),
        "limit": seconds,
    }
    given = _ask(address, request, seconds, library)
    if given.get("truncated"):
        raise DeviceError(NO_ROOM, where=where, fix="free some there, or set TMPDIR of the server")
    if given["ending"] == LATE:
        raise LateError
    if given["ending"] == LOST:
        raise DeviceError("the connection was lost while the program ran", where=where)
    written = {name: folder / f".{name}" for name in ("outputs", "report", "messages")}
    if outputs:
        written["outputs"].replace(folder / outputs)
    report, messages = (
        written[name].read_bytes().decode("utf-8", "replace") for name in ("report", "messages")
    )
    number = int(given["number"])
    code = -number if given["ending"] == SIGNALLED else number
    return subprocess.CompletedProcess([], code, report, messages)


def _ask(
    address: Address, request: dict[str, Any], seconds: float, library: Path | None = None
) -> dict[str, Any]:
    announce(f"calls: TVM's RPC server at {address}", ("rpc", str(address)))
    limit = seconds + CONNECTING_SECONDS
    request = {"host": address.host, "port": address.port, "seconds": limit, **request}
    given = _worker().ask(request, limit)
    if given is None or given.get("at") == "connect":
        _check_connection(address)
    if given is None:
        raise DeviceError(
            f"TVM's server did not answer within {limit:g} s",
            where=str(address),
            fix="see whether it serves somebody else, or start it again",
        )
    if "error" in given:
        raise _error(address, given, library)
    return given


def _check_connection(address: Address) -> None:
    """Raise the reason of a missing connection."""
    port = address.port or 0
    try:
        socket.create_connection((address.host, port), CONNECTING_SECONDS).close()
    except socket.gaierror:
        raise InputError(
            "there is no host of this name", where=str(address), fix="correct it"
        ) from None
    except OSError as error:
        reason = (error.strerror or "no answer").lower()
        raise DeviceError(
            f"there is no connection: {reason}",
            where=str(address),
            fix=START_HINT.format(port=port, end=port + 1),
        ) from None


def _error(address: Address, given: dict[str, Any], library: Path | None) -> UmakitError:
    where, text, step = str(address), given["error"], given["at"]
    if step == "start":
        return BuildError(f"TVM's client cannot be started: {text}", where=where)
    if step == "ask":
        return InputError(
            f"the server does not say what machine it runs on: {text}",
            where=where,
            fix="describe it in a TOML file with remote, base or compiler: --device FILE.toml",
        )
    if step == "load" and any(each in text for each in OTHER_MACHINE):
        return BuildError(
            f"the server cannot load the program, which is for another kind of machine: {text}",
            where=where,
            fix="correct the compiler in the device's file, or leave it out",
        )
    if step == "load":
        return DeviceError(f"the server cannot load the program: {text}", where=where)
    if "No space left" in text:
        return DeviceError(NO_ROOM, where=where, fix="free some there")
    doing = {"connect": "connecting", "upload": "copying the program", "run": "the program ran",
             "fetch": "fetching results"}[step]  # fmt: skip
    return DeviceError(f"the connection was lost while {doing}: {text}", where=where)
