# SPDX-License-Identifier: Apache-2.0
"""From calls of integer operators to the parameters of a composite."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol, cast

import numpy as np

from umakit import tvm_api
from umakit.operators.add import Add
from umakit.operators.parameters import PREFIX, Parameters
from umakit.operators.requantize import Requantize
from umakit.patterns.layouts import weight_layout
from umakit.patterns.parameters import BIAS_DTYPES, Binary, Composite
from umakit.patterns.weighted import ARRAYS, Weighted

UNIT = (2**30, 1)
"""Multiplier and shift of a factor of 1."""


class Accepted(Protocol):
    """What a pattern says about the driver, as far as parameters depend on it."""

    @property
    def KIND(self) -> type[Composite]:
        """Of the parameters."""

    @property
    def OPERATOR(self) -> type[Parameters]:
        """The integer operator that is matched."""

    @property
    def requantize(self) -> bool:
        """Whether the driver can change the scale a second time."""


class AcceptedWeights(Accepted, Protocol):
    """The same of an operator with weights."""

    @property
    def expand_scales(self) -> bool:
        """Whether the driver gets a scale for each output channel always."""

    @property
    def weight_layout(self) -> str:
        """In which the driver gets the weights."""

    @property
    def fold_zero_point(self) -> bool:
        """Whether the bias holds what the zero point of the data adds."""


class AcceptedShapes(Accepted, Protocol):
    """The same of an operator with two tensors."""

    @property
    def broadcast(self) -> bool:
        """Whether the driver can repeat axes of one element."""


class NotReadable(Exception):
    """A match that no driver call can stand for; its text says why."""


@dataclass(frozen=True)
class Match:
    """The calls that one call of a driver stands for.

    Attributes:
        operator: the call of the integer operator.
        addition: the call of the addition of its result and another tensor, or None.
        side: position of the operator's result among the operands of the addition.
        follower: the call of a clip, relu or requantize behind all that, or None.
    """

    operator: Any
    addition: Any = None
    side: int = 0
    follower: Any = None

    @property
    def operands(self) -> list[Any]:
        """What the match reads: operands of the operator, and behind its data the addend."""
        data, *constants = self.operator.args
        return [data, *constants] if self.addition is None else [data, self.addend, *constants]

    @property
    def addend(self) -> Any:
        """The operand of the addition that is not the operator's result."""
        return self.addition.args[1 - self.side]


def read_composite(offer: Accepted, match: Match, arrays: Sequence[Any] | None = None) -> Any:
    """The parameters of a composite.

    Args:
        offer: what the backend registered.
        match: the calls.
        arrays: weights, bias, multipliers and shifts; default: the constants among the operands.

    Raises:
        NotReadable: a symbolic shape, weights that are no constants, an addition of other than
            equal types, or a follower that the accelerator has no place for.
    """
    call = match.operator
    shapes = [tvm_api.static_shape(operand) for operand in match.operands]
    if not shapes or any(shape is None for shape in shapes):
        raise NotReadable("a symbolic shape: the driver needs every size at compile time")
    known, then = offer.OPERATOR.of(call), None
    last = known if match.addition is None else _addition(known, match)
    if match.follower is not None:
        last, then = _absorb(last, match.follower)
    if then is not None and not offer.requantize:
        raise NotReadable(
            "a second change of scale behind it: the accelerator rescales a result once"
        )
    if offer.requantize and then is None:
        then = _unit(last)
    values: dict[str, Any] = asdict(last if match.addition is None else known)
    values |= {"data_shape": shapes[0], "data_dtype": tvm_api.dtype_of(call.args[0]), "then": then}
    if match.addition is not None:
        values["addition"] = last
    if issubclass(offer.KIND, Weighted):
        values |= _weighted(cast(AcceptedWeights, offer), known, call, arrays)
    if issubclass(offer.KIND, Binary):
        broadcasts = cast(AcceptedShapes, offer).broadcast
        values |= {"right_shape": shapes[1], "broadcasts": broadcasts}
    return offer.KIND(**values)


