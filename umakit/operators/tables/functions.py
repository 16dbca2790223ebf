# SPDX-License-Identifier: Apache-2.0
"""Functions of one integer tensor as tables of their 256 or 65536 results.

Operators between a dequantize and a quantize may form any function of single elements: a change of
scale, an activation, or several operators. The results are computed here in float32, operator by
operator, like ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from umakit import tvm_api
from umakit.operators.tensors import Definition, NoIntegerForm, Quantized, Scale, scale_of
from umakit.tvm_api import Expr

Array = npt.NDArray[Any]
DEEPEST = 64
"""Most operators on one way from quantize to dequantize."""


def _sigmoid(x: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-x.astype(np.float64)))


FUNCTIONS: dict[str, Callable[..., Array]] = {
    "nn.relu": lambda x: np.maximum(x, 0),
    "nn.relu6": lambda x: np.clip(x, 0, 6),
    "clip": lambda x, low, high: np.clip(x, low, high),
    "sigmoid": _sigmoid,
    "tanh": lambda x: np.tanh(x.astype(np.float64)),
    "nn.silu": lambda x: x * _sigmoid(x),
    "exp": lambda x: np.exp(x.astype(np.float64)),
    "abs": np.abs,
    "negative": np.negative,
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "less": np.less,
    "where": lambda chosen, x, y: np.asarray(np.where(chosen != 0, x, y)),
}
"""Values of operators on float32; each result is rounded to float32, and true is 1."""


def all_integers(dtype: str) -> Array:
    """The integers of a dtype, in order."""
    limits = np.iinfo(dtype)
    return np.arange(limits.min, limits.max + 1, dtype=np.int64)


def dequantized(scale: Scale) -> Array:
    """The real numbers of all integers, float32[256 or 65536]."""
    distances: Array = (all_integers(scale.dtype) - scale.zero_point).astype(np.float32)
    return np.asarray(distances * scale.scale, np.float32)


def quantized(values: Array, scale: Scale, clip: tuple[int, int] | None = None) -> Array:
    """The integers of real numbers: nearest, ties to even, limited."""
    low, high = clip or scale.limits
    with np.errstate(over="ignore", invalid="ignore"):
        quotient = values.astype(np.float32) / scale.scale
    integers = np.rint(np.clip(quotient, -(2**17), 2**17)) + scale.zero_point
    return np.asarray(np.clip(integers, low, high), scale.dtype)


def conversion(source: Scale, target: Scale, clip: tuple[int, int]) -> Array:
    """The table of a change of scale."""
    return quantized(dequantized(source), target, clip)


def is_identity(table: Array, source: Scale) -> bool:
    """Whether a table changes nothing."""
    return str(table.dtype) == source.dtype and bool(
        (table == all_integers(source.dtype).astype(table.dtype)).all()
    )


class FunctionOfOne:
    """A float32 expression of a single dequantized tensor.

    Attributes:
        values: float32[256 or 65536], for all integers in order.

    Raises:
        NoIntegerForm: the expression is no such function.
    """

    def __init__(self, expression: Expr, definition: Definition) -> None:
        self._definition = definition
        self._source: Quantized | None = None
        self._results: dict[Expr, Array] = {}
        with np.errstate(all="ignore"):
            self.values: Array = self._evaluate(expression, DEEPEST)
        integers = 2**self.source.scale.bits
        if np.isnan(self.values).any() or self.values.shape != (integers,):
            raise NoIntegerForm("it is not a function of one integer tensor")

    @property
    def source(self) -> Quantized:
        """The integer tensor that is the function's argument."""
        if self._source is None:
            raise NoIntegerForm("it is not a function of one integer tensor")
        return self._source

    def _evaluate(self, expression: Expr, depth: int) -> Array:
        call = self._definition(expression)
        if call in self._results:
            return self._results[call]
        constant = tvm_api.constant_array(call)
        if constant is not None and constant.size == 1:
            return constant.reshape(()).astype(np.float32)
        operator = tvm_api.operator_name(call)
        if depth == 0:
            raise NoIntegerForm("too many operators follow each other")
        if operator == "dequantize":
            result = self._dequantize(call)
        elif operator == "nn.leakyrelu":
            x = self._evaluate(call.args[0], depth - 1)
            result = np.where(x >= 0, x, x * np.float32(call.attrs.alpha))
        elif operator in FUNCTIONS:
            arguments = [self._argument(argument, depth) for argument in call.args]
            result = np.asarray(FUNCTIONS[operator](*arguments), np.float32)
        else:
            raise NoIntegerForm(f"there is no integer form of {operator or 'a constant'}")
        self._results[call] = result
        return result

    def _argument(self, argument: Expr, depth: int) -> Array:
        is_value = tvm_api.dtype_of(argument) in ("float32", "bool")
        if is_value and tvm_api.static_shape(argument) is not None:
            return self._evaluate(argument, depth - 1)
        try:
            return np.asarray(tvm_api.float_argument(argument), np.float32)
        except ValueError as error:
            raise NoIntegerForm(str(error)) from None

    def _dequantize(self, call: Expr) -> Array:
        if tvm_api.constant_array(self._definition(call.args[0])) is not None:
            raise NoIntegerForm("an operand is constant")
        scale = scale_of(call, tvm_api.dtype_of(call.args[0]))
        if self._source is not None and self._source.integers is not call.args[0]:
            raise NoIntegerForm("it is a function of several tensors")
        self._source = Quantized(call.args[0], scale)
        return dequantized(scale)
