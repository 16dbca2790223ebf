# SPDX-License-Identifier: Apache-2.0
"""Commands of users' devices, which end with all processes that they started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from umakit.errors import BuildError


@contextlib.contextmanager
def ended_group(process: subprocess.Popen[str]) -> Iterator[None]:
    """End a process and those that it started when the block is left, however that happens.

    Args:
        process: a process that was started with `start_new_session`.
    """
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def run_group(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], timeout: float | None
) -> subprocess.CompletedProcess[str]:
    """Run a command as `subprocess.run` does, and end all that it started with it.

    Args:
        command: the command; no shell takes part.
        folder: working directory.
        environment: variables of the environment.
        timeout: time limit in seconds; None for none.

    Raises:
        subprocess.TimeoutExpired: it did not end in time.
        OSError: it cannot be started.
    """
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    with process, ended_group(process):
        output, messages = process.communicate(timeout=timeout)
    return subprocess.CompletedProcess(command, process.returncode, output, messages)


@contextlib.contextmanager
def beside(
    command: Sequence[str], folder: Path, environment: Mapping[str, str]
) -> Iterator[Callable[[], str]]:
    """Run a command while a block runs, and end it and all that it started when that is left.

    Args:
        command: the command; no shell takes part.
        folder: working directory.
        environment: variables of the environment.

    Yields:
        A function that returns how the command ended, with the last line that it printed; empty
        while it goes on.

    Raises:
        BuildError: it cannot be started.
    """
    with tempfile.TemporaryFile() as printed:
        try:
            process = subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        except OSError as error:
            raise BuildError(f"cannot run {command[0]}: {error.strerror}") from None

        def ended() -> str:
            if process.poll() is None:
                return ""
            printed.seek(0)
            last = printed.read().decode(errors="replace").strip().rpartition("\n")[2]
            name = Path(command[0]).name
            return f"{name} ended with {process.returncode}" + (f": {last}" if last else "")

        with ended_group(process):
            yield ended
