# SPDX-License-Identifier: Apache-2.0
"""Random layers of an integer operator, to test an accelerator.

An operator registers its `Drawing`: the settings of a layer with the values to try, and a function
from settings to a layer. `uma check` chooses the settings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from umakit import tvm_api
from umakit.operators.parameters import Parameters
from umakit.tvm_api import Expr

Array = npt.NDArray[Any]
Setting = int | str
Settings = Mapping[str, Setting]
Choices = Mapping[str, tuple[Setting, ...]]
"""The values of settings to try, the simplest first."""

Random = np.random.Generator


class NotDrawable(Exception):
    """Settings without a layer, such as a window larger than the padded image."""


@dataclass(frozen=True)
class Tensor:
    """An input of a drawn layer.

    Attributes:
        layout: `NHWC` or `NCHW` of an image.
        element: integer value of half of the elements; None for random elements.
    """

    shape: tuple[int, ...]
    dtype: str
    zero_point: int = 0
    layout: str = "NHWC"
    element: int | None = None


@dataclass(frozen=True)
class Input:
    """An operand that is an input of the layer, by number."""

    number: int


@dataclass(frozen=True)
class Result:
    """An operand that is the result of an earlier step of the layer, by number."""

    number: int


@dataclass(frozen=True)
class Step:
    """One Relax operator of a drawn layer.

    Attributes:
        operands: operands in order; arrays are constants.
    """

    make: Callable[[Sequence[Expr]], Expr]
    operands: tuple[Input | Result | Array, ...]


@dataclass(frozen=True)
class Drawn:
    """A drawn layer: one Relax operator, or several operators of one pattern.

    Attributes:
        inputs: input tensors; an earlier layer can compute the first one.
        steps: steps in execution order; the last result is the layer's.
        macs: multiply-accumulates or other operations on elements, as a measure of time.
    """

    inputs: tuple[Tensor, ...]
    steps: tuple[Step, ...]
    result: Tensor
    macs: int

    def call(self, step: int, operands: Sequence[Expr], results: Sequence[Expr]) -> Expr:
        """Return the call of a step."""
        given: list[Expr] = []
        for operand in self.steps[step].operands:
            if isinstance(operand, Input):
                given.append(operands[operand.number])
            elif isinstance(operand, Result):
                given.append(results[operand.number])
            else:
                given.append(tvm_api.relax.const(operand, str(operand.dtype)))
        return self.steps[step].make(given)

    @tvm_api.one_at_a_time
    def module(self) -> tvm_api.IRModule:
        """Return the layer as a network of its own."""
        relax = tvm_api.relax
        builder = relax.BlockBuilder()
        operands: list[Expr] = [
            relax.Var(f"input{number}", relax.TensorType(tensor.shape, tensor.dtype))
            for number, tensor in enumerate(self.inputs)
        ]
        with builder.function("main", operands):
            with builder.dataflow():
                results: list[Expr] = []
                for step in range(len(self.steps)):
                    results.append(builder.emit(self.call(step, operands, results)))
                result = builder.emit_output(results[-1])
            builder.emit_func_output(result)
        module: tvm_api.IRModule = builder.get()
        return module


Build = Callable[[Settings, "Tensor | None", Random], Drawn]
"""(settings, tensor from an earlier layer, random numbers) -> layer; raises `NotDrawable`. A given
tensor replaces the settings of the first input, and the layer has to be able to read it."""


@dataclass(frozen=True)
class Drawing:
    """The source of drawn layers of an operator.

    Attributes:
        settings: values by name, the simplest first; failures are reduced to the simplest.
        sizes: settings that can become as large as the accelerator accepts.
    """

    settings: Choices
    build: Build
    sizes: tuple[str, ...] = ()


def parameters_step(parameters: Parameters, operands: Sequence[Input | Result | Array]) -> Step:
    """Return the step that computes an integer operator."""
    return Step(lambda given: parameters.call(list(given), None), tuple(operands))
