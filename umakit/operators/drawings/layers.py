# SPDX-License-Identifier: Apache-2.0
"""Drawings of layers of one operator, from their inputs and parameters.

Pads, concatenations and LSTMs are here too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from umakit.operators import drawing as draw
from umakit.operators.drawings.families import (
    COMMON,
    SIZES,
    TENSOR,
    WEIGHTED,
    ZERO_POINTS,
    common_fields,
    tensor_of,
)
from umakit.operators.drawings.scales import SCALES, SPREAD, weights_of
from umakit.operators.drawings.windows import IMAGE, image_of
from umakit.operators.numeric.fixed_point import fixed_point, quantize_multiplier
from umakit.operators.parameters import Parameters
from umakit.operators.tables.sixteen_bits import sigmoid_argument, sigmoid_table
from umakit.operators.tensors import NoIntegerForm
from umakit.tvm_api import relax

Inputs = tuple[draw.Tensor, ...]
First = Callable[[draw.Settings, draw.Tensor | None], Inputs]
"""(settings, tensor from an earlier layer) -> the inputs; raises `NotDrawable`."""

Operands = Sequence[draw.Input | draw.Array]
Made = tuple[Parameters, Operands]
Make = Callable[[draw.Settings, Inputs, draw.Random], Made]
"""(settings, inputs, random numbers) -> parameters, and all operands or the constants alone."""


def image_input(settings: draw.Settings, data: draw.Tensor | None) -> Inputs:
    """Return the only input, an image."""
    return (image_of(settings, data, int(settings["channels"])),)


FILTERS: draw.Choices = {
    "batch": (1, 2, 3), "inputs": SIZES, "filters": SIZES, "memory": SIZES, "units": SIZES,
    **COMMON, "dtype": ("int8",), "rounding": ("tflm",), "scale": SCALES,
    "weights": WEIGHTED["weights"], "input_zero_point": ZERO_POINTS,
}  # fmt: skip
"""Settings of filters in time."""

IMAGES: draw.Choices = {
    **IMAGE, "channels": SIZES, **COMMON, "input_zero_point": ZERO_POINTS,
}  # fmt: skip


def layer(
    make: Make,
    first: First = tensor_of,
    family: draw.Choices = TENSOR,
    sizes: tuple[str, ...] = ("size", "other"),
    work: Callable[[Parameters, Inputs], int] | None = None,
    **settings: tuple[draw.Setting, ...],
) -> draw.Drawing:
    """Return the drawing of an operator.

    Args:
        work: (parameters, inputs) -> operations; default: elements of inputs and result.
        settings: settings that replace or extend the family's settings; an empty tuple removes a
            setting.
    """

    def build(chosen: draw.Settings, data: draw.Tensor | None, random: draw.Random) -> draw.Drawn:
        inputs = first(chosen, data)
        try:
            parameters, operands = make(chosen, inputs, random)
        except NoIntegerForm as reason:
            raise draw.NotDrawable(str(reason)) from None
        given: list[draw.Input | draw.Result | draw.Array] = list(operands)
        if not any(isinstance(operand, draw.Input) for operand in operands):
            given = [*(draw.Input(number) for number in range(len(inputs))), *operands]
        step = draw.parameters_step(parameters, given)
        macs = _elements(parameters, inputs) if work is None else work(parameters, inputs)
        return draw.Drawn(inputs, (step,), result_of(parameters, inputs[0]), macs)

    found = {name: values for name, values in {**family, **settings}.items() if values}
    return draw.Drawing(found, build, tuple(name for name in sizes if name in found))


def result_of(parameters: Parameters, data: draw.Tensor) -> draw.Tensor:
    """Return the result described by parameters, in the layout of the data."""
    return draw.Tensor(
        parameters.output_shape, parameters.output_dtype, parameters.output_zero_point, data.layout
    )


def _elements(parameters: Parameters, inputs: Inputs) -> int:
    shapes = [parameters.output_shape, *(tensor.shape for tensor in inputs)]
    return sum(math.prod(shape) for shape in shapes)


# --- operators that networks have as Relax's -----------------------------------------------------


Call = Callable[[draw.Settings, Inputs, draw.Random], tuple[draw.Step, draw.Tensor]]


def relax_layer(
    make: Call,
    first: First,
    family: draw.Choices,
    sizes: tuple[str, ...] = ("size", "other"),
) -> draw.Drawing:
    """Return the drawing of an operator that networks have as Relax's own operator."""

    def build(chosen: draw.Settings, data: draw.Tensor | None, random: draw.Random) -> draw.Drawn:
        inputs = first(chosen, data)
        step, result = make(chosen, inputs, random)
        return draw.Drawn(inputs, (step,), result, math.prod(result.shape))

    return draw.Drawing(family, build, sizes)


