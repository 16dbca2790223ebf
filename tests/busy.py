# SPDX-License-Identifier: Apache-2.0
"""Processes that keep a machine busy while a test runs."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

COUNT = 4


@contextlib.contextmanager
def busy_machine(count: int = COUNT) -> Iterator[None]:
    """Compute in some processes while a block runs."""
    command = [sys.executable, "-c", "print(flush=True)\nwhile True: pass"]
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE))
            stack.callback(process.kill)
            assert process.stdout is not None
            process.stdout.readline()  # it has begun
        yield
