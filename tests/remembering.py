# SPDX-License-Identifier: Apache-2.0
"""Results of functions that take long, for tests of what is before and behind them."""

from __future__ import annotations

import importlib
from typing import Any

import pytest


def remember(monkeypatch: pytest.MonkeyPatch, *functions: str) -> None:
    """Let functions run once each: later calls get the first result, whatever they pass.

    Args:
        monkeypatch: undoes it.
        functions: by dotted name, as they are imported.
    """
    for place in functions:
        module, _, name = place.rpartition(".")
        monkeypatch.setattr(place, _once(getattr(importlib.import_module(module), name)))


def _once(function: Any) -> Any:
    results: list[Any] = []

    def called(*arguments: Any, **options: Any) -> Any:
        if not results:
            results.append(function(*arguments, **options))
        return results[0]

    return called
