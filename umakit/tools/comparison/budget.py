# SPDX-License-Identifier: Apache-2.0
"""Limits in a file under version control, with the saved report they refer to."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from umakit.errors import RecordsError, short_path
from umakit.files.documents import is_special
from umakit.files.outputs import BUDGET, REPORT, check_distinct, check_file, check_parent
from umakit.files.staging import write_file
from umakit.text.spelling import closest_or_all
from umakit.tools.comparison.figures import FIGURES
from umakit.tools.comparison.limits import Limit, parse_limit, todays_limits
from umakit.tools.comparison.saved import Report

FORMAT = "umakit budget"
VERSION = 1
AGAIN = "write it again with `uma report MODEL --backend NAME --write-budget FILE`"
HEADER = """\
# Limits that `uma report --budget` checks: each says what fails. Amounts with a sign are relative
# to the report below; edit them freely. `--write-budget` again writes the amounts without a sign
# and the report anew, and leaves all other lines.
"""


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    format: str
    version: int
    report: str = ""
    fail_if: list[str] = Field(default_factory=list)


@dataclass(frozen=True)
class Budget:
    """Limits, and the report they refer to.

    Attributes:
        report: path of the saved report; None without one.
    """

    path: Path
    text: str
    limits: tuple[Limit, ...]
    report: Path | None


def read_budget(path: Path) -> Budget:
    """Read a budget. Its `report` is relative to the budget's folder."""
    where = short_path(path)
    if is_special(path):
        raise RecordsError("is not a regular file", where=where, fix="name a budget")
    try:
        text = path.read_text(encoding="utf-8")
        values = tomllib.loads(text)
    except FileNotFoundError:
        raise RecordsError("no such file", where=where, fix=AGAIN) from None
    except OSError as error:
        raise RecordsError(f"cannot be read: {error.strerror}", where=where) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise RecordsError(f"is not valid TOML: {error}", where=where) from None
    found = _checked(values, where)
    limits = tuple(parse_limit(limit, where) for limit in found.fail_if)
    return Budget(path, text, limits, path.parent / found.report if found.report else None)


def _checked(values: dict[str, Any], where: str) -> _File:
    if values.get("format") != FORMAT:
        raise RecordsError("holds no budget of umakit", where=where, fix=f'add format = "{FORMAT}"')
    if values.get("version") != VERSION:
        what = f"is of version {values.get('version')}, this umakit reads {VERSION}"
        raise RecordsError(what, where=where, fix=AGAIN)
    unknown = [name for name in values if name not in _File.model_fields]
    if unknown:
        fix = closest_or_all(unknown[0], list(_File.model_fields), "keys")
        raise RecordsError(f"there is no key {unknown[0]!r}", where=where, fix=fix)
    try:
        return _File.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise RecordsError(f"{key}: {first['msg']}", where=where) from None


def report_beside(path: Path) -> Path:
    """Return the path of a budget's saved report: beside the budget, with its name."""
    return path.with_name(f"{path.stem}.report.json")


def check_budget(path: Path, inputs: Iterable[Path], *, force: bool) -> None:
    """Refuse a budget path that cannot be written, before any long work."""
    read = list(inputs)
    check_parent(path)
    check_file(path, BUDGET, read, force=force)
    saved = _saved_beside(path, force)
    check_distinct(path, saved)
    check_file(saved, REPORT, read, force=force)


def write_budget(
    path: Path, report: Report, inputs: Iterable[Path] = (), *, force: bool = False
) -> Path:
    """Write a budget of the present figures and, beside it, the saved report.

    In an existing budget, only the amounts without a sign change; other limits and comments stay.
    With `force`, the budget is written anew.

    Args:
        inputs: files that the command reads, which are not replaced.
        force: whether files of other programs are replaced too.

    Returns:
        The path of the saved report.
    """
    read = list(inputs)
    saved = _saved_beside(path, force)
    if path.is_file() and path.stat().st_size and not force:
        text = _updated(read_budget(path), report)
    else:
        text = _new(saved.name, list(todays_limits(report)))
    write_file(saved, report.as_text().encode("utf-8"), REPORT, read, force=force)
    write_file(path, text.encode("utf-8"), BUDGET, read, force=force)
    return saved


def _saved_beside(path: Path, force: bool) -> Path:
    """Return the report that a budget names, or the path of a new budget's report."""
    if not force and path.is_file() and path.stat().st_size:
        return read_budget(path).report or report_beside(path)
    return report_beside(path)


def _new(saved: str, limits: Sequence[str]) -> str:
    lines = [
        f'format = "{FORMAT}"', f"version = {VERSION}",
        f"report = {json.dumps(saved, ensure_ascii=False)}", "fail_if = [",
        *(f'  "{limit}",' for limit in limits), "]",
    ]  # fmt: skip
    return HEADER + "\n".join(lines) + "\n"


def _updated(budget: Budget, report: Report) -> str:
    """Return the text of a budget with the present amounts."""
    text = budget.text
    known = {figure.name for figure in FIGURES}
    for limit in budget.limits:
        if limit.is_relative or limit.is_of_layers or limit.figure.name not in known:
            continue
        value = limit.figure.of(report)
        where = short_path(budget.path)
        if value is None:
            what = f"the figure of {limit.text!r} is not known: {limit.figure.unknown[0]}"
            raise RecordsError(what, where=where, fix=limit.figure.unknown[1])
        new = f"{limit.figure.name} {limit.sign} {value}"
        for quote in "\"'":
            if f"{quote}{limit.text}{quote}" in text:
                text = text.replace(f"{quote}{limit.text}{quote}", f'"{new}"')
                break
        else:
            raise RecordsError(f"the limit {limit.text!r} is not on one line as it is", where=where,
                               fix="write it in plain quotes")  # fmt: skip
    return text
