# SPDX-License-Identifier: Apache-2.0
"""Transposed float convolutions as the plain convolutions of their phases.

A transposed convolution with stride s puts s - 1 zeros between the elements of the data. Results
that are s rows and columns apart form a phase: the same weights meet elements and not zeros. Each
phase is a convolution of the data with a subset of the weights, and nothing is multiplied by an
inserted zero.

In one direction, `result[s * q + a]` is the sum of `data[y] * weights[k]` with `s * y + d * k - p =
s * q + a` for dilation d and padding p. Products of each sum stay in order, so that results equal
the results of other schedules.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from umakit import tvm_api
from umakit.cpu.float_convolutions import FUSES_WHAT_FOLLOWS
from umakit.cpu.plain_tiles import PlainTile, choose_whole_tile

OPERATORS = ("relax.nn.conv1d_transpose", "relax.nn.conv2d_transpose")
LAYOUTS = (("NCW", "IOW"), ("NCHW", "IOHW"))
NAME, PHASE = "transposed_by_phases", "sums_of_phase"
"""Name of the kernels, and prefix of the names of their sums."""

TILE = "umakit.transposed_tile"
"""Annotation of the sums of a phase: channels and columns of a tile, whether columns are its lanes,
strides."""

MOST_PHASES = 16
"""Phases: each has loops of its own."""


@dataclass(frozen=True)
class Direction:
    """A transposed convolution in one direction.

    Attributes:
        before: padding cut off the start of the result.
    """

    size: int
    taps: int
    stride: int
    dilation: int
    before: int
    result: int

    @property
    def positions(self) -> int:
        """Number of results of each phase; the last one may lie behind the result."""
        return -(-self.result // self.stride)

    @property
    def step(self) -> int:
        """Distance of the data elements for neighbouring weights of a phase."""
        return self.dilation // math.gcd(self.dilation, self.stride)

    def taps_of(self, phase: int) -> list[int]:
        """Return the weights of a phase, in the order of their data elements."""
        taps = range(self.taps - 1, -1, -1)
        return [k for k in taps if (phase + self.before - k * self.dilation) % self.stride == 0]

    def offset(self, phase: int) -> int:
        """Return the first data element for the first weight of a phase."""
        taps = self.taps_of(phase)
        return (phase + self.before - taps[0] * self.dilation) // self.stride if taps else 0

    @property
    def padding(self) -> tuple[int, int]:
        """Number of zeros required before and after the data."""
        phases = [n for n in range(self.stride) if self.taps_of(n)]
        first = min((self.offset(n) for n in phases), default=0)
        last = max((self.offset(n) + (len(self.taps_of(n)) - 1) * self.step for n in phases),
                   default=0)  # fmt: skip
        return max(0, -first), max(0, self.positions - 1 + last - (self.size - 1))


@dataclass(frozen=True)
class Transposed:
    """A transposed convolution computed by phases.

    Attributes:
        directions: rows and columns.
    """

    batch: int
    inputs: int
    outputs: int
    groups: int
    directions: tuple[Direction, Direction]
    tile: PlainTile

    @property
    def phases(self) -> list[tuple[int, int]]:
        """All phases, row by row."""
        rows, columns = (each.stride for each in self.directions)
        return [(a, b) for a in range(rows) for b in range(columns)]

    def has_sums(self, phase: tuple[int, int]) -> bool:
        """Whether a phase has weights."""
        return all(each.taps_of(n) for each, n in zip(self.directions, phase, strict=True))

    def weights(self, kernel: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the stored weights of all phases, one phase after the other.

        The weights of a phase are [O / c, I / groups, rows, columns, c] with c channels of a tile.

        Args:
            kernel: [I, O / groups, rows, columns].
        """
        grouped = kernel.reshape(self.groups, -1, *kernel.shape[1:])
        by_output = np.moveaxis(grouped, 2, 1).reshape(self.outputs, -1, *kernel.shape[2:])
        tiles = by_output.reshape(-1, self.tile.channels, *by_output.shape[1:])
        stored = np.moveaxis(tiles, 1, -1)
        return np.concatenate([stored[:, :, r][:, :, :, c].ravel() for r, c in self._taps])

    @property
    def _taps(self) -> list[tuple[list[int], list[int]]]:
        """The rows and the columns of the kernel in each phase with weights."""
        rows, columns = self.directions
        return [
            (rows.taps_of(a), columns.taps_of(b)) for a, b in self.phases if self.has_sums((a, b))
        ]

    def compute(self, data: Any, weights: Any) -> Any:
        """Return the result [N, O, H, W] of data [N, I, H, W] and stored weights, as expressions of
        TVM."""
        te, tir = tvm_api.te, tvm_api.tirx
        before, behind = zip(*(each.padding for each in self.directions), strict=True)
        padded = data
        if any((*before, *behind)):
            padded = tvm_api.topi.nn.pad(data, [0, 0, *before], [0, 0, *behind], name="pad_temp")
        sums, first = {}, 0
        for phase, taps in zip(filter(self.has_sums, self.phases), self._taps, strict=True):
            window = tuple(map(len, taps))
            sums[phase] = self._phase(phase, window, padded, (weights, first), before)
            first += self.outputs * self.inputs // self.groups * math.prod(window)
        rows, columns = self.directions

        def at(image: Any, channel: Any, y: Any, x: Any) -> Any:
            value: Any = tir.const(0.0, "float32")
            for a, b in reversed(self.phases):
                place = (image, channel, y // rows.stride, x // columns.stride)
                each = tir.const(0.0, "float32")
                if (a, b) in sums:
                    each = sums[a, b](*self._order(*place))
                if (a, b) == self.phases[-1]:
                    value = each
                    continue
                is_here = tir.all(y % rows.stride == a, x % columns.stride == b)
                value = tir.if_then_else(is_here, each, value)
            return value

        shape = (self.batch, self.outputs, rows.result, columns.result)
        return te.compute(shape, at, name="interleaved")

    def _order(self, image: Any, channel: Any, y: Any, x: Any) -> tuple[Any, ...]:
        return (image, channel, y, x) if self.tile.by_columns else (image, y, x, channel)

    def _phase(
        self,
        phase: tuple[int, int],
        window: tuple[int, ...],
        padded: Any,
        weights: tuple[Any, int],
        before: tuple[int, ...],
    ) -> Any:
        """Return the sums of a phase.

        Args:
            weights: stored weights of all phases, and the start of the phase's weights.
            before: number of zeros before the data.
        """
        te, size = tvm_api.te, self.tile.channels
        inputs, (stored, first) = self.inputs // self.groups, weights
        axes = [te.reduce_axis((0, n)) for n in (inputs, *window)]
        starts = [
            each.offset(n) + zeros
            for each, n, zeros in zip(self.directions, phase, before, strict=True)
        ]
        steps = [each.step for each in self.directions]

        def sum_of(image: Any, channel: Any, y: Any, x: Any) -> Any:
            i, k, j = axes
            group = channel // (self.outputs // self.groups) * inputs if self.groups > 1 else 0
            value = padded[
                image, group + i, y + k * steps[0] + starts[0], x + j * steps[1] + starts[1]
            ]
            place = ((channel // size * inputs + i) * window[0] + k) * window[1] + j
            return te.sum(value * stored[first + place * size + channel % size], axis=axes)

        positions = [each.positions for each in self.directions]
        shape = self._order(self.batch, self.outputs, *positions)
        name = f"{PHASE}_{phase[0]}_{phase[1]}"
        strides = [each.stride for each in self.directions]
        tile = [self.tile.channels, self.tile.columns, int(self.tile.by_columns), *strides]
        facts = {TILE: ",".join(map(str, tile))}
        if self.tile.by_columns:
            return te.compute(shape, sum_of, name=name, attrs=facts)
        return te.compute(shape, lambda n, y, x, o: sum_of(n, o, y, x), name=name, attrs=facts)


def rules() -> dict[str, tvm_api.Legalization]:
    """Return the legalizations of transposed float convolutions with constant weights."""
    return {name: _rule(name, *layouts) for name, layouts in zip(OPERATORS, LAYOUTS, strict=True)}


def _rule(operator: str, data_layout: str, kernel_layout: str) -> tvm_api.Legalization:
    usual = tvm_api.legalization(operator)

    def rule(builder: tvm_api.BlockBuilder, call: tvm_api.Call) -> tvm_api.Expr:
        weights, attributes = tvm_api.constant_array(call.args[1]), call.attrs
        shape, result = tvm_api.static_shape(call.args[0]), tvm_api.static_shape(call)
        if weights is None or weights.dtype != np.float32 or shape is None or result is None:
            return usual(builder, call)
        layouts = (str(attributes.data_layout), str(attributes.kernel_layout))
        if layouts != (data_layout, kernel_layout):
            return usual(builder, call)
        made = _transposed(shape, weights.shape, result, attributes)
        if made is None:
            return usual(builder, call)
        kernel = weights if weights.ndim == 4 else weights[:, :, None]

        def compute(data: Any, stored: Any) -> Any:
            if len(shape) == 4:
                return made.compute(data, stored)
            wide = tvm_api.te.compute(
                (shape[0], shape[1], 1, shape[2]), lambda n, c, _, x: data[n, c, x], name="image"
            )
            image = made.compute(wide, stored)
            return tvm_api.te.compute(result, lambda n, c, x: image[n, c, 0, x], name="signal")

        return builder.call_te(
            compute, call.args[0], tvm_api.relax.const(made.weights(kernel)),
            primfunc_name_hint=NAME, primfunc_attrs={"op_pattern": FUSES_WHAT_FOLLOWS},
        )  # fmt: skip

    return rule


def _transposed(
    data: tuple[int, ...], kernel: tuple[int, ...], result: tuple[int, ...], attributes: Any
) -> Transposed | None:
    strides, dilation, padding = (
        [int(n) for n in numbers]
        for numbers in (attributes.strides, attributes.dilation, attributes.padding)
    )
    flat = [Direction(1, 1, 1, 1, 0, 1)] if len(data) == 3 else []
    sizes = zip(data[2:], kernel[2:], strides, dilation, padding, result[2:], strict=False)
    rows, columns = [*flat, *(Direction(*each) for each in sizes)]
    groups = int(attributes.groups)
    tile = choose_whole_tile(result[1] // groups, columns.positions)
    if rows.stride * columns.stride > MOST_PHASES or tile is None:
        return None
    return Transposed(data[0], data[1], result[1], groups, (rows, columns), tile)
