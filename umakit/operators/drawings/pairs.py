# SPDX-License-Identifier: Apache-2.0
"""Drawings of operators of two tensors: quotients, products of matrices and others."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from umakit.operators import drawing as draw
from umakit.operators.drawings.families import (
    COMMON,
    ELEMENTWISE,
    SIZES,
    ZERO_POINTS,
    common_fields,
    sides_of,
    zero_point_of,
)
from umakit.operators.drawings.layers import Inputs, Made, Make, layer
from umakit.operators.drawings.reductions import magnitude_of
from umakit.operators.drawings.scales import SCALES, SPREAD, factors
from umakit.operators.multipliers import check_headroom, fixed_points, multiplier_of
from umakit.operators.multipliers import reduced_multipliers as reduced
from umakit.operators.numeric.fixed_point import Arithmetic, quantize_multiplier
from umakit.operators.parameters import BIAS_DTYPES, Parameters
from umakit.operators.tensors import NoIntegerForm, Scale

MATRICES: draw.Choices = {
    "matrices": (1, 2, 3), "repeated": ("none", "left", "right"), "rows": SIZES, "columns": SIZES,
    "terms": SIZES, "left_adjoint": (0, 1), "right_adjoint": (0, 1), **COMMON, "scale": SCALES,
    "left_zero_point": ZERO_POINTS, "right_zero_point": ZERO_POINTS,
}  # fmt: skip
"""`repeated` is the side with a single matrix, the operand of all products."""


def pair(make: Make, **settings: tuple[draw.Setting, ...]) -> draw.Drawing:
    """Return the drawing of an elementwise operator of two tensors; arguments as in `layer`."""
    return layer(make, _two, {**ELEMENTWISE, **settings})


def _two(settings: draw.Settings, data: draw.Tensor | None) -> Inputs:
    return sides_of(settings, data)[:2]


def fields_of(settings: draw.Settings, inputs: Inputs) -> dict[str, Any]:
    """Return the common fields of an elementwise operator, and `zero_points`."""
    left, right = inputs
    shape = tuple(max(sizes) for sizes in zip(left.shape, right.shape, strict=True))
    zero_point = zero_point_of(settings, "output_zero_point")
    return {
        **common_fields(settings, shape, zero_point),
        "zero_points": (left.zero_point, right.zero_point),
    }


def product(kind: Callable[..., Parameters]) -> draw.Drawing:
    """Return the drawing of a product."""

    def make(settings: draw.Settings, inputs: Inputs, random: draw.Random) -> Made:
        width = 256 if inputs[0].dtype in BIAS_DTYPES else 1
        (multiplier,), (shift,) = factors(settings, SPREAD * width, 1, random)
        fields = fields_of(settings, inputs)
        return kind(**fields, multiplier=int(multiplier), shift=int(shift)), []

    def work(parameters: Parameters, inputs: Inputs) -> int:
        return math.prod(parameters.output_shape)

    return layer(make, _two, ELEMENTWISE, work=work)


def quotient(kind: Callable[..., Parameters], shifts: tuple[draw.Setting, ...]) -> draw.Drawing:
    """Return the drawing of a quotient."""

    def make(settings: draw.Settings, inputs: Inputs, random: draw.Random) -> Made:
        multiplier, _ = quantize_multiplier(float(random.uniform(0.5, 1)))
        fields = fields_of(settings, inputs)
        return kind(**fields, multiplier=multiplier, shift=int(settings["shift"])), []

    return pair(make, dtype=("int8",), rounding=("tflm",), shift=shifts, scale=())


def squares(kind: Callable[..., Parameters], left_shifts: Mapping[str, int]) -> draw.Drawing:
    """Return the drawing of a squared difference."""

    def make(settings: draw.Settings, inputs: Inputs, random: draw.Random) -> Made:
        left_shift = left_shifts[inputs[0].dtype]
        scales = np.exp2(random.uniform(-3, 0, 2))
        if settings["scale"] == "tie":
            scales = np.exp2(np.floor(np.log2(scales)))
        twice = 2 * float(max(scales))
        spread = SPREAD * (256 if inputs[0].dtype == "int16" else 1)
        (last,), (shift,) = factors(settings, spread * 2.0 ** (2 * left_shift), 1, random)
        if shift > 0:
            raise draw.NotDrawable("the result's scale is too small for the operands'")
        first = [quantize_multiplier(float(scale) / twice) for scale in scales]
        parameters = kind(
            **fields_of(settings, inputs),
            left_shift=left_shift,
            multipliers=(first[0][0], first[1][0], int(last)),
            shifts=(first[0][1], first[1][1], int(shift)),
        )
        return parameters, []

    return pair(make, dtype=("int8", "int16"), rounding=("tflm",))


def slopes(kind: Callable[..., Parameters]) -> draw.Drawing:
    """Return the drawing of a leaky ReLU with a tensor of slopes, constant or not."""

    def make(settings: draw.Settings, inputs: Inputs, random: draw.Random) -> Made:
        (first, _), both = factors(settings, 1, 2, random)
        by = fixed_points([float(random.uniform(0.5, 1.5)) / SPREAD])
        magnitude = magnitudes(inputs)
        for most, shift in ((magnitude[0], both[0]), (magnitude[0] * magnitude[1], by.shifts[0])):
            check_headroom(most, int(shift), Arithmetic.TFLM)
        parameters = kind(
            **fields_of(settings, inputs),
            multipliers=(int(first), int(by.multipliers[0])),
            shifts=(int(both[0]), int(by.shifts[0])),
        )
        return parameters, []

    return pair(
        make, dtype=("int8", "uint8"), rounding=("tflm",), broadcast=("right", "none", "both")
    )


def magnitudes(inputs: Inputs) -> list[int]:
    """Return the largest absolute differences to the zero points."""
    return [magnitude_of(tensor.dtype, tensor.zero_point) for tensor in inputs]


def with_float32(kind: Callable[..., Parameters], exact: Callable[..., Parameters]) -> draw.Drawing:
    """Return the drawing of a sum or product with the results of float32."""

    def make(settings: draw.Settings, inputs: Inputs, random: draw.Random) -> Made:
        fields = fields_of(settings, inputs)
        del fields["zero_points"]
        exponents = random.uniform(-6, -3, 2)
        if settings["scale"] == "tie":
            exponents = np.floor(exponents)
        scales = [
            Scale(np.float32(2.0**exponent), tensor.zero_point, tensor.dtype)
            for exponent, tensor in zip(exponents, inputs, strict=True)
        ]
        whole = sum(scales[side].scale for side in (0, 1))
        by = {"usual": 1.0, "tie": 1.0, "threshold": 2.0, "small": 32.0, "large": 0.125}
        wanted = np.float32(whole * by[str(settings["scale"])])
        if settings["scale"] in ("tie", "threshold"):
            wanted = np.float32(2.0 ** round(math.log2(float(wanted))))
        target = Scale(wanted, int(fields["output_zero_point"]), inputs[0].dtype)
        shapes = [tensor.shape for tensor in inputs]
        return exact(kind, fields, scales, target, shapes), []

    return pair(make, dtype=("int8", "uint8"), rounding=("ort",))


def _matrices(settings: draw.Settings, data: draw.Tensor | None) -> Inputs:
    dtype = str(settings["dtype"])
    rows, columns, terms = (int(settings[name]) for name in ("rows", "columns", "terms"))
    counts = {side: int(settings["matrices"]) for side in ("left", "right")}
    if settings["repeated"] in counts:
        counts[str(settings["repeated"])] = 1
    left = (terms, rows) if settings["left_adjoint"] else (rows, terms)
    right = (columns, terms) if settings["right_adjoint"] else (terms, columns)
    if data is not None and (data.shape != (counts["left"], *left) or data.dtype != dtype):
        raise draw.NotDrawable("another kind of tensor")
    return (
        data
        or draw.Tensor((counts["left"], *left), dtype, zero_point_of(settings, "left_zero_point")),
        draw.Tensor((counts["right"], *right), dtype, zero_point_of(settings, "right_zero_point")),
    )


def matrix_products(kind: Callable[..., Parameters]) -> draw.Drawing:
    """Return the drawing of products of matrices, neither of them constant."""

    def make(settings: draw.Settings, inputs: Inputs, random: draw.Random) -> Made:
        arithmetic = Arithmetic(str(settings["rounding"]))
        terms = int(settings["terms"])
        wide = inputs[0].dtype == "int16"
        spread = SPREAD * (256 if wide else 1) * math.sqrt(terms)
        if wide and arithmetic is Arithmetic.TFLM:
            (multiplier,), (shift,) = factors(settings, spread, 1, random)
            scaled = reduced(fixed_points([float(multiplier) * 2.0 ** (int(shift) - 31)]))
            multiplier, shift = scaled.multipliers[0], scaled.shifts[0]
        elif arithmetic is Arithmetic.EVEN:
            left, right = magnitudes(inputs)
            factor = float(random.uniform(0.5, 1.5)) / spread
            multiplier, shift = multiplier_of(factor, left * right * terms, arithmetic)
        elif wide:
            raise NoIntegerForm("ONNX Runtime's rounding of 16 bits")
        else:
            (multiplier,), (shift,) = factors(settings, spread, 1, random)
        shape = (int(settings["matrices"]), int(settings["rows"]), int(settings["columns"]))
        if settings["repeated"] != "none" and shape[0] == 1:
            raise draw.NotDrawable("one matrix is not repeated")
        parameters = kind(
            **common_fields(settings, shape, zero_point_of(settings, "output_zero_point")),
            zero_points=(inputs[0].zero_point, inputs[1].zero_point),
            multiplier=int(multiplier), shift=int(shift),
            adjoint=(int(settings["left_adjoint"]), int(settings["right_adjoint"])),
        )  # fmt: skip
        return parameters, []

    def work(parameters: Parameters, inputs: Inputs) -> int:
        left = math.prod(inputs[0].shape[1:]) * parameters.output_shape[0]
        return left * parameters.output_shape[2]

    return layer(make, _matrices, MATRICES, ("rows", "columns", "terms"), work)
