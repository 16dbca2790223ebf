# SPDX-License-Identifier: Apache-2.0
"""Long lines of C, broken where a reader would: outside of parentheses if possible."""

from __future__ import annotations

import re

WIDTH = 100
BREAK = re.compile(r"(?<=[,;=]) (?=\S)| (?=[-+*/%?:<>&|]{1,2} )")
"""Behind a comma, a semicolon or an assignment, and in front of an operator."""

EARLY = 0.4
"""Breaks in this first part of the room for a line are the last choice."""


def wrapped(line: str) -> str:
    """A line of C without comments, in as many lines as it needs.

    Args:
        line: indented, without a line break at its end.
    """
    if len(line) <= WIDTH or '"' in line or "\n" in line:
        return line
    indent = len(line) - len(line.lstrip())
    # What follows a condition is indented once: its own lines stand further in.
    indentation = " " * (indent + (8 if line.endswith("{") else 4))
    lines = []
    _, assignment, value = line.partition(" = ")
    if assignment and len(indentation) + len(value) <= WIDTH and not line.endswith("{"):
        return line[: -len(value) - 1] + f"\n{indentation}{value}"
    while len(line) > WIDTH:
        place = _best_break(line, len(line) - len(line.lstrip()))
        if place is None:
            break
        lines.append(line[:place])
        line = indentation + line[place:].lstrip()
    return "\n".join([*lines, line])


def _best_break(line: str, indent: int) -> int | None:
    """Where the line's first part ends: at the least nesting, there at sums rather than products,
    and there as late as possible."""
    depths, depth = [], 0
    for character in line:
        depth += (character in "([") - (character in ")]")
        depths.append(depth)
    places = [found.start() for found in BREAK.finditer(line, indent) if found.start() <= WIDTH]
    late = [place for place in places if place > indent + EARLY * (WIDTH - indent)]

    def cost(place: int) -> tuple[int, bool, int]:
        return depths[place], line[place + 1] in "*/%", -place

    return min(late or places, key=cost, default=None)
