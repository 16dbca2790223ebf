# SPDX-License-Identifier: Apache-2.0
"""The questions of a kind of backend, and the flags of `uma new` as checked answers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from umakit.errors import ScaffoldError


@dataclass(frozen=True)
class Operator:
    """An operator that a new backend may offer.

    Attributes:
        name: name in the flag `--operators`; its pattern in `umakit.patterns` has the prefix `q`.
        layers: Python text, appended to a `QuantizedNetwork`, that adds a layer of the operator.
            The layers keep the size of the tensor, except pools and fully connected layers.
    """

    name: str
    layers: str


OPERATORS = {
    operator.name: operator
    for operator in (
        Operator("conv2d", ".conv2d(8)"),
        Operator("depthwise", ".conv2d(8, depthwise=True)"),
        Operator("conv2d_add", ".conv2d(8).residual()"),
        Operator("add", ".conv2d(8).residual()"),
        Operator("multiply", ".conv2d(8).product()"),
        Operator("avg_pool2d", '.pool2d("average")'),
        Operator("max_pool2d", '.pool2d("max")'),
        Operator("dense", ".dense(10)"),
    )
}
"""In the order of a network."""

DEFAULTS = {
    "operators": "conv2d,depthwise,dense",
    "layout": "NHWC",
    "rounding": "tflm",
    "array": "16x16",
    "scratchpad": "128K",
    "simulator": "own",
    "registers": "",
}
"""Values of flags that a kind knows and does not give another default."""

CHOICES = {
    "layout": ("NHWC", "NCHW", "both"),
    "rounding": ("tflm", "ort", "both"),
    "simulator": ("own", "none"),
}

LARGEST_ARRAY = 1024
LARGEST_SCRATCHPAD = 1 << 30
SMALLEST_SCRATCHPAD = 1024
UNITS = {"": 1, "K": 1024, "M": 1024**2}


@dataclass(frozen=True)
class Answers:
    """The specification of a new backend.

    Attributes:
        kind: name of one of `KINDS`.
        operators: names in `OPERATORS`, in its order.
        layouts: layouts of images, `NHWC`, `NCHW` or both; the networks of tests have the first.
        roundings: `tflm`, `ort` or both; the networks of tests have the first.
        rows, columns: dimensions of the MAC array; 0 for a kind without one.
        scratchpad: bytes; 0 for a kind without one.
        simulator: `own` or `none`.
        registers: text of a register map in TOML; empty for the kind's own.
        flags: all flags of the kind by name, as written by the user.
    """

    kind: str
    operators: tuple[str, ...]
    layouts: tuple[str, ...]
    roundings: tuple[str, ...]
    rows: int = 0
    columns: int = 0
    scratchpad: int = 0
    simulator: str = "none"
    registers: str = ""
    flags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Kind:
    """A kind of backend.

    Attributes:
        name: value of `--kind`; its templates are in the folder `kind_NAME`.
        summary: purpose, half a sentence for a question on the terminal.
        operators: supported names in `OPERATORS`.
        flags: names of the supported flags of `uma new`, with their defaults.
        values: (answers, name of the backend) -> further values for its templates.
        files: (answers, name of the backend) -> texts of files that have no template, by path.
    """

    name: str
    summary: str
    operators: tuple[str, ...]
    flags: Mapping[str, str]
    page: str
    values: Callable[[Answers, str], Mapping[str, object]] = lambda answers, name: {}
    files: Callable[[Answers, str], Mapping[str, str]] = lambda answers, name: {}


def answers_of(kind: Kind, flags: Mapping[str, str], registers: str = "") -> Answers:
    """Check the flags of a kind, without dashes, and return the answers."""
    for name, text in flags.items():
        if name not in kind.flags:
            known = ", ".join(f"--{each}" for each in kind.flags)
            raise ScaffoldError(
                f"--{name} {text}: a backend of the kind {kind.name} has none",
                fix=f"leave it out; it has {known}",
            )
    chosen = {name: flags.get(name, default) for name, default in kind.flags.items()}
    for name, choices in CHOICES.items():
        if name in chosen and chosen[name] not in choices:
            raise ScaffoldError(
                f"--{name} {chosen[name]!r}: there is no such {name}",
                fix=f"choose from {', '.join(choices)}",
            )
    rows, columns = _array(chosen["array"]) if "array" in chosen else (0, 0)
    return Answers(
        kind=kind.name,
        operators=_operators(kind, chosen["operators"]),
        layouts=_one_or_both(chosen.get("layout", "NHWC"), "layout"),
        roundings=_one_or_both(chosen.get("rounding", "tflm"), "rounding"),
        rows=rows,
        columns=columns,
        scratchpad=_bytes(chosen["scratchpad"]) if "scratchpad" in chosen else 0,
        simulator=chosen.get("simulator", "none"),
        registers=registers,
        flags=chosen,
    )


def _one_or_both(text: str, flag: str) -> tuple[str, ...]:
    return CHOICES[flag][:-1] if text == "both" else (text,)


def _operators(kind: Kind, text: str) -> tuple[str, ...]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    fix = f"choose from {', '.join(kind.operators)}"
    for name in names:
        if name not in kind.operators:
            raise ScaffoldError(
                f"--operators {text!r}: a new backend of the kind {kind.name} has no {name!r}",
                fix=fix,
            )
        if names.count(name) > 1:
            raise ScaffoldError(f"--operators {text!r}: {name} is given twice", fix="remove one")
    if not names:
        raise ScaffoldError("--operators is empty", fix=fix)
    return tuple(name for name in OPERATORS if name in names)


def _array(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"([0-9]{1,4})x([0-9]{1,4})", text.strip())
    sizes = (int(found[1]), int(found[2])) if found else (0, 0)
    if not all(1 <= size <= LARGEST_ARRAY for size in sizes):
        raise ScaffoldError(
            f"--array {text!r} is not the size of an array",
            fix=f"write rows and columns, such as 16x16, each from 1 to {LARGEST_ARRAY}",
        )
    return sizes


def _bytes(text: str) -> int:
    found = re.fullmatch(r"([0-9]{1,10})([KM]?)", text.strip())
    size = int(found[1]) * UNITS[found[2]] if found else 0
    if not SMALLEST_SCRATCHPAD <= size <= LARGEST_SCRATCHPAD:
        raise ScaffoldError(
            f"--scratchpad {text!r} is not the size of a scratchpad",
            fix="write bytes, such as 65536, 128K or 1M, from 1K to 1024M",
        )
    return size
