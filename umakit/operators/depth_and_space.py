# SPDX-License-Identifier: Apache-2.0
"""DEPTH_TO_SPACE and SPACE_TO_DEPTH of TensorFlow Lite."""

from __future__ import annotations

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.operators.tflite import TfliteConverter, TfliteOperator, register_all

relax = tvm_api.relax

ROWS_COLUMNS_INSIDE = [0, 1, 3, 2, 4, 5]
"""(n, y, block row, x, block column, c) from (n, y, x, block row, block column, c), and back."""


def depth_to_space(converter: TfliteConverter, operator: TfliteOperator) -> tvm_api.Expr:
    """DEPTH_TO_SPACE: channels of [N, H, W, C] become blocks of rows and columns."""
    size = converter.options(operator, "DepthToSpaceOptions").BlockSize()
    batch, rows, columns, channels = _shape(converter, operator)
    if size < 1 or channels % (size * size):
        raise ModelError(f"its blocks of {size} do not divide {channels} channels")
    rest = channels // (size * size)
    value = converter.value(operator.inputs[0])
    blocks = converter.emit(relax.op.reshape(value, (batch, rows, columns, size, size, rest)))
    # (n, y, x, by, bx, c) -> (n, y, by, x, bx, c)
    moved = converter.emit(relax.op.permute_dims(blocks, ROWS_COLUMNS_INSIDE))
    return relax.op.reshape(moved, (batch, rows * size, columns * size, rest))


def space_to_depth(converter: TfliteConverter, operator: TfliteOperator) -> tvm_api.Expr:
    """SPACE_TO_DEPTH: blocks of rows and columns of [N, H, W, C] become channels."""
    size = converter.options(operator, "SpaceToDepthOptions").BlockSize()
    batch, rows, columns, channels = _shape(converter, operator)
    if size < 1 or rows % size or columns % size:
        raise ModelError(f"its blocks of {size} do not divide {rows} rows and {columns} columns")
    split = (batch, rows // size, size, columns // size, size, channels)
    blocks = converter.emit(relax.op.reshape(converter.value(operator.inputs[0]), split))
    # (n, y, by, x, bx, c) -> (n, y, x, by, bx, c)
    moved = converter.emit(relax.op.permute_dims(blocks, ROWS_COLUMNS_INSIDE))
    return relax.op.reshape(moved, (batch, rows // size, columns // size, channels * size * size))


def _shape(converter: TfliteConverter, operator: TfliteOperator) -> tuple[int, ...]:
    shape = converter.shape(operator.inputs[0])
    if len(shape) != 4:
        raise ModelError(f"its input has the shape {list(shape)}")
    return shape


register_all(("DEPTH_TO_SPACE",), depth_to_space, "float32", "int8", same_scale=True)
register_all(("SPACE_TO_DEPTH",), space_to_depth, "float32", "int8", same_scale=True)
