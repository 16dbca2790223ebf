# SPDX-License-Identifier: Apache-2.0
"""Core ATen operators that TVM lacks or converts to something else."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
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


def _converts(names: str, arguments: str) -> Callable[[Conversion], Conversion]:
    """Register a conversion for operators, separated by spaces."""

    def register(convert: Conversion) -> Conversion:
        for name in names.split():
            CONVERTERS[name] = OperatorConverter(frozenset(arguments.split()), convert)
        return convert

    return register


def _constant(value: float, dtype: str) -> Any:
    return relax.const(np.asarray(value, dtype), dtype)


def _constants(dtype: str, *values: float) -> tuple[Any, ...]:
    return tuple(_constant(value, dtype) for value in values)


def _cast(value: Any, dtype: str) -> Any:
    return value if tvm_api.dtype_of(value) == dtype else op.astype(value, dtype)


def _operand(converter: Any, operand: Any, dtype: str) -> Any:
    """A tensor or number as a Relax expression of a dtype."""
    if isinstance(operand, torch.fx.Node):
        return _cast(converter.value(operand), dtype)
    return _constant(operand, dtype)


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
        right = _operand(converter, right, dtype)
        if given.get("alpha", 1) != 1:
            right = op.multiply(right, _constant(given["alpha"], dtype))
        return function(_operand(converter, left, dtype), right)

    return convert


_converts("add.Tensor add.Scalar", "self other alpha")(_binary(op.add))
_converts("sub.Tensor sub.Scalar", "self other alpha")(_binary(op.subtract))
_converts("mul.Tensor mul.Scalar", "self other")(_binary(op.multiply))
_converts("div.Tensor div.Scalar", "self other")(_binary(op.divide, floating=True))
_converts("maximum.default", "self other")(_binary(op.maximum))
_converts("minimum.default", "self other")(_binary(op.minimum))
_converts("eq.Tensor eq.Scalar", "self other")(_binary(op.equal))
_converts("ne.Tensor ne.Scalar", "self other")(_binary(op.not_equal))
_converts("lt.Tensor lt.Scalar", "self other")(_binary(op.less))
_converts("le.Tensor le.Scalar", "self other")(_binary(op.less_equal))
_converts("gt.Tensor gt.Scalar", "self other")(_binary(op.greater))
_converts("ge.Tensor ge.Scalar", "self other")(_binary(op.greater_equal))


@_converts("pow.Tensor_Scalar", "self exponent")
def _power(converter: Any, node: Any, given: Arguments) -> Any:
    """Whole powers are products, as torch computes them; others are of the C library."""
    shape, dtype = converter.type_of(node)
    base, exponent = _operand(converter, given["self"], dtype), given["exponent"]
    if exponent in (2, 3):
        square = op.multiply(base, base)
        return square if exponent == 2 else op.multiply(square, base)
    if not dtype.startswith("float"):
        raise converter.refuse(node, f"of integers has exponent={exponent}, not supported")
    if exponent == 0.5:
        return op.sqrt(base)
    return op.power(base, _constant(exponent, dtype))


@_converts("pow.Tensor_Tensor pow.Scalar", "self exponent")
def _general_power(converter: Any, node: Any, given: Arguments) -> Any:
    dtype = converter.type_of(node)[1]
    if not dtype.startswith("float"):
        raise converter.refuse(node, "of integers is not supported")
    return op.power(
        _operand(converter, given["self"], dtype), _operand(converter, given["exponent"], dtype)
    )


def _logical(function: Callable[..., Any]) -> Conversion:
    def convert(converter: Any, node: Any, given: Arguments) -> Any:
        operands = [given[name] for name in ("self", "other") if name in given]
        return function(*(_cast(converter.value(operand), "bool") for operand in operands))

    return convert


_converts("logical_and.default", "self other")(_logical(op.logical_and))
_converts("logical_or.default", "self other")(_logical(op.logical_or))
_converts("logical_not.default", "self")(_logical(op.logical_not))


def _bitwise(bits: Callable[..., Any], truths: Callable[..., Any]) -> Conversion:
    def convert(converter: Any, node: Any, given: Arguments) -> Any:
        dtype = converter.type_of(node)[1]
        operands = [_operand(converter, given[n], dtype) for n in ("self", "other") if n in given]
        return (truths if dtype == "bool" else bits)(*operands)

    return convert


for _suffix in ("Tensor", "Scalar"):
    _converts(f"bitwise_and.{_suffix}", "self other")(_bitwise(op.bitwise_and, op.logical_and))
    _converts(f"bitwise_or.{_suffix}", "self other")(_bitwise(op.bitwise_or, op.logical_or))
    _converts(f"bitwise_xor.{_suffix}", "self other")(_bitwise(op.bitwise_xor, op.logical_xor))
_converts("bitwise_not.default", "self")(_bitwise(op.bitwise_not, op.logical_not))


# --- activations ----------------------------------------------------------------------------------


@_converts("clamp.default", "self min max")
def _clamp(converter: Any, node: Any, given: Arguments) -> Any:
    return _clipped(converter, node, given["self"], given["min"], given["max"])


@_converts("hardtanh.default", "self min_val max_val")
def _hardtanh(converter: Any, node: Any, given: Arguments) -> Any:
    return _clipped(converter, node, given["self"], given["min_val"], given["max_val"])


def _clipped(converter: Any, node: Any, source: Any, least: Any, most: Any) -> Any:
    dtype = converter.type_of(node)[1]
    value = _operand(converter, source, dtype)
    if (least, most) == (0, None):
        return op.nn.relu(value)
    if least is not None and most is not None and least <= most:
        return op.clip(value, least, most)
    if least is not None:
        value = op.maximum(value, _constant(least, dtype))
    return value if most is None else op.minimum(value, _constant(most, dtype))


def _expm1(value: Any, dtype: str) -> Any:
    """exp(x) - 1 without cancellation: (u - 1) * x / log(u) with u = exp(x), by W. Kahan."""
    one, shifted = _constant(1, dtype), op.exp(value)
    less = op.subtract(shifted, one)
    exact = op.multiply(less, op.divide(value, op.log(shifted)))
    plain = op.logical_or(op.less(less, _constant(-0.5, dtype)),
                          op.greater(less, _constant(1, dtype)))  # fmt: skip
    return op.where(op.equal(shifted, one), value, op.where(plain, less, exact))


@_converts("expm1.default", "self")
def _convert_expm1(converter: Any, node: Any, given: Arguments) -> Any:
    dtype = converter.type_of(node)[1]
    return _expm1(_operand(converter, given["self"], dtype), dtype)


@_converts("log1p.default", "self")
def _log1p(converter: Any, node: Any, given: Arguments) -> Any:
    """log(1 + x) is 2 artanh(x / (x + 2)), which loses nothing where x is small.

    Kahan's formula does not do here: TVM simplifies (1 + x) - 1 to x.
    """
    dtype = converter.type_of(node)[1]
    value, one, two = _operand(converter, given["self"], dtype), *_constants(dtype, 1, 2)
    small = op.multiply(two, op.atanh(op.divide(value, op.add(value, two))))
    is_small = op.less(op.abs(value), _constant(0.5, dtype))
    return op.where(is_small, small, op.log(op.add(value, one)))


@_converts("elu.default", "self alpha scale input_scale")
def _elu(converter: Any, node: Any, given: Arguments) -> Any:
    dtype = converter.type_of(node)[1]
    value = _operand(converter, given["self"], dtype)
    scaled = value
    if given["input_scale"] != 1:
        scaled = op.multiply(value, _constant(given["input_scale"], dtype))
    below = op.multiply(
        _expm1(scaled, dtype), _constant(np.float32(given["alpha"] * given["scale"]), dtype)
    )
    above = value
    if given["scale"] != 1:
        above = op.multiply(value, _constant(given["scale"], dtype))
    return op.where(op.greater(value, _constant(0, dtype)), above, below)


# --- reductions -----------------------------------------------------------------------------------


def _axes(given: Arguments) -> list[int] | None:
    """The dimensions that a reduction goes over; None for all."""
    dims = given.get("dim")
    if isinstance(dims, int):
        return [dims]
    return [int(dim) for dim in dims] if dims else None


def _reduction(function: Callable[..., Any]) -> Conversion:
    def convert(converter: Any, node: Any, given: Arguments) -> Any:
        dtype = converter.type_of(node)[1]
        value = _operand(converter, given["self"], dtype)
        return function(value, _axes(given), keepdims=bool(given.get("keepdim")))

    return convert


_converts("mean.dim mean.default", "self dim keepdim dtype")(_reduction(op.mean))
_converts("sum.dim_IntList sum.default", "self dim keepdim dtype")(_reduction(op.sum))
_converts("amax.default", "self dim keepdim")(_reduction(op.max))
_converts("amin.default", "self dim keepdim")(_reduction(op.min))


@_converts("any.dim any.default any.dims", "self dim keepdim")
def _any(converter: Any, node: Any, given: Arguments) -> Any:
    truth = op.astype(_cast(converter.value(given["self"]), "bool"), "int32")
    return op.astype(op.max(truth, _axes(given), keepdims=bool(given.get("keepdim"))), "bool")


def _moments(value: Any, axes: Sequence[int], builder: Any) -> tuple[Any, Any]:
    """Difference to the mean, and mean of its square, over axes that are kept."""
    centred = builder.emit(op.subtract(value, op.mean(value, list(axes), keepdims=True)))
    return centred, op.mean(op.multiply(centred, centred), list(axes), keepdims=True)


@_converts("var.correction", "self dim correction keepdim")
def _variance(converter: Any, node: Any, given: Arguments) -> Any:
    shape, dtype = converter.type_of(given["self"])
    axes = _axes(given) or list(range(len(shape)))
    count = math.prod(shape[axis] for axis in axes)
    correction = 1 if given["correction"] is None else given["correction"]
    if count <= correction:
        raise converter.refuse(node, f"divides by zero: correction={correction} of {count} values")
    value = converter.value(given["self"])
    variance = _moments(value, axes, converter.block_builder)[1]
    if correction:
        variance = op.multiply(variance, _constant(count / (count - correction), dtype))
    return op.reshape(variance, converter.type_of(node)[0])


@_converts("linalg_vector_norm.default", "self ord dim keepdim")
def _vector_norm(converter: Any, node: Any, given: Arguments) -> Any:
    value, keep = converter.value(given["self"]), bool(given["keepdim"])
    if given["ord"] == 1:
        return op.sum(op.abs(value), _axes(given), keepdims=keep)
    if given["ord"] == math.inf:
        return op.max(op.abs(value), _axes(given), keepdims=keep)
    if given["ord"] != 2:
        raise converter.refuse(node, f"has ord={given['ord']}, which is not supported")
    return op.sqrt(op.sum(op.multiply(value, value), _axes(given), keepdims=keep))


# --- normalizations -------------------------------------------------------------------------------


def _standardized(value: Any, axes: Sequence[int], epsilon: float, converter: Any) -> Any:
    centred, variance = _moments(value, axes, converter.block_builder)
    dtype = tvm_api.dtype_of(value)
    deviation = op.sqrt(op.add(variance, _constant(epsilon, dtype)))
    return op.divide(centred, deviation)


def _scaled(value: Any, converter: Any, given: Arguments, shape: Sequence[int]) -> Any:
    """Times weight plus bias, each in a shape that broadcasts."""
    for name, function in (("weight", op.multiply), ("bias", op.add)):
        if given.get(name) is not None:
            value = function(value, op.reshape(converter.value(given[name]), list(shape)))
    return value


@_converts("native_layer_norm.default", "input normalized_shape weight bias eps")
def _layer_norm(converter: Any, node: Any, given: Arguments) -> Any:
    inner = list(given["normalized_shape"])
    value = converter.value(given["input"])
    value = _standardized(value, range(-len(inner), 0), given["eps"], converter)
    return _scaled(value, converter, given, inner)


@_converts("native_group_norm.default", "input weight bias N C HxW group eps")
def _group_norm(converter: Any, node: Any, given: Arguments) -> Any:
    shape = converter.type_of(given["input"])[0]
    grouped = op.reshape(converter.value(given["input"]), [given["N"], given["group"], -1])
    value = op.reshape(_standardized(grouped, [2], given["eps"], converter), list(shape))
    return _scaled(value, converter, given, [-1, *[1] * (len(shape) - 2)])


@_converts("_native_batch_norm_legit.no_stats", "input weight bias training momentum eps")
def _statistics_norm(converter: Any, node: Any, given: Arguments) -> Any:
    if not given["training"]:
        raise converter.refuse(node, "has no statistics")
    rank = len(converter.type_of(given["input"])[0])
    axes = [0, *range(2, rank)]
    value = _standardized(converter.value(given["input"]), axes, given["eps"], converter)
    return _scaled(value, converter, given, [-1, *[1] * (rank - 2)])


@_converts(
    "_native_batch_norm_legit_no_training.default",
    "input weight bias running_mean running_var momentum eps",
)
def _batch_norm(converter: Any, node: Any, given: Arguments) -> Any:
    """input * alpha + beta with per-channel constants, which is how torch computes it too."""
    shape, dtype = converter.type_of(given["input"])
    known: dict[str, Any] = {"weight": np.float64(1), "bias": np.float64(0)}
    for name in ("weight", "bias", "running_mean", "running_var"):
        if given[name] is not None:
            value = converter.fake(given[name])
            if converter.depends_on_inputs(given[name]):
                raise converter.refuse(node, f"has a {name} that is computed from the inputs")
            known[name] = value.detach().double().numpy()
    alpha = known["weight"] / np.sqrt(known["running_var"] + given["eps"])
    beta = known["bias"] - known["running_mean"] * alpha
    per_channel = [shape[1], *[1] * (len(shape) - 2)]
    factor, offset = (relax.const(v.reshape(per_channel).astype(dtype), dtype)
                      for v in (alpha, beta))  # fmt: skip
    return op.add(op.multiply(converter.value(given["input"]), factor), offset)


# --- pools and products ---------------------------------------------------------------------------


def _average_pool(rank: int) -> Conversion:
    function = getattr(op.nn, f"avg_pool{rank}d")

    def convert(converter: Any, node: Any, given: Arguments) -> Any:
        if given["ceil_mode"] and any(given["padding"]):
            raise converter.refuse(node, "has ceil_mode with padding, which is not supported")
        shape = converter.type_of(given["self"])[0]
        value = converter.value(given["self"])
        batched = value if len(shape) == rank + 2 else op.expand_dims(value, 0)
        pooled = function(
            batched,
            pool_size=list(given["kernel_size"]),
            strides=list(given["stride"] or given["kernel_size"]),
            padding=list(given["padding"]),
            ceil_mode=bool(given["ceil_mode"]),
            # Beyond the edge of ceil_mode lie no zeros that count.
            count_include_pad=bool(given["count_include_pad"]) and not given["ceil_mode"],
        )
        return pooled if batched is value else op.squeeze(pooled, [0])

    return convert


POOL_ARGUMENTS = "self kernel_size stride padding ceil_mode count_include_pad"
_converts("avg_pool2d.default", POOL_ARGUMENTS)(_average_pool(2))
_converts("avg_pool3d.default", POOL_ARGUMENTS)(_average_pool(3))


@_converts("mm.default bmm.default", "self mat2")
def _product(converter: Any, node: Any, given: Arguments) -> Any:
    return op.matmul(converter.value(given["self"]), converter.value(given["mat2"]))


@_converts("addmm.default", "self mat1 mat2 alpha beta")
def _add_product(converter: Any, node: Any, given: Arguments) -> Any:
    return _affine(converter, node, given, "mat1", "mat2")


@_converts("baddbmm.default", "self batch1 batch2 alpha beta")
def _add_batched_product(converter: Any, node: Any, given: Arguments) -> Any:
    return _affine(converter, node, given, "batch1", "batch2")


def _affine(converter: Any, node: Any, given: Arguments, left: str, right: str) -> Any:
    """beta * self + alpha * (left @ right); with beta = 0 whatever self holds is ignored."""
    dtype = converter.type_of(node)[1]
    result = op.matmul(converter.value(given[left]), converter.value(given[right]))
    if given["alpha"] != 1:
        result = op.multiply(result, _constant(given["alpha"], dtype))
    if given["beta"] == 0:
        return result
    bias = converter.value(given["self"])
    if given["beta"] != 1:
        bias = op.multiply(bias, _constant(given["beta"], dtype))
    return op.add(result, bias)


# --- shapes, copies -------------------------------------------------------------------------------


@_converts("squeeze.dims squeeze.dim squeeze.default _unsafe_view.default", "self dim size")
def _reshape(converter: Any, node: Any, given: Arguments) -> Any:
    return op.reshape(converter.value(given["self"]), list(converter.type_of(node)[0]))


@_converts("select.int", "self dim index")
def _select(converter: Any, node: Any, given: Arguments) -> Any:
    """One slice of a dimension; TVM's converter reads before the tensor for index -1."""
    sizes = converter.type_of(given["self"])[0]
    axis, index = given["dim"] % len(sizes), given["index"] % sizes[given["dim"]]
    part = op.strided_slice(converter.value(given["self"]), [axis], [index], [index + 1])
    return op.reshape(part, list(converter.type_of(node)[0]))


