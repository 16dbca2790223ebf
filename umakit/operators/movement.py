# SPDX-License-Identifier: Apache-2.0
"""Operators that only move elements. They apply to integers directly if all tensors have one scale.

In the arithmetic of ONNX Runtime, integers of another scale are converted first. The conversions
from TensorFlow Lite of reversals, mirrored borders, depth, batch and space, and gathers are here.
"""

from __future__ import annotations

import math

import numpy as np

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.floats import resampling
from umakit.operators.derivation.expressions import integers_of_result
from umakit.operators.islands import Island
from umakit.operators.numeric.fixed_point import Arithmetic
from umakit.operators.registry import Recognition, register
from umakit.operators.tensors import NoIntegerForm, Quantized
from umakit.operators.tflite import ANY, TfliteNode, converts, one_axis
from umakit.tvm_api import Expr, relax

TFLM_OPERATORS = ("reshape", "permute_dims", "squeeze", "expand_dims", "concat")

ORT_OPERATORS = tuple(
    "reshape permute_dims squeeze expand_dims concat strided_slice broadcast_to flatten resample "
    "take tile repeat flip".split()
)


def _derive(island: Island) -> Expr:
    operands = _operands(island)
    if island.result.activation or any(
        operand.scale != island.result.scale for operand in operands
    ):
        raise NoIntegerForm("it changes the scale or clips")
    return _moved(island, [operand.integers for operand in operands])


def _derive_for_ort(island: Island) -> Expr:
    integers = [integers_of_result(island, operand) for operand in _operands(island)]
    operator = tvm_api.operator_name(island.call)
    if operator == resampling.OPERATOR and not resampling.moves_only(island.call):
        raise NoIntegerForm("ONNX Runtime interpolates in floating point")
    return _moved(island, integers)


def _operands(island: Island) -> list[Quantized]:
    first = island.call.args[0]
    items = first.fields if isinstance(first, tvm_api.RelaxTuple) else [first]
    return [island.dequantized(item) for item in items]


def _moved(island: Island, integers: list[Expr]) -> tvm_api.Call:
    call = island.call
    together = isinstance(call.args[0], tvm_api.RelaxTuple)
    moved = relax.Tuple(integers) if together else integers[0]
    operands = [moved, *call.args[1:]]
    return relax.Call(call.op, operands, call.attrs, None, island.result.span)


register(
    name="movement",
    recognitions=(
        Recognition(TFLM_OPERATORS, _derive, (Arithmetic.TFLM,)),
        Recognition(ORT_OPERATORS, _derive_for_ort, (Arithmetic.ORT,)),
    ),
)


@converts("REVERSE_V2", *ANY, same_scale=True)
def reverse(node: TfliteNode) -> Expr:
    """The elements in reverse order along constant axes."""
    rank, axes = len(node.shape(0)), node.integers(1)
    if any(not -rank <= axis < rank for axis in axes):
        raise ModelError(f"its axes are {axes}")
    value = node.value(0)
    for axis in sorted({axis % rank for axis in axes}):
        value = node.emit(relax.op.flip(value, axis))
    return value


REFLECT = 0
"""Value of the schema's enumeration `MirrorPadMode`; 1 is SYMMETRIC, which repeats the border."""


@converts("MIRROR_PAD", "float32", "int8", same_scale=True)
def mirror_pad(node: TfliteNode) -> Expr:
    """Borders that mirror adjacent elements, of constant widths."""
    mode = node.options("MirrorPadOptions").Mode()
    shape, widths = node.shape(0), node.integers(1)
    kept = 1 if mode == REFLECT else 0
    pairs = list(zip(widths[::2], widths[1::2], strict=True))
    if len(pairs) != len(shape) or any(
        not 0 <= width <= extent - kept
        for pair, extent in zip(pairs, shape, strict=True)
        for width in pair
    ):
        raise ModelError(f"its paddings are {widths} for a shape of {list(shape)}")
    value = node.value(0)
    for axis, (before, after) in enumerate(pairs):
        if before or after:
            places = np.pad(
                np.arange(shape[axis], dtype=np.int32), (before, after),
                mode="reflect" if kept else "symmetric",
            )  # fmt: skip
            value = node.emit(relax.op.take(value, relax.const(places), axis, mode="clip"))
    return value


