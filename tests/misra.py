# SPDX-License-Identifier: Apache-2.0
"""MISRA C:2012 in exported libraries, by cppcheck's addon: every rule that it finds has to be
listed, with a reason, in `docs/misra.md`.

    python tests/misra.py FOLDER...
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

DEVIATIONS = Path(__file__).parents[1] / "docs" / "misra.md"
ROW = re.compile(r"^\| (\d+\.\d+) \| [\d,]+ \| .* \| \S.* \|$", re.MULTILINE)
FOUND = re.compile(r"^misra-c2012-(\d+\.\d+) (.*)$", re.MULTILINE)
SIMULATION = re.compile(r"umakit_(?!status|lock_|platform)\w+\.c|\w+_device\.c")
"""Files that a board leaves out."""


def listed(path: Path = DEVIATIONS) -> set[str]:
    """Return the numbers of the rules that the page lists."""
    return set(ROW.findall(path.read_text(encoding="utf-8")))


def findings(folders: Sequence[Path]) -> dict[str, list[str]]:
    """Return `FILE:LINE` of each finding in the C files of exports, by rule.

    Each folder is a program of its own: some rules are about all files of a program.
    """
    found: dict[str, list[str]] = {}
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        for places in threads.map(_findings_of, folders):
            for rule, place in places:
                found.setdefault(rule, []).append(place)
    return found


def _findings_of(folder: Path) -> list[tuple[str, str]]:
    """Return rule and `FILE:LINE` of each finding in the C files of an export."""
    sources = [p for p in sorted(folder.rglob("*.c")) if not SIMULATION.fullmatch(p.name)]
    command = ["cppcheck", "--std=c99", "--addon=misra", "--enable=style", "--quiet"]
    result = subprocess.run(
        [*command, "--template={id} {file}:{line}", *map(str, sources)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return sorted(set(FOUND.findall(result.stderr)))


def main(folders: Sequence[Path], deviations: Path = DEVIATIONS) -> int:
    """Print how often each rule is found; return 1 if one is not listed."""
    found = findings(folders)
    if not found:
        print("no finding at all: is the addon misra of cppcheck installed?")
        return 1
    counts = Counter({rule: len(places) for rule, places in found.items()})
    print("  ".join(f"{rule}: {count}" for rule, count in counts.most_common()))
    unlisted = found.keys() - listed(deviations)
    for rule in sorted(unlisted):
        print(f"rule {rule} is not listed in {deviations.name}: {', '.join(found[rule][:5])}")
    return 1 if unlisted else 0


if __name__ == "__main__":
    sys.exit(main([Path(argument) for argument in sys.argv[1:]]))
