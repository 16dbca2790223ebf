# SPDX-License-Identifier: Apache-2.0
"""Columns of figures, from which JSON and the tables of terminals and of pages are made.

Imports neither TVM nor the pipeline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
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


def known_sum(values: Iterable[int | None]) -> int | None:
    """Return the sum of figures; None without figures, or if one is unknown."""
    found = list(values)
    return sum(each or 0 for each in found) if found and None not in found else None


def view(record: object, names: str) -> dict[str, Any]:
    """Return figures of a record as JSON values.

    Args:
        names: attributes of the record, separated by spaces; `key:attribute` for another key.
    """
    pairs = (name.partition(":") for name in names.split())
    return {key: as_json(getattr(record, name or key)) for key, _, name in pairs}


def as_json(value: Any) -> Any:
    """Return a figure as a JSON value."""
    if hasattr(value, "as_json"):
        return value.as_json()
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, tuple | list):
        return [as_json(each) for each in value]
    return dict(value) if isinstance(value, Mapping) else value


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
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
    """A line of a table.

    Attributes:
        on_cpu: whether the line is of a CPU step.
        style: style on a terminal, such as `bold green`.
        note: remark behind the cells; empty for none.
    """

    name: str
    cells: tuple[str, ...]
    on_cpu: bool = False
    style: str = ""
    note: str = ""


@dataclass(frozen=True)
class TextTable:
    """A table of texts.

    Attributes:
        columns: columns after the names.
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
        style: Callable[[Any], str] = lambda record: "",
    ) -> TextTable:
        """Return the table of records.

        Args:
            total: name of the last line; empty for none.
        """
        lines = tuple(
            Line(name(each), tuple(column.of(each) for column in columns),
                 getattr(each, "on_cpu", False), style(each))
            for each in records
        )  # fmt: skip
        last = Line(total, tuple(column.total for column in columns)) if total else None
        return cls(tuple(columns), lines, last)
