# SPDX-License-Identifier: Apache-2.0
"""Operator strategies: a backend's computation and schedule of an operator in its composites.

UMA v1 used Relay's operator strategies. On Relax the same idea is a custom legalization (the
compute) followed by an S-TIR schedule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from umakit import tvm_api
from umakit.errors import LoweringError
from umakit.registration.registered import RegisteredStrategy

Compute = Callable[[Any, list[Any], Any], Any]
"""A function (operator attributes, input te tensors, output type) -> te tensor or list of them."""

ScheduleFunction = Callable[[Any], None]
"""A function that transforms a `tvm.s_tir.Schedule` in place."""


@dataclass(frozen=True)
class Implementation:
    """A computation of an operator, with an optional schedule."""

    compute: Compute
    schedule: ScheduleFunction | None
    name: str
    plevel: int


class OpStrategy:
    """Implementations of one operator; the highest plevel wins."""

    def __init__(self) -> None:
        self.implementations: list[Implementation] = []

    def add_implementation(
        self,
        compute: Compute,
        schedule: ScheduleFunction | None = None,
        name: str = "implementation",
        plevel: int = 10,
    ) -> None:
        """Add an implementation of the operator.

        Args:
            compute: (attrs, inputs, out_type) -> te tensor(s).
            schedule: transforms the prim func's `Schedule` in place.
            name: name of the prim func.
            plevel: priority; the highest wins, of equal priorities the last added.
        """
        self.implementations.append(Implementation(compute, schedule, name, plevel))

    def best(self) -> Implementation | None:
        """Return the implementation of the highest plevel; None without implementations."""
        return max(
            enumerate(self.implementations),
            key=lambda item: (item[1].plevel, item[0]),
            default=(0, None),
        )[1]


def legalization(
    operator: str, registered: RegisteredStrategy, target: tvm_api.Target
) -> Callable[[tvm_api.BlockBuilder, tvm_api.Call], tvm_api.Call]:
    """Return a `LegalizeOps` rule that lowers an operator by a registered strategy.

    Args:
        operator: Relax operator name, for messages.
        registered: the backend's strategy.
        target: the accelerator's TVM target, for the strategy.
    """

    def rule(builder: tvm_api.BlockBuilder, call: tvm_api.Call) -> tvm_api.Call:
        strategy = registered.strategy(call.attrs, list(call.args), call.ty, target)
        chosen = strategy.best() if isinstance(strategy, OpStrategy) else None
        if chosen is None:
            raise LoweringError(
                "its operator strategy returned no implementation",
                where=f"{operator} on {target.keys[0]}",
                fix="return an OpStrategy with add_implementation called",
            )

        def compute(*tensors: tvm_api.te.Tensor) -> object:
            return chosen.compute(call.attrs, list(tensors), call.ty)

        lowered = builder.call_te(compute, *call.args, primfunc_name_hint=chosen.name)
        _check_result(lowered.ty_args[0], call.ty, f"{operator} on {target.keys[0]}")
        if chosen.schedule is not None:
            variable = lowered.args[0]
            schedule = tvm_api.Schedule(builder.get()[variable])
            chosen.schedule(schedule)
            scheduled = schedule.mod["main"]
            builder.update_func(variable, scheduled)
        return lowered

    return rule


def _check_result(got: tvm_api.Type, wanted: tvm_api.Type, where: str) -> None:
    """Refuse a compute function with another shape or dtype than the operator's.

    Raises:
        LoweringError: the shape or dtype differs.
    """
    fields = zip(tvm_api.tuple_fields(got), tvm_api.tuple_fields(wanted), strict=False)
    for one, other in fields:
        ours = (tvm_api.type_dtype(one), tvm_api.static_type_shape(one))
        theirs = (tvm_api.type_dtype(other), tvm_api.static_type_shape(other))
        if ours != theirs:
            raise LoweringError(
                f"its strategy computes {ours[0]}{list(ours[1] or ())} instead of "
                f"{theirs[0]}{list(theirs[1] or ())}",
                where=where,
            )
