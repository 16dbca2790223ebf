# SPDX-License-Identifier: Apache-2.0
"""The driver's arguments for an integer operator, the source of the operator's generated pattern.

An operator's file registers an `Interface`; `offload.generated` generates the pattern `qNAME` and
the class of its parameters from the interface. Convolutions and other operators that need more have
patterns of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from umakit.operators.numeric.fixed_point import Arithmetic

Shape = tuple[int, ...]


class Unsuitable(Exception):
    """An operator with sizes that the driver's arguments cannot express; the message says why."""


Sizes = Callable[[Any, Mapping[str, Shape]], dict[str, int]]
"""(parameters, operand shapes by name) -> ordered size arguments by name; raises `Unsuitable`.
`Any` stands for the operator's own parameter class."""


def elements(parameters: Any, shapes: Mapping[str, Shape]) -> dict[str, int]:
    """The number of elements, for elementwise operators."""
    return {"elements": math.prod(parameters.output_shape)}


def rows(parameters: Any, shapes: Mapping[str, Shape]) -> dict[str, int]:
    """The number of rows along the last axis, and their length."""
    *outer, length = shapes["data"]
    return {"rows": math.prod(outer), "length": length}


def channels(parameters: Any, shapes: Mapping[str, Shape]) -> dict[str, int]:
    """The number of images x channels of data [N, C, ...], and the number of elements of each."""
    first, second, *rest = shapes["data"]
    return {"rows": first * second, "length": math.prod(rest)}


def along_axes(parameters: Any, shapes: Mapping[str, Shape]) -> dict[str, int]:
    """The sizes [outer, length, inner] of data, for operators along `axis` or adjacent `axes`."""
    shape = shapes["data"]
    given = getattr(parameters, "axes", None) or (parameters.axis,)
    axes = [axis for axis in given if shape[axis] > 1] or list(given[:1])
    first, behind = axes[0], axes[-1] + 1
    between = [shape[axis] for axis in range(first, behind) if axis not in axes]
    if math.prod(between) > 1:
        listed = ", ".join(str(axis) for axis in axes)
        raise Unsuitable(f"axes {listed} are not adjacent: the driver is told one length")
    return {
        "outer": math.prod(shape[:first]),
        "length": math.prod(shape[axis] for axis in axes),
        "inner": math.prod(shape[behind:]),
    }


def matrices(parameters: Any, shapes: Mapping[str, Shape]) -> dict[str, int]:
    """The numbers of left and right matrices, rows and columns of the result, and terms of a sum.

    A single matrix is the operand of all products.
    """
    left, right = shapes["left"], shapes["right"]
    counts = [math.prod(shape[:-2]) for shape in (left, right)]
    *leading, height, width = parameters.output_shape
    if any(count not in (1, math.prod(leading)) for count in counts):
        raise Unsuitable(f"{counts[0]} and {counts[1]} matrices: leading axes that are repeated")
    return {
        "left_matrices": counts[0],
        "right_matrices": counts[1],
        "rows": height,
        "columns": width,
        "terms": left[-2] if parameters.adjoint[0] else left[-1],
    }


def image(parameters: Any, shapes: Mapping[str, Shape]) -> dict[str, int]:
    """Images, rows, columns and channels of the data, and rows and columns of the result."""
    layout = getattr(parameters, "layout", "NHWC")
    data = dict(zip(layout, shapes["data"], strict=True))
    result = dict(zip(layout, parameters.output_shape, strict=True))
    return {
        "batch": data["N"],
        "height": data["H"],
        "width": data["W"],
        "channels": data["C"],
        "output_height": result["H"],
        "output_width": result["W"],
    }


def four(shape: Sequence[int], fill: int = 1) -> tuple[int, ...]:
    """A shape, or numbers for each axis, extended in front to four axes.

    Raises:
        Unsuitable: there are more than four axes.
    """
    if len(shape) > FOUR:
        raise Unsuitable(f"{len(shape)} axes: the driver is told four")
    return (fill,) * (FOUR - len(shape)) + tuple(shape)


FOUR = 4


def named_axes(**names: str) -> Sizes:
    """Return size arguments that are the extents of axes.

    Args:
        names: for each operand the names of its axes, separated by blanks; equal names mean equal
            extents.
    """

    def sizes(parameters: Any, shapes: Mapping[str, Shape]) -> dict[str, int]:
        found: dict[str, int] = {}
        for operand, axes in names.items():
            found |= dict(zip(axes.split(), shapes[operand], strict=True))
        return found

    return sizes


NAMES: Mapping[str, Sequence[str]] = {
    "strides": ("stride_y", "stride_x"),
    "padding": ("pad_top", "pad_left", "pad_bottom", "pad_right"),
    "dilation": ("dilation_y", "dilation_x"),
    "window": ("window_height", "window_width"),
    "layout": (),
}
"""Names in C of the elements of fields that several operators have; none leave a field out."""


@dataclass(frozen=True)
class Interface:
    """Pointers, sizes and parameters for a driver, in this order.

    Attributes:
        operands: dtypes of the operands by name; empty for the dtype of the data, `BIAS` for the
            dtype of the data's biases.
        results: pointers to further results: by name, the operand of the same shape and dtype.
        axes: number of axes of the operands with size arguments.
        names: names in C of the elements of a parameter field, if other than the field's name. An
            empty name leaves out an element, an empty list the field. Other fields have their own
            names; two numbers of an operator of two operands are `left_` and `right_`.
        values: possible texts of a field; the argument is the position of the field's text.
        wide: names in C of arguments that are int64.
        dtypes: default dtypes of data and result of the pattern.
        rounding: default rounding of the pattern; None if nothing is rounded or the operator has
            only one rounding.
        checks: `data` and `result`, if checked against the dtypes of the pattern.
        result: dtype of the result, if other than the data's.
        broadcasts: default of whether the shapes of two operands may differ; None for operators
            whose shapes need not be equal.
        relax: name of the Relax operator that networks have instead; empty for the operator itself.
        clips: whether zero point, least and largest integer and rounding of the result are
            arguments.
    """

    operands: Mapping[str, str] = field(default_factory=lambda: {"data": ""})
    results: Mapping[str, str] = field(default_factory=dict)
    axes: int = 4
    sizes: Sizes = elements
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    values: Mapping[str, Sequence[str]] = field(default_factory=dict)
    wide: tuple[str, ...] = ()
    dtypes: str | None = "int8"
    rounding: str | None = None
    checks: tuple[str, ...] = ("data", "result")
    result: str = ""
    broadcasts: bool | None = None
    relax: str = ""
    clips: bool = True

    def arguments(self, name: str, value: Any) -> dict[str, int]:
        """The arguments for a field of the parameters."""
        if name in self.values:
            return {name: self.values[name].index(value)}
        several = isinstance(value, tuple)
        names = self.names.get(name, NAMES.get(name))
        if names is None:
            names = [f"{side}_{name.removesuffix('s')}" for side in ("left", "right")]
            names = names if several else [name]
        numbers = value if several else (value,)
        return {one: int(n) for one, n in zip(names, numbers, strict=bool(names)) if one}


BIAS = "bias"
"""Dtype of biases: int32, int64 for data of int16."""

TFLM = Arithmetic.TFLM.value
"""Rounding of convolutions, for patterns whose operators support several roundings."""

PAIR: Mapping[str, str] = {"left": "", "right": ""}
"""Operands of sums, products and comparisons."""