MOVED: draw.Choices = {
    "axes": (2, 1, 3, 4), "size": SIZES, "other": SIZES, "dtype": ("int8", "int16", "uint8"),
    "input_zero_point": ZERO_POINTS, "values": COMMON["values"],
}  # fmt: skip
"""Settings of operators that move integers."""


PADDED: draw.Choices = {
    **MOVED,
    "padded": ("last", "first", "image", "all"),
    "before": (1, 0, 2, 5),
    "after": (1, 0, 2, 5),
    "value": ("zero_point", "lowest", "highest"),
}
JOINED: draw.Choices = {
    **MOVED, "operands": (2, 1, 3, 4, 5), "axis": (0, 1, 2, 3), "growth": (0, 1, 3),
}  # fmt: skip
"""`axis` is counted from the last one; each operand is by `growth` longer than the one before."""

MOST_OPERANDS = 32


def pad() -> draw.Drawing:
    """Return the drawing of a pad with an integer."""

    def make(
        settings: draw.Settings, inputs: Inputs, random: draw.Random
    ) -> tuple[draw.Step, draw.Tensor]:
        (data,) = inputs
        rank = len(data.shape)
        padded = {
            "last": {rank - 1}, "first": {0}, "image": {rank - 3, rank - 2},
            "all": set(range(rank)),
        }[str(settings["padded"])]  # fmt: skip
        before, after = int(settings["before"]), int(settings["after"])
        if min(padded) < 0 or before + after == 0:
            raise draw.NotDrawable("too few axes, or nothing around them")
        sides = [(before, after) if axis in padded else (0, 0) for axis in range(rank)]
        widths = [width for pair in sides for width in pair]
        limits = np.iinfo(data.dtype)
        values = {
            "zero_point": data.zero_point, "lowest": int(limits.min), "highest": int(limits.max),
        }  # fmt: skip
        value = values[str(settings["value"])]
        shape = tuple(n + sum(pair) for n, pair in zip(data.shape, sides, strict=True))
        result = draw.Tensor(shape, data.dtype, data.zero_point, data.layout)
        step = draw.Step(
            lambda given: relax.op.nn.pad(given[0], widths, pad_value=value), (draw.Input(0),)
        )
        return step, result

    return relax_layer(make, tensor_of, PADDED)


def concatenation() -> draw.Drawing:
    """Return the drawing of a concatenation of a number of tensors."""

    def first(settings: draw.Settings, data: draw.Tensor | None) -> Inputs:
        (data,) = tensor_of(settings, data)
        axis = len(data.shape) - 1 - int(settings["axis"])
        if axis < 0 or int(settings["operands"]) > MOST_OPERANDS:
            raise draw.NotDrawable("too few axes, or too many operands")
        found = []
        for number in range(int(settings["operands"])):
            shape = list(data.shape)
            shape[axis] += number * int(settings["growth"])
            found.append(draw.Tensor(tuple(shape), data.dtype, data.zero_point, data.layout))
        return tuple(found)

    def make(
        settings: draw.Settings, inputs: Inputs, random: draw.Random
    ) -> tuple[draw.Step, draw.Tensor]:
        data = inputs[0]
        axis = len(data.shape) - 1 - int(settings["axis"])
        shape = list(data.shape)
        shape[axis] = sum(tensor.shape[axis] for tensor in inputs)
        result = draw.Tensor(tuple(shape), data.dtype, data.zero_point, data.layout)
        operands = tuple(draw.Input(number) for number in range(len(inputs)))
        return draw.Step(
            lambda given: relax.op.concat(relax.Tuple(list(given)), axis), operands
        ), result

    return relax_layer(make, first, JOINED)


