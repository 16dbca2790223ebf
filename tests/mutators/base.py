# SPDX-License-Identifier: Apache-2.0
"""What all mutators share: a format, its verdicts, and mutations of bytes and of JSON."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Protocol

from umakit.errors import UmakitError

EXTREMES: tuple[Any, ...] = (
    0, 1, -1, 2, 3, 7, 127, 128, 255, 256, 2**15, 2**31 - 1, 2**31, 2**32, -(2**31), 2**40,
    2**63 - 1, -(2**63), 2**64,
)  # fmt: skip
REALS = (0.0, -0.0, 1e-38, 1e38, -1.0, float("inf"), float("-inf"), float("nan"), 0.5)
TEXTS = (
    "", "a", "*/", "a" * 300, "[/red]", "../../x", "/etc/passwd", "\\", '"; system("x"); "', "x\ny",
    "\x00", "é☃", "__LINE__", "main", "int", "{{x}}", "%s", "$(id)", "-o", " ", "NaN", "1e999",
)  # fmt: skip
INTERNALS = re.compile(
    r"object has no attribute|Traceback|<class '|\b0x[0-9a-f]{6,}|NoneType|index out of range|"
    r"unhashable|not subscriptable|positional argument|[a-z]Error:|object is not|Check failed|"
    r"InternalError|BlockBuilder|invalid literal|not enough values|unpack"
)
"""What a sentence for users does not quote: Python's and TVM's own messages."""

LONGEST_SENTENCE = 3_000


class Format(Protocol):
    """A kind of file, how it is damaged, and what reads it.

    Attributes:
        name: on the command line.
        suffix: of its files.
    """

    name: str
    suffix: str

    def prepare(self, folder: Path) -> None:
        """Make the files to start from; called once."""

    def mutate(self, chance: Random) -> bytes:
        """A damaged file."""

    def read(self, path: Path, thorough: bool) -> None:
        """Do with a file what the commands do.

        Args:
            path: the file, alone in its folder.
            thorough: whether to take the steps that take long too.

        Raises:
            UmakitError: it is refused.
        """

    def compare(self, path: Path) -> str:
        """Compare a file that was taken with a reference, built with sanitizers.

        Returns:
            What differs; empty when nothing does, or when the reference refuses the file.
        """


def sentence_problem(error: UmakitError) -> str:
    """What is wrong with the message of a refusal; empty when nothing is."""
    text = str(error)
    if "\n" in text:
        return "the message has several lines"
    if len(text) > LONGEST_SENTENCE:
        return f"the message has {len(text)} characters"
    quoted = INTERNALS.search(text)
    return f"the message quotes {quoted[0]!r}" if quoted else ""


class OneByte:
    """A format whose mutants are healthy files with one byte changed.

    Args:
        form: the format; it has `healthy`, the files to start from.
    """

    def __init__(self, form: Any) -> None:
        self._form = form
        self.name, self.suffix = form.name, form.suffix
        self.prepare, self.read, self.compare = form.prepare, form.read, form.compare

    def mutate(self, chance: Random) -> bytes:
        """A file in which one byte has another value: any, or the old one with one bit changed."""
        changed = bytearray(chance.choice(self._form.healthy()))
        place = chance.randrange(len(changed))
        changed[place] ^= chance.choice((1 << chance.randrange(8), chance.randrange(1, 256)))
        return bytes(changed)


# --- bytes ---------------------------------------------------------------------------------------


def mutate_bytes(chance: Random, data: bytes, start: int = 0) -> bytes:
    """Some changed, lost, doubled or moved bytes at and after `start`."""
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 8))):
        if len(changed) <= start:
            break
        place = chance.randrange(start, len(changed))
        length = chance.choice((1, 2, 4, 8, 64))
        match chance.randrange(8):
            case 0:
                del changed[place : place + length]
            case 1:
                changed[place:place] = changed[place : place + length]
            case 2:
                other = chance.randrange(start, len(changed))
                changed[place : place + length] = changed[other : other + length]
            case 3:
                changed[place : place + 4] = chance.choice(EXTREMES[:-5]).to_bytes(
                    8, "little", signed=True
                )[:4]
            case 4 if chance.random() < 0.2:
                del changed[place:]
            case _:
                changed[place] = chance.choice((0, 1, 2, 127, 128, 255, chance.randrange(256)))
    return bytes(changed)


# --- trees of dictionaries and lists -------------------------------------------------------------

Place = tuple[Any, Any]
"""A container and the key or position of one of its values."""


def places(tree: Any) -> list[Place]:
    """Every value inside of a tree."""
    found: list[Place] = []
    pending = [tree]
    while pending:
        container = pending.pop()
        keys = list(container) if isinstance(container, dict) else range(len(container))
        for key in keys:
            found.append((container, key))
            if isinstance(container[key], (dict, list)):
                pending.append(container[key])
    return found


def mutate_tree(chance: Random, tree: Any, own: Callable[[Random, Any], Any] | None = None) -> Any:
    """A copy of a tree with some values, keys or branches changed.

    Args:
        chance: what decides.
        tree: dictionaries and lists of plain values.
        own: another value for a plain one, or None where any will do.
    """
    tree = copy.deepcopy(tree)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        candidates = places(tree)
        if not candidates:
            break
        container, key = chance.choice(candidates)
        other_container, other_key = chance.choice(candidates)
        match chance.randrange(8):
            case 0:
                del container[key]
            case 1:
                container[key] = copy.deepcopy(other_container[other_key])
            case 2 if isinstance(container, list):
                container.insert(key, copy.deepcopy(container[key]))
            case 2:
                container[chance.choice(TEXTS)] = container.pop(key)
            case 3:
                container[key] = chance.choice((None, [], {}, [[]], True, "", 0, -1, 0.5))
            case _:
                value = own(chance, container[key]) if own else None
                container[key] = other_value(chance, container[key]) if value is None else value
    return tree


def other_value(chance: Random, value: Any) -> Any:
    """Another value, mostly of the same type."""
    if chance.random() < 0.1:
        value = chance.choice((0, "", 0.5, True))
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return chance.choice((value + 1, value - 1, -value, 2 * value, *EXTREMES))
    if isinstance(value, float):
        return chance.choice((value * 2, -value, *REALS))
    if isinstance(value, str):
        return chance.choice((value + "x", value[:-1], value * 2, *TEXTS))
    return chance.choice((None, 0, "", [], {}))
