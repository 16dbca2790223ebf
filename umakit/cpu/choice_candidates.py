# SPDX-License-Identifier: Apache-2.0
"""Possible choices of kernels for CPUs with vectors of float32: the rule's own choice, then others.

Other choices differ from the rule's own in one respect, or use other tiles. Choices with the least
cost by the estimate of `umakit.cpu.register_tiles` come first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from umakit import tvm_api
from umakit.cpu.description import Cpu
from umakit.cpu.kernel_choices import Choice, KernelKey
from umakit.cpu.register_tiles import (
    Tile,
    choose_tile,
    depthwise_tile,
    fitting_tiles,
    fused_tile,
    row_cost,
    vector_lanes,
)
from umakit.cpu.schedule import is_padding, is_reduction
from umakit.cpu.vector_expressions import element_step

FIRST_CACHE_WEIGHTS = 24576
"""Bytes of weights that stay in the first-level cache (usually 32 KiB) next to data."""

CHANNEL_GROUP = 64
"""Channels for which padded rows of a block of input channels are used, about."""

MOST_ROWS = 8
"""Rows of a block: with more of them, padding takes hardly less time."""

SCRATCH_SHARE = 8
"""Padded rows and sums may take more than the rows of one kernel window by the bytes of data and
result divided by it."""

FEWEST_INPUTS = 16
"""Input channels of a block, at least: with fewer, sums are loaded and stored too often."""

LARGEST_ROW = 128
"""Channels of a matrix product's tile: enough for a cache line of each row of weights."""

MOST_COST = 1.5
"""Maximum estimated cost of candidate tiles, as a multiple of the cost of the rule's tiles."""

OTHER_TILES = 8
"""Most other tiles for a kernel."""


