# SPDX-License-Identifier: Apache-2.0
"""Drawings of layers of one operator, from their inputs and parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from umakit.operators.drawing import (
    Array,
    Drawing,
    Drawn,
    Input,
    NotDrawable,
    Result,
    Setting,
    Settings,
    Step,
    Tensor,
    parameters_step,
)
from umakit.operators.drawings.families import (
    COMMON,
    SIZES,
    TENSOR,
    WEIGHTED,
    ZERO_POINTS,
    tensor_of,
)
from umakit.operators.drawings.scales import SCALES
from umakit.operators.drawings.windows import IMAGE, image_of
from umakit.operators.parameters import Parameters
from umakit.operators.refusals import NoIntegerForm

Inputs = tuple[Tensor, ...]
First = Callable[[Settings, "Tensor | None"], Inputs]
"""(settings, tensor from an earlier layer) -> the inputs; raises `NotDrawable`."""

Operands = Sequence["Input | Array"]
Make = Callable[[Settings, Inputs, np.random.Generator], tuple[Parameters, Operands]]
"""(settings, inputs, random numbers) -> parameters, and all operands or the constants alone."""


def image_input(settings: Settings, data: Tensor | None) -> Inputs:
    """Return the only input, an image."""
    return (image_of(settings, data, int(settings["channels"])),)


FILTERS: Mapping[str, tuple[Setting, ...]] = {
    "batch": (1, 2, 3), "inputs": SIZES, "filters": SIZES, "memory": SIZES, "units": SIZES,
    **COMMON, "dtype": ("int8",), "rounding": ("tflm",), "scale": SCALES,
    "weights": WEIGHTED["weights"], "input_zero_point": ZERO_POINTS,
}  # fmt: skip
"""Settings of filters in time."""

IMAGES: Mapping[str, tuple[Setting, ...]] = {
    **IMAGE, "channels": SIZES, **COMMON, "input_zero_point": ZERO_POINTS,
}  # fmt: skip


def layer(
    make: Make,
    first: First = tensor_of,
    family: Mapping[str, tuple[Setting, ...]] = TENSOR,
    sizes: tuple[str, ...] = ("size", "other"),
    work: Callable[[Parameters, Inputs], int] | None = None,
    **settings: tuple[Setting, ...],
) -> Drawing:
    """Return the drawing of an operator.

    Args:
        make: function that makes parameters and operands.
        first: function that makes the inputs.
        family: settings of the family.
        sizes: settings that can become as large as the accelerator accepts.
        work: (parameters, inputs) -> operations; default: elements of inputs and result.
        settings: settings that replace or extend the family's settings; an empty tuple removes a
            setting.
    """

    def build(chosen: Settings, data: Tensor | None, random: np.random.Generator) -> Drawn:
        inputs = first(chosen, data)
        try:
            parameters, operands = make(chosen, inputs, random)
        except NoIntegerForm as reason:
            raise NotDrawable(str(reason)) from None
        given: list[Input | Result | Array] = list(operands)
        if not any(isinstance(operand, Input) for operand in operands):
            given = [*(Input(number) for number in range(len(inputs))), *operands]
        step = parameters_step(parameters, given)
        macs = _elements(parameters, inputs) if work is None else work(parameters, inputs)
        return Drawn(inputs, (step,), result_of(parameters, inputs[0]), macs)

    found = {name: values for name, values in {**family, **settings}.items() if values}
    return Drawing(found, build, tuple(name for name in sizes if name in found))


def result_of(parameters: Parameters, data: Tensor) -> Tensor:
    """Return the result described by parameters, in the layout of the data."""
    return Tensor(
        parameters.output_shape, parameters.output_dtype, parameters.output_zero_point, data.layout
    )


def _elements(parameters: Parameters, inputs: Inputs) -> int:
    shapes = [parameters.output_shape, *(tensor.shape for tensor in inputs)]
    return sum(math.prod(shape) for shape in shapes)


# --- operators that networks have as Relax's -----------------------------------------------------


Call = Callable[[Settings, Inputs, np.random.Generator], tuple[Step, Tensor]]


def relax_layer(
    make: Call,
    first: First,
    family: Mapping[str, tuple[Setting, ...]],
    sizes: tuple[str, ...] = ("size", "other"),
) -> Drawing:
    """Return the drawing of an operator that networks have as Relax's own operator.

    Args:
        make: function that makes the step and the result.
        first: function that makes the inputs.
        family: settings of the family.
        sizes: settings that can become as large as the accelerator accepts.
    """

    def build(chosen: Settings, data: Tensor | None, random: np.random.Generator) -> Drawn:
        inputs = first(chosen, data)
        step, result = make(chosen, inputs, random)
        return Drawn(inputs, (step,), result, math.prod(result.shape))

    return Drawing(family, build, sizes)


MOVED: Mapping[str, tuple[Setting, ...]] = {
    "axes": (2, 1, 3, 4), "size": SIZES, "other": SIZES, "dtype": ("int8", "int16", "uint8"),
    "input_zero_point": ZERO_POINTS, "values": COMMON["values"],
}  # fmt: skip
"""Settings of operators that move integers."""
