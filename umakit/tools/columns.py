# SPDX-License-Identifier: Apache-2.0
"""Columns of figures, from which tables of terminals and of pages are made.

Imports neither TVM nor the pipeline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

UNKNOWN = "-"
"""Text for a figure that is not known."""


def known_count(value: int | None) -> str:
    return UNKNOWN if value is None else f"{value:,}"


def count(value: int | None) -> str:
    """Return a number; empty for 0 and for a missing number."""
    return f"{value:,}" if value else ""


def known_percent(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:+.2f} %"


def known_ratio(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.3f}"


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        header: header of the column.
        of: text for a record.
        total: text in the last line.
        is_text: whether the column is aligned to the left.
    """

    header: str
    of: Callable[[Any], str]
    total: str = ""
    is_text: bool = False


@dataclass(frozen=True)
class Line:
    """A line of a table: name and cells; `on_cpu` for a CPU step."""

    name: str
    cells: tuple[str, ...]
    on_cpu: bool = False


@dataclass(frozen=True)
class TextTable:
    """A table of texts.

    Attributes:
        columns: columns after the names.
        lines: a line for each record.
        total: the last line; None for none.
    """

    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    total: Line | None

    @property
    def headers(self) -> tuple[str, ...]:
        return tuple(column.header for column in self.columns)

    @classmethod
    def of(
        cls,
        records: Iterable[Any],
        columns: Sequence[Column],
        total: str = "",
        name: Callable[[Any], str] = lambda record: str(record.name),
    ) -> TextTable:
        """Return the table of records.

        Args:
            total: name of the last line; empty for none.
            name: name of a record's line.
        """
        lines = tuple(
            Line(name(each), tuple(column.of(each) for column in columns),
                 getattr(each, "on_cpu", False))
            for each in records
        )  # fmt: skip
        last = Line(total, tuple(column.total for column in columns)) if total else None
        return cls(tuple(columns), lines, last)
