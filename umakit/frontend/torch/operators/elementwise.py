# SPDX-License-Identifier: Apache-2.0
"""Core ATen operators that TVM lacks or converts to something else: elementwise, movements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from umakit import tvm_api

relax = tvm_api.relax
op = relax.op

Arguments = Mapping[str, Any]
Conversion = Callable[[Any, Any, Arguments], Any]


@dataclass(frozen=True)
class OperatorConverter:
    """How an operator is converted.

    Attributes:
        arguments: names of the arguments that are looked at; others must have their defaults.
        convert: (the `Converter`, node, arguments by name) -> Relax expression.
    """

    arguments: frozenset[str]
    convert: Conversion


CONVERTERS: dict[str, OperatorConverter] = {}
"""By name with overload, such as `add.Tensor`."""


def converts(names: str, arguments: str) -> Callable[[Conversion], Conversion]:
    """Register a conversion for operators, separated by spaces."""

    def register(convert: Conversion) -> Conversion:
        for name in names.split():
            CONVERTERS[name] = OperatorConverter(frozenset(arguments.split()), convert)
        return convert

    return register


def constant(value: float, dtype: str) -> Any:
    """A number as a Relax constant."""
    return relax.const(np.asarray(value, dtype), dtype)


def constants(dtype: str, *values: float) -> tuple[Any, ...]:
    """Numbers as Relax constants of one dtype."""
    return tuple(constant(value, dtype) for value in values)


def cast(value: Any, dtype: str) -> Any:
    """A Relax expression in a dtype."""
    return value if tvm_api.dtype_of(value) == dtype else op.astype(value, dtype)


def operand(converter: Any, operand: Any, dtype: str) -> Any:
    """A tensor or number as a Relax expression of a dtype."""
    if isinstance(operand, torch.fx.Node):
        return cast(converter.value(operand), dtype)
    return constant(operand, dtype)


def _common_dtype(converter: Any, node: Any, *operands: Any) -> str:
    """The dtype in which torch combines tensors and numbers."""
    values = [converter.fake(o) if isinstance(o, torch.fx.Node) else o for o in operands]
    return str(converter.dtype(torch.result_type(*values), node))


# --- arithmetic -----------------------------------------------------------------------------------


def _binary(function: Callable[[Any, Any], Any], *, floating: bool = False) -> Conversion:
    def convert(converter: Any, node: Any, given: Arguments) -> Any:
        left, right = given["self"], given.get("other", given.get("exponent"))
        dtype = _common_dtype(converter, node, left, right)
        if floating:
            dtype = converter.type_of(node)[1]
        right = operand(converter, right, dtype)
        if given.get("alpha", 1) != 1:
            right = op.multiply(right, constant(given["alpha"], dtype))
        return function(operand(converter, left, dtype), right)

    return convert


converts("add.Tensor add.Scalar", "self other alpha")(_binary(op.add))
converts("sub.Tensor sub.Scalar", "self other alpha")(_binary(op.subtract))
converts("mul.Tensor mul.Scalar", "self other")(_binary(op.multiply))
converts("div.Tensor div.Scalar", "self other")(_binary(op.divide, floating=True))
converts("maximum.default", "self other")(_binary(op.maximum))
converts("minimum.default", "self other")(_binary(op.minimum))
converts("eq.Tensor eq.Scalar", "self other")(_binary(op.equal))
converts("ne.Tensor ne.Scalar", "self other")(_binary(op.not_equal))
converts("lt.Tensor lt.Scalar", "self other")(_binary(op.less))
converts("le.Tensor le.Scalar", "self other")(_binary(op.less_equal))
converts("gt.Tensor gt.Scalar", "self other")(_binary(op.greater))
converts("ge.Tensor ge.Scalar", "self other")(_binary(op.greater_equal))


@converts("pow.Tensor_Scalar", "self exponent")
def _power(converter: Any, node: Any, given: Arguments) -> Any:
    """Whole powers are products, as torch computes them; others are of the C library."""
    dtype = converter.type_of(node)[1]
    base, exponent = operand(converter, given["self"], dtype), given["exponent"]
    if exponent in (2, 3):
        square = op.multiply(base, base)
        return square if exponent == 2 else op.multiply(square, base)
    if not dtype.startswith("float"):
        raise converter.refuse(node, f"of integers has exponent={exponent}, not supported")
    if exponent == 0.5:
        return op.sqrt(base)
    return op.power(base, constant(exponent, dtype))


@converts("pow.Tensor_Tensor pow.Scalar", "self exponent")
def _general_power(converter: Any, node: Any, given: Arguments) -> Any:
    dtype = converter.type_of(node)[1]
    if not dtype.startswith("float"):
        raise converter.refuse(node, "of integers is not supported")
    return op.power(
        operand(converter, given["self"], dtype), operand(converter, given["exponent"], dtype)
    )


def _logical(function: Callable[..., Any]) -> Conversion:
    def convert(converter: Any, node: Any, given: Arguments) -> Any:
        operands = [given[name] for name in ("self", "other") if name in given]
        return function(*(cast(converter.value(operand), "bool") for operand in operands))

    return convert


converts("logical_and.default", "self other")(_logical(op.logical_and))
converts("logical_or.default", "self other")(_logical(op.logical_or))
converts("logical_not.default", "self")(_logical(op.logical_not))


def _bitwise(bits: Callable[..., Any], truths: Callable[..., Any]) -> Conversion:
    def convert(converter: Any, node: Any, given: Arguments) -> Any:
        dtype = converter.type_of(node)[1]
        operands = [operand(converter, given[n], dtype) for n in ("self", "other") if n in given]
        return (truths if dtype == "bool" else bits)(*operands)

    return convert


for _suffix in ("Tensor", "Scalar"):
    converts(f"bitwise_and.{_suffix}", "self other")(_bitwise(op.bitwise_and, op.logical_and))
    converts(f"bitwise_or.{_suffix}", "self other")(_bitwise(op.bitwise_or, op.logical_or))
    converts(f"bitwise_xor.{_suffix}", "self other")(_bitwise(op.bitwise_xor, op.logical_xor))
converts("bitwise_not.default", "self")(_bitwise(op.bitwise_not, op.logical_not))


# --- activations ----------------------------------------------------------------------------------


@converts("clamp.default", "self min max")
def _clamp(converter: Any, node: Any, given: Arguments) -> Any:
    return _clipped(converter, node, given["self"], given["min"], given["max"])


@converts("hardtanh.default", "self min_val max_val")
def _hardtanh(converter: Any, node: Any, given: Arguments) -> Any:
    return _clipped(converter, node, given["self"], given["min_val"], given["max_val"])


def _clipped(converter: Any, node: Any, source: Any, least: Any, most: Any) -> Any:
    dtype = converter.type_of(node)[1]
    value = operand(converter, source, dtype)
    if (least, most) == (0, None):
        return op.nn.relu(value)
    if least is not None and most is not None and least <= most:
        return op.clip(value, least, most)
    if least is not None:
        value = op.maximum(value, constant(least, dtype))
    return value if most is None else op.minimum(value, constant(most, dtype))


def _expm1(value: Any, dtype: str) -> Any:
    """exp(x) - 1 without cancellation: (u - 1) * x / log(u) with u = exp(x), by W. Kahan."""
    one, shifted = constant(1, dtype), op.exp(value)
    less = op.subtract(shifted, one)
    exact = op.multiply(less, op.divide(value, op.log(shifted)))
    plain = op.logical_or(op.less(less, constant(-0.5, dtype)),
                          op.greater(less, constant(1, dtype)))  # fmt: skip
    return op.where(op.equal(shifted, one), value, op.where(plain, less, exact))


@converts("expm1.default", "self")
def _convert_expm1(converter: Any, node: Any, given: Arguments) -> Any:
    dtype = converter.type_of(node)[1]
    return _expm1(operand(converter, given["self"], dtype), dtype)


@converts("log1p.default", "self")
def _log1p(converter: Any, node: Any, given: Arguments) -> Any:
    """log(1 + x) is 2 artanh(x / (x + 2)), which loses nothing where x is small.

    Kahan's formula does not do here: TVM simplifies (1 + x) - 1 to x.
    """
    dtype = converter.type_of(node)[1]
    value, one, two = operand(converter, given["self"], dtype), *constants(dtype, 1, 2)
    small = op.multiply(two, op.atanh(op.divide(value, op.add(value, two))))
    is_small = op.less(op.abs(value), constant(0.5, dtype))
    return op.where(is_small, small, op.log(op.add(value, one)))


@converts("elu.default", "self alpha scale input_scale")
def _elu(converter: Any, node: Any, given: Arguments) -> Any:
    dtype = converter.type_of(node)[1]
    value = operand(converter, given["self"], dtype)
    scaled = value
    if given["input_scale"] != 1:
        scaled = op.multiply(value, constant(given["input_scale"], dtype))
    below = op.multiply(_expm1(scaled, dtype), constant(given["alpha"] * given["scale"], dtype))
    above = value
    if given["scale"] != 1:
        above = op.multiply(value, constant(given["scale"], dtype))
    return op.where(op.greater(value, constant(0, dtype)), above, below)


# --- shapes, copies -------------------------------------------------------------------------------


@converts("squeeze.dims squeeze.dim squeeze.default _unsafe_view.default", "self dim size")
def _reshape(converter: Any, node: Any, given: Arguments) -> Any:
    return op.reshape(converter.value(given["self"]), list(converter.type_of(node)[0]))


@converts("select.int", "self dim index")
def _select(converter: Any, node: Any, given: Arguments) -> Any:
    """One slice of a dimension; TVM's converter reads before the tensor for index -1."""
    sizes = converter.type_of(given["self"])[0]
    axis, index = given["dim"] % len(sizes), given["index"] % sizes[given["dim"]]
    part = op.strided_slice(converter.value(given["self"]), [axis], [index], [index + 1])
    return op.reshape(part, list(converter.type_of(node)[0]))


