# SPDX-License-Identifier: Apache-2.0
"""Parameters of activation functions, derived from scales and zero points.

The formulas are those of the kernels that `activation_tables` and `tables_of_16_bits` name, of
`leaky_relu_common.cc`, `prelu_common.cc` and `softmax_common.cc`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from umakit import tvm_api
from umakit.operators.lookup import Lookup
from umakit.operators.numeric.fixed_point import Arithmetic
from umakit.operators.tables import activations as activation_tables
from umakit.operators.tables import sixteen_bits as tables_of_16_bits
from umakit.operators.tables.exponentials import exponential_table
from umakit.operators.tensors import Array, NotAnIsland, Quantized, Scale
from umakit.quantization import parameters
from umakit.quantization.further_operators import Prelu, SigmoidLookup, SoftmaxLookup
from umakit.quantization.further_parameters import check_tflm
from umakit.quantization.operators import Softmax
from umakit.quantization.parameters import Result

TOLERANCE_OF_SCALES = 1e-3
"""Relative, of softmax's result of 16 bits (`softmax_common.cc`)."""

LARGEST_DIFFERENCE = 65535
"""Of two integers of 16 bits."""

LONGEST_ROW = 65535
"""Of a softmax of 16 bits, whose exponentials are added in 31."""


def activation(name: str, result: Result, source: Quantized, rounding: Arithmetic) -> Any:
    """A call of an activation function.

    Args:
        name: of `ACTIVATIONS`.
        result: of the function.
        source: its only operand.
        rounding: of the result.

    Raises:
        NotAnIsland: other results than TensorFlow Lite Micro's are wanted, or scales or dtypes
            that its kernel does not take.
    """
    check_tflm(rounding)
    dtypes = {source.scale.dtype, result.scale.dtype}
    try:
        if dtypes == {"int16"} and name in WIDE_ACTIVATIONS:
            return WIDE_ACTIVATIONS[name](result, source, rounding)
        if dtypes in ({"int8"}, {"uint8"}):
            return _lookup(name, result, source, rounding)
    except ValueError as error:
        raise NotAnIsland(str(error)) from None
    raise NotAnIsland(f"there is no {name} of {source.scale.dtype} to {result.scale.dtype}")


def _lookup(name: str, result: Result, source: Quantized, rounding: Arithmetic) -> Any:
    """A function of 8 bits; one of uint8 is that of int8, 128 higher."""
    offset = 128 if result.scale.dtype == "uint8" else 0
    scales = [replace(scale, zero_point=scale.zero_point - offset, dtype="int8")
              for scale in (source.scale, result.scale)]  # fmt: skip
    table = ACTIVATIONS[name](result.call, *scales).astype(np.int32) + offset
    constant = tvm_api.relax.const(np.clip(table, *result.clip).astype(result.scale.dtype))
    known = Lookup(**result.common(rounding), function=name)
    return known.call([source.integers, constant], result.span)


def prelu(result: Result, source: Quantized, slopes: Quantized, rounding: Arithmetic) -> Any:
    """A `quantized.prelu` call.

    Raises:
        NotAnIsland: other results than TensorFlow Lite Micro's are wanted, or scales that
            integers cannot express.
    """
    check_tflm(rounding)
    if slopes.scale.dtype != ("int8" if source.scale.dtype == "int16" else source.scale.dtype):
        raise NotAnIsland(f"its slopes are {slopes.scale.dtype}")
    ratio = float(source.scale.scale) / float(result.scale.scale)
    product = float(source.scale.scale) * float(slopes.scale.scale) / float(result.scale.scale)
    scaled = parameters.fixed_points([ratio, product])
    largest = source.scale.magnitude
    for magnitude, shift in zip(
        (largest, largest * slopes.scale.magnitude), scaled.shifts, strict=True
    ):
        parameters.check_headroom(magnitude, int(shift), rounding)
    known = Prelu(
        **result.common(rounding),
        zero_points=(source.scale.zero_point, slopes.scale.zero_point),
        multipliers=_two(scaled.multipliers),
        shifts=_two(scaled.shifts),
    )
    return known.call([source.integers, slopes.integers], result.span)


