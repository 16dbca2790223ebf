# SPDX-License-Identifier: Apache-2.0
"""From calls of integer operators to the parameters of a composite."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from umakit import tvm_api
from umakit.patterns.layouts import weight_layout
from umakit.patterns.parameters import BIAS_DTYPES, Binary
from umakit.patterns.weighted import ARRAYS, Weighted
from umakit.quantization.operators import PREFIX, Parameters, Requantize

if TYPE_CHECKING:
    from umakit.patterns.elementwise import ElementwiseOffer
    from umakit.patterns.linear import WeightedOffer
    from umakit.patterns.offer import Offer

UNIT = (2**30, 1)
"""Multiplier and shift of a factor of 1."""


class NotReadable(Exception):
    """A match that no driver call can stand for; its text says why."""


def read_composite(
    offer: Offer, call: Any, follower: Any, arrays: Sequence[Any] | None = None
) -> Any:
    """The parameters of a composite.

    Args:
        offer: what the backend registered.
        call: of the integer operator.
        follower: call of a clip, relu or requantize behind it, or None.
        arrays: weights, bias, multipliers and shifts; default: the constants among the operands.

    Raises:
        NotReadable: a symbolic shape, weights that are no constants, or a follower that the
            accelerator has no place for.
    """
    shapes = [tvm_api.static_shape(operand) for operand in call.args]
    if not shapes or any(shape is None for shape in shapes):
        raise NotReadable("a symbolic shape: the driver needs every size at compile time")
    known, then = offer.OPERATOR.of(call), None
    if follower is not None:
        known, then = _absorb(known, follower)
    if then is not None and not offer.requantize:
        raise NotReadable(
            "a second change of scale behind it: the accelerator rescales a result once"
        )
    if offer.requantize and then is None:
        then = _unit(known)
    values: dict[str, Any] = asdict(known)
    values |= {"data_shape": shapes[0], "data_dtype": tvm_api.dtype_of(call.args[0]), "then": then}
    if issubclass(offer.KIND, Weighted):
        values |= _weighted(cast("WeightedOffer", offer), known, call, arrays)
    if issubclass(offer.KIND, Binary):
        broadcasts = cast("ElementwiseOffer", offer).broadcast
        values |= {"right_shape": shapes[1], "broadcasts": broadcasts}
    return offer.KIND(**values)


def _weighted(
    offer: WeightedOffer, known: Any, call: Any, arrays: Sequence[Any] | None
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
