# SPDX-License-Identifier: Apache-2.0
"""What varied programs found."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

ONLY_RTL = "the backend has no C model, which the RTL could be compared with"
NO_LAYER = "no layer's accesses are recorded, or all are too long"

SKIPPED = {
    "time": "depend on when accesses come",
    "long": "take too long",
    "beyond": "access what no buffer has",
    "model": "stop the model",
}
"""Why programs are not compared, by outcome."""


@dataclass(frozen=True)
class ProgramsDifference:
    """Programs that differ in the same way, of which the first one is reduced.

    Attributes:
        program: number of the first one, which `--program` repeats.
        what: a sentence with access, register or byte of a buffer, and both values.
        changes: what is changed in the driver's accesses, in words; none that is not needed.
        kind: register, error, memory, interrupt or failure.
        place: the register, or those that point to the buffer; empty if there is none.
        refused: `model`, `rtl` or `both` if it is only that they refuse it, else empty.
        is_failure: whether one of the two is wrong for what a driver sends.
        fix: what to do.
        programs: how many differ in this way.
        seed: of the check.
    """

    program: int
    what: str
    changes: tuple[str, ...]
    kind: str = ""
    place: str = ""
    refused: str = ""
    is_failure: bool = True
    fix: str = ""
    programs: int = 1
    seed: int = 0

    @property
    def sentence(self) -> str:
        """What differs, and in what the program is not the driver's."""
        changes = "; ".join(self.changes) or "none: these are the driver's own accesses"
        more = f" ({self.programs:,} programs)" if self.programs > 1 else ""
        return f"{self.what}. Changes: {changes}{more}"

    @property
    def options(self) -> str:
        """Options of `uma check --rtl` that run the program again."""
        seed = f"--seed {self.seed} " if self.seed else ""
        return f"{seed}--program {self.program}"

    def as_json(self) -> dict[str, Any]:
        """Return it with stable keys."""
        return {
            "program": self.program,
            "seed": self.seed,
            "programs": self.programs,
            "kind": self.kind,
            "place": self.place or None,
            "refused": self.refused or None,
            "failure": self.is_failure,
            "what": self.what,
            "changes": list(self.changes),
            "fix": self.fix,
        }


@dataclass
class ProgramReport:
    """What varied programs found.

    Attributes:
        not_run: why there are none; empty if there are.
        mistake: where the driver breaks what its register map says, so that there are none.
        layers: number of recorded layers that they are made of.
        wanted: how many would have been run in more time; None if the time decides alone.
        outcomes: how many ended in which way; see `replay.Answer`.
        cycles: of the RTL, of all together.
        jobs: cycles of the model's clock that each recorded layer takes.
        seconds: time that it took, with the building.
        differences: the first one of each kind.
    """

    not_run: str = ""
    mistake: str = ""
    layers: int = 0
    wanted: int | None = None
    outcomes: Counter[str] = field(default_factory=Counter)
    cycles: int = 0
    jobs: tuple[int, ...] = ()
    seconds: float = 0.0
    differences: list[ProgramsDifference] = field(default_factory=list)

    @property
    def failures(self) -> list[ProgramsDifference]:
        """Differences in which one of the two is wrong."""
        return [each for each in self.differences if each.is_failure]

    @property
    def remarks(self) -> list[ProgramsDifference]:
        """Differences of what may never be sent."""
        return [each for each in self.differences if not each.is_failure]

    @property
    def run(self) -> int:
        """How many were run."""
        return self.outcomes.total()

    @property
    def summary(self) -> str:
        """What was compared, in a line."""
        if self.not_run:
            return f"varied programs: none, because {self.not_run}"
        compared = sum(self.outcomes[each] for each in ("ok", "error", "differs"))
        text = f"varied programs: {compared:,} compared on the C model and on the RTL, "
        text += f"{self.outcomes['error']:,} of them with an error on both"
        if self.outcomes["differs"]:
            text += f", {self.outcomes['differs']:,} differ"
        skipped = [f"{self.outcomes[k]:,} {why}" for k, why in SKIPPED.items() if self.outcomes[k]]
        if skipped:
            text += f"; not compared: {', '.join(skipped)}"
        if self.wanted is not None and self.run < self.wanted:
            text += f"; the time was over after {self.run:,} of {self.wanted:,}"
        return text

    def as_json(self) -> dict[str, Any]:
        """Return it with stable keys."""
        return {
            "not_run": self.not_run or None,
            "layers": self.layers,
            "run": self.run,
            "wanted": self.wanted,
            "equal": self.outcomes["ok"],
            "errors": self.outcomes["error"],
            "skipped": {why: self.outcomes[why] for why in SKIPPED},
            "rtl_cycles": self.cycles,
            "seconds": round(self.seconds, 1),
            "differences": [each.as_json() for each in self.differences],
        }
