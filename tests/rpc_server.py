# SPDX-License-Identifier: Apache-2.0
"""TVM's RPC server on 127.0.0.1, for one test file."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ssh_server import free_port

SECONDS = 600.0
"""How long a server may take to start on a busy machine: it imports TVM twice, perhaps in
an emulator."""


START = (
    "import runpy, sys; sys.executable = {python!r}; "
    "runpy.run_module('tvm.exec.rpc_server', run_name='__main__', alter_sys=True)"
)
"""`python -m tvm.exec.rpc_server`, which starts Python again: also one that an emulator runs."""


@dataclass(frozen=True)
class RpcServer:
    """A running server, whose sessions have their folders in `work`."""

    port: int
    work: Path
    process: subprocess.Popen[bytes]

    @property
    def address(self) -> str:
        return f"rpc://127.0.0.1:{self.port}"

    def left(self) -> list[str]:
        """Files that sessions left, after the time that removing may take."""
        for _ in range(100):
            found = [path.name for path in self.work.rglob("*") if path.is_file()]
            if not found:
                break
            time.sleep(0.1)
        return found

    def end(self) -> None:
        """End the server with all its processes, also the tvm.exec.popen_worker that listens."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextlib.contextmanager
def rpc_server(
    folder: Path,
    environment: Mapping[str, str] | None = None,
    work: Path | None = None,
    python: Path = Path(sys.executable),
) -> Iterator[RpcServer]:
    """Run a server while a block runs.

    Args:
        folder: folder for its log.
        environment: further variables of its environment.
        work: folder for temporary folders; default: one that is made.
        python: the program that runs Python.
    """
    port = free_port()
    place = work or folder / "work"
    place.mkdir(exist_ok=True)
    log = (folder / "log").open("wb")
    process = subprocess.Popen(
        [
            str(python), "-c", START.format(python=str(python)), "--host", "127.0.0.1",
            "--port", str(port), "--port-end", str(port + 1),
        ],
        env={**os.environ, "TMPDIR": str(place), **(environment or {})},
        stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
    )  # fmt: skip
    server = RpcServer(port, place, process)
    try:
        _wait_for(process, folder / "log")
        yield server
    finally:
        server.end()
        log.close()


def _wait_for(process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + SECONDS
    while time.monotonic() < until and process.poll() is None:
        if "bind to" in log.read_text(errors="replace"):
            return
        time.sleep(0.05)
    raise AssertionError(f"TVM's server did not start: {log.read_text(errors='replace')[-2000:]}")
