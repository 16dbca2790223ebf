# SPDX-License-Identifier: Apache-2.0
"""Running a program on a remote machine over SSH."""

from __future__ import annotations

import io
import math
import shlex
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from umakit.devices.addresses import Address
from umakit.devices.device import SUPPORT
from umakit.devices.machine_names import check_runs_on
from umakit.devices.ssh_client import SshClient
from umakit.errors import DeviceError, InputError

SCRIPT = SUPPORT / "remote_run.sh"
PROGRAM, REPORT, MESSAGES, LATE = "program", ".report", ".messages", ".late"
"""Names of remote files: the program, its output, its messages, and a mark of the time limit."""

GRACE_SECONDS = 10
"""Seconds beyond the time limit after which the remote side ends a program itself."""

NO_ROOM = "No space left on device"

SHELL_FAILED = (2, 126, 127)
"""Exit codes of shells for a file that is no program."""


class LateError(Exception):
    """The program did not end in time."""


def run_over_ssh(
    client: SshClient,
    program: Path,
    arguments: Sequence[str],
    folder: Path,
    seconds: float,
) -> subprocess.CompletedProcess[str]:
    """Copy a program and the files of a folder, run the program, and fetch its output files.

    Args:
        arguments: arguments of `main`; file names are relative to the folder.
    """
    data = _packed(program, folder)
    values = {
        "place": client.address.folder,
        "bytes": str(len(data)),
        "seconds": str(math.ceil(seconds) + GRACE_SECONDS),
    }
    lines = [f"{name}={shlex.quote(value)}" for name, value in values.items()]
    words = " ".join(map(shlex.quote, arguments))
    script = "\n".join([*lines, f"set -- {words}", SCRIPT.read_text(encoding="utf-8")])
    answer = client.talk(script, data, seconds, "started")
    if answer.is_late:
        raise LateError
    where = str(client.address)
    if "refused" in answer.said:
        raise _not_copied(client.address, answer.said["refused"])
    code, machine, full = (*answer.said["ended"].split(" ", 2), "")[:3]
    fetched = _unpacked(answer.rest, folder, where)
    if LATE in fetched:
        raise LateError
    report = fetched.get(REPORT, b"").decode("utf-8", "replace")
    messages = fetched.get(MESSAGES, b"").decode("utf-8", "replace")
    number = int(code)
    if NO_ROOM in full:
        raise _no_room(client.address, "for what the program writes")
    if number in SHELL_FAILED and not report:
        _check_start(program, machine, number, messages, where)
    number = 128 - number if number > 128 else number
    return subprocess.CompletedProcess([], number, report, messages)


def _packed(program: Path, folder: Path) -> bytes:
    """Return a tar archive of a program and the files of a folder, without user data."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        files = [(PROGRAM, program, 0o700)]
        files += [(path.name, path, 0o600) for path in sorted(folder.iterdir()) if path.is_file()]
        for name, path, mode in files:
            content = path.read_bytes()
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
    return stream.getvalue()


def _unpacked(data: bytes, folder: Path, where: str) -> dict[str, bytes]:
    """Write files of an archive into a folder, and return files with a leading dot."""
    hidden: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            for entry in archive:
                path = PurePosixPath(entry.name)
                if not entry.isreg() or len(path.parts) != 1:
                    continue  # programs of umakit write no others
                stream = archive.extractfile(entry)
                content = b"" if stream is None else stream.read()
                if len(content) < entry.size:
                    raise tarfile.ReadError("ends too early")
                if path.name.startswith("."):
                    hidden[path.name] = content
                else:
                    (folder / path.name).write_bytes(content)
    except tarfile.TarError:
        raise DeviceError(
            "the connection was lost while results were fetched", where=where
        ) from None
    return hidden


def _not_copied(address: Address, said: str) -> DeviceError | InputError:
    if NO_ROOM in said:
        return _no_room(address, "for the program and its inputs")
    if "mktemp" in said:
        return InputError(
            f"no temporary folder can be made there: {said}",
            where=str(address),
            fix="name one that can be written: ssh://HOST/FOLDER",
        )
    return DeviceError(f"the program was not copied: {said or 'no message'}", where=str(address))


def _no_room(address: Address, what: str) -> DeviceError:
    return DeviceError(
        f"there is no room {what}",
        where=str(address),
        fix="free some there, or name a folder with more: ssh://HOST/FOLDER",
    )


def _check_start(program: Path, machine: str, code: int, messages: str, where: str) -> None:
    """Raise the reason why a program did not start, if known."""
    check_runs_on(program, machine, where)
    if code == 126:
        said = messages.strip().rpartition("\n")[2]
        raise DeviceError(
            f"the program cannot be started there: {said}",
            where=where,
            fix="name a folder that programs may start from: ssh://HOST/FOLDER",
        )