@dataclass(frozen=True)
class ConvolutionSizes:
    """Sizes of a float32 convolution in NHWC, the input of its schedule rule.

    Attributes:
        rows, row, channels: number of rows, columns and channels of the result.
        padded: shape [N, H, W, C] of the padded data; None without padding.
        is_depthwise: whether each channel has a window of its own.
    """

    rows: int
    row: int
    channels: int
    inputs: int
    kernel: tuple[int, int]
    padded: tuple[int, ...] | None
    data_bytes: int
    is_depthwise: bool = False

    @property
    def is_pointwise(self) -> bool:
        """Whether the convolution is a matrix product."""
        return self.padded is None and self.kernel == (1, 1) and not self.is_depthwise

    @property
    def stride(self) -> int:
        """Rows of the padded data between neighbouring results, at least."""
        if self.padded is None:
            return 1
        return max(1, (self.padded[1] - self.kernel[0]) // max(1, self.rows - 1))

    def padded_bytes(self, rows: int, inputs: int | None = None) -> int:
        """Return the bytes of the padded data for some rows of the result and input channels (None:
        all)."""
        if self.padded is None:
            return 0
        _, _, width, channels = self.padded
        height = (rows - 1) * self.stride + self.kernel[0]
        return 4 * height * width * (channels if inputs is None else inputs)

    @property
    def scratch_bytes(self) -> int:
        """Bytes of scratch that the kernel may use."""
        return self.padded_bytes(1) + self.data_bytes // SCRATCH_SHARE

    def row_blocks(self) -> list[int]:
        """Return the possible numbers of rows per tile of weights, in order of preference.

        The largest number whose padded data fit the scratch comes first. Without padding, one comes
        first.
        """
        if self.padded is None:
            return list(dict.fromkeys([1, *block_sizes(self.rows)]))
        most = self.scratch_bytes
        return [n for n in block_sizes(self.rows) if self.padded_bytes(n) <= most]

    def weight_blocks(self, channels: int, inputs: int, group: int) -> list[int]:
        """Return the possible numbers of rows per block of weights, largest first."""
        return [
            rows
            for rows in block_sizes(self.rows)
            if self.padded_bytes(rows, inputs) + 4 * rows * self.row * group <= self.scratch_bytes
        ]


def block_sizes(rows: int) -> list[int]:
    """Return the possible numbers of rows of a block, largest first."""
    return [n for n in range(min(rows, MOST_ROWS), 0, -1) if rows % n == 0]


def largest_divisor(number: int, most: int, multiple: int = 1) -> int:
    """Return the largest divisor that is a multiple of `multiple` and at most `most`; `multiple` if
    there is none."""
    return max((n for n in divisors(number, multiple) if n <= most), default=multiple)


def divisors(number: int, multiple: int = 1) -> list[int]:
    """Return the divisors of a number that are multiples of `multiple`, in ascending order."""
    return [n for n in range(multiple, number + 1, multiple) if number % n == 0]


def convolution_candidates(sizes: ConvolutionSizes, cpu: Cpu) -> list[Choice]:
    """Return the possible choices of a convolution, the rule's own first; empty if the channels
    fill no vector."""
    if vector_lanes(cpu, sizes.channels) == 1:
        return []
    if sizes.is_depthwise:
        return _distinct(_depthwise(sizes, cpu))
    if sizes.is_pointwise:
        return _distinct(_pointwise(sizes, cpu))
    return _distinct(_windows(sizes, cpu))


def product_candidates(positions: int, channels: int, cpu: Cpu) -> list[Choice]:
    """Return the possible choices of a [positions, channels] product, the rule's own first; empty
    if the channels fill no vector."""
    tile = choose_tile(cpu, positions, channels)
    if tile.lanes == 1:
        return []
    if positions > 1:
        tiles = [tile, *_other_tiles(cpu, tile, positions, channels)]
        return _distinct(Choice(each.positions, each.channels) for each in tiles)
    most = min(LARGEST_ROW, (cpu.vector_registers - 2) * tile.lanes)
    own = largest_divisor(channels, most, tile.lanes)
    others = [n for n in divisors(channels, tile.lanes) if n <= most]
    return _distinct(Choice(1, size) for size in [own, *reversed(others)])


def _distinct(choices: Iterable[Choice]) -> list[Choice]:
    return list(dict.fromkeys(choices))


def _other_tiles(cpu: Cpu, own: Tile, row: int, channels: int) -> list[Tile]:
    """Return other tiles with a cost near the rule's own, cheapest first."""
    tiles = {each: row_cost(row, each) for each in fitting_tiles(cpu, own.lanes, channels, row)}
    least = row_cost(row, own)
    near = [each for each, cost in tiles.items() if cost <= MOST_COST * least and each != own]
    return sorted(near, key=lambda each: tiles[each])[:OTHER_TILES]


def _depthwise(sizes: ConvolutionSizes, cpu: Cpu) -> Iterator[Choice]:
    tile = depthwise_tile(cpu, sizes.row, sizes.channels, sizes.kernel[1])
    rows = sizes.row_blocks()
    own = Choice(tile.positions, tile.channels, rows[0])
    yield own
    wide = 2 * tile.lanes
    for channels in (tile.channels, *([wide] if sizes.channels % wide == 0 else [])):
        vectors = channels // tile.lanes
        most = min(sizes.row, (cpu.vector_registers - sizes.kernel[1] - 2) // vectors)
        for positions in (2, 3, 4, 1, 5, 6, 7, 8):
            if positions <= most:
                yield replace(own, positions=positions, channels=channels)
    for each in rows[1:]:
        yield replace(own, rows=each)


def _pointwise(sizes: ConvolutionSizes, cpu: Cpu) -> Iterator[Choice]:
    rows, row, channels = sizes.rows, sizes.row, sizes.channels
    tile = fused_tile(cpu, choose_tile(cpu, row, channels), rows, row, channels)
    is_large = 4 * channels * sizes.inputs > cpu.cache_bytes // 2
    own = Choice(tile.positions, tile.channels, weights_outermost=is_large)
    yield own
    yield replace(own, weights_outermost=not is_large)
    # A tile lies in a row or takes whole rows.
    whole = _other_tiles(cpu, tile, rows * row, channels)
    fused = [n for n in whole if n.positions % row == 0 and rows * row % n.positions == 0]
    for each in [*fused, *_other_tiles(cpu, tile, row, channels)]:
        yield replace(own, positions=each.positions, channels=each.channels)


def _windows(sizes: ConvolutionSizes, cpu: Cpu) -> Iterator[Choice]:
    tile = choose_tile(cpu, sizes.row, sizes.channels)
    others = _other_tiles(cpu, tile, sizes.row, sizes.channels)
    in_blocks = _weight_blocks(sizes, tile)
    in_rows = [Choice(tile.positions, tile.channels, rows) for rows in sizes.row_blocks()]
    own = in_blocks[0] if _has_blocks(sizes, tile, in_blocks) else in_rows[0]
    yield own
    if own.inputs:
        yield in_rows[0]
        yield from in_blocks[1:4]
    for each in others:
        if not own.inputs or own.group % each.channels == 0:
            yield replace(own, positions=each.positions, channels=each.channels)
    yield from in_rows[1:]
    yield from in_blocks


def _has_blocks(sizes: ConvolutionSizes, tile: Tile, in_blocks: list[Choice]) -> bool:
    """Whether the rule cuts weights into blocks, because the first cache cannot hold a tile's
    weights."""
    usual = _inputs_of_block(sizes, tile.channels), _group(sizes, tile.channels)
    return bool(in_blocks) and (in_blocks[0].inputs, in_blocks[0].group) == usual


def _inputs_of_block(sizes: ConvolutionSizes, channels: int) -> int:
    rows, columns = sizes.kernel
    return largest_divisor(sizes.inputs, FIRST_CACHE_WEIGHTS // (4 * rows * columns * channels))


def _group(sizes: ConvolutionSizes, channels: int) -> int:
    return largest_divisor(sizes.channels, CHANNEL_GROUP, channels)


def _weight_blocks(sizes: ConvolutionSizes, tile: Tile) -> list[Choice]:
    """Return choices with blocks of weights, the rule's own first if there is one."""
    usual = _inputs_of_block(sizes, tile.channels)
    group = _group(sizes, tile.channels)
    near = [n for n in divisors(sizes.inputs) if FEWEST_INPUTS <= n < sizes.inputs]
    near.sort(key=lambda n: max(n, usual) / min(n, usual))
    groups = [n for n in divisors(sizes.channels, tile.channels) if n <= 4 * CHANNEL_GROUP]
    groups.sort(key=lambda n: max(n, group) / min(n, group))
    found = []
    for number, inputs in enumerate(near):
        for size in groups if number == 0 else groups[:1]:
            rows = sizes.weight_blocks(tile.channels, inputs, size)
            for each in rows if (number, size) == (0, group) else rows[:1]:
                found.append(Choice(tile.positions, tile.channels, each, inputs, size))
    return found


def names_of_elementwise(schedule: tvm_api.Schedule) -> tuple[str, ...]:
    """Return the names of the elementwise blocks of a kernel, without TVM's numbers."""
    blocks = schedule.get_child_blocks(schedule.get_sblock("root"))
    others = [
        str(schedule.get(block).name_hint)
        for block in blocks
        if not is_reduction(schedule, block) and not is_padding(schedule, block)
    ]
    return tuple(re.sub(r"^T_|_\d+$", "", name) for name in others)


def key_of_convolution(
    schedule: tvm_api.Schedule,
    block: Any,
    padding: Any | None,
    operator: str,
    follows: tuple[str, ...],
) -> KernelKey:
    """Return the key of a convolution in NHWC."""
    body = schedule.get(block)
    read, weights = (region.source for region in body.reads[:2])
    data = read if padding is None else schedule.get(padding).reads[0].source
    dtype, shape = tvm_api.buffer_dtype(read), tvm_api.buffer_shape(data)
    padded, kernel = tvm_api.buffer_shape(read), tvm_api.buffer_shape(weights)
    loads = tvm_api.collect(body.body, tvm_api.TensorLoad)
    index = next(list(load.indices) for load in loads if load.source.same_as(read))
    variables = [axis.var for axis in body.iter_vars]
    strides = [element_step(index[n], variables[n]) or 0 for n in (1, 2)]
    dilation = [element_step(index[n], variables[n + 3]) or 0 for n in (1, 2)]
    return KernelKey(
        operator, dtype, shape, kernel, tvm_api.buffer_shape(body.writes[0].source),
        (padded[1] - shape[1], padded[2] - shape[2]), (strides[0], strides[1]),
        (dilation[0], dilation[1]), shape[3] if operator.startswith("depthwise") else 1, follows,
    )  # fmt: skip


def key_of_product(schedule: tvm_api.Schedule, block: Any, follows: tuple[str, ...]) -> KernelKey:
    body = schedule.get(block)
    shapes = [tvm_api.buffer_shape(region.source) for region in body.reads[:2]]
    result = body.writes[0].source
    dtype = tvm_api.buffer_dtype(result)
    return KernelKey(
        "matmul", dtype, shapes[0], shapes[-1], tvm_api.buffer_shape(result), follows=follows
    )