@converts("sign.default", "self")
def _sign(converter: Any, node: Any, given: Arguments) -> Any:
    """The sign, which torch has as (0 < x) - (x < 0): 0 for NaN."""
    dtype = converter.type_of(node)[1]
    value = operand(converter, given["self"], dtype)
    sign = op.sign(value)
    if not dtype.startswith("float"):
        return sign
    return op.where(op.isnan(value), constant(0, dtype), sign)


@converts("embedding.default", "weight indices padding_idx scale_grad_by_freq sparse")
def _embedding(converter: Any, node: Any, given: Arguments) -> Any:
    """Rows by number, which is never negative."""
    rows = converter.value(given["indices"])
    _check_constant(converter, node, rows, (0, converter.type_of(given["weight"])[0][0]))
    return op.take(converter.value(given["weight"]), rows, axis=0, mode="fast")


def _check_constant(converter: Any, node: Any, index: Any, limits: tuple[int, int]) -> None:
    """Refuse a constant index that is not from the first limit to below the second one.

    Others are checked in C.
    """
    values = tvm_api.constant_array(index)
    if values is None or not values.size:
        return
    least, end = limits
    outside = values[(values < least) | (values >= end)]
    if outside.size:
        raise converter.refuse(
            node,
            f"has the index {outside.reshape(-1)[0]}, which is out of range for a size of {end}",
            "mend the constant indices in the model",
        )


