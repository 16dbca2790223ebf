# SPDX-License-Identifier: Apache-2.0
"""Sentences on standard error that each process says once."""

from __future__ import annotations

import sys

from umakit.errors import one_line

_said: set[str] = set()


def announce(sentence: str) -> None:
    """Print a sentence on standard error unless this process has done so before."""
    if sentence not in _said:
        _said.add(sentence)
        print(one_line(sentence), file=sys.stderr, flush=True)
