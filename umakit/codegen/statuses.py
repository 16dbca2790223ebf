# SPDX-License-Identifier: Apache-2.0
"""Statuses of kernel libraries in the generated C, apart from statuses of the C interface.

A function of a vendor's library may return any number, even one with another meaning in a model's
interface. So a status s other than 0 is returned as s plus a base of the backend's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from umakit.lower.driver_calls import TextCall
from umakit.program.program import Program
from umakit.registration.backend import Backend

SCRATCH_TOO_SMALL = "UMAKIT_SCRATCH_TOO_SMALL"
"""Macro of the status of a kernel whose scratch was planned for another core."""

SCRATCH_TOO_SMALL_STATUS = -9

BASE = -(2**16)
"""Base of the first backend's statuses; the next backend has twice this base."""

LEAST, MOST = -29_999, 29_999
"""The statuses that can be told from others; outside of them the base itself comes back."""


@dataclass(frozen=True)
class OwnStatuses:
    """The statuses of a backend with its own numbers.

    Attributes:
        base: number added to each status.
    """

    backend: str
    base: int
    meanings: Mapping[int, str]

    @property
    def function(self) -> str:
        return status_function(self.backend)


def status_function(backend: str) -> str:
    """Return the name of the C function that converts a library's status to the interface's."""
    return f"status_of_{backend}"


def own_statuses(program: Program, backends: Mapping[str, Backend]) -> list[OwnStatuses]:
    """Return the statuses of backends whose text calls return a status."""
    called = {target for target, text in _texts(program) if text.call.returns_status}
    return [
        OwnStatuses(name, BASE * number, backends[name].configuration.status_meanings)
        for number, name in enumerate(sorted(called), start=1)
    ]


def called_by_text(program: Program) -> set[str]:
    """Return the names of a program's backends with text calls."""
    return {target for target, _ in _texts(program)}


def _texts(program: Program) -> list[tuple[str, TextCall]]:
    return [
        (kernel.target, node.text)
        for kernel in program.kernels.values()
        for node in kernel.driver_calls
        if node.text is not None
    ]


def checks_scratch(program: Program) -> bool:
    """Whether a kernel compares its required scratch with the planned scratch."""
    return any(text.scratch is not None for _, text in _texts(program))
