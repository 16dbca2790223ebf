# SPDX-License-Identifier: Apache-2.0
"""SpaceToDepth, DepthToSpace and Split."""

from __future__ import annotations

from umakit import tvm_api
from umakit.frontend.onnx.node import Node
from umakit.frontend.onnx.registry import converts

relax = tvm_api.relax

COUNTED_SPLIT_SINCE = 18
"""First opset whose Split may have unequal parts without explicit sizes."""


@converts("SpaceToDepth", "blocksize mode")
def space_to_depth(node: Node) -> tvm_api.Expr:
    """SpaceToDepth in the orders DCR and CRD (ONNX operator specification, opset 28)."""
    block, mode, shape = _block(node)
    batch, channels, height, width = shape
    if height % block or width % block:
        raise node.refuse(f"has an image of {height} x {width}, no multiple of {block}")
    parts = [batch, channels, height // block, block, width // block, block]
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    result = [batch, channels * block**2, height // block, width // block]
    return _rearranged(node, parts, order, result)


@converts("DepthToSpace", "blocksize mode")
def depth_to_space(node: Node) -> tvm_api.Expr:
    """DepthToSpace in the orders DCR and CRD."""
    block, mode, shape = _block(node)
    batch, channels, height, width = shape
    if channels % block**2:
        raise node.refuse(f"has {channels} channels, no multiple of {block**2}")
    depth = channels // block**2
    if mode == "DCR":
        parts, order = [batch, block, block, depth, height, width], (0, 3, 4, 1, 5, 2)
    else:
        parts, order = [batch, depth, block, block, height, width], (0, 1, 4, 2, 5, 3)
    return _rearranged(node, parts, order, [batch, depth, height * block, width * block])


def _block(node: Node) -> tuple[int, str, tuple[int, ...]]:
    """Return block size, order and shape of the operand [N, C, H, W]."""
    block, mode, shape = (
        int(node.attribute("blocksize")),
        node.attribute("mode", "DCR"),
        node.shape(0),
    )
    if block < 1 or mode not in ("DCR", "CRD") or len(shape) != 4:
        raise node.refuse(f"has blocksize={block}, mode={mode} and an input of shape {list(shape)}")
    return block, mode, shape


def _rearranged(
    node: Node, parts: list[int], order: tuple[int, ...], result: list[int]
) -> tvm_api.Expr:
    split = node.emit(relax.op.reshape(node.inputs[0], parts))
    moved = node.emit(relax.op.permute_dims(split, list(order)))
    return relax.op.reshape(moved, result)


@converts("Split", "axis num_outputs split")
def split(node: Node) -> None:
    """Refuse a Split whose sizes do not match its operand. TVM converts the node."""
    shape, results = node.shape(0), len(node.proto.output)
    axis = int(node.attribute("axis", 0))
    if not -len(shape) <= axis < len(shape):
        raise node.refuse(f"has axis={axis}, which an input of shape {list(shape)} lacks")
    size = shape[axis]
    given = node.constant_input(1, "split")
    sizes = node.attribute("split") if given is None else [int(part) for part in given]
    if sizes is not None:
        if len(sizes) != results or sum(sizes) != size or min(sizes) < 0:
            raise node.refuse(
                f"splits {size} elements into {results} results of the sizes {list(sizes)}"
            )
        return
    count = int(node.attribute("num_outputs", results))
    largest = -(-size // count) if count > 0 else 0
    uneven = size % max(count, 1) and node.opset < COUNTED_SPLIT_SINCE
    if count != results or uneven or size - largest * (count - 1) <= 0:
        raise node.refuse(f"splits {size} elements into {count} parts with {results} results")
