# SPDX-License-Identifier: Apache-2.0
"""Processes of runtimes. A crash of native code ends its own process, not the comparison."""

from __future__ import annotations

import contextlib
import pickle
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from umakit.devices.execution import signal_text

WORKER = Path(__file__).with_name("worker.py")


class RuntimeStopped(Exception):
    """A runtime has no result. The text has the reason and follows the runtime's name."""


class RuntimeProcess:
    """A runtime in a separate process, which is restarted after it has ended.

    Raises:
        RuntimeStopped: the runtime refuses the model, or its process ended.
    """

    def __init__(self, kind: str, *arguments: Any) -> None:
        self._first = (kind, arguments)
        self._process: subprocess.Popen[bytes] | None = None
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        try:
            self._started()
        except RuntimeStopped:
            self.close()
            raise

    def call(self, method: str, *arguments: Any) -> Any:
        """Return the result of a method of the runtime; raise RuntimeStopped without one."""
        return self._answer(self._started(), method, arguments)

    def close(self) -> None:
        self._end()
        self._printed.close()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            try:
                # -P: names of umakit's modules must not stand in front of others'.
                self._process = subprocess.Popen(
                    [sys.executable, "-P", str(WORKER)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=self._printed,
                    start_new_session=True,  # Ctrl-C is for the comparison, which ends the process
                )
            except OSError as error:
                raise RuntimeStopped(f"its process cannot be started: {error.strerror}") from None
            try:
                self._answer(self._process, *self._first)
            except RuntimeStopped:
                self._end()
                raise
        return self._process

    def _answer(self, process: subprocess.Popen[bytes], method: str, arguments: Any) -> Any:
        assert process.stdin is not None and process.stdout is not None
        try:
            pickle.dump((method, arguments), process.stdin)
            process.stdin.flush()
            is_result, value = pickle.load(process.stdout)
        except (OSError, EOFError, pickle.UnpicklingError):
            raise RuntimeStopped(self._how_it_ended(process)) from None
        except BaseException:  # Ctrl-C: half an answer may be in the pipe
            self._end()
            raise
        if not is_result:
            raise RuntimeStopped(value)
        return value

    def _how_it_ended(self, process: subprocess.Popen[bytes]) -> str:
        self._end(kill=False)
        self._printed.seek(0)
        last = self._printed.read().decode(errors="replace").strip().rpartition("\n")[2]
        self._printed.truncate(0)
        code = process.returncode
        how = f"was stopped by {signal_text(-code)}" if code < 0 else f"ended with code {code}"
        return f"its process {how}" + (f": {last}" if last else "")

    def _end(self, *, kill: bool = True) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        if kill:
            process.send_signal(signal.SIGKILL)
        process.wait()
