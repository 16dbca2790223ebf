# SPDX-License-Identifier: Apache-2.0
"""Bugs that `uma check` must find, see data/planted_bugs.toml; as a program it prints a table.

python tests/planted_bugs.py [WORD]...    bugs whose backend or kind has all the words
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from umakit import find_backend
from umakit.testing import check_backend
from umakit.testing.check import CheckReport

ROOT = Path(__file__).parents[1]
SECONDS = 120.0
"""Time in which a bug has to be found, on two cores."""


@dataclass(frozen=True)
class Bug:
    """One text of a file of a backend replaced by another one.

    Attributes:
        backend: folder.
        kind: what is wrong.
        file: in that folder.
        old, new: texts.
        operators: patterns of which at least one must be named.
        case: what shows it; empty if it has to be drawn.
    """

    backend: str
    kind: str
    file: str
    old: str
    new: str
    operators: tuple[str, ...]
    case: str = ""

    @property
    def name(self) -> str:
        """Backend and kind."""
        return f"{Path(self.backend).name}: {self.kind}"

    def planted(self, folder: Path) -> Path:
        """Return a copy of the backend that has the bug.

        Args:
            folder: where the copy is made.
        """
        assert self.occurrences == 1, f"{self.name}: {self.occurrences} times in {self.file}"
        copy = folder / Path(self.backend).name
        shutil.copytree(
            ROOT / self.backend, copy, ignore=shutil.ignore_patterns("__pycache__", "build")
        )
        (copy / self.file).write_text(self.text.replace(self.old, self.new), encoding="utf-8")
        return copy

    @property
    def text(self) -> str:
        """Text of the unmodified file."""
        return (ROOT / self.backend / self.file).read_text(encoding="utf-8")

    @property
    def occurrences(self) -> int:
        """How often the old text occurs."""
        return self.text.count(self.old)


def all_bugs() -> list[Bug]:
    """Return all bugs of the data file."""
    content = (ROOT / "tests/data/planted_bugs.toml").read_text(encoding="utf-8")
    found = tomllib.loads(content)["bug"]
    return [Bug(**{**each, "operators": tuple(each["operators"])}) for each in found]


def checked(bug: Bug, jobs: int = 1) -> CheckReport:
    """Return what `uma check` finds in a copy of a backend with a bug."""
    with tempfile.TemporaryDirectory() as folder:
        backend = find_backend(str(bug.planted(Path(folder))))
        return check_backend(backend, seconds=SECONDS, jobs=jobs)


def main(words: Sequence[str]) -> int:
    """Print a table of bugs and how they were found."""
    missed = 0
    for bug in all_bugs():
        if not all(word in bug.name for word in words):
            continue
        started = time.monotonic()
        report = checked(bug, jobs=os.cpu_count() or 1)
        passed = time.monotonic() - started
        named = [each for each in report.failures if each.pattern in bug.operators and each.case]
        missed += not named
        drawn = sum(counts.drawn for counts in report.operators.values())
        result = "found" if named else "MISSED"
        print(f"{result:6} {passed:6.1f} s {drawn:5} layers  {bug.name}", flush=True)
        for failure in (named or report.failures)[:1]:
            print(f"    {failure.what}\n    {failure.case}", flush=True)
    print(f"{missed} missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
