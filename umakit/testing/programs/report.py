# SPDX-License-Identifier: Apache-2.0
"""The results of varied programs."""

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
    """Programs that differ in the same way; the first one is reduced.

    Attributes:
        what: a sentence with access, register or byte of a buffer, and both values.
        changes: necessary changes to the driver's accesses, in words.
        place: the register, or the registers that point to the buffer; empty if there is none.
        refused: `model`, `rtl` or `both` if the only difference is a refusal, else empty.
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
        """Sentence about the difference, and the changes to the driver's accesses."""
        changes = "; ".join(self.changes) or "none: these are the driver's own accesses"
        more = f" ({self.programs:,} programs)" if self.programs > 1 else ""
        return f"{self.what}. Changes: {changes}{more}"

    @property
    def options(self) -> str:
        """Options of `uma check --rtl` that run the program again."""
        seed = f"--seed {self.seed} " if self.seed else ""
        return f"{seed}--program {self.program}"

    def as_json(self) -> dict[str, Any]:
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
    """The results of varied programs.

    Attributes:
        not_run: reason for having no programs; empty if there are some.
        mistake: the driver's violation of its register map, which prevents programs.
        wanted: number of programs without the time limit; None if the time decides alone.
        outcomes: number of programs by outcome; see `replay.Answer`.
        jobs: cycles of the model's clock for each recorded layer.
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
        """Differences in which model or RTL is wrong."""
        return [each for each in self.differences if each.is_failure]

    @property
    def remarks(self) -> list[ProgramsDifference]:
        """Differences for accesses that a driver may never send."""
        return [each for each in self.differences if not each.is_failure]

    @property
    def run(self) -> int:
        return self.outcomes.total()

    @property
    def summary(self) -> str:
        """Summary of the comparison in a line."""
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
