# SPDX-License-Identifier: Apache-2.0
"""Changes and differences of varied programs in words."""

from __future__ import annotations

from collections.abc import Sequence

from umakit.testing.programs.accesses import Access, Map, Read, Rest, Unmap, Wait, Write
from umakit.testing.programs.buffers import buffer_with, pointers_to
from umakit.testing.programs.changes import Change, Drop, Insert, SetContent, SetValue, Swap
from umakit.testing.programs.facts import Facts
from umakit.testing.programs.replay import Answer

REFUSALS = {
    "model": "the C model refuses what the RTL accepts",
    "rtl": "the RTL refuses what the C model accepts",
    "both": "both refuse it, with different errors",
}
"""Differences that are there only because a side refuses a command."""


def change_text(change: Change, accesses: Sequence[Access], facts: Facts) -> str:
    """Return a change of some accesses in words."""
    if isinstance(change, SetValue):
        found = accesses[change.position]
        assert isinstance(found, Write)
        return f"{facts.name(found.offset)} is 0x{change.value:x} instead of 0x{found.value:x}"
    if isinstance(change, SetContent):
        return f"{buffer_text(accesses, change.position, facts)} has {change.name}"
    if isinstance(change, Insert):
        behind = access_text(accesses, change.position, facts)
        made = ", ".join(
            access_text(change.accesses, each, facts) for each in range(len(change.accesses))
        )
        return f"behind {behind}: {made}"
    if isinstance(change, Drop):
        left_out = dict.fromkeys(access_text(accesses, each, facts) for each in change.positions)
        return f"without {', '.join(left_out)}"
    if isinstance(change, Swap):
        one, other = (
            access_text(accesses, each, facts) for each in (change.position, change.other)
        )
        return f"{other} comes before {one}"
    return f"the command of {access_text(accesses, change.last, facts)} is given twice"


def buffer_text(accesses: Sequence[Access], position: int, facts: Facts) -> str:
    """Return what a buffer is, by the registers that point to it."""
    buffer = accesses[position]
    assert isinstance(buffer, Map)
    names = [facts.name(each) for each in pointers_to(accesses, position, facts.starts)]
    if not names:
        return f"the buffer at 0x{buffer.address:08x}"
    if len(names) == 1:
        return f"the buffer that {names[0]} points to"
    return f"the buffer that {', '.join(names[:-1])} and {names[-1]} point to"


def access_text(accesses: Sequence[Access], position: int, facts: Facts) -> str:
    """Return what an access is."""
    access = accesses[position]
    if isinstance(access, Write):
        return f"the write of 0x{access.value:x} to {facts.name(access.offset)}"
    if isinstance(access, Read):
        return f"the read of {facts.name(access.offset)}"
    if isinstance(access, Wait):
        return "the wait for the interrupt"
    if isinstance(access, Rest):
        return "the wait until no engine works"
    if isinstance(access, Map):
        return f"the map of {buffer_text(accesses, position, facts)}"
    assert isinstance(access, Unmap)
    mapped = buffer_with(accesses[:position], access.address)
    if mapped is None:
        return f"the unmap of 0x{access.address:08x}"
    return f"the unmap of {buffer_text(accesses, mapped, facts)}"


def place_of(answer: Answer, accesses: Sequence[Access], facts: Facts) -> str:
    """Return where a difference is seen: a register, the pointers to a buffer, or nothing."""
    if answer.kind == "memory":
        mapped = buffer_with(accesses[: answer.access], answer.address)
        if mapped is None:
            return ""
        offsets = pointers_to(accesses, mapped, facts.starts)
        return ", ".join(facts.name(each) for each in offsets)
    if answer.kind in ("register", "error"):
        return facts.name(answer.address)
    return answer.sentence if answer.kind == "failure" else ""


def difference_text(answer: Answer, accesses: Sequence[Access], facts: Facts) -> str:
    """Return a difference in words."""
    at = f"after all {len(accesses):,} accesses"
    if answer.access < len(accesses):
        what = access_text(accesses, answer.access, facts)
        at = f"access {answer.access + 1:,} of {len(accesses):,}, {what}"
    refused = f" ({REFUSALS[answer.refused]})" if answer.refused in REFUSALS else ""
    if answer.kind == "failure":
        return f"{at}: {answer.sentence}{refused}"
    if answer.kind == "interrupt":
        return f"{at}: no interrupt of the RTL, the model raised one{refused}"
    if answer.kind == "memory":
        where = _byte_text(answer, accesses, facts)
        return (
            f"{at}: {where} is 0x{answer.found:02x} on the RTL instead of 0x{answer.expected:02x}"
        )
    found = f"is 0x{answer.found:08x} on the RTL instead of"
    if answer.sentence:
        found = f"cannot be read on the RTL (bus error {answer.sentence}) and is"
    return f"{at}: {facts.name(answer.address)} {found} 0x{answer.expected:08x}{refused}"


def _byte_text(answer: Answer, accesses: Sequence[Access], facts: Facts) -> str:
    """Return which byte differs."""
    mapped = buffer_with(accesses[: answer.access], answer.address)
    if mapped is None:
        return f"the byte at bus address 0x{answer.address:08x}"
    buffer = accesses[mapped]
    assert isinstance(buffer, Map)
    byte = f"byte {answer.address - buffer.address:,}"
    there = accesses[answer.access] if answer.access < len(accesses) else None
    if isinstance(there, Unmap) and there.address == buffer.address:
        return f"its {byte}"
    return f"{byte} of {buffer_text(accesses, mapped, facts)}"
