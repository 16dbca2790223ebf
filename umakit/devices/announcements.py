# SPDX-License-Identifier: Apache-2.0
"""Sentences on standard error that each process says once."""

from __future__ import annotations

import sys
from collections.abc import Hashable

from umakit.errors import one_line

_said: set[Hashable] = set()


def announce(sentence: str, occasion: Hashable) -> None:
    """Print a sentence on standard error unless this process has done so on the same occasion."""
    if occasion not in _said:
        _said.add(occasion)
        print(one_line(sentence), file=sys.stderr, flush=True)