LSTM: draw.Choices = {
    "batch": (1, 2, 3), "steps": (1, 2, 5), "inputs": SIZES, "units": SIZES, "time_major": (0, 1),
    "result": (0, 1, 2), "cell_scale": (-11, -9, -12, -14), "input_zero_point": ZERO_POINTS,
    "output_zero_point": ZERO_POINTS, "weights": WEIGHTED["weights"], "values": COMMON["values"],
}  # fmt: skip
"""`result` is the compared tensor: outputs, hidden or cell state; `cell_scale` an exponent of 2."""

GATES, FUNCTION_BITS, GATE_BITS = 4, 15, 12


def lstm(kind: Callable[..., Parameters]) -> draw.Drawing:
    """Return the drawing of an LSTM of 8 bits, given its class of parameters."""

    def build(settings: draw.Settings, data: draw.Tensor | None, random: draw.Random) -> draw.Drawn:
        batch, steps, columns, units = (
            int(settings[name]) for name in ("batch", "steps", "inputs", "units")
        )
        major = settings["time_major"] == 1
        first = (steps, batch) if major else (batch, steps)
        data = data or draw.Tensor((*first, columns), "int8", int(settings["input_zero_point"]))
        if data.shape != (*first, columns) or data.dtype != "int8":
            raise draw.NotDrawable("another kind of tensor")
        inputs = (data, draw.Tensor((batch, units), "int8"), draw.Tensor((batch, units), "int16"))
        own = {**settings, "dtype": "int8", "rounding": "tflm", "scale": "usual", "scales": 1}
        weights, bias, *_ = weights_of(own, (GATES * units, columns), random)
        recurrent, more, *_ = weights_of(own, (GATES * units, units), random)
        factors = [
            float(random.uniform(0.2, 1)) * 2.0**GATE_BITS / (SPREAD**2 * math.sqrt(terms))
            for terms in (columns, units)
            for _ in range(GATES)
        ]
        gates = fixed_point(factors)
        zero_point = int(settings["output_zero_point"])
        parameters = _parameters(kind, own, (*first, units), zero_point)
        constants = (weights, bias, recurrent, more, gates.multipliers, gates.shifts)
        operands: list[draw.Input | draw.Result | draw.Array]
        operands = [draw.Input(0), *constants, sigmoid_table(), draw.Input(1), draw.Input(2)]
        place = int(settings["result"])
        results = [draw.Tensor((*first, units), "int8", zero_point), *inputs[1:]]
        choose = draw.Step(lambda given: relax.TupleGetItem(given[0], place), (draw.Result(0),))
        call = draw.parameters_step(parameters, operands)
        macs = batch * steps * GATES * units * (columns + units)
        return draw.Drawn(inputs, (call, choose), results[place], macs)

    return draw.Drawing(LSTM, build, ("inputs", "units", "steps"))


def _parameters(
    kind: Callable[..., Parameters],
    settings: draw.Settings,
    shape: tuple[int, ...],
    zero_point: int,
) -> Parameters:
    cell_scale, function_scale = 2.0 ** int(settings["cell_scale"]), 2.0**-FUNCTION_BITS
    limits = np.iinfo(np.int16)
    return kind(
        **common_fields({**settings, "clip": "none"}, shape, zero_point),
        time_major=int(settings["time_major"]),
        cell_argument=sigmoid_argument(cell_scale, tanh=True),
        cell_clip=(int(limits.min), int(limits.max)),
        forget=quantize_multiplier(function_scale),
        update=quantize_multiplier(function_scale**2 / cell_scale),
        result=quantize_multiplier(function_scale**2 * 128),
    )
