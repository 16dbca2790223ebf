# SPDX-License-Identifier: Apache-2.0
"""Reads saved reports, and refuses files that are none. Imports neither TVM nor the pipeline."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from umakit.errors import RecordsError, short_path
from umakit.files.documents import Document
from umakit.tools.comparison.adding_up import contradiction
from umakit.tools.comparison.saved import Report
from umakit.tools.report_format import FORMAT, VERSION

AGAIN = "write it again with `uma report MODEL --backend NAME --json > FILE`"

REPORT: Document[Report] = Document(
    FORMAT, VERSION, "report that `uma report --json` printed", TypeAdapter(Report), RecordsError,
    is_strict=True,
    instead_of_special="name a saved report", instead_of_another=AGAIN, instead_of_damaged=AGAIN,
)  # fmt: skip


def is_report_file(path: Path) -> bool:
    """Whether a path is a report, and not a model: a Relax module is JSON as well.

    All texts in files of JSON that cannot be a Relax module are taken for reports; `read_report`
    refuses those that are none.
    """
    if path.suffix != ".json" or not path.is_file():
        return False
    try:
        content = path.read_bytes()
        start = content[:2000].decode("utf-8", errors="replace")
    except OSError:
        return False
    if f'"{FORMAT}"' in start or '"model_sha256"' in start:
        return True
    is_text = "\0" not in start and "\N{REPLACEMENT CHARACTER}" not in start[:-4]
    return is_text and not (b'"nodes"' in content or b'"root_index"' in content)


def read_report(path: Path) -> Report:
    """Read a saved report.

    Raises:
        RecordsError: it cannot be read, is none, is of another version, or does not add up.
    """
    report = REPORT.read(path)
    _check(report, short_path(path))
    return report


def report_of(view: Mapping[str, Any]) -> Report:
    """Return the report with the keys of `uma report --json`."""
    report = REPORT.adapter.validate_json(json.dumps(view), strict=True)
    _check(report, "report")
    return report


def _check(report: Report, where: str) -> None:
    """Refuse a report whose figures contradict each other."""
    what = contradiction(report)
    if what is not None:
        raise RecordsError(what, where=where, fix=AGAIN)