def _weighted(
    offer: AcceptedWeights, known: Any, call: Any, arrays: Sequence[Any] | None
) -> dict[str, Any]:
    """The fields of `Weighted`."""
    if arrays is None:
        arrays = [tvm_api.constant_array(operand) for operand in call.args[1:]]
    for name, array in zip(ARRAYS, arrays, strict=True):
        if array is None:
            raise NotReadable(f"its {name} are computed, not constant: they cannot be prepared")
    values = dict(zip(ARRAYS, arrays, strict=True))
    data = tvm_api.dtype_of(call.args[0])
    for name, dtype in (("weights", "int8"), ("bias", BIAS_DTYPES.get(data, "int32"))):
        if values[name].dtype != dtype:
            raise NotReadable(f"{values[name].dtype} {name}: drivers of {data} data get {dtype}")
    if getattr(known, "layout", "NHWC") == "NCHW":  # the model's weights are OIHW then
        values["weights"] = values["weights"].transpose(0, 2, 3, 1)
    outputs = len(values["weights"])
    if offer.expand_scales:
        for name in ("multipliers", "shifts"):
            values[name] = np.broadcast_to(values[name], outputs)
    blocks = weight_layout(offer.weight_layout, offer.KIND.AXES).blocks  # type: ignore[attr-defined]
    return {
        **values,
        "weights_shape": tuple(values["weights"].shape),
        "stored_layout": offer.weight_layout,
        "scales": int(values["multipliers"].size),
        "expanded": offer.expand_scales,
        "fill": -outputs % blocks.get("O", 1),
        "zero_point_in_bias": offer.fold_zero_point,
    }


def _addition(known: Any, match: Match) -> Add:
    """How the result of an operator and the addend are added, with the result on the left."""
    added, addend = Add.of(match.addition), match.addend
    left, right = (tvm_api.static_shape(operand) or () for operand in match.addition.args)
    if match.addition.args[0].same_as(match.addition.args[1]):
        raise NotReadable("its result is added to itself: the accelerator adds another tensor")
    if left != right:
        texts = ["x".join(str(n) for n in shape) for shape in (left, right)]
        raise NotReadable(f"shapes {texts[0]} and {texts[1]}: the accelerator adds equal ones")
    dtypes = (known.output_dtype, tvm_api.dtype_of(addend), added.output_dtype)
    if len(set(dtypes)) > 1:
        raise NotReadable(
            f"{dtypes[0]} and {dtypes[1]} make {dtypes[2]}: the accelerator adds equal ones"
        )
    if added.rounding != known.rounding:
        raise NotReadable(f"rounding {known.rounding}, and {added.rounding} of the sum")
    if match.side == 1:

        def turned(values: Any) -> Any:
            return (values[1], values[0], *values[2:])

        added = replace(
            added,
            zero_points=turned(added.zero_points),
            multipliers=turned(added.multipliers),
            shifts=turned(added.shifts),
        )
    if added.zero_points[0] != known.output_zero_point:
        raise NotReadable(
            f"zero point {known.output_zero_point} of its result, which the addition takes for "
            f"{added.zero_points[0]}"
        )
    return added


def _absorb(known: Any, follower: Any) -> tuple[Any, Requantize | None]:
    """An operator with what stands behind it, and the change of scale that is left over."""
    name = tvm_api.operator_name(follower)
    if name == f"{PREFIX}{Requantize.operator}":
        change = Requantize.of(follower)
        if change.rounding != known.rounding:
            raise NotReadable(f"rounding {known.rounding}, and {change.rounding} behind it")
        if change.output_dtype != known.output_dtype:
            raise NotReadable(f"a change from {known.output_dtype} to {change.output_dtype}")
        same_zero_point = change.input_zero_point == change.output_zero_point
        if (change.multiplier, change.shift) != UNIT or not same_zero_point:
            return known, change
        low, high = change.clip
    else:
        low, high = _bounds(follower, name)
    return _clipped(known, low, high), None


def _bounds(follower: Any, name: str) -> tuple[int, int]:
    """Least and largest integer that a clip or relu lets through."""
    if name == "nn.relu":
        return 0, 2**31 - 1
    try:
        low, high = (tvm_api.float_argument(argument) for argument in follower.args[1:3])
    except ValueError:
        raise NotReadable("the bounds of a clip are no constants") from None
    if int(low) != low or int(high) != high:
        raise NotReadable(f"a clip to {low:g} and {high:g}, which are no integers")
    return int(low), int(high)


def _clipped(known: Parameters, low: int, high: int) -> Any:
    """With another clip behind its own: first one, then the other."""
    least, largest = (min(max(bound, low), high) for bound in known.clip)
    return replace(known, clip=(least, largest))


def _unit(known: Parameters) -> Requantize:
    """A change of scale that changes nothing."""
    return Requantize(
        output_shape=known.output_shape,
        output_dtype=known.output_dtype,
        output_zero_point=known.output_zero_point,
        clip=known.clip,
        rounding=known.rounding,
        input_zero_point=known.output_zero_point,
        multiplier=UNIT[0],
        shift=UNIT[1],
    )
