# SPDX-License-Identifier: Apache-2.0
"""The options common to all forms of `uma tune`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from umakit.text.escaping import shell_word


@dataclass(frozen=True)
class TuneCall:
    """The network, the file of records and the output of a call of `uma tune`.

    Attributes:
        again: whether layers or kernels with a record are tuned again.
        shapes: shapes by input name.
    """

    model: Path
    records: Path
    again: bool
    shapes: dict[str, list[int]]
    rounding: str | None
    keep_layout: bool
    as_json: bool

    def next_command(self, option: str, name: str) -> str:
        """Return a line with the command that uses the records.

        Args:
            option: `--backend` or `--cpu`.
        """
        options = f"{option} {shell_word(name)} --records {shell_word(str(self.records))}"
        options += " --keep-layout" if self.keep_layout else ""
        return f"Next: uma compile {shell_word(str(self.model))} {options} -o LIBRARY"
