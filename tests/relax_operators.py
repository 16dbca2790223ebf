# SPDX-License-Identifier: Apache-2.0
"""Operators of Relax with shapes and what NumPy computes, for the sweep of dtypes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from umakit import tvm_api

relax = tvm_api.relax
op: Any = relax.op
Array = np.ndarray[Any, Any]
Entry = tuple[Callable[..., Any], Callable[..., Any], Sequence[Sequence[int]]]

ONE, TWO = ((2, 3, 4),), ((2, 3, 4), (3, 1))
IMAGE = ((1, 2, 5, 5),)
erf = np.vectorize(math.erf, otypes=[np.float64])


def module_of(
    build: Callable[..., Any], dtype: str, shapes: Sequence[Sequence[int]]
) -> tuple[Any, list[str]]:
    """Return a module of one operator and the dtypes of its results.

    Raises:
        Exception: TVM's type inference refuses the dtype.
    """
    builder = relax.BlockBuilder()
    inputs = [
        relax.Var(f"x{n}", tvm_api.tensor_type(list(shape), dtype))
        for n, shape in enumerate(shapes)
    ]
    try:
        with builder.function("main", inputs):
            with builder.dataflow():
                result = builder.emit_output(builder.emit(build(*inputs)))
            builder.emit_func_output(result)
    except Exception:
        tvm_api.abandon(builder)
        raise
    module = builder.get()
    fields = tvm_api.tuple_fields(module["main"].ret_ty)
    return module, [str(field.dtype) for field in fields]


def truncated(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of real numbers, whose results are cut off to integers as C and ONNX do."""

    def of(*arrays: Array) -> Any:
        return function(*(array.astype(np.float64) for array in arrays))

    return of


