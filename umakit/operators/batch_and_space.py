# SPDX-License-Identifier: Apache-2.0
"""SPACE_TO_BATCH_ND and BATCH_TO_SPACE_ND of TensorFlow Lite."""

from __future__ import annotations

import math

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.operators.tflite import TfliteConverter, TfliteOperator, register_all

relax = tvm_api.relax


def space_to_batch(converter: TfliteConverter, operator: TfliteOperator) -> tvm_api.Expr:
    """SPACE_TO_BATCH_ND: blocks of [N, (H, W) or H, C] become batches; the zero point is padded.

    This follows TensorFlow Lite's space_to_batch_nd.cc; TensorFlow Lite Micro's kernel leaves the
    padded value uninitialized.
    """
    tensor = converter.tensor(operator.inputs[0])
    block, borders = _blocks(converter, operator)
    space = len(block)
    widths = [0, 0, *(width for border in borders for width in border), 0, 0]
    value = converter.value(operator.inputs[0])
    fill = int(tensor.zero_points[0]) if tensor.scales.size else 0
    padded = converter.emit(relax.op.nn.pad(value, widths, pad_value=fill))
    batch, *extents, depth = tvm_api.static_shape(padded) or ()
    if any(extent % size for extent, size in zip(extents, block, strict=True)):
        raise ModelError(f"its blocks {list(block)} do not divide {extents}")
    outer = [extent // size for extent, size in zip(extents, block, strict=True)]
    split = [batch, *(n for pair in zip(outer, block, strict=True) for n in pair), depth]
    blocks = converter.emit(relax.op.reshape(padded, split))
    rows, inside = range(1, 2 * space, 2), range(2, 2 * space + 1, 2)
    moved = converter.emit(relax.op.permute_dims(blocks, [*inside, 0, *rows, 2 * space + 1]))
    return relax.op.reshape(moved, (batch * math.prod(block), *outer, depth))


def batch_to_space(converter: TfliteConverter, operator: TfliteOperator) -> tvm_api.Expr:
    """BATCH_TO_SPACE_ND, the inverse (`batch_to_space_nd.h`); borders are cropped."""
    block, borders = _blocks(converter, operator)
    space = len(block)
    batch, *extents, depth = converter.shape(operator.inputs[0])
    if batch % math.prod(block):
        raise ModelError(f"its blocks {list(block)} do not divide {batch} batches")
    rest = batch // math.prod(block)
    value = converter.value(operator.inputs[0])
    blocks = converter.emit(relax.op.reshape(value, (*block, rest, *extents, depth)))
    pairs = [place for n in range(space) for place in (space + 1 + n, n)]
    moved = converter.emit(relax.op.permute_dims(blocks, [space, *pairs, 2 * space + 1]))
    whole = [extent * size for extent, size in zip(extents, block, strict=True)]
    joined = converter.emit(relax.op.reshape(moved, (rest, *whole, depth)))
    begins = [before for before, _ in borders]
    ends = [extent - after for extent, (_, after) in zip(whole, borders, strict=True)]
    if any(begin >= end for begin, end in zip(begins, ends, strict=True)):
        raise ModelError(f"its crops {borders} leave nothing")
    return relax.op.strided_slice(joined, list(range(1, space + 1)), begins, ends)


def _blocks(
    converter: TfliteConverter, operator: TfliteOperator
) -> tuple[list[int], list[tuple[int, int]]]:
    """Return block sizes, and borders before and after, of the axes between batch and depth.

    Raises:
        ModelError: they do not fit the input or are invalid.
    """
    space = len(converter.shape(operator.inputs[0])) - 2
    block, borders = (converter.integers(operator, position) for position in (1, 2))
    if space not in (1, 2) or len(block) != space or len(borders) != 2 * space:
        raise ModelError(f"its blocks are {block} and its borders {borders}")
    if min(block) < 1 or min(borders) < 0:
        raise ModelError(f"its blocks are {block} and its borders {borders}")
    return block, list(zip(borders[::2], borders[1::2], strict=True))


register_all(("SPACE_TO_BATCH_ND",), space_to_batch, "float32", "int8", same_scale=True)
register_all(("BATCH_TO_SPACE_ND",), batch_to_space, "float32", "int8", same_scale=True)
