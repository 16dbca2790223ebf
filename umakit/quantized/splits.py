# SPDX-License-Identifier: Apache-2.0
"""Parts of split tensors as slices, so that islands end at tensors and not at tuples."""

from __future__ import annotations

from umakit import tvm_api


def part_of_split(item: tvm_api.TupleGetItem, split: tvm_api.Expr) -> tvm_api.Expr:
    """Return an element of a split tensor as a slice; elements of other tuples unchanged.

    Args:
        item: a Relax TupleGetItem.
        split: what its tuple is bound to.
    """
    if tvm_api.operator_name(split) != "split":
        return item
    index = int(item.index)
    axis, places = int(split.attrs.axis), split.attrs.indices_or_sections
    size = (tvm_api.static_shape(split.args[0]) or ())[axis]
    if hasattr(places, "__len__"):
        ends = [*(int(place) for place in places), size]
    else:
        length = -(-size // int(places))
        ends = [min(length * (part + 1), size) for part in range(int(places))]
    begin = ends[index - 1] if index else 0
    part = tvm_api.relax.op.strided_slice(split.args[0], [axis], [begin], [ends[index]])
    return tvm_api.make_call(part, span=split.span)
