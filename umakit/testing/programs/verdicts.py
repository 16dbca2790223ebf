# SPDX-License-Identifier: Apache-2.0
"""Whether a difference is a failure, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator

from umakit.testing.programs.accesses import Access, Write
from umakit.testing.programs.buffers import pointers_to
from umakit.testing.programs.changes import Drop, Insert, Repeat, SetContent, SetValue, Swap
from umakit.testing.programs.facts import Facts
from umakit.testing.programs.recording import Recording
from umakit.testing.programs.replay import Answer
from umakit.testing.programs.variation import Program

MAP = "registers.toml"
ALIKE = "the model and the RTL have to answer this alike: change the one that is wrong"
MOST_NAMES = 3


def verdict(
    answer: Answer, program: Program, facts: Facts, recording: Recording
) -> tuple[bool, str]:
    """Return whether a difference is a failure, and what to do.

    That one side refuses what the other accepts is no failure if a register is changed of which
    the map does not say what drivers send: layers show whether a driver's own are refused.

    Args:
        answer: what became of the program.
        program: as it was reduced.
        facts: what is known of registers.
        recording: what the driver does.
    """
    unknown = [each for each in _touched(program, facts) if each not in facts.ranges.known]
    if facts.ranges.is_error:
        return True, ALIKE
    if not unknown:
        more = ""
        if answer.refused and facts.ranges.has_limits:
            more = f"; or, if drivers never send these together, say so in {MAP} with not_above " \
                   "or one_of"  # fmt: skip
        return True, ALIKE + more
    names = [
        facts.name(each) + _written(recording.values.get(each, ())) for each in unknown[:MOST_NAMES]
    ]
    more = f" and {len(unknown) - MOST_NAMES} more" if len(unknown) > MOST_NAMES else ""
    keys = "least and highest, or points_to of addresses,"
    if not facts.registers:
        keys = f"a register map, with {keys}"
    say = f"{keys} in {MAP} say what drivers send to {', '.join(names)}{more}"
    if answer.refused:
        return False, f"no failure unless a driver sends this: {say}"
    return True, f"{ALIKE}; if drivers never send this: {say}"


def _written(values: tuple[int, ...]) -> str:
    """Return what the driver writes to a register, for behind its name."""
    if not values:
        return ", which it does not write here"
    least, highest = min(values), max(values)
    return f", now 0x{least:x}" if least == highest else f", now 0x{least:x} to 0x{highest:x}"


def _touched(program: Program, facts: Facts) -> list[int]:
    """Return offsets of registers whose values, or what they point to, are not the driver's."""
    found = dict.fromkeys(
        offset for change in program.changes for offset in _offsets(change, program.base, facts)
    )
    return [each for each in found if each not in facts.starts]


def _offsets(change: object, base: tuple[Access, ...], facts: Facts) -> Iterator[int]:
    positions: tuple[int, ...] = ()
    if isinstance(change, SetContent):
        yield from pointers_to(base, change.position, facts.starts)
    elif isinstance(change, Insert):
        yield from (each.offset for each in change.accesses if isinstance(each, Write))
    elif isinstance(change, SetValue):
        positions = (change.position,)
    elif isinstance(change, Drop):
        positions = change.positions
    elif isinstance(change, Swap):
        positions = (change.position, change.other)
    else:
        assert isinstance(change, Repeat)
    for position in positions:
        access = base[position]
        if isinstance(access, Write):
            yield access.offset
