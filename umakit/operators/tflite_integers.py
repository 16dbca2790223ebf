# SPDX-License-Identifier: Apache-2.0
"""Parts shared by conversions that build an integer operator directly, without an island."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from umakit.errors import ModelError
from umakit.operators.lookup import Lookup
from umakit.operators.numeric.fixed_point import Arithmetic, quantize_multiplier
from umakit.operators.parameters import CommonFields
from umakit.operators.requantize import Requantize
from umakit.operators.tensors import Array, NoIntegerForm, Scale
from umakit.operators.tflite import TfliteNode, TfliteTensor
from umakit.tvm_api import Expr, relax

TFLM = Arithmetic.TFLM


@contextmanager
def as_refusals() -> Iterator[None]:
    """Turn `NoIntegerForm` into a refusal of the operator."""
    try:
        yield
    except (NoIntegerForm, ValueError) as reason:
        raise ModelError(str(reason)) from None


def scale_of(tensor: TfliteTensor) -> Scale:
    """Return the only scale of a tensor."""
    if tensor.scales.size != 1:
        raise ModelError(f"tensor {tensor.name!r} has {tensor.scales.size} scales")
    return Scale(tensor.scales[0], int(tensor.zero_points[0]), tensor.dtype)


def result_fields(node: TfliteNode, activation: int = 0) -> CommonFields:
    """Return the fields of all `Parameters`, for an operator's result.

    Args:
        activation: fused activation, a number of the schema.
    """
    scale = scale_of(node.result)
    return {
        "output_shape": node.result.shape,
        "output_dtype": scale.dtype,
        "output_zero_point": scale.zero_point,
        "clip": node.clip(activation),
        "rounding": TFLM.value,
    }


def lookup(node: TfliteNode, table: Array, function: str) -> Expr:
    """Return a function of the first input, int8, as a table.

    Args:
        table: 256 results for -128, ..., 127, not limited to the dtype yet.
    """
    fields = result_fields(node)
    values = np.clip(table, *fields["clip"]).astype(fields["output_dtype"])
    parameters = Lookup(**fields, function=function)
    return parameters.call([node.value(0), relax.const(values)], None)


def bias_without_zero_point(bias: Array, weights: Array, zero_point: int) -> Array:
    """Return a bias minus the products of weights and zero point.

    Args:
        bias: int32[n], with wrap-around, or int64[n].
    """
    totals: Array = bias.astype(np.int64) - zero_point * weights.astype(np.int64).sum(axis=1)
    return totals.astype(bias.dtype)


def smaller_than_one(factor: float, what: str) -> tuple[int, int]:
    """`QuantizeMultiplierSmallerThanOneExp`."""
    if not 0.0 < factor < 1.0:
        raise ModelError(f"{what} is {factor:.6g}, which its kernel does not take: not below 1")
    return quantize_multiplier(factor)


LEFT_SHIFT = 20
"""Bits that integers are shifted; half of that is taken back (`kAddNIntegerShift`)."""

INT32_BITS = 31


def rescaled_sum(node: TfliteNode, total: Expr, source: Scale, terms: int) -> Expr:
    """Integers of the result's scale from int32 sums of `terms` integers less zero points."""
    if (terms * source.magnitude + abs(source.zero_point)) << (LEFT_SHIFT - 1) >= 2**INT32_BITS:
        raise ModelError(
            f"sums of {terms} integers overflow the 32 bits of its kernel",
            fix="add less at a time, or leave the operator in float",
        )
    result = scale_of(node.result)
    factor = 2.0 * float(source.scale) / ((1 << LEFT_SHIFT) * float(result.scale))
    multiplier, shift = smaller_than_one(factor, "the ratio of its scales")
    fine = node.emit(relax.op.multiply(total, relax.const(np.int32(1 << (LEFT_SHIFT - 1)))))
    parameters = Requantize(
        **result_fields(node), input_zero_point=0, multiplier=multiplier,
        shift=shift,
    )  # fmt: skip
    return parameters.call([fine], None)