def softmax(result: Result, source: Quantized, rounding: Arithmetic) -> Any:
    """A softmax over the last axis, of 8 or 16 bits.

    Raises:
        NotAnIsland: another axis, or a scale that the kernel does not take.
    """
    shape = result.shape
    if int(result.call.attrs.axis) not in (-1, len(shape) - 1):
        raise NotAnIsland("softmax is not over the last axis")
    if source.scale.dtype == "int16":
        return _softmax_of_16_bits(result, source, rounding)
    low, _ = result.scale.limits
    scale = 1 / 65536 if result.scale.dtype == "int16" else 1 / 256
    if not _near(result.scale, scale) or result.scale.zero_point != low:
        raise NotAnIsland(f"softmax's result has a scale other than 1/{1 / scale:.0f}")
    try:
        table = exponential_table(float(source.scale.scale))
    except ValueError as error:
        raise NotAnIsland(str(error)) from None
    known = Softmax(**result.common(rounding))
    return known.call([source.integers, tvm_api.relax.const(table)], result.span)


def _softmax_of_16_bits(result: Result, source: Quantized, rounding: Arithmetic) -> Any:
    check_tflm(rounding)
    if result.scale.dtype != "int16" or not _near(result.scale, 1 / 32768):
        raise NotAnIsland("softmax's result has a scale other than 1/32768")
    if result.shape[-1] > LONGEST_ROW:
        raise NotAnIsland(f"softmax is over {result.shape[-1]} elements")
    # 65535 steps of the table are 10.
    scaled = parameters.fixed_points([float(source.scale.scale) / (10.0 / 65535.0)])
    parameters.check_headroom(LARGEST_DIFFERENCE, int(scaled.shifts[0]), rounding)
    known = SoftmaxLookup(
        **result.common(rounding),
        multiplier=int(scaled.multipliers[0]),
        shift=int(scaled.shifts[0]),
    )
    tables = [tvm_api.relax.const(table) for table in tables_of_16_bits.softmax_tables()]
    return known.call([source.integers, *tables], result.span)


def _near(scale: Scale, wanted: float) -> bool:
    """Whether a scale is the wanted one; of 16 bits, about so."""
    if scale.dtype == "int16":
        return abs(float(scale.scale) - wanted) <= TOLERANCE_OF_SCALES * wanted
    return bool(scale.scale == np.float32(wanted))


def _two(values: Array) -> tuple[int, int]:
    return int(values[0]), int(values[1])


# --- functions of 16 bits -----------------------------------------------------------------------


def _sigmoid_lookup(name: str, result: Result, source: Quantized, rounding: Arithmetic) -> Any:
    if tables_of_16_bits.power_of_two(float(result.scale.scale)) != -15:
        raise NotAnIsland(f"its result has another scale than {2.0**-15}")
    multiplier, shift = tables_of_16_bits.sigmoid_argument(
        float(source.scale.scale), tanh=name == "tanh"
    )
    known = SigmoidLookup(
        **result.common(rounding), function=name, multiplier=multiplier, shift=shift
    )
    table = tvm_api.relax.const(tables_of_16_bits.sigmoid_table(), "uint16")
    return known.call([source.integers, table], result.span)


WIDE_ACTIVATIONS: dict[str, Callable[[Result, Quantized, Arithmetic], Any]] = {
    "logistic": partial(_sigmoid_lookup, "logistic"),
    "tanh": partial(_sigmoid_lookup, "tanh"),
}
"""Functions of int16 by name."""


# --- functions of 8 bits ------------------------------------------------------------------------


def _logistic(call: Any, source: Scale, result: Scale) -> Array:
    _check_fixed(result, 1 / 256, -128)
    return activation_tables.logistic_table(source)


def _tanh(call: Any, source: Scale, result: Scale) -> Array:
    _check_fixed(result, 1 / 128, 0)
    return activation_tables.tanh_table(source)


def _check_fixed(result: Scale, scale: float, zero_point: int) -> None:
    if result.scale != np.float32(scale) or result.zero_point != zero_point:
        raise NotAnIsland(
            f"its result has another scale than {scale} or another zero point than {zero_point}"
        )


def _hard_swish(call: Any, source: Scale, result: Scale) -> Array:
    return activation_tables.hard_swish_table(source, result)


def _elu(call: Any, source: Scale, result: Scale) -> Array:
    return activation_tables.elu_table(source, result)


ACTIVATIONS: dict[str, Callable[[Any, Scale, Scale], Array]] = {
    "logistic": _logistic,
    "tanh": _tanh,
    "hard_swish": _hard_swish,
    "elu": _elu,
}
"""Tables int8[256] by name, from a call at the end of an island and scales of int8."""

NAMES = {"sigmoid": "logistic", "tanh": "tanh"}
"""Names by the operator at the end of an island, where one operator is the function."""
