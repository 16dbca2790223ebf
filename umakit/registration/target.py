# SPDX-License-Identifier: Apache-2.0
"""TVM targets of accelerators and their attributes.

A new target *kind* needs C++ in TVM 0.27, and existing kinds refuse unknown attributes, so each
accelerator is a *tag* over the kind `c`. Overridden attributes travel in the target's `keys`, the
only open list that TVM keeps through copying and JSON export. A strategy of UMA v1 is a custom
legalization (the compute) here, followed by an S-TIR schedule.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from umakit import tvm_api
from umakit.errors import LoweringError, TargetAttributeError
from umakit.registration.registered import RegisteredStrategy
from umakit.text.spelling import closest

AttributeValue = str | int | bool
ATTRIBUTE_PREFIX = "umakit."
ACCELERATOR_KEY = "umakit"


_REGISTERED: dict[str, tuple[dict[str, AttributeValue], str]] = {}
"""Attributes with their defaults, and the owner, by target."""


def check_target_name(name: str) -> None:
    """Refuse a name that is no C identifier, or that TVM has as a target kind or tag."""
    if not re.fullmatch(r"[A-Za-z_]\w*", name, flags=re.ASCII):
        raise TargetAttributeError(f"target name {name!r} is not a C identifier")
    if name in tvm_api.Target.list_kinds():
        raise TargetAttributeError(f"target {name!r} already exists in TVM")
    if name not in _REGISTERED and name in tvm_api.tvm.target.list_tags():
        raise TargetAttributeError(f"target tag {name!r} already exists in TVM")


def check_attribute(
    target_name: str, name: str, default: object, taken: Mapping[str, AttributeValue]
) -> None:
    """Refuse an attribute that UMA would refuse."""
    where = f"target {target_name!r}"
    if not name.isidentifier():
        raise TargetAttributeError(f"attribute name {name!r} is not an identifier", where=where)
    if default is None:
        raise TargetAttributeError(f"attribute {name!r}: None is not supported", where=where)
    if not isinstance(default, (str, int, bool)):
        raise TargetAttributeError(
            f"attribute {name!r}: only str, int and bool are supported, not "
            f"{type(default).__name__}",
            where=where,
        )
    if name in tvm_api.Target("c").kind.options:
        raise TargetAttributeError(f"attribute {name!r} is TVM's own", where=where)
    if name in taken:
        raise TargetAttributeError(f"attribute {name!r} is registered already", where=where)


def register_target(name: str, attributes: Mapping[str, AttributeValue], owner: object) -> bool:
    """Register a target tag with TVM, so that `tvm.target.Target(name)` works.

    False if the same backend registered the tag before.
    """
    owner_name = f"{type(owner).__module__}.{type(owner).__qualname__}"
    if name in _REGISTERED:
        known, known_owner = _REGISTERED[name]
        # True == 1 in Python, unlike in JSON.
        texts = {json.dumps(each, sort_keys=True) for each in (known, dict(attributes))}
        if owner_name == known_owner and len(texts) == 1:
            return False
        raise TargetAttributeError(
            f"target {name!r} is registered already, by {known_owner}",
            where=owner_name,
            fix="give one of them another target_name",
        )
    config = {"kind": "c", "keys": [name, ACCELERATOR_KEY, "cpu"], "tag": name}
    tvm_api.tvm.target.register_tag(name, config)
    _REGISTERED[name] = dict(attributes), owner_name
    return True


@tvm_api.one_at_a_time
def create_target(name: str, **overrides: AttributeValue) -> tvm_api.Target:
    """Create a TVM target of a registered accelerator with some attributes overridden.

    Raises:
        TargetAttributeError: the target or an attribute is unknown, or a value differs in type from
            the default.
    """
    registered = _attributes(name)
    for attribute, value in sorted(overrides.items()):
        if attribute not in registered:
            close = closest(attribute, registered)
            every = f"known: {', '.join(sorted(registered)) or 'none'}"
            raise TargetAttributeError(
                f"there is no attribute {attribute!r}",
                where=f"target {name!r}",
                fix=f"write {close}" if close else every,
            )
        expected = type(registered[attribute])
        if type(value) is not expected:
            raise TargetAttributeError(
                f"attribute {attribute!r} is {expected.__name__}, not {type(value).__name__}",
                where=f"target {name!r}",
            )
    return tvm_api.Target({"tag": name, "keys": _keys(name, overrides)})


def private_target(name: str, attributes: Mapping[str, AttributeValue]) -> tvm_api.Target:
    """Create a target with all attributes, without registering a name with TVM."""
    return tvm_api.Target({"kind": "c", "keys": _keys(name, attributes)})


def _keys(name: str, attributes: Mapping[str, AttributeValue]) -> list[str]:
    carried = [f"{ATTRIBUTE_PREFIX}{key}={json.dumps(v)}" for key, v in sorted(attributes.items())]
    return [name, ACCELERATOR_KEY, "cpu", *carried]


def target_attributes(target: tvm_api.Target) -> dict[str, AttributeValue]:
    """Return the attributes of an accelerator's target: the defaults with the target's overrides.

    Raises:
        TargetAttributeError: the target is not a registered accelerator.
    """
    is_private = not target.tag and ACCELERATOR_KEY in target.keys
    attributes = {} if is_private else dict(_attributes(str(target.tag)))
    for key in target.keys:
        if key.startswith(ATTRIBUTE_PREFIX):
            name, _, value = key.removeprefix(ATTRIBUTE_PREFIX).partition("=")
            attributes[name] = json.loads(value)
    return attributes


def _attributes(name: str) -> dict[str, AttributeValue]:
    if name not in _REGISTERED:
        raise TargetAttributeError(
            f"target {name!r} is not a registered accelerator",
            fix="call register() of its backend first",
        )
    return _REGISTERED[name][0]


Compute = Callable[[Any, list[Any], Any], Any]
"""A function (operator attributes, input te tensors, output type) -> te tensor or list of them."""

ScheduleFunction = Callable[[Any], None]
"""A function that transforms a `tvm.s_tir.Schedule` in place."""


@dataclass(frozen=True)
class Implementation:
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
        latest = reversed(self.implementations)
        return max(latest, key=lambda each: each.plevel, default=None)


def legalization(
    operator: str, registered: RegisteredStrategy, target: tvm_api.Target
) -> Callable[[tvm_api.BlockBuilder, tvm_api.Call], tvm_api.Call]:
    """Return a `LegalizeOps` rule that lowers an operator by a registered strategy."""

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
            builder.update_func(variable, schedule.mod["main"])
        return lowered

    return rule


def _check_result(got: tvm_api.Type, wanted: tvm_api.Type, where: str) -> None:
    """Refuse a compute function with another shape or dtype than the operator's."""
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
