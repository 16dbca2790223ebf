# SPDX-License-Identifier: Apache-2.0
"""Drawn ONNX operators against ONNX Runtime: attribute values, opsets, element types, shapes.

    python tests/onnx_sweep.py --count 20               20 networks of each operator
    python tests/onnx_sweep.py Pad Slice --count 200    of these operators
    python tests/onnx_sweep.py Pad --only 17            one of them again, with its model

Each network has one operator. Its outputs equal those of ONNX Runtime, or of ONNX's reference
evaluator where ONNX Runtime has no kernel or differs from it, or umakit refuses the network.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx_drawing import DTYPES, MAKERS, NEWEST, Array, Draw, Network, makes
from onnx_node_tests import Mismatch, as_child, isolated, run_model

from umakit.errors import UmakitError

# --- element by element -------------------------------------------------------------------------


@makes(
    "Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Ceil Cos Cosh Elu Erf Exp Floor Gelu "
    "HardSigmoid HardSwish Identity IsInf IsNaN LeakyRelu Log Mish Neg Not Reciprocal Relu Round "
    "Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Tan Tanh ThresholdedRelu"
)
def unary(draw: Draw) -> Network:
    x = draw.array(
        draw.shape(), draw.dtype(), 1 if draw.operator in ("Acos", "Asin", "Atanh") else 5
    )
    if draw.operator in ("Log", "Sqrt", "Acosh"):
        x = np.abs(x) + np.asarray(1, x.dtype)
    if draw.operator.startswith("Is"):
        special = np.array([np.inf, -np.inf, np.nan, 1.0])
        x = special[draw.random.integers(0, 4, x.shape)].astype(x.dtype)
    numbers = [0.0, 0.3, 1.0, 2.5, -0.5]
    return Network(
        draw.attributes(
            alpha=numbers, beta=numbers, gamma=[1.0, 1.5], bias=numbers, lambd=[0.0, 0.5, 2.0],
            approximate=["none", "tanh"], detect_negative=[0, 1], detect_positive=[0, 1],
        ),
        [x],
    )  # fmt: skip


@makes(
    "Add And BitShift BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual Less "
    "LessOrEqual Mod Mul Or Pow PRelu Sub Xor"
)
def binary(draw: Draw) -> Network:
    dtype = draw.dtype()
    shape = draw.shape()
    first, second = shape, draw.broadcast(shape)
    attributes = draw.attributes(direction=["LEFT", "RIGHT"])
    if draw.operator == "PRelu" and draw.opset < 7:
        second = draw.of([(1,), (shape[1],)]) if len(shape) > 1 else (1,)
    elif draw.opset < 7:
        start = draw.integer(0, len(shape))
        stop = draw.integer(start, len(shape))
        second = shape[start:stop] if draw.flag() else shape
        if second != shape:
            attributes = {"broadcast": 1, "axis": start}
            if stop == len(shape) and draw.flag():
                attributes = {"broadcast": 1}
    elif draw.operator != "PRelu" and draw.flag():
        first, second = second, first
    x, y = draw.array(first, dtype), draw.array(second, dtype)
    if draw.operator == "Mod":
        attributes = {"fmod": 1} if "float" in dtype else draw.attributes(fmod=[0, 1])
    if draw.operator in ("Div", "Mod"):
        y = np.where(y == 0, np.asarray(1, dtype), y)
    if draw.operator == "BitShift":
        y = draw.random.integers(0, np.dtype(dtype).itemsize * 8, second).astype(dtype)
    if draw.operator == "Pow":
        x = np.abs(x)
        y = np.abs(y) if "int" in dtype else y
        if draw.opset >= 12 and draw.flag():
            y = np.abs(y).astype(draw.of(["float32", "int32", "int64"]))
    return Network(attributes, [x, y], draw.of([(), (1,), (0,)]))


@makes("Max Mean Min Sum")
def variadic(draw: Draw) -> Network:
    shape, dtype = draw.shape(), draw.dtype()
    count = draw.integer(1, 4)
    shapes = [shape if draw.opset < 8 or i == 0 else draw.broadcast(shape) for i in range(count)]
    return Network({}, [draw.array(s, dtype) for s in shapes], draw.of([(), (count - 1,)]))


@makes("Clip")
def clip(draw: Draw) -> Network:
    dtype = draw.dtype()
    x = draw.array(draw.shape(), dtype)
    bounds: list[Array | None] = [np.asarray(v, dtype) for v in (1, 3)]
    if draw.opset < 11:
        return Network(draw.attributes(min=[-1.0, 0.0], max=[2.0, 4.0]), [x])
    kept = [b if draw.flag() else None for b in bounds]
    return Network({}, [x, *kept], draw.of([(), (1, 2)]))


@makes("Where")
def where(draw: Draw) -> Network:
    shape, dtype = draw.shape(), draw.dtype(1)
    x, y = (draw.array(draw.broadcast(shape), dtype) for _ in range(2))
    return Network({}, [draw.array(shape, "bool"), x, y], draw.of([(), (1, 2), (0,)]))


@makes("Cast")
def cast(draw: Draw) -> Network:
    target = helper.np_dtype_to_tensor_dtype(np.dtype(draw.of(DTYPES)))
    source = draw.dtype()
    x = draw.array(draw.shape(), source, 100)
    if np.dtype(source).kind == "f":
        x = np.abs(x)
    to = onnx.TensorProto.DataType.Name(target) if draw.opset < 6 else target
    return Network({"to": to}, [x])


@makes("CastLike")
def cast_like(draw: Draw) -> Network:
    x = np.abs(draw.array(draw.shape(), draw.dtype(), 100))
    return Network({}, [x, draw.array((2,), draw.of(DTYPES))], draw.of([(), (1,)]))


@makes("Dropout")
def dropout(draw: Draw) -> Network:
    x = draw.array(draw.shape(), draw.dtype())
    if draw.opset < 12:
        attributes = draw.attributes(ratio=[0.0, 0.3])
        return Network(attributes | ({"is_test": 1} if draw.opset < 7 else {}), [x], (), 1)
    extra = [np.array(0.3, np.float32), np.array(draw.flag() and draw.flag())]
    return Network(draw.attributes(seed=[0]), [x, *extra], (1, 2), draw.of([1, 2]))


# --- reductions ---------------------------------------------------------------------------------


@makes(
    "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd "
    "ReduceSum ReduceSumSquare"
)
def reduction(draw: Draw) -> Network:
    shape = draw.shape(draw.integer(1, 4))
    x = draw.array(shape, draw.dtype(), 3)
    if draw.operator == "ReduceLogSum":
        x = np.abs(x) + np.asarray(1, x.dtype)
    rank = len(shape)
    axes = [int(a) for a in draw.random.permutation(rank)[: draw.integer(0, rank)]]
    low = -rank if draw.opset >= 11 else 0
    axes = [a - rank if low and draw.flag() else a for a in axes]
    attributes = draw.attributes(keepdims=[0, 1], noop_with_empty_axes=[0, 1])
    if "axes" in draw.schema.attributes:
        return Network(attributes | ({"axes": axes} if axes else {}), [x])
    given = [np.array(axes, np.int64)] if axes or draw.flag() else []
    return Network(attributes, [x, *given], (1,) if given else ())


@makes("ArgMax ArgMin")
def arg_reduction(draw: Draw) -> Network:
    shape = draw.shape(draw.integer(1, 4))
    axes = list(range(-len(shape) if draw.opset >= 11 else 0, len(shape)))
    attributes = draw.attributes(axis=axes, keepdims=[0, 1], select_last_index=[0, 1])
    return Network(attributes, [draw.array(shape, draw.dtype(), 2)])


@makes("Hardmax LogSoftmax Softmax")
def softmax(draw: Draw) -> Network:
    shape = draw.shape(draw.integer(2, 4))
    axes = list(range(-len(shape) if draw.opset >= 11 else 0, len(shape)))
    return Network(draw.attributes(axis=axes), [draw.array(shape, draw.dtype())])


# --- windows ------------------------------------------------------------------------------------


def window(draw: Draw, rank: int, group: bool = False) -> dict[str, Any]:
    """Attributes of a window on `rank` axes."""
    attributes = draw.attributes(
        kernel_shape=[[draw.integer(1, 3) for _ in range(rank)]],
        strides=[[draw.integer(1, 3) for _ in range(rank)]],
        dilations=[[draw.integer(1, 2) for _ in range(rank)]],
        auto_pad=["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"],
    )
    if attributes.get("auto_pad", "NOTSET") == "NOTSET" and draw.flag():
        most = [k - 1 for k in attributes.get("kernel_shape", [1] * rank)]
        attributes["pads"] = [draw.integer(0, m) for m in most * 2]
    return attributes


@makes("AveragePool LpPool MaxPool")
def pool(draw: Draw) -> Network:
    rank = draw.integer(1, 3)
    attributes = window(draw, rank)
    attributes |= draw.attributes(
        ceil_mode=[0, 1], count_include_pad=[0, 1], p=[1, 2, 3], storage_order=[0, 1]
    )
    if draw.operator == "LpPool" and draw.opset < 2:
        attributes["p"] = float(attributes.get("p", 2))
        attributes.setdefault("kernel_shape", [2] * rank)
    x = draw.array((draw.integer(1, 2), draw.integer(1, 3), *draw.shape(rank, 5, 8)), draw.dtype())
    outputs = 2 if draw.operator == "MaxPool" and draw.opset >= 8 and draw.integer(0, 3) == 0 else 1
    return Network(attributes, [x], (), outputs)


@makes("GlobalAveragePool GlobalLpPool GlobalMaxPool")
def global_pool(draw: Draw) -> Network:
    shape = (2, 3, *draw.shape(draw.integer(1, 3)))
    p = [1.0, 2.0, 3.0] if draw.opset < 2 else [1, 2, 3]
    return Network(draw.attributes(p=p), [draw.array(shape, draw.dtype())])


@makes("Conv ConvTranspose")
def convolution(draw: Draw) -> Network:
    rank = draw.integer(1, 3)
    dtype = draw.dtype()
    attributes = window(draw, rank)
    kernel = attributes.get("kernel_shape", [draw.integer(1, 3) for _ in range(rank)])
    if "kernel_shape" not in attributes and "pads" in attributes:
        attributes["pads"] = [draw.integer(0, 1) for _ in range(2 * rank)]
    group, inputs, outputs = draw.of([1, 1, 2, 3]), draw.integer(1, 2), draw.integer(1, 2)
    attributes["group"] = group
    if draw.operator == "ConvTranspose":
        strides = attributes.get("strides", [1] * rank)
        if draw.flag():
            attributes["output_padding"] = [draw.integer(0, s - 1) for s in strides]
        weights = (group * inputs, outputs, *kernel)
        if attributes.get("auto_pad", "NOTSET") == "VALID":
            attributes.pop("pads", None)
    else:
        weights = (group * outputs, inputs, *kernel)
    x = draw.array((draw.integer(1, 2), group * inputs, *draw.shape(rank, 6, 9)), dtype)
    if draw.operator == "ConvTranspose" and draw.integer(0, 3) == 0:
        strides = attributes.get("strides", [1] * rank)
        attributes["output_shape"] = [
            (size - 1) * s + k + draw.integer(-1, 0) if k > 1 else (size - 1) * s + k
            for size, s, k in zip(x.shape[2:], strides, kernel, strict=True)
        ]
        for name in ("pads", "dilations", "output_padding"):
            attributes.pop(name, None)
    bias = [draw.array((group * outputs,), dtype)] if draw.flag() else []
    return Network(attributes, [x, draw.array(weights, dtype), *bias], (1, 2)[: 1 + len(bias)])


@makes("LRN")
def local_response(draw: Draw) -> Network:
    shape = (2, draw.integer(1, 6), *draw.shape(draw.integer(1, 3)))
    attributes = draw.attributes(
        size=[1, 2, 3, 4, 5], alpha=[0.5, 0.1], beta=[0.75, 0.5], bias=[1.0, 2.0]
    )
    return Network(attributes, [draw.array(shape, draw.dtype())])


# --- normalization ------------------------------------------------------------------------------


@makes("BatchNormalization")
def batch_normalization(draw: Draw) -> Network:
    dtype, channels = draw.dtype(), draw.integer(1, 3)
    shape = (2, channels, *draw.shape(draw.integer(0, 3)))
    values = [draw.array((channels,), dtype) for _ in range(4)]
    values[3] = np.abs(values[3]) + np.asarray(0.5, dtype)
    attributes = draw.attributes(epsilon=[0.1, 1e-3], momentum=[0.5], spatial=[1], is_test=[1])
    return Network(attributes, [draw.array(shape, dtype), *values], (1, 2, 3, 4))


@makes("InstanceNormalization")
def instance_normalization(draw: Draw) -> Network:
    dtype, channels = draw.dtype(), draw.integer(1, 3)
    values = [draw.array((channels,), dtype) for _ in range(2)]
    x = draw.array((2, channels, *draw.shape(draw.integer(1, 3), 2)), dtype)
    return Network(draw.attributes(epsilon=[0.1, 1e-3]), [x, *values], (1, 2))


@makes("RMSNormalization")
def rms_normalization(draw: Draw) -> Network:
    dtype = draw.dtype()
    shape = draw.shape(draw.integer(1, 4), 2)
    axis = draw.integer(-len(shape), len(shape) - 1)
    scale = draw.array(shape[axis % len(shape) :], dtype)
    attributes = {"axis": axis, **draw.attributes(epsilon=[0.1, 1e-3])}
    return Network(attributes, [draw.array(shape, dtype), scale], (1,))


@makes("GroupNormalization")
def group_normalization(draw: Draw) -> Network:
    dtype, groups, each = draw.dtype(), draw.integer(1, 3), draw.integer(1, 2)
    count = groups if draw.opset < 21 else groups * each
    x = draw.array((2, groups * each, *draw.shape(draw.integer(1, 3), 2)), dtype)
    values = [draw.array((count,), dtype) for _ in range(2)]
    attributes = {"num_groups": groups, **draw.attributes(epsilon=[0.1])}
    return Network(attributes, [x, *values], (1, 2))


@makes("MeanVarianceNormalization")
def mean_variance(draw: Draw) -> Network:
    x = draw.array((2, 3, *draw.shape(2, 2)), draw.dtype())
    return Network(draw.attributes(axes=[[0, 2, 3], [1], [2, 3]]), [x])


# --- products -----------------------------------------------------------------------------------


@makes("Gemm")
def gemm(draw: Draw) -> Network:
    dtype = draw.dtype()
    m, k, n = draw.shape(3)
    attributes = draw.attributes(
        alpha=[0.5, 2.0], beta=[0.5, 3.0, 0.0], transA=[0, 1], transB=[0, 1]
    )
    if "int" in dtype:
        attributes.pop("alpha", None), attributes.pop("beta", None)
    a = draw.array((k, m) if attributes.get("transA") else (m, k), dtype)
    b = draw.array((n, k) if attributes.get("transB") else (k, n), dtype)
    shapes = [(n,), (1, n), (m, n), (m, 1), (1,), ()] if draw.opset >= 7 else [(m, n)]
    c = [draw.array(draw.of(shapes), dtype)] if draw.opset < 11 or draw.flag() else []
    return Network(attributes, [a, b, *c], draw.of([(), (1,)]))


@makes("MatMul")
def matmul(draw: Draw) -> Network:
    dtype = draw.dtype()
    m, k, n = draw.shape(3)
    batch = draw.shape(draw.integer(0, 2))
    a, b = draw.of(
        [((*batch, m, k), (k, n)), ((m, k), (*batch, k, n)), ((k,), (*batch, k, n)),
         ((*batch, m, k), (k,)), ((k,), (k,)), ((*batch, m, k), (*draw.broadcast(batch), k, n))]
    )  # fmt: skip
    return Network({}, [draw.array(a, dtype), draw.array(b, dtype)], draw.of([(), (1,)]))


@makes("MatMulInteger")
def matmul_integer(draw: Draw) -> Network:
    m, k, n = draw.shape(3)
    types = [draw.of(["int8", "uint8"]) for _ in range(2)]
    a, b = draw.array((m, k), types[0], 100), draw.array((k, n), types[1], 100)
    zeros = [
        draw.array(draw.of([(), (size,)]), t, 5) for t, size in zip(types, (m, n), strict=True)
    ]
    given = zeros[: draw.integer(0, 2)]
    return Network({}, [a, b, *given], tuple(range(2, 2 + len(given))))


@makes("Einsum")
def einsum(draw: Draw) -> Network:
    equation, shapes = draw.of(
        [("ij,jk->ik", [(2, 3), (3, 4)]), ("bij,bjk", [(2, 3, 4), (2, 4, 2)]),
         ("ij->ji", [(2, 3)]), ("...ij->...ji", [(2, 3, 4)]), ("ii->i", [(3, 3)]),
         ("i,i->", [(4,), (4,)]), ("ij->", [(2, 3)])]
    )  # fmt: skip
    dtype = draw.dtype()
    return Network({"equation": equation}, [draw.array(s, dtype) for s in shapes])


# --- movements ----------------------------------------------------------------------------------


@makes("Transpose")
def transpose(draw: Draw) -> Network:
    shape = draw.shape()
    perm = [int(a) for a in draw.random.permutation(len(shape))]
    attributes = draw.attributes(perm=[perm]) if shape else {}
    return Network(attributes, [draw.array(shape, draw.dtype())])


@makes("Flatten")
def flatten(draw: Draw) -> Network:
    shape = draw.shape(draw.integer(1, 4))
    axes = list(range(-len(shape) if draw.opset >= 11 else 0, len(shape) + 1))
    return Network(draw.attributes(axis=axes), [draw.array(shape, draw.dtype())])


@makes("Concat")
def concat(draw: Draw) -> Network:
    shape, dtype = draw.shape(draw.integer(1, 4)), draw.dtype()
    axes = list(range(-len(shape) if draw.opset >= 11 else 0, len(shape)))
    axis = 1 if draw.opset < 4 and len(shape) > 1 else draw.of(axes)
    arrays = []
    for _ in range(draw.integer(1, 3)):
        sizes = list(shape)
        sizes[axis] = draw.integer(1, 3)
        arrays.append(draw.array(sizes, dtype))
    named = {} if draw.opset < 4 and len(shape) > 1 and draw.flag() else {"axis": axis}
    return Network(named, arrays, draw.of([(), (len(arrays) - 1,)]))


@makes("Squeeze")
def squeeze(draw: Draw) -> Network:
    shape = tuple(1 if draw.flag() else size for size in draw.shape(draw.integer(1, 4), 2))
    rank = len(shape)
    axes = [
        a - rank if draw.opset >= 11 and draw.flag() else a for a in range(rank) if shape[a] == 1
    ]
    axes = axes[: draw.integer(1, 4)]
    x = draw.array(shape, draw.dtype())
    if draw.opset < 13:
        return Network({"axes": axes} if axes and draw.flag() else {}, [x])
    given = [np.array(axes, np.int64)] if axes and draw.flag() else []
    return Network({}, [x, *given], (1,) if given else ())


@makes("Unsqueeze")
def unsqueeze(draw: Draw) -> Network:
    shape = draw.shape(draw.integer(0, 3))
    count = draw.integer(1, 2)
    rank = len(shape) + count
    axes = [int(a) for a in draw.random.permutation(rank)[:count]]
    axes = [a - rank if draw.opset >= 11 and draw.flag() else a for a in axes]
    x = draw.array(shape, draw.dtype())
    if draw.opset < 13:
        return Network({"axes": axes}, [x])
    return Network({}, [x, np.array(axes, np.int64)], (1,))


@makes("Reshape")
def reshape(draw: Draw) -> Network:
    shape = draw.shape(3)
    choices = [
        [-1],
        [0, -1],
        [shape[0], -1],
        [shape[2], shape[0], shape[1]],
        [0, 0, 0],
        [1, *shape],
    ]
    target, x = draw.of(choices), draw.array(shape, draw.dtype())
    if draw.opset < 5:
        return Network({"shape": target}, [x])
    return Network(draw.attributes(allowzero=[0, 1]), [x, np.array(target, np.int64)], (1,))


@makes("Slice")
def slice_(draw: Draw) -> Network:
    shape = draw.shape(draw.integer(1, 3), 2, 6)
    axes = [int(a) for a in draw.random.permutation(len(shape))[: draw.integer(1, len(shape))]]
    starts = [draw.integer(-7, 7) for _ in axes]
    ends = [draw.of([draw.integer(-7, 7), 2**31 - 1, -(2**31), 2**63 - 1]) for _ in axes]
    x = draw.array(shape, draw.dtype())
    if draw.opset < 10:
        return Network({"starts": starts, "ends": ends, "axes": axes}, [x])
    axes = [a - len(shape) if draw.flag() else a for a in axes]
    steps = [draw.of([1, 1, 2, -1, -2]) for _ in axes]
    rest: list[Array | None] = [np.array(axes), np.array(steps)]
    if axes != list(range(len(axes))) or draw.flag():
        rest = rest[: draw.integer(1, 2)]
    else:
        rest = draw.of([[], [None, rest[1]]])
    inputs = [x, np.array(starts, np.int64), np.array(ends, np.int64), *rest]
    return Network({}, inputs, (1, 2, 3, 4)[: len(inputs) - 1])


@makes("Split")
def split(draw: Draw) -> Network:
    shape = list(draw.shape(draw.integer(1, 3)))
    axis = draw.integer(0, len(shape) - 1)
    count = draw.integer(1, 3)
    sizes = [draw.integer(1, 3) for _ in range(count)]
    even = draw.flag()
    shape[axis] = count * sizes[0] if even else sum(sizes)
    if even and draw.opset >= 18 and draw.flag() and sizes[0] > 1:
        shape[axis] -= 1
        if -(-shape[axis] // -(-shape[axis] // count)) != count:
            shape[axis] += 1
    if draw.opset >= 11 and draw.flag():
        axis -= len(shape)
    x = draw.array(shape, draw.dtype())
    attributes: dict[str, Any] = {"axis": axis}
    if draw.opset >= 13:
        given = [] if even else [np.array(sizes)]
        if even and draw.opset >= 18:
            attributes["num_outputs"] = count
        return Network(attributes, [x, *given], (1,) if given else (), count)
    return Network(attributes | ({} if even else {"split": sizes}), [x], (), count)


@makes("Pad")
def pad(draw: Draw) -> Network:
    shape = draw.shape(draw.integer(1, 4), 3)
    modes = ["constant", "reflect", "edge"] + (["wrap"] if draw.opset >= 19 else [])
    attributes = draw.attributes(mode=modes)
    negative = -1 if draw.integer(0, 3) == 0 else 0
    pads = [draw.integer(negative, 2) for _ in range(2 * len(shape))]
    dtype = draw.dtype()
    x = draw.array(shape, dtype)
    if draw.opset < 11:
        name = "paddings" if draw.opset < 2 else "pads"
        return Network(attributes | draw.attributes(value=[0.0, 1.5]) | {name: pads}, [x])
    inputs: list[Array | None] = [x, np.array(pads)]
    if draw.flag() and attributes.get("mode", "constant") == "constant":
        inputs.append(np.asarray(2, dtype))
    if draw.opset >= 18 and draw.flag():
        axes = [int(a) for a in draw.random.permutation(len(shape))[: draw.integer(1, len(shape))]]
        inputs = [x, np.array(pads[: 2 * len(axes)]), inputs[2] if len(inputs) > 2 else None]
        inputs.append(np.array([a - len(shape) if draw.flag() else a for a in axes]))
    return Network(attributes, inputs, (1, 2, 3)[: len(inputs) - 1])


@makes("Tile")
def tile(draw: Draw) -> Network:
    shape, dtype = draw.shape(draw.integer(1, 3)), draw.dtype()
    if draw.opset < 6:
        axis = draw.integer(0, len(shape) - 1)
        x = draw.array(shape, dtype)
        return Network({}, [x, np.array(2, dtype), np.array(axis, dtype)], (1, 2))
    repeats = np.array([draw.integer(1, 3) for _ in shape], np.int64)
    return Network({}, [draw.array(shape, dtype), repeats], (1,))


@makes("Expand")
def expand(draw: Draw) -> Network:
    shape = draw.shape(draw.integer(1, 4))
    small = draw.broadcast(shape)
    target = [1 if draw.integer(0, 3) == 0 and s == 1 else s for s in shape]
    return Network({}, [draw.array(small, draw.dtype()), np.array(target, np.int64)], (1,))


@makes("DepthToSpace SpaceToDepth")
def blocks(draw: Draw) -> Network:
    size = draw.integer(1, 3)
    n, c, h, w = draw.shape(4, 1, 3)
    shape = (n, c * size * size, h, w) if draw.operator[0] == "D" else (n, c, h * size, w * size)
    attributes = draw.attributes(blocksize=[size], mode=["DCR", "CRD"])
    return Network(attributes, [draw.array(shape, draw.dtype())])


@makes("Trilu")
def trilu(draw: Draw) -> Network:
    shape = draw.shape(draw.integer(2, 4))
    k = [np.array(draw.integer(-3, 3))] if draw.flag() else []
    return Network(
        draw.attributes(upper=[0, 1]), [draw.array(shape, draw.dtype()), *k], (1,) if k else ()
    )


@makes("EyeLike")
def eye(draw: Draw) -> Network:
    targets = [helper.np_dtype_to_tensor_dtype(np.dtype(d)) for d in ("float32", "int32", "int64")]
    attributes = draw.attributes(k=[-1, 0, 2], dtype=targets)
    return Network(attributes, [draw.array(draw.shape(2), draw.dtype())])


@makes("Shape Size")
def size_of(draw: Draw) -> Network:
    attributes = draw.attributes(start=[0, 1, -2], end=[-1, 2, 9])
    return Network(attributes, [draw.array(draw.shape(draw.integer(1, 4)), draw.dtype())])


@makes("Range")
def range_(draw: Draw) -> Network:
    dtype = draw.dtype()
    start, count, step = draw.integer(0, 3), draw.integer(1, 5), draw.of([1, 2])
    values = [np.array(v, dtype) for v in (start, start + count * step, step)]
    return Network({}, list(values), (0, 1, 2))


# --- indices ------------------------------------------------------------------------------------


@makes("Gather")
def gather(draw: Draw) -> Network:
    shape = draw.shape(draw.integer(1, 3))
    axis = draw.integer(0, len(shape) - 1)
    low = -shape[axis] if draw.opset >= 11 else 0
    indices = draw.random.integers(low, shape[axis], draw.shape(draw.integer(0, 2)))
    attributes = {"axis": axis - len(shape) if draw.opset >= 11 and draw.flag() else axis}
    indices = np.asarray(indices, draw.of(["int32", "int64"]))
    return Network(
        attributes, [draw.array(shape, draw.dtype()), indices], draw.of([(), (1,), (0,)])
    )


@makes("GatherElements")
def gather_elements(draw: Draw) -> Network:
    shape = draw.shape(draw.integer(1, 3))
    axis = draw.integer(-len(shape), len(shape) - 1)
    sizes = [draw.integer(1, size) for size in shape]
    indices = draw.random.integers(-shape[axis], shape[axis], sizes)
    indices = np.asarray(indices, draw.of(["int32", "int64"]))
    return Network({"axis": axis}, [draw.array(shape, draw.dtype()), indices], draw.of([(), (1,)]))


@makes("GatherND")
def gather_nd(draw: Draw) -> Network:
    shape = draw.shape(3)
    batch = draw.integer(0, 1) if draw.opset >= 12 else 0
    depth = draw.integer(1, 3 - batch)
    outer = (shape[0], draw.integer(1, 3)) if batch else draw.shape(draw.integer(1, 2))
    columns = [draw.random.integers(-s, s, outer) for s in shape[batch : batch + depth]]
    attributes = {"batch_dims": batch} if draw.opset >= 12 else {}
    indices = np.stack(columns, -1).astype(np.int64)
    return Network(attributes, [draw.array(shape, draw.dtype()), indices], draw.of([(), (1,)]))


@makes("ScatterElements Scatter")
def scatter_elements(draw: Draw) -> Network:
    shape = draw.shape(draw.integer(1, 3))
    rank = len(shape)
    axis = draw.integer(-rank if draw.opset >= 11 else 0, rank - 1)
    sizes = [draw.integer(1, size) for size in shape]
    order = np.argsort(
        draw.random.random((*sizes[: axis % rank], *sizes[axis % rank + 1 :], shape[axis]))
    )
    indices = np.moveaxis(order[..., : sizes[axis]], -1, axis % rank).astype(np.int64)
    dtype = draw.dtype()
    reductions = ["none", "add", "mul"] + (["min", "max"] if draw.opset >= 18 else [])
    attributes = {"axis": axis, **draw.attributes(reduction=reductions)}
    if dtype == "bool":
        attributes.pop("reduction", None)
    inputs = [draw.array(shape, dtype), indices, draw.array(sizes, dtype)]
    return Network(attributes, list(inputs), draw.of([(), (1,)]))


@makes("ScatterND")
def scatter_nd(draw: Draw) -> Network:
    shape = draw.shape(3)
    depth = draw.integer(1, 3)
    places = list(np.ndindex(*shape[:depth]))
    chosen = [places[int(i)] for i in draw.random.permutation(len(places))[: draw.integer(1, 3)]]
    indices = np.array(chosen, np.int64)
    dtype = draw.dtype()
    reductions = ["none", "add", "mul"] + (["min", "max"] if draw.opset >= 18 else [])
    attributes = draw.attributes(reduction=reductions)
    if dtype == "bool":
        attributes.pop("reduction", None)
    updates = draw.array((len(chosen), *shape[depth:]), dtype)
    return Network(attributes, [draw.array(shape, dtype), indices, updates], draw.of([(), (1,)]))


@makes("Compress")
def compress(draw: Draw) -> Network:
    shape = draw.shape(2, 2)
    attributes = draw.attributes(axis=[0, 1])
    count = shape[attributes["axis"]] if attributes else shape[0] * shape[1]
    condition = np.arange(count) % 2 == 0
    return Network(attributes, [draw.array(shape, draw.dtype()), condition], (1,))


# --- images -------------------------------------------------------------------------------------


@makes("Resize")
def resize(draw: Draw) -> Network:
    rank = draw.of([1, 2, 2, 2])
    shape = (1, 2, *draw.shape(rank, 3, 6))
    scales = [1.0, 1.0, *(float(draw.of([0.5, 0.6, 1.0, 1.3, 2.0, 2.5])) for _ in range(rank))]
    modes = ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"]
    modes += ["half_pixel_symmetric"] if draw.opset >= 19 else []
    attributes = draw.attributes(
        mode=["nearest", "linear", "cubic"] if draw.opset >= 11 else ["nearest", "linear"],
        coordinate_transformation_mode=modes,
        nearest_mode=["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"],
        cubic_coeff_a=[-0.5], exclude_outside=[0, 1], antialias=[0, 0, 1],
        keep_aspect_ratio_policy=["stretch", "not_larger", "not_smaller"],
    )  # fmt: skip
    x = draw.array(shape, draw.dtype(among=("float32", "float64")))
    if draw.opset < 11:
        return Network(attributes, [x, np.array(scales, np.float32)], (1,))
    if draw.flag():
        attributes.pop("keep_aspect_ratio_policy", None)
        return Network(attributes, [x, None, np.array(scales, np.float32)], (2,))
    sizes = [*shape[:2], *(draw.integer(1, 9) for _ in range(rank))]
    return Network(attributes, [x, None, None, np.array(sizes)], (3,))


@makes("Upsample")
def upsample(draw: Draw) -> Network:
    x = draw.array((1, 2, *draw.shape(2, 2)), "float32")
    scales = [1.0, 1.0, float(draw.of([1.0, 1.5, 2.0])), float(draw.of([1.0, 2.0, 2.5]))]
    attributes = draw.attributes(mode=["nearest", "linear"])
    if draw.opset < 7:
        return Network({**attributes, "height_scale": scales[2], "width_scale": scales[3]}, [x])
    if draw.opset < 9:
        return Network(attributes | {"scales": scales}, [x])
    return Network(attributes, [x, np.array(scales, np.float32)], (1,))


@makes("RoiAlign")
def roi_align(draw: Draw) -> Network:
    x = draw.array((2, 2, 6, 6))
    corners = draw.random.uniform(0, 2, (3, 2)).astype(np.float32)
    rois = np.concatenate([corners, corners + 3], 1).astype(np.float32)
    attributes = draw.attributes(
        mode=["avg", "max"], output_height=[1, 2, 3], output_width=[1, 2], sampling_ratio=[0, 1, 2],
        coordinate_transformation_mode=["half_pixel", "output_half_pixel"],
        spatial_scale=[1.0, 0.5],
    )  # fmt: skip
    return Network(attributes, [x, rois, np.array([0, 1, 1])], draw.of([(), (1, 2)]))


@makes("GridSample")
def grid_sample(draw: Draw) -> Network:
    x = draw.array((1, 2, *draw.shape(2, 2, 5)))
    modes = (
        ["bilinear", "nearest", "bicubic"] if draw.opset < 20 else ["linear", "nearest", "cubic"]
    )
    attributes = draw.attributes(
        mode=modes, padding_mode=["zeros", "border", "reflection"], align_corners=[0, 1]
    )
    grid = draw.random.uniform(-1.3, 1.3, (1, *draw.shape(2), 2)).astype(np.float32)
    return Network(attributes, [x, grid])


@makes("AffineGrid")
def affine_grid(draw: Draw) -> Network:
    rank = draw.integer(2, 3)
    size = np.array([2, 1, *draw.shape(rank, 2)])
    theta = draw.array((2, rank, rank + 1))
    return Network(draw.attributes(align_corners=[0, 1]), [theta, size], (1,))


# --- quantization -------------------------------------------------------------------------------


@makes("QuantizeLinear")
def quantize(draw: Draw) -> Network:
    dtype = draw.of(["uint8", "int8", *(["uint16", "int16"] if draw.opset >= 21 else [])])
    shape = draw.shape(draw.integer(1, 4))
    attributes, scale, zero = per_axis(draw, shape, dtype)
    given = [zero] if dtype != "uint8" or draw.flag() else []
    return Network(
        attributes, [draw.array(shape, limit=20), scale, *given], (1, 2)[: 1 + len(given)]
    )


@makes("DequantizeLinear")
def dequantize(draw: Draw) -> Network:
    dtype = draw.of(["uint8", "int8", "int32", *(["uint16", "int16"] if draw.opset >= 21 else [])])
    shape = draw.shape(draw.integer(1, 4))
    attributes, scale, zero = per_axis(draw, shape, dtype)
    zero = np.zeros_like(zero) if dtype == "int32" else zero
    given = [zero] if draw.flag() else []
    return Network(
        attributes, [draw.array(shape, dtype, 100), scale, *given], (1, 2)[: 1 + len(given)]
    )


def per_axis(draw: Draw, shape: Sequence[int], dtype: str) -> tuple[dict[str, Any], Array, Array]:
    """Axis, scale and zero point, of the tensor or of each index of an axis."""
    if draw.opset < 13 or draw.flag():
        return {}, np.array(0.125, np.float32), np.array(3, dtype)
    axis = draw.integer(-len(shape), len(shape) - 1)
    scales = draw.of([0.125, 0.25, 0.5]) * (1 + np.arange(shape[axis], dtype=np.float32))
    return {"axis": axis}, scales, draw.array((shape[axis],), dtype)


# --- one network --------------------------------------------------------------------------------


def build(draw: Draw, network: Network) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """The model of one node, and its inputs by name."""
    names = ["" if a is None else f"x{i}" for i, a in enumerate(network.inputs)]
    while names and not names[-1]:
        names.pop()
    results = range(network.outputs) if isinstance(network.outputs, int) else network.outputs
    outputs = [f"y{n}" if n in results else "" for n in range(max(results) + 1)]
    node = helper.make_node(
        draw.operator, names, outputs, "layer", domain=draw.domain, **network.attributes
    )
    arrays = {
        n: np.asarray(a) for n, a in zip(names, network.inputs, strict=False) if a is not None
    }
    constants = {names[i] for i in network.constants if i < len(names)} & set(arrays)
    inputs = {name: array for name, array in arrays.items() if name not in constants}
    graph = helper.make_graph(
        [node],
        "network",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in inputs.items()
        ],
        [onnx.ValueInfoProto(name=name) for name in outputs if name],
        [numpy_helper.from_array(arrays[n], n) for n in sorted(constants)],
    )
    opsets = [helper.make_opsetid("", draw.opset)]
    if draw.domain:
        opsets.append(helper.make_opsetid(draw.domain, 1))
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8 if draw.opset < 20 else 10)
    model = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
    if not all(value.type.tensor_type.HasField("shape") for value in model.graph.output):
        # Schemas of the first opsets, and of other domains, infer nothing.
        values = next(expectations(model, inputs))
        del model.graph.output[:]
        model.graph.output.extend(
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(np.asarray(value).dtype), np.shape(value)
            )
            for name, value in zip(filter(None, outputs), values, strict=True)
        )
    return model, inputs


def expectations(model: onnx.ModelProto, inputs: dict[str, Array]) -> Iterator[list[Array]]:
    """What ONNX Runtime computes without optimizations, then what the reference evaluator does,
    where they can."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    with contextlib.suppress(Exception):  # no kernel, or it refuses the network
        session = onnxruntime.InferenceSession(model.SerializeToString(), options)
        yield session.run(None, inputs)
    with contextlib.suppress(Exception):
        yield [np.asarray(value) for value in ReferenceEvaluator(model).run(None, inputs)]


