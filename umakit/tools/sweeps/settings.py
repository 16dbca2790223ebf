# SPDX-License-Identifier: Apache-2.0
"""Settings of an `accel.toml` in texts: `array.rows=32`, or several values of a key to sweep over.

A key is the dotted path of a value in the file. Entries of lists are named by their `name` instead
of a number, and a memory needs no `memory.` prefix: `scratchpad.size`, `machine.engine.dma.busy`.
The schema of the file determines the type of a value. In whole numbers, `K` and `M` stand for 1,024
and 1,048,576.
"""

from __future__ import annotations

import re
import tomllib
import typing
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from umakit.errors import AcceleratorConfigError, InputError
from umakit.machine.accelerator_config import AcceleratorConfig
from umakit.text.spelling import closest_or_all

Value = bool | int | float | str | list[Any] | dict[str, Any]
Settings = Mapping[str, Value]
"""Values by key."""

SIZE = re.compile(r"([+-]?\d{1,18})([BKM]?)")
UNITS = {"": 1, "B": 1, "K": 1024, "M": 1024 * 1024}
NAMED = "name"
MOST_POINTS = 10_000
"""Maximum number of machines of a sweep."""

MEMORY = "memory"


@dataclass(frozen=True)
class Place:
    """The place of a key in the file.

    Attributes:
        key: the key in its shortest form.
        path: keys and numbers of list entries, from outside to inside.
        adapter: validates a value.
    """

    key: str
    path: tuple[str | int, ...]
    adapter: TypeAdapter[Any]


def read_configuration(folder: Path) -> dict[str, Any]:
    """Return the parsed content of the `accel.toml` in a backend's folder."""
    path = folder / "accel.toml"
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise AcceleratorConfigError(f"cannot be read: {error.strerror}", where=str(path)) from None
    except (ValueError, RecursionError) as error:
        raise AcceleratorConfigError(f"is not valid TOML: {error}", where=str(path)) from None


def parse_settings(texts: Sequence[str], configuration: Mapping[str, Any]) -> dict[str, Value]:
    """Parse texts such as `array.rows=32`.

    Args:
        configuration: content of the `accel.toml`.
    """
    found: dict[str, Value] = {}
    for text in texts:
        place, value = _split(text, configuration)
        _check_new(place, found)
        found[place.key] = _value(place, value)
    return found


def parse_sweeps(
    texts: Sequence[str], configuration: Mapping[str, Any], given: Settings
) -> list[dict[str, Value]]:
    """Parse texts such as `scratchpad.size=32K,64K`, and combine all values with each other.

    Commas between brackets or quotes do not separate values.

    Args:
        configuration: content of the `accel.toml`.

    Returns:
        The settings of each combination; the last key changes fastest.
    """
    axes: dict[str, list[Value]] = {}
    count = 1
    for text in texts:
        place, values = _split(text, configuration)
        _check_new(place, {**given, **axes})
        axis: list[Value] = []
        for each in _separated(values):
            value = _value(place, each)
            if any(type(value) is type(other) and value == other for other in axis):
                raise InputError(f"{each} is given twice", where=place.key, fix="remove one")
            axis.append(value)
        axes[place.key] = axis
        count *= len(axis)
    if count > MOST_POINTS:
        raise InputError(f"{count:,} machines are more than {MOST_POINTS:,}", fix="sweep over less")
    return [{**given, **dict(zip(axes, point, strict=True))} for point in product(*axes.values())]


