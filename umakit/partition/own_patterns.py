# SPDX-License-Identifier: Apache-2.0
"""Checks of patterns that a backend wrote of `is_op` and `wildcard` for quantized operators."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from umakit.errors import BackendError
from umakit.operators.offload.generated import operand_names
from umakit.operators.parameters import PREFIX
from umakit.registration.backend import Backend

PARTS = ("args", "left", "right", "pattern")
"""Attributes of TVM's patterns that are patterns."""


def check_own_patterns(backend: Backend) -> None:
    """Refuse patterns that match no call of a quantized operator.

    Raises:
        BackendError: one has another number of operands than the operator, or one wildcard for
            several constants.
    """
    for pattern in backend.patterns:
        for alternative in pattern.alternatives:
            for call in _calls(alternative):
                _check(call, f"pattern {pattern.name!r} of {backend.target_name}")


def _check(call: Any, where: str) -> None:
    name = str(call.op.expr.name)
    names = operand_names(name.removeprefix(f"relax.{PREFIX}"))
    if names is None or call.args is None:
        return
    found = list(call.args)
    listed = ", ".join(names)
    if len(found) != len(names):
        raise BackendError(
            f"{name} has {len(names)} operand{'s' if len(names) > 1 else ''}, {listed}: the pattern"
            f" has {len(found)}, so that it matches none",
            where=where,
            fix="give a wildcard() for each",
        )
    constants = found[1:] if "weights" in names else []
    if any(one.same_as(other) for i, one in enumerate(constants) for other in found[: i + 1]):
        raise BackendError(
            f"one wildcard stands for several of the operands {listed} of {name}, so that it "
            "matches none",
            where=where,
            fix="give a wildcard() for each",
        )


def _calls(pattern: Any) -> Iterator[Any]:
    """Yield the calls of quantized operators in a pattern."""
    operator = getattr(getattr(pattern, "op", None), "expr", None)
    if str(getattr(operator, "name", "")).startswith(f"relax.{PREFIX}"):
        yield pattern
    for attribute in PARTS:
        part = getattr(pattern, attribute, None)
        for each in part if attribute == "args" and part is not None else [part]:
            if each is not None:
                yield from _calls(each)