def is_newest(model: onnx.ModelProto) -> bool:
    """Whether no later schema up to `NEWEST` replaces that of the model's operator.

    The reference evaluator computes some operators of older opsets as the newest one defines them.
    """
    operator, opset = model.graph.node[0].op_type, model.opset_import[0].version
    if model.graph.node[0].domain:
        return True
    newest = onnx.defs.get_schema(operator, max(NEWEST, opset), "")
    return bool(newest.since_version == onnx.defs.get_schema(operator, opset, "").since_version)


def unequal(got: Sequence[Array], expected: Sequence[Array]) -> str:
    """How outputs differ; empty if they do not."""
    for number, (values, wanted) in enumerate(zip(got, expected, strict=True)):
        if values.dtype != wanted.dtype or values.shape != wanted.shape:
            kinds = [f"{a.dtype}{list(a.shape)}" for a in (values, wanted)]
            return f"output {number} is {kinds[0]}, not {kinds[1]}"
        rough = wanted.dtype.kind == "f"
        try:
            np.testing.assert_allclose(values, wanted, 1e-4 if rough else 0, 1e-5 if rough else 0)
        except AssertionError as error:
            return f"output {number}: {' '.join(str(error).split())[:300]}"
    return ""


def check(operator: str, seed: int) -> tuple[str, str]:
    """Column and message of a drawn network; `no oracle` where none computes it."""
    draw = Draw(operator, seed)
    network = MAKERS[operator](draw)
    try:
        model, inputs = build(draw, network)
        onnx.checker.check_model(model)
    except Exception as error:
        return "no oracle", f"not valid: {error}"
    try:
        with tempfile.TemporaryDirectory() as folder:
            got = run_model(model, list(inputs.values()), Path(folder))
    except UmakitError as error:
        return "refused", str(error)
    except Mismatch as error:
        return "wrong", str(error)
    except Exception:
        return "traceback", traceback.format_exc()[-1500:]
    if isinstance(got, str):
        return "refused", got
    differences = []
    for expected in expectations(model, inputs):
        difference = unequal(got, expected)
        if not difference:
            return "right", ""
        differences.append(difference)
    if not differences or (len(differences) == 1 and not is_newest(model)):
        return "no oracle", "".join(differences)
    return "wrong", f"{differences[0]} {onnx.printer.to_text(model.graph)[:700]}"