def configured(configuration: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """Return the content of an `accel.toml` with other values; create missing sections."""
    changed = deepcopy(dict(configuration))
    for key, value in settings.items():
        place = place_of(key, configuration)
        _check(place, value)
        inside: Any = changed
        for part in place.path[:-1]:
            inside = inside.setdefault(part, {}) if isinstance(inside, dict) else inside[part]
        inside[place.path[-1]] = value
    return changed


def place_of(key: str, configuration: Mapping[str, Any]) -> Place:
    parts = key.split(".")
    memories = _names(configuration.get(MEMORY))
    sections = {_name(name, field) for name, field in AcceleratorConfig.model_fields.items()}
    if parts[0] in memories and parts[0] not in sections:
        parts = [MEMORY, *parts]
    if parts[0] not in sections:
        names = [*sorted(sections - {MEMORY}), *memories]
        raise _unknown(key, parts[0], parts[0], names, "")
    annotation: Any = AcceleratorConfig
    inside: Any = configuration
    path: list[str | int] = []
    for number, part in enumerate(parts):
        annotation, step = _step(annotation, inside, part, key, ".".join(parts[:number]))
        inside = _inside(inside, step)
        path.append(step)
    if _is_section(annotation):
        kind = _without_none(annotation)
        names = list(kind.model_fields) if hasattr(kind, "model_fields") else _names(inside)
        raise InputError(
            f"{key} is a section, not a value", fix=f"its keys are {', '.join(names) or 'names'}"
        )
    is_short = parts[0] == MEMORY and len(parts) > 1 and parts[1] not in sections
    short = parts[1:] if is_short and not parts[1].isdigit() else parts
    return Place(".".join(short), tuple(path), TypeAdapter(annotation, config=STRICT))


STRICT = ConfigDict(strict=True)


def _step(annotation: Any, inside: Any, part: str, key: str, before: str) -> tuple[Any, str | int]:
    """Return the type behind a part of a key, and the part in TOML."""
    kind = _without_none(annotation)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        fields = {_name(name, field): field for name, field in kind.model_fields.items()}
        if part not in fields:
            raise _unknown(key, part, before, list(fields), before)
        return _annotation(fields[part]), part
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is list and _is_section(arguments[0]):
        names = _names(inside)
        if part in names:
            return arguments[0], names.index(part)
        if part.isdigit() and isinstance(inside, list) and int(part) < len(inside):
            return arguments[0], int(part)
        raise _unknown(key, part, before, names, before)
    if origin is dict:
        try:
            TypeAdapter(arguments[0], config=STRICT).validate_python(part)
        except ValidationError as error:
            raise InputError(f"{key}: {part}: {error.errors()[0]['msg']}") from None
        return arguments[1], part
    raise InputError(f"{key}: {before} is a value, which has no keys", fix=f"write {before}")


def _unknown(key: str, part: str, before: str, names: Sequence[str], section: str) -> InputError:
    what = f"{section} has no {part}" if section else f"there is no {part}"
    shown = f"{key}: {what}" if key != part else f"accel.toml has no key {key}"
    kind = f"keys of {section}" if section else "sections and memories"
    return InputError(shown, fix=closest_or_all(part, names, kind))


def _inside(value: Any, step: str | int) -> Any:
    try:
        return value[step]
    except (KeyError, IndexError, TypeError):
        return None


def _names(entries: Any) -> list[str]:
    found = entries if isinstance(entries, list) else []
    names = [each.get(NAMED) if isinstance(each, dict) else None for each in found]
    return [name if isinstance(name, str) else "" for name in names]


def _name(name: str, field: FieldInfo) -> str:
    return field.alias or name


def _annotation(field: FieldInfo) -> Any:
    """Return the type of a field with the requirements on its values."""
    if not field.metadata:
        return field.annotation
    return Annotated[field.annotation, *field.metadata]


def _without_none(annotation: Any) -> Any:
    while typing.get_origin(annotation) is Annotated:
        annotation = typing.get_args(annotation)[0]
    if typing.get_origin(annotation) in (Union, UnionType):
        others = [each for each in typing.get_args(annotation) if each is not type(None)]
        if len(others) == 1:
            return _without_none(others[0])
    return annotation


def _is_section(annotation: Any) -> bool:
    kind = _without_none(annotation)
    if typing.get_origin(kind) is list:
        return _is_section(typing.get_args(kind)[0])
    if typing.get_origin(kind) is dict:
        return True
    return isinstance(kind, type) and issubclass(kind, BaseModel)


# --- values ---------------------------------------------------------------------------------------


def _split(text: str, configuration: Mapping[str, Any]) -> tuple[Place, str]:
    key, separator, value = text.partition("=")
    if not separator or not key.strip() or not value.strip():
        raise InputError(f"{text!r} is not of the form KEY=VALUE", fix="write array.rows=32")
    return place_of(key.strip(), configuration), value.strip()


def _check_new(place: Place, others: Mapping[str, Any]) -> None:
    if place.key in others:
        raise InputError(f"{place.key} is given twice", fix="remove one")


def _value(place: Place, text: str) -> Value:
    first: InputError | None = None
    for value in _readings(text):
        try:
            return _check(place, value)
        except InputError as error:
            first = first or error
    assert first is not None  # a text is a reading of itself
    raise first


def _check(place: Place, value: Value) -> Value:
    try:
        place.adapter.validate_python(value)
    except ValidationError as error:
        problem = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise InputError(f"{place.key}={value}: {problem}") from None
    return value


def _readings(text: str) -> Iterator[Value]:
    """Yield the possible readings of a text: a size, a TOML value, the text itself."""
    size = SIZE.fullmatch(text)
    if size:
        yield int(size[1]) * UNITS[size[2]]
    try:
        read = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        read = {}
    if read.keys() == {"value"}:
        yield read["value"]
    yield text


def _separated(text: str) -> list[str]:
    """Return the parts of a text between commas outside brackets and quotes."""
    parts, depth, quote = [""], 0, ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter in "[{(":
            depth += 1
        elif letter in ")}]":
            depth -= 1
        if letter == "," and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += letter
    stripped = [part.strip() for part in parts]
    if "" in stripped:
        raise InputError(f"{text!r} has an empty value", fix="write values with a comma between")
    return stripped
