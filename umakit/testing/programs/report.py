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
    "model": "stop the model",
}
"""Why programs are not compared, by outcome."""


@dataclass(frozen=True)
class ProgramsDifference:
    """The first difference.

    Attributes:
        program: number of the program, which `--program` repeats.
        what: a sentence with access, register or address, and both values.
        changes: what is changed in the driver's accesses, in words; none that is not needed.
        seed: of the check.
    """

    program: int
    what: str
    changes: tuple[str, ...]
    seed: int = 0

    @property
    def sentence(self) -> str:
        """What differs, and in what the program is not the driver's."""
        changes = "; ".join(self.changes) or "none: these are the driver's own accesses"
        return f"{self.what}. Changes: {changes}"

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
            "what": self.what,
            "changes": list(self.changes),
        }


@dataclass
class ProgramReport:
    """What varied programs found.

    Attributes:
        not_run: why there are none; empty if there are.
        layers: number of recorded layers that they are made of.
        outcomes: how many ended in which way; see `replay.Answer`.
        cycles: of the RTL, of all together.
        seconds: time that it took, with the building.
        difference: the first one; None if there is none.
    """

    not_run: str = ""
    layers: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    cycles: int = 0
    seconds: float = 0.0
    difference: ProgramsDifference | None = None

    @property
    def summary(self) -> str:
        """What was compared, in a line."""
        if self.not_run:
            return f"varied programs: none, because {self.not_run}"
        compared = sum(self.outcomes[each] for each in ("ok", "error", "differs"))
        text = f"varied programs: {compared:,} compared on the C model and on the RTL, "
        text += f"{self.outcomes['error']:,} of them with an error on both"
        skipped = [f"{self.outcomes[k]:,} {why}" for k, why in SKIPPED.items() if self.outcomes[k]]
        if skipped:
            text += f"; not compared: {', '.join(skipped)}"
        return text

    def as_json(self) -> dict[str, Any]:
        """Return it with stable keys."""
        return {
            "not_run": self.not_run or None,
            "layers": self.layers,
            "equal": self.outcomes["ok"],
            "errors": self.outcomes["error"],
            "skipped": {why: self.outcomes[why] for why in SKIPPED},
            "rtl_cycles": self.cycles,
            "seconds": round(self.seconds, 1),
            "difference": self.difference.as_json() if self.difference else None,
        }
