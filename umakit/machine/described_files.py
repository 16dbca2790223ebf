# SPDX-License-Identifier: Apache-2.0
"""Descriptions of CPUs and boards in TOML files; a file may be based on one of umakit's files."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from umakit.errors import InputError
from umakit.machine.config_faults import described_fault

Model = TypeVar("Model", bound=BaseModel)


def read_described(
    path: Path,
    model: type[Model],
    bases: Mapping[str, Path],
    what: str,
    *,
    shown: str = "",
    defaults: Mapping[str, Any] | None = None,
) -> Model:
    """Return the description in a TOML file, with missing keys taken from the base of the file.

    Args:
        model: the model of a file; keys and types are checked strictly.
        bases: the files that the key `base` may name.
        what: `CPU` or `board`, for messages.
        shown: the path for messages without a line; default: `path`.
        defaults: values of keys that neither the file nor its base has.

    Raises:
        InputError: the file cannot be read, is no TOML, or has a mistake; the message has the line
            and, for a key, a similar key.
    """
    text = shown or str(path)
    try:
        described = {**(defaults or {}), **_described(path, bases)}
        # As JSON, because strict validation refuses the lists of TOML for tuples.
        return model.model_validate_json(json.dumps(described, default=str), strict=True)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=text) from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise _error(path, f"is no TOML: {error}", model) from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        said = str(first["msg"]).removeprefix("Value error, ")
        if first["type"].endswith("_type"):
            said += f", not {first['input']!r}"
        raise _error(path, f"{place}: {said}" if place else said, model) from None
    except _NoBase as error:
        fix = f"choose {', '.join(bases)}"
        raise InputError(
            f"base: there is no {what} {error.args[0]!r}", where=text, fix=fix
        ) from None


class _NoBase(Exception):
    """A description has an unknown base."""


def _error(path: Path, what: str, model: type[BaseModel]) -> InputError:
    what, where, fix = described_fault(path, what, model)
    return InputError(what, where=where, fix=fix)


def _described(path: Path, bases: Mapping[str, Path]) -> dict[str, Any]:
    own = tomllib.loads(path.read_text(encoding="utf-8"))
    base = own.pop("base", None)
    if base is None:
        return own
    if not isinstance(base, str) or base not in bases:
        raise _NoBase(base)
    return _merged(tomllib.loads(bases[base].read_text(encoding="utf-8")), own)


def _merged(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two tables; values of the second table win."""
    found = {**base, **own}
    for name, value in own.items():
        before = base.get(name)
        if isinstance(value, dict) and isinstance(before, dict):
            found[name] = _merged(before, value)
    return found
