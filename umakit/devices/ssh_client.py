# SPDX-License-Identifier: Apache-2.0
"""Conversations through the system's OpenSSH client: a remote script, data, an answer."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import selectors
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO

from umakit.devices.addresses import Address
from umakit.devices.device import announce
from umakit.errors import BuildError, DeviceError, InputError, MissingProgramError, UmakitError

OPTIONS_VARIABLE = "UMAKIT_SSH_OPTIONS"
"""Environment variable with further options of ssh, such as `-F FILE`, in shell syntax."""

OPTIONS = (
    "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15", "-o", "ServerAliveInterval=10",
    "-o", "ServerAliveCountMax=3", "-o", "ForwardAgent=no", "-o", "ForwardX11=no",
    "-o", "ClearAllForwardings=yes", "-o", "RemoteCommand=none",
)  # fmt: skip
"""Options of each call. ssh uses the first value of an option, so users' options come before."""

STALLED_SECONDS = 60.0
"""Seconds without a transferred byte after which copying is given up."""

ENDING_SECONDS = 5.0
"""Seconds for the remote side to remove copied files after an abort."""

PIECE = 65536


@dataclass(frozen=True)
class Answer:
    """The answer of the remote side.

    Attributes:
        said: marked lines without the mark, by their first word.
        rest: bytes after the last marked line.
        is_late: whether the time limit passed.
    """

    said: dict[str, str]
    rest: bytes
    is_late: bool


class SshClient:
    """The client for one machine.

    Args:
        options: options of ssh, placed after the user's variable and before `OPTIONS`.
    """

    def __init__(self, address: Address, options: Sequence[str] = ()) -> None:
        self.address, self._options = address, tuple(options)

    def check(self) -> None:
        """Check that ssh is installed."""
        if shutil.which("ssh") is None:
            raise MissingProgramError(
                f"{self.address} needs ssh, which is not installed",
                fix="on Debian: apt-get install openssh-client",
            )

    def command(self, bytes_of_script: int | str = "BYTES") -> list[str]:
        """Return the command, whose standard input begins with a script for `sh` of some bytes."""
        address = self.address
        text = os.environ.get(OPTIONS_VARIABLE, "")
        try:
            own = shlex.split(text)
        except ValueError as error:
            raise BuildError(f"{OPTIONS_VARIABLE}={text!r} cannot be read: {error}") from None
        port = [] if address.port is None else ["-p", str(address.port)]
        user = ["-l", address.user] if address.user else []
        # Read byte by byte, to leave the input after the script.
        read = f"sh -c 'eval \"$(dd bs=1 count={bytes_of_script} 2>/dev/null)\"'"
        return ["ssh", *own, *self._options, *OPTIONS, *port, *user, "--", address.host, read]

    def talk(
        self, script: str, data: bytes = b"", limit: float = STALLED_SECONDS, start: str = ""
    ) -> Answer:
        """Run a script on the remote side, and wait for its end.

        Args:
            script: script for `sh`. The variable `mark` is set before the script. Lines that begin
                with its value are for umakit; others, such as greetings of a shell, are ignored.
            data: standard input after the script; the input stays open.
            limit: time limit in seconds from the line `start` on.
            start: first word of the line that starts the time limit; empty: the begin.
        """
        self.check()
        mark = f"umakit-{secrets.token_hex(8)}"
        text = f"mark={mark}\n{script}".encode()
        command = self.command(len(text))
        words = self.command()
        announce(f"runs: {shlex.join(words)}", ("ssh", *words))
        received = bytearray()
        begin = f"\n{mark} {start}\n".encode() if start else b""
        with tempfile.TemporaryFile() as messages:
            # A file, not a pipe: a master process of ssh would keep a pipe open.
            process = _started(command, messages)
            with _ended(process):
                is_late = _exchange(process, text + data, received, limit, begin)
            messages.seek(0)
            said = messages.read().decode("utf-8", "replace")
        answer = _answer(bytes(received), mark, bool(is_late))
        if is_late is None:
            raise DeviceError(
                f"the connection was lost: nothing passed for {STALLED_SECONDS:g} s",
                where=str(self.address),
            )
        if not is_late and "ended" not in answer.said and "refused" not in answer.said:
            raise ssh_error(str(self.address), process.returncode, said, bool(answer.said))
        return answer


def _started(command: Sequence[str], messages: IO[bytes]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=messages,
            env={**os.environ, "LC_ALL": "C"},
            start_new_session=True,  # Ctrl-C reaches only umakit, which then ends ssh
        )
    except OSError as error:
        raise BuildError(f"cannot run {command[0]}: {error.strerror}") from None