@_converts("embedding.default", "weight indices padding_idx scale_grad_by_freq sparse")
def _embedding(converter: Any, node: Any, given: Arguments) -> Any:
    """Rows by number; a number that has no row reads the nearest one, not beyond the table."""
    rows = converter.value(given["indices"])
    return op.take(converter.value(given["weight"]), rows, axis=0, mode="clip")


@_converts("index_select.default", "self dim index")
def _index_select(converter: Any, node: Any, given: Arguments) -> Any:
    axis = given["dim"] % len(converter.type_of(given["self"])[0])
    index = converter.value(given["index"])
    return op.take(converter.value(given["self"]), index, axis=axis, mode="clip")


@_converts("index.Tensor", "self indices")
def _index(converter: Any, node: Any, given: Arguments) -> Any:
    """Elements of one dimension by number, counted from the end where it is negative."""
    used = [(axis, index) for axis, index in enumerate(given["indices"]) if index is not None]
    (axis, index), several = used[0], used[1:]
    dtype = converter.type_of(index)[1]
    if several or dtype not in ("int32", "int64"):
        raise converter.refuse(node, "has an index other than one tensor of integers")
    size = _constant(converter.type_of(given["self"])[0][axis], dtype)
    numbers = converter.value(index)
    numbers = op.where(op.less(numbers, _constant(0, dtype)), op.add(numbers, size), numbers)
    return op.take(converter.value(given["self"]), numbers, axis=axis, mode="clip")


@_converts("clone.default alias.default detach.default lift_fresh_copy.default", "self")
def _same(converter: Any, node: Any, given: Arguments) -> Any:
    return converter.value(given["self"])


@_converts("_to_copy.default", "self dtype")
def _to_copy(converter: Any, node: Any, given: Arguments) -> Any:
    return _cast(converter.value(given["self"]), converter.type_of(node)[1])


@_converts("full_like.default", "self fill_value dtype")
def _full_like(converter: Any, node: Any, given: Arguments) -> Any:
    shape, dtype = converter.type_of(node)
    return relax.const(np.full(shape, given["fill_value"], dtype), dtype)