@converts("index_select.default", "self dim index")
def _index_select(converter: Any, node: Any, given: Arguments) -> Any:
    axis = given["dim"] % len(converter.type_of(given["self"])[0])
    index = converter.value(given["index"])
    _check_constant(converter, node, index, (0, converter.type_of(given["self"])[0][axis]))
    return op.take(converter.value(given["self"]), index, axis=axis, mode="fast")


@converts("index.Tensor", "self indices")
def _index(converter: Any, node: Any, given: Arguments) -> Any:
    """Elements of one dimension by number, counted from the end where it is negative."""
    used = [(axis, index) for axis, index in enumerate(given["indices"]) if index is not None]
    (axis, index), several = used[0], used[1:]
    dtype = converter.type_of(index)[1]
    if several or dtype not in ("int32", "int64"):
        raise converter.refuse(node, "has an index other than one tensor of integers")
    extent = converter.type_of(given["self"])[0][axis]
    size = constant(extent, dtype)
    numbers = converter.value(index)
    _check_constant(converter, node, numbers, (-extent, extent))
    numbers = op.where(op.less(numbers, constant(0, dtype)), op.add(numbers, size), numbers)
    return op.take(converter.value(given["self"]), numbers, axis=axis, mode="fast")


@converts("clone.default alias.default detach.default lift_fresh_copy.default", "self")
def _same(converter: Any, node: Any, given: Arguments) -> Any:
    return converter.value(given["self"])


@converts("_to_copy.default", "self dtype")
def _to_copy(converter: Any, node: Any, given: Arguments) -> Any:
    return cast(converter.value(given["self"]), converter.type_of(node)[1])


@converts("full_like.default", "self fill_value dtype")
def _full_like(converter: Any, node: Any, given: Arguments) -> Any:
    shape, dtype = converter.type_of(node)
    return relax.const(np.full(shape, given["fill_value"], dtype), dtype)