def assert_right(operator: str, count: int) -> None:
    """Draw so many networks of an operator, each of which must be right.

    Raises:
        AssertionError: one is not; says how to look at it.
    """
    warnings.simplefilter("ignore")
    for seed in range(count):
        column, message = check(operator, seed)
        where = f"python tests/onnx_sweep.py {operator} --only {seed}"
        assert column == "right", f"{column}: {message}; see {where}"


def load_tests_of_operators() -> None:
    """Import the tests of operators, which draw networks of theirs."""
    for file in sorted(Path(__file__).parent.glob("test_onnx_operator_*.py")):
        importlib.import_module(file.stem)


def sweep(
    operators: Sequence[str], seeds: Sequence[int], processes: int = 2
) -> Iterator[tuple[tuple[str, int], tuple[str, str]]]:
    """Operator, seed and result of all drawn networks, each in a process of its own."""

    def job(operator: str, seed: int) -> Callable[[Connection], None]:
        return lambda answer: as_child(lambda: check(operator, seed), answer)

    jobs = [((operator, seed), job(operator, seed)) for seed in seeds for operator in operators]
    yield from isolated(jobs, processes)


def main() -> int:
    """The command line; the exit code is 1 if a network is wrong or a traceback."""
    parser = argparse.ArgumentParser(description="drawn ONNX operators against ONNX Runtime")
    parser.add_argument("operators", nargs="*", help="default: all")
    parser.add_argument("--count", type=int, default=10, help="networks of each operator")
    parser.add_argument("--seed", type=int, default=0, help="of the first network")
    parser.add_argument("--only", type=int, help="one network, and its model")
    parser.add_argument("-j", type=int, default=2, help="processes")
    parser.add_argument("--refused", action="store_true", help="list what is refused too")
    options = parser.parse_args()
    load_tests_of_operators()
    operators = options.operators or sorted(MAKERS)
    if options.only is not None:
        draw = Draw(operators[0], options.only)
        print(onnx.printer.to_text(build(draw, MAKERS[operators[0]](draw))[0]))
        print(*check(operators[0], options.only))
        return 0
    warnings.simplefilter("ignore")
    seeds = range(options.seed, options.seed + options.count)
    listed = ("wrong", "traceback", *(["refused", "no oracle"] if options.refused else []))
    results = {}
    for (operator, seed), (column, message) in sweep(operators, seeds, options.j):
        results[operator, seed] = column
        if column in listed:
            print(f"{column}: {operator} --only {seed}: {message}", flush=True)
    for operator in operators:
        counts = Counter(column for (name, _), column in results.items() if name == operator)
        print(operator, dict(counts))
    totals = Counter(results.values())
    print("all", dict(totals))
    return int(bool(totals["wrong"] or totals["traceback"]))


if __name__ == "__main__":
    sys.exit(main())
