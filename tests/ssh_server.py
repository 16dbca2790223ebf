# SPDX-License-Identifier: Apache-2.0
"""An OpenSSH server on 127.0.0.1 with keys of its own, for one test file, and its client's file."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

SECONDS = 30.0
"""How long a server may take to start on a busy machine."""


@dataclass(frozen=True)
class SshServer:
    """A running server.

    Attributes:
        port: where it listens.
        folder: folder of its files; programs run in `folder / "work"`.
        pid: its process.
    """

    port: int
    folder: Path
    pid: int

    @property
    def address(self) -> str:
        return f"ssh://127.0.0.1:{self.port}"

    @property
    def options(self) -> str:
        """Options of ssh with which it is reached."""
        return f"-F {self.folder / 'client'}"

    @property
    def work(self) -> Path:
        return self.folder / "work"

    def left(self) -> list[str]:
        """What lies in the folder for temporary ones, after the time that removing may take."""
        for _ in range(100):
            found = [path.name for path in self.work.iterdir() if path.name != ".gone"]
            if not found:
                break
            time.sleep(0.1)
        return found

    def sessions(self) -> list[int]:
        """Processes that serve connections."""
        tasks = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return [int(each) for each in tasks]


def free_port() -> int:
    """A port on which nobody listens."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def new_key(path: Path) -> None:
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


@contextlib.contextmanager
def ssh_server(folder: Path, lines: Sequence[str] = ()) -> Iterator[SshServer]:
    """Run a server while a block runs.

    Args:
        folder: an empty folder.
        lines: further lines of its configuration.

    Skips the test where OpenSSH's server is not installed; on CI it is, see conftest.py.
    """
    server = shutil.which("sshd") or shutil.which("/usr/sbin/sshd")
    if server is None or shutil.which("ssh") is None:
        pytest.skip("sshd or ssh is not installed")
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    (folder / "work").mkdir()
    for name in ("host", "user"):
        new_key(folder / name)
    shutil.copy(folder / "user.pub", folder / "authorized")
    port = free_port()
    configuration = [
        f"Port {port}", "ListenAddress 127.0.0.1", f"HostKey {folder}/host", "PidFile none",
        f"AuthorizedKeysFile {folder}/authorized", "UsePAM no", "StrictModes no",
        "PasswordAuthentication no", "KbdInteractiveAuthentication no", "LogLevel ERROR",
        "PermitRootLogin prohibit-password", *lines,
    ]  # fmt: skip
    if not any(line.startswith("SetEnv") for line in lines):
        configuration.append(f"SetEnv TMPDIR={folder}/work")
    (folder / "server").write_text("\n".join(configuration) + "\n", encoding="utf-8")
    public = (folder / "host.pub").read_text(encoding="utf-8").split()[:2]
    known = f"[127.0.0.1]:{port} {' '.join(public)}\n"
    (folder / "known").write_text(known, encoding="utf-8")
    client = [
        f"IdentityFile {folder}/user", "IdentitiesOnly yes", f"User {getpass.getuser()}",
        f"UserKnownHostsFile {folder}/known", "GlobalKnownHostsFile /dev/null",
        "StrictHostKeyChecking yes", "IdentityAgent none",
    ]  # fmt: skip
    (folder / "client").write_text("\n".join(client) + "\n", encoding="utf-8")
    log = (folder / "log").open("wb")
    process = subprocess.Popen(
        [server, "-D", "-e", "-f", str(folder / "server")], stderr=log, stdin=subprocess.DEVNULL
    )
    try:
        _wait_for(port, process, folder / "log")
        yield SshServer(port, folder, process.pid)
    finally:
        for pid in [*_children(process.pid), process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
        log.close()


def _children(pid: int) -> list[int]:
    try:
        return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
    except OSError:
        return []


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + SECONDS
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise AssertionError(f"sshd did not start: {log.read_text(errors='replace')}")