def windows(x: Array, reduce: Callable[..., Any]) -> Array:
    """Results of 2x2 windows that do not overlap."""
    n, c, h, w = x.shape
    x = x[:, :, : h // 2 * 2, : w // 2 * 2].reshape(n, c, h // 2, 2, w // 2, 2)
    return np.asarray(reduce(x, axis=(3, 5)))


def convolved(x: Array, weights: Array) -> Array:
    view = np.lib.stride_tricks.sliding_window_view(x, weights.shape[2:], axis=(2, 3))
    return np.asarray(np.einsum("nchwij,ocij->nohw", view, weights))


def softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


UNARY: dict[str, Callable[..., Any]] = {
    **{
        name: getattr(np, name)
        for name in "abs negative sign square sqrt exp log sin cos tan sinh cosh tanh ceil floor "
        "trunc isnan isinf isfinite logical_not".split()
    },
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "asinh": np.arcsinh,
    "acosh": np.arccosh, "atanh": np.arctanh, "round": np.rint, "bitwise_not": np.invert,
    "rsqrt": lambda x: 1 / np.sqrt(x), "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "erf": erf,
}  # fmt: skip
BINARY: dict[str, Callable[..., Any]] = {
    **{
        name: getattr(np, name)
        for name in "add subtract multiply maximum minimum equal not_equal less less_equal greater "
        "greater_equal logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor "
        "left_shift right_shift floor_divide mod power".split()
    },
    "divide": truncated(np.divide), "floor_mod": np.mod, "atan2": np.arctan2,
    "log_add_exp": np.logaddexp,
}  # fmt: skip

TABLE: dict[str, Entry] = {
    **{name: (getattr(op, name), function, ONE) for name, function in UNARY.items()},
    **{name: (getattr(op, name), function, TWO) for name, function in BINARY.items()},
    **{
        name: (lambda x, name=name: getattr(op, name)(x, axis=[1]), function, ONE)
        for name, function in {
            "sum": lambda x: x.sum(1, dtype=x.dtype),
            "prod": lambda x: x.prod(1, dtype=x.dtype),
            "max": lambda x: x.max(1),
            "min": lambda x: x.min(1),
            "mean": truncated(lambda x: x.mean(1)),
            "variance": truncated(lambda x: x.var(1)),
            "std": truncated(lambda x: x.std(1)),
        }.items()
    },
    "mean of all": (lambda x: op.mean(x), truncated(np.mean), ONE),
    "median": (lambda x: op.median(x, axis=[1]), lambda x: np.median(x, 1), ONE),
    "argmax": (lambda x: op.argmax(x, axis=1), lambda x: x.argmax(1), ONE),
    "argmin": (lambda x: op.argmin(x, axis=1), lambda x: x.argmin(1), ONE),
    "cumsum": (lambda x: op.cumsum(x, axis=1), lambda x: x.cumsum(1, dtype=x.dtype), ONE),
    "cumprod": (lambda x: op.cumprod(x, axis=1), lambda x: x.cumprod(1, dtype=x.dtype), ONE),
    "clip": (lambda x: op.clip(x, 1, 3), lambda x: np.clip(x, 1, 3), ONE),
    "nn.relu": (op.nn.relu, lambda x: np.maximum(x, np.zeros_like(x)), ONE),
    "nn.relu6": (op.nn.relu6, lambda x: np.clip(x, 0, 6), ONE),
    "nn.leakyrelu": (
        lambda x: op.nn.leakyrelu(x, 0.5),
        truncated(lambda x: np.where(x > 0, x, x / 2)),
        ONE,
    ),
    "nn.silu": (op.nn.silu, lambda x: x / (1 + np.exp(-x)), ONE),
    "nn.gelu": (op.nn.gelu, lambda x: x * (1 + erf(x / np.sqrt(2))) / 2, ONE),
    "nn.softplus": (lambda x: op.nn.softplus(x), lambda x: np.log1p(np.exp(x)), ONE),
    "nn.selu": (
        op.nn.selu,
        lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x)),
        ONE,
    ),
    "nn.softmax": (lambda x: op.nn.softmax(x, -1), softmax, ONE),
    "nn.log_softmax": (lambda x: op.nn.log_softmax(x, -1), lambda x: np.log(softmax(x)), ONE),
    "nn.max_pool2d": (
        lambda x: op.nn.max_pool2d(x, (2, 2), (2, 2)),
        lambda x: windows(x, np.max),
        IMAGE,
    ),
    "nn.avg_pool2d": (
        lambda x: op.nn.avg_pool2d(x, (2, 2), (2, 2)),
        truncated(lambda x: windows(x, np.mean)),
        IMAGE,
    ),
    "nn.avg_pool1d": (
        lambda x: op.nn.avg_pool1d(x, (2,), (2,)),
        truncated(lambda x: x.reshape(1, 2, 3, 2).mean(3)),
        ((1, 2, 6),),
    ),
    "nn.avg_pool3d": (
        lambda x: op.nn.avg_pool3d(x, (2, 2, 2), (2, 2, 2)),
        truncated(lambda x: x.reshape(1, 2, 2, 2, 2, 2, 1, 2).mean((3, 5, 7))),
        ((1, 2, 4, 4, 2),),
    ),
    "nn.adaptive_avg_pool2d": (
        lambda x: op.nn.adaptive_avg_pool2d(x, (1, 1)),
        truncated(lambda x: x.mean((2, 3), keepdims=True)),
        IMAGE,
    ),
    "nn.conv2d": (op.nn.conv2d, convolved, ((1, 2, 5, 5), (3, 2, 3, 3))),
    "nn.layer_norm": (
        lambda x, g, b: op.nn.layer_norm(x, g, b, axes=[-1]),
        lambda x, g, b: (
            (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * g + b
        ),
        ((2, 3, 4), (4,), (4,)),
    ),
    "nn.batch_flatten": (op.nn.batch_flatten, lambda x: x.reshape(2, 12), ONE),
    "nn.pad": (
        lambda x: op.nn.pad(x, (0, 0, 0, 0, 1, 2)),
        lambda x: np.pad(x, ((0, 0), (0, 0), (1, 2))),
        ONE,
    ),
    "matmul": (op.matmul, np.matmul, ((2, 3, 4), (2, 4, 5))),
    "einsum": (
        lambda x, y: op.einsum([x, y], "ij,jk->ki"),
        lambda x, y: np.einsum("ij,jk->ki", x, y),
        ((3, 4), (4, 5)),
    ),
    "concat": (
        lambda x, y: op.concat([x, y], 1),
        lambda x, y: np.concatenate([x, y], 1),
        ((2, 3), (2, 4)),
    ),
    "stack": (lambda x, y: op.stack([x, y], 1), lambda x, y: np.stack([x, y], 1), ((2, 3), (2, 3))),
    "split": (lambda x: op.split(x, 2, 1), lambda x: np.split(x, 2, 1), ((2, 4),)),
    "permute_dims": (
        lambda x: op.permute_dims(x, [2, 0, 1]),
        lambda x: x.transpose(2, 0, 1),
        ONE,
    ),
    "reshape": (lambda x: op.reshape(x, (4, 6)), lambda x: x.reshape(4, 6), ONE),
    "expand_dims": (lambda x: op.expand_dims(x, 1), lambda x: x[:, None], ONE),
    "squeeze": (lambda x: op.squeeze(x, [1]), lambda x: x[:, 0], ((2, 1, 3),)),
    "broadcast_to": (
        lambda x: op.broadcast_to(x, (2, 3)),
        lambda x: np.broadcast_to(x, (2, 3)),
        ((1, 3),),
    ),
    "tile": (lambda x: op.tile(x, (2, 1)), lambda x: np.tile(x, (2, 1)), ((2, 3),)),
    "repeat": (lambda x: op.repeat(x, 2, 1), lambda x: np.repeat(x, 2, 1), ((2, 3),)),
    "flip": (lambda x: op.flip(x, 1), lambda x: x[:, ::-1], ONE),
    "strided_slice": (
        lambda x: op.strided_slice(x, [1], [1], [3], [1]),
        lambda x: x[:, 1:3],
        ONE,
    ),
    "take": (
        lambda x: op.take(x, relax.const(np.array([2, 0], "int64")), 1),
        lambda x: x[:, [2, 0]],
        ONE,
    ),
    "tril": (lambda x: op.tril(x), np.tril, ((3, 4),)),
    "triu": (lambda x: op.triu(x), np.triu, ((3, 4),)),
    "where": (lambda x, y: op.where(op.greater(x, y), x, y), np.maximum, TWO),
    "topk": (
        lambda x: op.topk(x, 2, -1, ret_type="values"),
        lambda x: np.sort(x)[:, :-3:-1],
        ((2, 7),),
    ),
    "sort": (lambda x: op.sort(x, -1), lambda x: np.sort(x), ((2, 7),)),
    "argsort": (
        lambda x: op.argsort(x, -1, dtype="int32"),
        lambda x: np.argsort(x, kind="stable"),
        ((2, 7),),
    ),
    "zeros_like": (lambda x: op.add(x, op.zeros_like(x)), lambda x: x, ONE),
    "ones_like": (lambda x: op.multiply(x, op.ones_like(x)), lambda x: x, ONE),
    **{
        f"astype {to}": (lambda x, to=to: op.astype(x, to), lambda x, to=to: x.astype(to), ONE)
        for to in ("float32", "float64", "int8", "int32", "int64", "bool")
    },
}
"""(Relax, NumPy, shapes of operands) by name; NumPy's results are converted to Relax's dtypes."""
