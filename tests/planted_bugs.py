# SPDX-License-Identifier: Apache-2.0
"""Bugs that `uma check` must find in copies of backends; as a program it prints a table.

python tests/planted_bugs.py [WORD]...    bugs whose list, backend or kind has all the words

Lists are files of data/: `planted` (one of each kind for each backend), `check` (what a few layers
of each operator do not show) and `drawn` (mechanical ones). Each bug is checked by the command
`uma check` in its default time.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from check_projects import project_names, written_project
from exhaustive_layers import first_difference, first_difference_of_faults

from umakit import find_backend
from umakit.errors import UmakitError
from umakit.testing.check.claims import claims_of
from umakit.testing.check.plan import Plan
from umakit.testing.check.session import Cases, Session
from umakit.testing.registers import check_registers

ROOT = Path(__file__).parents[1]
LISTS = ("planted", "check", "drawn")
LEAST_FOUND = 0.95
MOST_EQUIVALENT = 6
"""Bugs of the lists `check` and `drawn` that no layer may be able to show."""

FOUND, MISSED, EQUIVALENT, BROKEN = "found", "MISSED", "equivalent", "BROKEN"


@dataclass(frozen=True)
class Bug:
    """One text of a file of a backend replaced by another one.

    Attributes:
        backend: folder, or the name of a project of data/check_projects.toml.
        kind: what is wrong.
        file: in that folder.
        old, new: texts.
        operators: patterns of which at least one must be named; empty: any.
        case: what shows it; empty if it has to be drawn.
        after: text that occurs once, behind which the old text is the first; empty: the old text
            occurs once.
        equivalent: why no layer can show it, which all small layers have to confirm; empty if one
            can.
        on_faults: whether the bug only changes what follows a fault of the device, so that faults
            at all accesses have to confirm it in place of all small layers.
        list: its list.
    """

    backend: str
    kind: str
    file: str
    old: str
    new: str
    operators: tuple[str, ...] = ()
    case: str = ""
    after: str = ""
    equivalent: str = ""
    on_faults: bool = False
    list: str = "planted"

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
            unmodified(self.backend), copy, ignore=shutil.ignore_patterns("__pycache__", "build")
        )
        before, after, rest = (
            self.text.rpartition(self.after) if self.after else ("", "", self.text)
        )
        changed = before + after + rest.replace(self.old, self.new, 1)
        (copy / self.file).write_text(changed, encoding="utf-8")
        return copy

    def first_difference(self, copy: Path) -> tuple[int, str]:
        """Return the number of comparisons that may show the bug, and the first difference."""
        if self.on_faults:
            return first_difference_of_faults(copy)
        return first_difference(copy, self.operators)

    @property
    def exhaustive(self) -> str:
        """What all comparisons are made of, in the plural."""
        return "layers after a bus error" if self.on_faults else "small layers"

    @property
    def text(self) -> str:
        """Text of the unmodified file."""
        return (unmodified(self.backend) / self.file).read_text(encoding="utf-8")

    @property
    def occurrences(self) -> int:
        """How often the old text occurs; behind another one it may do so again."""
        if not self.after:
            return self.text.count(self.old)
        behind = self.text.partition(self.after)[2]
        return self.text.count(self.after) if self.old in behind else 0


@dataclass(frozen=True)
class Outcome:
    """What became of a bug.

    Attributes:
        list: list of the bug.
        bug: its name.
        result: `FOUND`, `MISSED`, `EQUIVALENT`, or `BROKEN` if the check itself failed.
        what: the first failure, or why nothing can show the bug.
        case: of that failure.
        drawn, ran: layers of the check.
        seconds: time that it took.
    """

    list: str
    bug: str
    result: str
    what: str
    case: str
    drawn: int
    ran: int
    seconds: float


@cache
def unmodified(backend: str) -> Path:
    """Return the folder of a backend; a project is written to a temporary folder."""
    if backend not in project_names():
        return ROOT / backend
    return written_project(backend, Path(tempfile.mkdtemp(prefix="umakit-bugs-")))


def all_bugs(*lists: str) -> list[Bug]:
    """Return the bugs of lists."""
    found = []
    for name in lists:
        content = (ROOT / f"tests/data/{name}_bugs.toml").read_text(encoding="utf-8")
        for each in tomllib.loads(content)["bug"]:
            operators = tuple(each.get("operators", ()))
            found.append(Bug(**{**each, "operators": operators, "list": name}))
    return found


def checked(folder: Path, options: Sequence[str] = ()) -> tuple[int, dict[str, Any], str]:
    """Return exit code, report and messages of `uma check`.

    Args:
        folder: the backend.
        options: further ones of the command.
    """
    command = [str(Path(sys.executable).with_name("uma")), "check", str(folder), "--json"]
    ended = subprocess.run(
        [*command, *options], capture_output=True, text=True, check=False, cwd=folder.parent
    )
    try:
        report = json.loads(ended.stdout)
    except ValueError:
        report = {}
    return ended.returncode, report, ended.stderr


def outcome_of(bug: Bug, options: Sequence[str] = ()) -> Outcome:
    """Check a copy of a backend with a bug.

    Args:
        bug: the bug.
        options: of `uma check`.
    """
    started = time.monotonic()
    count, shown = 0, ""
    with tempfile.TemporaryDirectory() as folder:
        copy = bug.planted(Path(folder))
        code, report, messages = checked(copy, options)
        took = time.monotonic() - started
        if bug.equivalent and code == 0:
            count, shown = bug.first_difference(copy)
    counts = list(report.get("operators", {}).values())
    drawn, ran = (sum(each[key] for each in counts) for key in ("drawn", "ran"))
    failures = [  # others are no finding: that layers of an operator were not drawn, for example
        each for each in report.get("failures", ())
        if (each["operator"] == "registers" and not bug.operators)
        or (each["case"] and (not bug.operators or each["operator"] in bug.operators))
    ]  # fmt: skip
    first = failures[0] if failures else {"what": "", "case": ""}
    told = (first["what"], first["case"] or "", drawn, ran, took)
    if code == 1 and failures:
        return Outcome(bug.list, bug.name, FOUND, *told)
    if code not in (0, 1, 3) or not report:
        last = " ".join(messages.strip().splitlines()[-1:])
        return Outcome(bug.list, bug.name, BROKEN, f"exit code {code}: {last}", *told[1:])
    if bug.equivalent and code == 0 and not shown:
        why = f"{bug.equivalent}; all of {count} {bug.exhaustive} are right"
        return Outcome(bug.list, bug.name, EQUIVALENT, why, *told[1:])
    other = report["failures"][0]["what"] if report["failures"] else shown
    return Outcome(bug.list, bug.name, MISSED, other, *told[1:])


@cache
def layers_of_check(backend: str) -> list[Cases]:
    """Return the layers of a check with seed 0, in the batches in which they run."""
    claims = {claim.name: claim for claim in claims_of(find_backend(str(unmodified(backend))))}
    return list(Plan(claims, list(claims), 0).batches())


def quick_outcome(bug: Bug) -> Outcome:
    """Compare registers and the layers of a check of a copy with a bug, until a layer fails."""
    started, ran, drawn = time.process_time(), 0, 0
    with tempfile.TemporaryDirectory() as temporary:
        copy = bug.planted(Path(temporary))
        backend = find_backend(str(copy))
        try:
            registers = None if bug.operators else check_registers(backend)
        except UmakitError:
            registers = None
        if registers is not None and registers.differences:
            what = registers.differences[0]
            return Outcome(bug.list, bug.name, FOUND, what, "", 0, 0, time.process_time() - started)
        session = Session(backend, Path(temporary))
        for cases in layers_of_check(bug.backend):
            found = session.failures_of(cases)
            drawn, ran = drawn + len(cases), ran + sum(each for _, each in found.ran)
            for each in found.failures:
                if not bug.operators or each.pattern in bug.operators:
                    told = (each.what, str(each.case), drawn, ran, time.process_time() - started)
                    return Outcome(bug.list, bug.name, FOUND, *told)
        what, result = "", MISSED
        if bug.equivalent:
            count, what = bug.first_difference(copy)
            result = MISSED if what else EQUIVALENT
            what = what or f"{bug.equivalent}; all of {count} {bug.exhaustive} are right"
    return Outcome(bug.list, bug.name, result, what, "", drawn, ran, time.process_time() - started)


def table(outcomes: Sequence[Outcome]) -> str:
    """Return how many bugs of each backend were found, and the share of those that can be."""
    lines = []
    for name in (*dict.fromkeys(each.list for each in outcomes), ""):
        of_list = [each for each in outcomes if name in ("", each.list)]
        backends = dict.fromkeys(each.bug.partition(":")[0] for each in of_list)
        for backend in (*backends, "") if name else ("",):
            some = [each for each in of_list if backend in ("", each.bug.partition(":")[0])]
            found, equivalent = (
                sum(each.result == kind for each in some) for kind in (FOUND, EQUIVALENT)
            )
            share = 100 * found / max(len(some) - equivalent, 1)
            lines.append(
                f"{name or 'all':8} {backend or 'all':24} {found:3} of {len(some):3} found,"
                f" {equivalent} equivalent: {share:5.1f} %"
            )
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    """Print a table of bugs and how they were found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--lists", default=",".join(LISTS))
    parser.add_argument("--json", type=Path, help="where to write the outcomes")
    parser.add_argument("--parallel", type=int, default=1, help="bugs that are checked at a time")
    parser.add_argument(
        "--again", type=Path, help="outcomes of which only those not found run again"
    )
    parser.add_argument(
        "--quick", action="store_true",
        help="in this process, until a batch of layers fails: the same layers, no reduced cases",
    )  # fmt: skip
    parser.add_argument("--options", default="--jobs 1", help="further options of uma check")
    given = parser.parse_args(arguments)
    bugs = [
        bug for bug in all_bugs(*given.lists.split(","))
        if all(word in f"{bug.list} {bug.name}" for word in given.words)
    ]  # fmt: skip
    bugs.sort(key=lambda bug: bool(bug.equivalent))  # all small layers of these take long
    before = json.loads(given.again.read_text()) if given.again else []
    known = {each["bug"]: Outcome(**each) for each in before if each["result"] == FOUND}
    for backend in dict.fromkeys(bug.backend for bug in bugs):
        unmodified(backend)

    def outcome(bug: Bug) -> Outcome:
        if bug.name in known:
            return known[bug.name]
        return quick_outcome(bug) if given.quick else outcome_of(bug, given.options.split())

    outcomes: list[Outcome] = []
    with ThreadPoolExecutor(1 if given.quick else given.parallel) as pool:
        for each in pool.map(outcome, bugs):
            outcomes.append(each)
            lines = [f"{each.result:10} {each.seconds:6.1f} s {each.ran:5} layers  {each.bug}"]
            lines += [f"    {line}" for line in (each.what[:160], each.case) if line]
            print("\n".join(lines), flush=True)
            if given.json:
                given.json.write_text(json.dumps([asdict(one) for one in outcomes], indent=1))
    print(table(outcomes))
    found = sum(each.result == FOUND for each in outcomes)
    equivalent = sum(each.result == EQUIVALENT for each in outcomes)
    is_enough = found >= LEAST_FOUND * (len(outcomes) - equivalent)
    return 0 if is_enough and equivalent <= MOST_EQUIVALENT else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