@contextlib.contextmanager
def _ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """End the client after the block; give the remote side time to clean up."""
    try:
        yield
    finally:
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            _drain(process)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def _drain(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    until = time.monotonic() + ENDING_SECONDS
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while (left := until - time.monotonic()) > 0 and selector.select(left):
            if not os.read(process.stdout.fileno(), PIECE):
                break
    process.wait(max(0.0, until - time.monotonic()))


def _exchange(
    process: subprocess.Popen[bytes],
    sent: bytes,
    received: bytearray,
    limit: float,
    begin: bytes,
) -> bool | None:
    """Send and receive bytes until the client ends.

    Returns:
        Whether nothing was received for `limit` seconds, once `begin` was received; None if nothing
        passed for `STALLED_SECONDS` before.
    """
    assert process.stdin is not None and process.stdout is not None
    given, taken = process.stdin.fileno(), process.stdout.fileno()
    os.set_blocking(given, False)
    until = None if begin else time.monotonic() + limit
    waiting = memoryview(sent)
    with selectors.DefaultSelector() as selector:
        selector.register(taken, selectors.EVENT_READ)
        selector.register(given, selectors.EVENT_WRITE)
        while True:
            left = STALLED_SECONDS if until is None else until - time.monotonic()
            ready = selector.select(max(0.0, left))
            if not ready:
                return None if until is None else True
            for key, _ in ready:
                if key.fd == given:
                    waiting = _sent(given, waiting)
                    if not waiting:
                        selector.unregister(given)
                    continue
                data = os.read(taken, PIECE)
                if not data:
                    return False
                received += data
                if until is not None or begin in received:
                    until = time.monotonic() + limit


def _sent(descriptor: int, waiting: memoryview) -> memoryview:
    """Send a piece and return the rest; empty if the other side has ended."""
    try:
        return waiting[os.write(descriptor, waiting[:PIECE]) :]
    except BlockingIOError:
        return waiting
    except OSError:
        return waiting[:0]  # its end of the output says so


def _answer(received: bytes, mark: str, is_late: bool) -> Answer:
    said: dict[str, str] = {}
    rest = received
    while (start := rest.find(f"\n{mark} ".encode())) >= 0:
        line, _, rest = rest[start + len(mark) + 2 :].partition(b"\n")
        word, _, text = line.decode("utf-8", "replace").strip().partition(" ")
        said[word] = text
    return Answer(said, rest, is_late)


NOISE = re.compile(
    r"^(debug\d: |Warning: Permanently added|\*\* |Pseudo-terminal|Connection to .* closed)"
)
"""Lines of the client that are no fault."""

NO_HOST = "Could not resolve hostname"
CHANGED = "REMOTE HOST IDENTIFICATION HAS CHANGED"
UNKNOWN_KEY = "Host key verification failed"
REFUSED_LOGIN = re.compile(
    r"Permission denied \(|Too many authentication failures|no such identity"
)
UNREACHABLE = re.compile(
    r"connect to host .*: (?P<reason>Connection refused|Connection timed out|Operation timed out"
    r"|No route to host|Network is unreachable|[^\n]+?)\s*$",
    re.MULTILINE,
)
LOST = re.compile(
    r"Connection (?:to \S+ )?(?:closed|reset|timed out)|client_loop|Broken pipe|not responding"
    r"|kex_exchange_identification|Connection aborted"
)
REFUSED = "Connection refused"


def ssh_error(where: str, code: int, messages: str, has_begun: bool) -> UmakitError:
    """Return the error of an incomplete conversation.

    Args:
        code: exit code of ssh; negative if a signal ended ssh.

    Returns:
        An `InputError` for the user's settings (host name, host key, login, options), else a
        `DeviceError`.
    """
    reason = UNREACHABLE.search(messages)
    if reason is not None:
        fix = "start the SSH server there, or correct the port"
        if reason["reason"] != REFUSED:
            fix = "see whether the machine is switched on and in this network"
        what = reason["reason"][:1].lower() + reason["reason"][1:]
        return DeviceError(f"there is no connection: {what}", where=where, fix=fix)
    if NO_HOST in messages:
        return InputError(
            "there is no host of this name",
            where=where,
            fix="correct it, or add it to ~/.ssh/config",
        )
    if CHANGED in messages:
        return InputError(
            "the host has another key than the known one: it may be another machine",
            where=where,
            fix="find out why, then remove the old key: ssh-keygen -R HOST",
        )
    if UNKNOWN_KEY in messages:
        return InputError(
            "the key of the host is not known",
            where=where,
            fix="connect once with ssh by hand, compare the key and accept it",
        )
    if REFUSED_LOGIN.search(messages):
        return InputError(
            "the login was refused",
            where=where,
            fix="let ssh log in without a question: ssh-copy-id, or ssh-add for a key with a "
            "passphrase",
        )
    lines = [line.strip() for line in messages.splitlines() if not NOISE.match(line)]
    said = next(filter(None, reversed(lines)), "")
    if has_begun or LOST.search(messages):
        return DeviceError(f"the connection was lost{f': {said}' if said else ''}", where=where)
    if code == 255 or code < 0:
        return InputError(
            f"ssh ended with {code}{f': {said}' if said else ''}",
            where=where,
            fix="try it by hand, with the options that are printed above",
        )
    return DeviceError(
        f"the machine ran no script of sh: {said or f'exit code {code}'}",
        where=where,
        fix="log in there to a user who has a shell with sh, dd, head, tar and mktemp",
    )
