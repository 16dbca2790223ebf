# SPDX-License-Identifier: Apache-2.0
"""Results of `uma doctor`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from umakit.errors import UmakitError, one_line


class Status(StrEnum):
    """The outcome of a check."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Check:
    """A result of a check; a check with several faults has several results.

    Attributes:
        status: outcome; `skipped` if another check found a prerequisite missing.
    """

    name: str
    status: Status
    message: str
    where: str = ""
    mend: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """The results of all checks, in execution order."""

    checks: tuple[Check, ...]

    def count(self, status: Status) -> int:
        return sum(check.status is status for check in self.checks)

    @property
    def has_errors(self) -> bool:
        return self.count(Status.ERROR) > 0

    def as_json(self) -> dict[str, Any]:
        return {
            "errors": self.count(Status.ERROR),
            "warnings": self.count(Status.WARNING),
            "checks": [asdict(check) for check in self.checks],
        }


def ok(name: str, message: str) -> Check:
    """Return the result of a check without a fault."""
    return Check(name, Status.OK, message)


def failed(name: str, message: str, *, where: str = "", mend: str = "") -> Check:
    """Return a fault that makes a first run fail."""
    return Check(name, Status.ERROR, one_line(message), one_line(where), one_line(mend))


def doubtful(name: str, message: str, *, where: str = "", mend: str = "") -> Check:
    """Return a fault with which a first run may succeed."""
    return Check(name, Status.WARNING, one_line(message), one_line(where), one_line(mend))


def skipped(name: str, message: str) -> Check:
    """Return the result of a check whose prerequisite another check found missing."""
    return Check(name, Status.SKIPPED, message)


def refused(name: str, error: UmakitError, mend: str = "") -> Check:
    """Return the fault described by an error of a stage."""
    return failed(name, error.what, where=error.where, mend=error.fix or mend)


def any_error(checks: Sequence[Check]) -> bool:
    return any(check.status is Status.ERROR for check in checks)
