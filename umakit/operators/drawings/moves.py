# SPDX-License-Identifier: Apache-2.0
"""Drawings of operators that move integers: pads and concatenations, as Relax's own operators."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from umakit import tvm_api
from umakit.operators.drawing import Drawing, Input, NotDrawable, Setting, Settings, Step, Tensor
from umakit.operators.drawings.families import tensor_of
from umakit.operators.drawings.layers import MOVED, Inputs, relax_layer

relax = tvm_api.relax

PADDED: Mapping[str, tuple[Setting, ...]] = {
    **MOVED,
    "padded": ("last", "first", "image", "all"),
    "before": (1, 0, 2, 5),
    "after": (1, 0, 2, 5),
    "value": ("zero_point", "lowest", "highest"),
}
JOINED: Mapping[str, tuple[Setting, ...]] = {
    **MOVED, "operands": (2, 1, 3, 4, 5), "axis": (0, 1, 2, 3), "growth": (0, 1, 3),
}  # fmt: skip
"""`axis` is counted from the last one; each operand is by `growth` longer than the one before."""

MOST_OPERANDS = 32


def pad() -> Drawing:
    """Return the drawing of a pad with an integer."""

    def make(
        settings: Settings, inputs: Inputs, random: np.random.Generator
    ) -> tuple[Step, Tensor]:
        (data,) = inputs
        rank = len(data.shape)
        padded = {
            "last": {rank - 1}, "first": {0}, "image": {rank - 3, rank - 2},
            "all": set(range(rank)),
        }[str(settings["padded"])]  # fmt: skip
        before, after = int(settings["before"]), int(settings["after"])
        if min(padded) < 0 or before + after == 0:
            raise NotDrawable("too few axes, or nothing around them")
        sides = [(before, after) if axis in padded else (0, 0) for axis in range(rank)]
        widths = [width for pair in sides for width in pair]
        limits = np.iinfo(data.dtype)
        values = {
            "zero_point": data.zero_point, "lowest": int(limits.min), "highest": int(limits.max),
        }  # fmt: skip
        value = values[str(settings["value"])]
        shape = tuple(n + sum(pair) for n, pair in zip(data.shape, sides, strict=True))
        result = Tensor(shape, data.dtype, data.zero_point, data.layout)
        step = Step(lambda given: relax.op.nn.pad(given[0], widths, pad_value=value), (Input(0),))
        return step, result

    return relax_layer(make, tensor_of, PADDED)


def concatenation() -> Drawing:
    """Return the drawing of a concatenation of a number of tensors."""

    def first(settings: Settings, data: Tensor | None) -> Inputs:
        (data,) = tensor_of(settings, data)
        axis = len(data.shape) - 1 - int(settings["axis"])
        if axis < 0 or int(settings["operands"]) > MOST_OPERANDS:
            raise NotDrawable("too few axes, or too many operands")
        found = []
        for number in range(int(settings["operands"])):
            shape = list(data.shape)
            shape[axis] += number * int(settings["growth"])
            found.append(Tensor(tuple(shape), data.dtype, data.zero_point, data.layout))
        return tuple(found)

    def make(
        settings: Settings, inputs: Inputs, random: np.random.Generator
    ) -> tuple[Step, Tensor]:
        data = inputs[0]
        axis = len(data.shape) - 1 - int(settings["axis"])
        shape = list(data.shape)
        shape[axis] = sum(tensor.shape[axis] for tensor in inputs)
        result = Tensor(tuple(shape), data.dtype, data.zero_point, data.layout)
        operands = tuple(Input(number) for number in range(len(inputs)))
        return Step(lambda given: relax.op.concat(relax.Tuple(list(given)), axis), operands), result

    return relax_layer(make, first, JOINED)
