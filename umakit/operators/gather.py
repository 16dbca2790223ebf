# SPDX-License-Identifier: Apache-2.0
"""GATHER and GATHER_ND of TensorFlow Lite; positions out of range are detected at run time."""

from __future__ import annotations

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.operators.tflite import TfliteConverter, TfliteOperator, one_axis, register_all

relax = tvm_api.relax


def gather(converter: TfliteConverter, operator: TfliteOperator) -> tvm_api.Expr:
    """GATHER of (data, positions int32) along an axis, for each index of the batch dimensions."""
    options = converter.options(operator, "GatherOptions")
    data, indices = _data_and_positions(converter, operator)
    rank, of_indices = (len(converter.shape(number)) for number in operator.inputs)
    axis = one_axis([options.Axis()], rank)
    batch = options.BatchDims() + (of_indices if options.BatchDims() < 0 else 0)
    if not 0 <= batch <= min(axis, of_indices):
        raise ModelError(f"its batch dimensions are {options.BatchDims()}")
    if batch == 0:
        return relax.op.take(data, indices, axis)
    # The axis stands behind the batch dimensions, then the others between them get their place.
    others = list(range(batch, axis))
    order = [*range(batch), axis, *others, *range(axis + 1, rank)]
    moved = converter.emit(relax.op.permute_dims(data, order))
    wide = converter.emit(relax.op.astype(indices, "int64"))
    places = converter.emit(relax.op.expand_dims(wide, of_indices))
    found = converter.emit(relax.op.gather_nd(moved, places, batch_dims=batch))
    taken = of_indices - batch
    back = [*range(batch), *(place + taken for place in others), *range(batch, of_indices)]
    back += range(of_indices + len(others), rank - 1 + taken)
    return relax.op.permute_dims(found, back)


def gather_nd(converter: TfliteConverter, operator: TfliteOperator) -> tvm_api.Expr:
    """GATHER_ND of (data, positions int32[..., depth]) in the first `depth` dimensions."""
    data, indices = _data_and_positions(converter, operator)
    return relax.op.gather_nd(data, converter.emit(relax.op.astype(indices, "int64")))


def _data_and_positions(
    converter: TfliteConverter, operator: TfliteOperator
) -> tuple[tvm_api.Expr, tvm_api.Expr]:
    """Return data and positions.

    Raises:
        ModelError: the positions are not int32.
    """
    data, indices = operator.inputs
    if converter.tensor(indices).dtype != "int32":
        raise ModelError(f"its positions are {converter.tensor(indices).dtype}, not int32")
    return converter.value(data), converter.value(indices)


register_all(("GATHER",), gather, "float32", "int8", same_scale=True)
register_all(("GATHER_ND",), gather_nd, "float32", "int8", same_scale=True)
