# SPDX-License-Identifier: Apache-2.0
"""Drawing of an LSTM; a layer has one of the three results."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from umakit import tvm_api
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
from umakit.operators.drawings.families import COMMON, SIZES, WEIGHTED, ZERO_POINTS, common_fields
from umakit.operators.drawings.scales import SPREAD, weights_of
from umakit.operators.numeric.fixed_point import fixed_point, quantize_multiplier
from umakit.operators.parameters import Parameters
from umakit.operators.tables.sixteen_bits import sigmoid_argument, sigmoid_table

SETTINGS: Mapping[str, tuple[Setting, ...]] = {
    "batch": (1, 2, 3), "steps": (1, 2, 5), "inputs": SIZES, "units": SIZES, "time_major": (0, 1),
    "result": (0, 1, 2), "cell_scale": (-11, -9, -12, -14), "input_zero_point": ZERO_POINTS,
    "output_zero_point": ZERO_POINTS, "weights": WEIGHTED["weights"], "values": COMMON["values"],
}  # fmt: skip
"""`result` selects the compared tensor: outputs, hidden or cell state. `cell_scale` is a power of
two."""

GATES, FUNCTION_BITS, GATE_BITS = 4, 15, 12


def lstm(kind: Callable[..., Parameters]) -> Drawing:
    """Return the drawing of an LSTM of 8 bits, given its class of parameters."""

    def build(settings: Settings, data: Tensor | None, random: np.random.Generator) -> Drawn:
        batch, steps, columns, units = (
            int(settings[name]) for name in ("batch", "steps", "inputs", "units")
        )
        major = settings["time_major"] == 1
        first = (steps, batch) if major else (batch, steps)
        data = data or Tensor((*first, columns), "int8", int(settings["input_zero_point"]))
        if data.shape != (*first, columns) or data.dtype != "int8":
            raise NotDrawable("another kind of tensor")
        inputs = (data, Tensor((batch, units), "int8"), Tensor((batch, units), "int16"))
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
        operands: list[Input | Result | Array]
        operands = [Input(0), *constants, sigmoid_table(), Input(1), Input(2)]
        place = int(settings["result"])
        results = [Tensor((*first, units), "int8", zero_point), *inputs[1:]]
        choose = Step(lambda given: tvm_api.relax.TupleGetItem(given[0], place), (Result(0),))
        call = parameters_step(parameters, operands)
        macs = batch * steps * GATES * units * (columns + units)
        return Drawn(inputs, (call, choose), results[place], macs)

    return Drawing(SETTINGS, build, ("inputs", "units", "steps"))


def _parameters(
    kind: Callable[..., Parameters], settings: Settings, shape: tuple[int, ...], zero_point: int
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
