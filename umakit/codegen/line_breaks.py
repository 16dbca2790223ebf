# SPDX-License-Identifier: Apache-2.0
"""Breaking of long lines of C, preferably outside parentheses."""

from __future__ import annotations

import re
from collections.abc import Sequence

WIDTH = 100
BREAK = re.compile(r"(?<=[,;=]) (?=\S)| (?=[-+*/%?:<>&|]{1,2} )")
"""Possible breaks: after a comma, a semicolon or an assignment, and before an operator."""

EARLY = 0.4
"""Fraction of the available width in which breaks are a last resort."""


def wrapped(line: str) -> str:
    """Break a line of C without comments into lines that fit.

    Args:
        line: the indented line, without a line break at the end.
    """
    if len(line) <= WIDTH or '"' in line or "\n" in line:
        return line
    indent = len(line) - len(line.lstrip())
    # Lines after a condition are indented once, so its own lines are indented further.
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


def wrapped_call(start: str, arguments: Sequence[str], end: str = ");") -> str:
    """Return a call of a C function, with as many whole arguments in a line as fit.

    Args:
        start: indented text up to the opening parenthesis.
        arguments: C text of each argument, possibly with a leading comment.
        end: text after the last argument.
    """
    pieces = [f"{argument}," for argument in arguments[:-1]]
    pieces.append(f"{arguments[-1] if arguments else ''}{end}")
    indentation = " " * (len(start) - len(start.lstrip()) + 4)
    lines = [start + pieces[0]]
    for piece in pieces[1:]:
        if len(lines[-1]) + 1 + len(piece) <= WIDTH:
            lines[-1] += f" {piece}"
        else:
            lines.append(indentation + piece)
    return "\n".join(wrapped(line) for line in lines)


def _best_break(line: str, indent: int) -> int | None:
    """Return the end of the first part: at the least nesting, preferably at sums instead of
    products, and as late as possible."""
    depths, depth = [], 0
    for character in line:
        depth += (character in "([") - (character in ")]")
        depths.append(depth)
    places = [found.start() for found in BREAK.finditer(line, indent) if found.start() <= WIDTH]
    late = [place for place in places if place > indent + EARLY * (WIDTH - indent)]

    def cost(place: int) -> tuple[int, bool, int]:
        return depths[place], line[place + 1] in "*/%", -place

    return min(late or places, key=cost, default=None)
