# SPDX-License-Identifier: Apache-2.0
"""Comments in generated C on arithmetic that could overflow and is therefore unsigned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

LONGEST = 50
"""Maximum number of characters of an operation that a comment repeats."""

NOUNS = {"Add": "sum", "Sub": "difference", "Mul": "product"}

SUM_COMMENT = "/* Could overflow as a signed sum: unsigned, it wraps around. */"
"""Comment on a local sum of signed integers whose type is unsigned."""


@dataclass(frozen=True)
class WrappingOperation:
    """A signed addition, subtraction or multiplication that is printed with unsigned types.

    Attributes:
        kind: `Add`, `Sub` or `Mul`.
        c_type: type of the result.
        text: the operation as plain C.
    """

    kind: str
    c_type: str
    text: str


def overflow_comment(operations: Sequence[WrappingOperation]) -> str:
    """Return a comment that says which operations of a statement could overflow."""
    types = " and ".join(sorted({operation.c_type for operation in operations}))
    if len(operations) == 1 and len(operations[0].text) <= LONGEST:
        subject = operations[0].text
    else:
        nouns = dict.fromkeys(NOUNS[operation.kind] for operation in operations)
        subject = f"The {' and the '.join(nouns)}"
    return f"/* {subject} could overflow {types}: unsigned types wrap around. */"
