# SPDX-License-Identifier: Apache-2.0
"""Core ATen operators that TVM lacks or converts to something else: the layers of a network."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from umakit import tvm_api
from umakit.frontend.torch.operators.elementwise import (
    Arguments,
    Conversion,
    cast,
    constant,
    converts,
    op,
    operand,
    relax,
)
from umakit.frontend.torch.quantization import in_front_of_dequantize

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
        value = operand(converter, given["self"], dtype)
        return function(value, _axes(given), keepdims=bool(given.get("keepdim")))

    return convert


converts("mean.dim mean.default", "self dim keepdim dtype")(_reduction(op.mean))
converts("sum.dim_IntList sum.default", "self dim keepdim dtype")(_reduction(op.sum))
converts("amax.default", "self dim keepdim")(_reduction(op.max))
converts("amin.default", "self dim keepdim")(_reduction(op.min))


@converts("any.dim any.default any.dims", "self dim keepdim")
def _any(converter: Any, node: Any, given: Arguments) -> Any:
    truth = op.astype(cast(converter.value(given["self"]), "bool"), "int32")
    return op.astype(op.max(truth, _axes(given), keepdims=bool(given.get("keepdim"))), "bool")


def _moments(value: Any, axes: Sequence[int], builder: Any) -> tuple[Any, Any]:
    """Difference to the mean, and mean of its square, over axes that are kept."""
    centred = builder.emit(op.subtract(value, op.mean(value, list(axes), keepdims=True)))
    return centred, op.mean(op.multiply(centred, centred), list(axes), keepdims=True)


@converts("var.correction", "self dim correction keepdim")
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
        variance = op.multiply(variance, constant(count / (count - correction), dtype))
    return op.reshape(variance, converter.type_of(node)[0])


@converts("linalg_vector_norm.default", "self ord dim keepdim")
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
    deviation = op.sqrt(op.add(variance, constant(epsilon, dtype)))
    return op.divide(centred, deviation)


def _scaled(value: Any, converter: Any, given: Arguments, shape: Sequence[int]) -> Any:
    """Times weight plus bias, each in a shape that broadcasts."""
    for name, function in (("weight", op.multiply), ("bias", op.add)):
        if given.get(name) is not None:
            value = function(value, op.reshape(converter.value(given[name]), list(shape)))
    return value


@converts("native_layer_norm.default", "input normalized_shape weight bias eps")
def _layer_norm(converter: Any, node: Any, given: Arguments) -> Any:
    inner = list(given["normalized_shape"])
    value = converter.value(given["input"])
    value = _standardized(value, range(-len(inner), 0), given["eps"], converter)
    return _scaled(value, converter, given, inner)


@converts("native_group_norm.default", "input weight bias N C HxW group eps")
def _group_norm(converter: Any, node: Any, given: Arguments) -> Any:
    shape = converter.type_of(given["input"])[0]
    grouped = op.reshape(converter.value(given["input"]), [given["N"], given["group"], -1])
    value = op.reshape(_standardized(grouped, [2], given["eps"], converter), list(shape))
    return _scaled(value, converter, given, [-1, *[1] * (len(shape) - 2)])


@converts("_native_batch_norm_legit.no_stats", "input weight bias training momentum eps")
def _statistics_norm(converter: Any, node: Any, given: Arguments) -> Any:
    if not given["training"]:
        raise converter.refuse(node, "has no statistics")
    rank = len(converter.type_of(given["input"])[0])
    axes = [0, *range(2, rank)]
    value = _standardized(converter.value(given["input"]), axes, given["eps"], converter)
    return _scaled(value, converter, given, [-1, *[1] * (rank - 2)])


@converts(
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
            count_include_pad=bool(given["count_include_pad"]),
        )
        return pooled if batched is value else op.squeeze(pooled, [0])

    return convert


POOL_ARGUMENTS = "self kernel_size stride padding ceil_mode count_include_pad"
converts("avg_pool2d.default", POOL_ARGUMENTS)(_average_pool(2))
converts("avg_pool3d.default", POOL_ARGUMENTS)(_average_pool(3))


@converts("_adaptive_avg_pool2d.default", "self output_size")
def _adaptive_average_pool(converter: Any, node: Any, given: Arguments) -> Any:
    """Windows of one size are those of an average pool, which has an integer form."""
    shape, outputs = converter.type_of(given["self"])[0], converter.type_of(node)[0]
    if len(shape) != 4 or any(n % m for n, m in zip(shape[2:], outputs[2:], strict=True)):
        return converter.convert_map["_adaptive_avg_pool2d.default"](node)
    window = [n // m for n, m in zip(shape[2:], outputs[2:], strict=True)]
    return op.nn.avg_pool2d(converter.value(given["self"]), pool_size=window, strides=window)


@converts("mm.default bmm.default", "self mat2")
def _product(converter: Any, node: Any, given: Arguments) -> Any:
    return op.matmul(converter.value(given["self"]), converter.value(given["mat2"]))


@converts("linear.default", "input weight bias")
def _linear(converter: Any, node: Any, given: Arguments) -> Any:
    """Rows times matrix: what torch decomposes it into depends on the strides of the input."""
    shape, result = converter.type_of(given["input"])[0], converter.type_of(node)[0]
    emit, rows = converter.block_builder.emit, converter.value(given["input"])
    if len(shape) != 2:
        rows = emit(op.reshape(rows, [math.prod(shape[:-1]), shape[-1]]))
        rows = emit(in_front_of_dequantize(converter, rows))
    product = emit(op.matmul(rows, emit(op.permute_dims(converter.value(given["weight"])))))
    if given["bias"] is not None:
        product = emit(op.add(product, converter.value(given["bias"])))
    return product if len(shape) == 2 else op.reshape(product, list(result))


@converts("addmm.default", "self mat1 mat2 alpha beta")
def _add_product(converter: Any, node: Any, given: Arguments) -> Any:
    return _affine(converter, node, given, "mat1", "mat2")


@converts("baddbmm.default", "self batch1 batch2 alpha beta")
def _add_batched_product(converter: Any, node: Any, given: Arguments) -> Any:
    return _affine(converter, node, given, "batch1", "batch2")


def _affine(converter: Any, node: Any, given: Arguments, left: str, right: str) -> Any:
    """beta * self + alpha * (left @ right); with beta = 0 whatever self holds is ignored."""
    dtype = converter.type_of(node)[1]
    result = op.matmul(converter.value(given[left]), converter.value(given[right]))
    if given["alpha"] != 1:
        result = op.multiply(result, constant(given["alpha"], dtype))
    if given["beta"] == 0:
        return result
    bias = converter.value(given["self"])
    if given["beta"] != 1:
        bias = op.multiply(bias, constant(given["beta"], dtype))
    return op.add(result, bias)
