# SPDX-License-Identifier: Apache-2.0
"""Bytes that a backend states, compared with the bytes that copies of tiles move."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from umakit.errors import BackendError
from umakit.machine.layer import Layer
from umakit.machine.tile_machine import TileMachine
from umakit.machine.tiles import INPUT_CHANNELS, OUTPUT_CHANNELS, Tiles
from umakit.patterns import Composite, WeightLayout

ENDS = ("data", "addend", "result")
"""Tensors whose tiles have one byte per element."""


def check_operands(composite: Composite, layer: Layer, machine: TileMachine) -> None:
    """Compare the bytes of operands with the bytes that tiles are made of."""
    stored = composite.operand_bytes
    for name in ENDS:
        elements = layer.data_bytes if name == "data" else layer.result_bytes
        if name in stored and stored[name] != elements:
            raise BackendError(
                f"{name} are {stored[name]:,} bytes, and tiles of {elements:,} elements have one "
                "byte for each",
                fix='let the pattern take dtypes="int8" alone',
            )
    if layer.is_pool:
        return
    parameters = [name for name in stored if name not in (*ENDS, "weights")]
    given = sum(stored[name] for name in parameters)
    if given != layer.parameters_bytes:
        raise BackendError(
            f"{', '.join(parameters)} are {given:,} bytes, and tiles hold "
            f"{layer.parameters_bytes:,}: int32 bias, int32 multipliers and int8 shifts",
            fix="leave out what the pattern says of their types and of further arrays",
        )
    block, channels = machine.block_channels, layer.output_channels
    copied = layer.weights_of(channels if layer.per_channel else -(-channels // block) * block)
    if stored["weights"] != copied:
        raise _other_weights(
            composite, machine, f"stores {stored['weights']:,} bytes, and tiles copy {copied:,}"
        )


def check_order_of_weights(composite: Composite, tiles: Tiles, machine: TileMachine) -> None:
    """Compare the order of weights with the order in which tiles cut them."""
    layer = tiles.layer
    if layer.is_pool or not {OUTPUT_CHANNELS, INPUT_CHANNELS} & set(tiles.loops):
        return
    layout: WeightLayout = composite.weight_layout  # type: ignore[attr-defined]
    extents = dict(zip(layout.axes, composite.weights_shape, strict=True))  # type: ignore[attr-defined]
    block = machine.block_channels
    axes = "HWO" if layer.per_channel else "OHWI"
    wanted = [(axis, 0) for axis in axes]
    if not layer.per_channel and block > 1:
        wanted.append(("O", block))
    if INPUT_CHANNELS not in tiles.loops and not layer.per_channel:
        # Tiles have whole blocks, whatever the order inside a block is.
        order = _order(layout.parts, extents)
        if order[:1] == _order(wanted, extents)[:1] and layout.blocks.get("O", 1) == block:
            return
    if _order(layout.parts, extents) != _order(wanted, extents):
        cut = " and ".join(
            axis.replace("_", " ") for axis in tiles.loops if axis in tiles.axes_of("weights")
        )
        raise _other_weights(composite, machine, f"orders weights otherwise than tiles cut {cut}")


def _order(parts: Sequence[tuple[str, int]], extents: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return axes and blocks without axes and blocks of one element."""
    blocks = {axis: block for axis, block in parts if block}
    return [
        (axis, block)
        for axis, block in parts
        if (block or -(-extents.get(axis, 1) // blocks.get(axis, 1))) > 1
    ]


def _other_weights(composite: Composite, machine: TileMachine, problem: str) -> BackendError:
    layout: WeightLayout = composite.weight_layout  # type: ignore[attr-defined]
    block, inner = machine.block_channels, layout.axes.removeprefix("O")
    fitting = f"O/{block} {inner} {block}o" if block > 1 else layout.axes
    if Layer.of(composite).per_channel:
        fitting = f"{inner}O"
    shape = "x".join(map(str, composite.weights_shape))  # type: ignore[attr-defined]
    return BackendError(
        f"weight_layout {layout.text!r} of weights {shape} {problem}: tiles have whole blocks of "
        f"{block} output channels (block_channels)",
        fix=f"write weight_layout={fitting!r}, or the block_channels that the layout has",
    )
