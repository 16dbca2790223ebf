# SPDX-License-Identifier: Apache-2.0
"""TOML files from values, as `tomllib` reads them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def toml_text(values: Mapping[str, Any]) -> str:
    """Return the text of a TOML file: a section for each table, and what these hold on one line.

    Args:
        values: tables, lists of tables and plain values by name, as `tomllib` returns them.

    Raises:
        TypeError: a value is none of bool, int, float, str, list and dict.
    """
    plain, sections = [], []
    for name, value in values.items():
        if isinstance(value, dict):
            sections += [f"\n[{_key(name)}]", *_lines(value)]
        elif isinstance(value, list) and value and all(isinstance(each, dict) for each in value):
            for each in value:
                sections += [f"\n[[{_key(name)}]]", *_lines(each)]
        else:
            plain.append(f"{_key(name)} = {_text(value)}")
    return "\n".join([*plain, *sections]).strip() + "\n"


def _lines(table: Mapping[str, Any]) -> list[str]:
    return [f"{_key(name)} = {_text(value)}" for name, value in table.items()]


def _key(name: str) -> str:
    return name if BARE_KEY.fullmatch(name) else _quoted(name)


def _quoted(text: str) -> str:
    # JSON's escapes are TOML's too; DEL needs one in TOML only.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    if isinstance(value, dict):
        return f"{{ {', '.join(_lines(value))} }}" if value else "{}"
    raise TypeError(f"{type(value).__name__} has no form in TOML")