ROWS_COLUMNS_INSIDE = [0, 1, 3, 2, 4, 5]
"""(n, y, block row, x, block column, c) from (n, y, x, block row, block column, c), and back."""


@converts("DEPTH_TO_SPACE", "float32", "int8", same_scale=True)
def depth_to_space(node: TfliteNode) -> Expr:
    """DEPTH_TO_SPACE: channels of [N, H, W, C] become blocks of rows and columns."""
    size = node.options("DepthToSpaceOptions").BlockSize()
    batch, rows, columns, channels = _shape(node)
    if size < 1 or channels % (size * size):
        raise ModelError(f"its blocks of {size} do not divide {channels} channels")
    rest = channels // (size * size)
    value = node.value(0)
    blocks = node.emit(relax.op.reshape(value, (batch, rows, columns, size, size, rest)))
    # (n, y, x, by, bx, c) -> (n, y, by, x, bx, c)
    moved = node.emit(relax.op.permute_dims(blocks, ROWS_COLUMNS_INSIDE))
    return relax.op.reshape(moved, (batch, rows * size, columns * size, rest))


@converts("SPACE_TO_DEPTH", "float32", "int8", same_scale=True)
def space_to_depth(node: TfliteNode) -> Expr:
    """SPACE_TO_DEPTH: blocks of rows and columns of [N, H, W, C] become channels."""
    size = node.options("SpaceToDepthOptions").BlockSize()
    batch, rows, columns, channels = _shape(node)
    if size < 1 or rows % size or columns % size:
        raise ModelError(f"its blocks of {size} do not divide {rows} rows and {columns} columns")
    split = (batch, rows // size, size, columns // size, size, channels)
    blocks = node.emit(relax.op.reshape(node.value(0), split))
    # (n, y, by, x, bx, c) -> (n, y, x, by, bx, c)
    moved = node.emit(relax.op.permute_dims(blocks, ROWS_COLUMNS_INSIDE))
    return relax.op.reshape(moved, (batch, rows // size, columns // size, channels * size * size))


def _shape(node: TfliteNode) -> tuple[int, ...]:
    shape = node.shape(0)
    if len(shape) != 4:
        raise ModelError(f"its input has the shape {list(shape)}")
    return shape


@converts("SPACE_TO_BATCH_ND", "float32", "int8", same_scale=True)
def space_to_batch(node: TfliteNode) -> Expr:
    """SPACE_TO_BATCH_ND: blocks of [N, (H, W) or H, C] become batches; the zero point is padded.

    This follows TensorFlow Lite's space_to_batch_nd.cc; TensorFlow Lite Micro's kernel leaves the
    padded value uninitialized.
    """
    tensor = node.tensor(0)
    block, borders = _blocks(node)
    space = len(block)
    widths = [0, 0, *(width for border in borders for width in border), 0, 0]
    value = node.value(0)
    fill = int(tensor.zero_points[0]) if tensor.scales.size else 0
    padded = node.emit(relax.op.nn.pad(value, widths, pad_value=fill))
    batch, *extents, depth = tvm_api.static_shape(padded) or ()
    if any(extent % size for extent, size in zip(extents, block, strict=True)):
        raise ModelError(f"its blocks {list(block)} do not divide {extents}")
    outer = [extent // size for extent, size in zip(extents, block, strict=True)]
    split = [batch, *(n for pair in zip(outer, block, strict=True) for n in pair), depth]
    blocks = node.emit(relax.op.reshape(padded, split))
    rows, inside = range(1, 2 * space, 2), range(2, 2 * space + 1, 2)
    moved = node.emit(relax.op.permute_dims(blocks, [*inside, 0, *rows, 2 * space + 1]))
    return relax.op.reshape(moved, (batch * math.prod(block), *outer, depth))


@converts("BATCH_TO_SPACE_ND", "float32", "int8", same_scale=True)
def batch_to_space(node: TfliteNode) -> Expr:
    """BATCH_TO_SPACE_ND, the inverse (`batch_to_space_nd.h`); borders are cropped."""
    block, borders = _blocks(node)
    space = len(block)
    batch, *extents, depth = node.shape(0)
    if batch % math.prod(block):
        raise ModelError(f"its blocks {list(block)} do not divide {batch} batches")
    rest = batch // math.prod(block)
    value = node.value(0)
    blocks = node.emit(relax.op.reshape(value, (*block, rest, *extents, depth)))
    pairs = [place for n in range(space) for place in (space + 1 + n, n)]
    moved = node.emit(relax.op.permute_dims(blocks, [space, *pairs, 2 * space + 1]))
    whole = [extent * size for extent, size in zip(extents, block, strict=True)]
    joined = node.emit(relax.op.reshape(moved, (rest, *whole, depth)))
    begins = [before for before, _ in borders]
    ends = [extent - after for extent, (_, after) in zip(whole, borders, strict=True)]
    if any(begin >= end for begin, end in zip(begins, ends, strict=True)):
        raise ModelError(f"its crops {borders} leave nothing")
    return relax.op.strided_slice(joined, list(range(1, space + 1)), begins, ends)


def _blocks(node: TfliteNode) -> tuple[list[int], list[tuple[int, int]]]:
    """Return block sizes, and borders before and after, of the axes between batch and depth."""
    space = len(node.shape(0)) - 2
    block, borders = (node.integers(position) for position in (1, 2))
    if space not in (1, 2) or len(block) != space or len(borders) != 2 * space:
        raise ModelError(f"its blocks are {block} and its borders {borders}")
    if min(block) < 1 or min(borders) < 0:
        raise ModelError(f"its blocks are {block} and its borders {borders}")
    return block, list(zip(borders[::2], borders[1::2], strict=True))


@converts("GATHER", "float32", "int8", same_scale=True)
def gather(node: TfliteNode) -> Expr:
    """GATHER of (data, positions int32) along an axis, for each index of the batch dimensions."""
    options = node.options("GatherOptions")
    data, indices = _data_and_positions(node)
    rank, of_indices = (len(tensor.shape) for tensor in node.tensors)
    axis = one_axis([options.Axis()], rank)
    batch = options.BatchDims() + (of_indices if options.BatchDims() < 0 else 0)
    if not 0 <= batch <= min(axis, of_indices):
        raise ModelError(f"its batch dimensions are {options.BatchDims()}")
    if batch == 0:
        return relax.op.take(data, indices, axis)
    # The axis is behind the batch dimensions; then the other axes between get their place.
    others = list(range(batch, axis))
    order = [*range(batch), axis, *others, *range(axis + 1, rank)]
    moved = node.emit(relax.op.permute_dims(data, order))
    wide = node.emit(relax.op.astype(indices, "int64"))
    places = node.emit(relax.op.expand_dims(wide, of_indices))
    found = node.emit(relax.op.gather_nd(moved, places, batch_dims=batch))
    taken = of_indices - batch
    back = [*range(batch), *(place + taken for place in others), *range(batch, of_indices)]
    back += range(of_indices + len(others), rank - 1 + taken)
    return relax.op.permute_dims(found, back)


@converts("GATHER_ND", "float32", "int8", same_scale=True)
def gather_nd(node: TfliteNode) -> Expr:
    """GATHER_ND of (data, positions int32[..., depth]) in the first `depth` dimensions."""
    data, indices = _data_and_positions(node)
    return relax.op.gather_nd(data, node.emit(relax.op.astype(indices, "int64")))


def _data_and_positions(node: TfliteNode) -> tuple[Expr, Expr]:
    """Return data and positions."""
    if node.tensor(1).dtype != "int32":
        raise ModelError(f"its positions are {node.tensor(1).dtype}, not int32")
    data, positions = node.values()
    return data, positions
