# SPDX-License-Identifier: Apache-2.0
"""The search over tilings beside all tilings that there are, and bounds beside the exact clock."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations, product

import pytest
from comparisons import examples, some
from hypothesis import assume, given
from hypothesis import strategies as st

from umakit.machine import DriverCosts, Hardware, Kind, Layer, TilePlanner, Tiles, Tiling
from umakit.machine.clock import run
from umakit.machine.commands import commands_of
from umakit.machine.estimate import Estimates
from umakit.machine.space import misfit
from umakit.machine.systolic import Dataflow
from umakit.machine.tiles import AXES, BUFFERS
from umakit.tools.tuning import Effort
from umakit.tools.tuning.search import Problem, search
from umakit.tools.tuning.workers import ThisProcess

DRIVER = DriverCosts(begin=5, configure=15, configure_add=9, transfer=11, job=24, finish=4, check=2)
SMALL = Hardware(
    rows=4, columns=4, scratchpad_bytes=1024, scratchpad_banks=32, dataflows=tuple(Dataflow),
    drain_cycles=4, preload=True, pack_columns=True, depthwise=True, pooling_lanes=4,
    accumulator_bytes=256, bytes_per_cycle=4, latency_cycles=6, outstanding=True, command_queue=8,
)  # fmt: skip


def layer(
    kind: Kind, size: tuple[int, int], channels: tuple[int, int], kernel: tuple[int, int],
    stride: int = 1, pad: int = 0, dilation: int = 1, nchw: bool = False, images: int = 1,
    scales: bool = True, adds: bool = False,
) -> Layer:  # fmt: skip
    """A layer with the same padding on all sides."""
    inputs, outputs = channels
    height, width = (
        (extent + 2 * pad - (taps - 1) * dilation - 1) // stride + 1
        for extent, taps in zip(size, kernel, strict=True)
    )
    pool = kind in (Kind.MAX_POOL, Kind.AVERAGE_POOL)
    filled = -(-outputs // 4) * 4 if kind is Kind.CONVOLUTION else outputs
    return Layer(
        kind, images, size, (height, width), inputs, outputs, kernel, (stride, stride), (pad, pad),
        (dilation, dilation), nchw, 0 if pool else outputs if scales else 1, filled, adds,
    )  # fmt: skip


CONVOLUTION, DEPTHWISE = Kind.CONVOLUTION, Kind.DEPTHWISE
LAYERS = {
    "3x3": layer(CONVOLUTION, (4, 3), (4, 8), (3, 3), pad=1),
    "3x3/2": layer(CONVOLUTION, (8, 6), (3, 8), (3, 3), stride=2, pad=1),
    "1x1": layer(CONVOLUTION, (2, 3), (6, 8), (1, 1)),
    "1x1 add": layer(CONVOLUTION, (3, 2), (5, 8), (1, 1), adds=True),
    "dense": layer(CONVOLUTION, (1, 1), (40, 22), (1, 1), scales=False),
    "dilated": layer(CONVOLUTION, (8, 7), (4, 8), (3, 3), dilation=2),
    "NCHW": layer(CONVOLUTION, (5, 4), (4, 8), (3, 2), nchw=True),
    "depthwise": layer(DEPTHWISE, (6, 5), (12, 12), (3, 3), pad=1),
    "depthwise/2 x2": layer(DEPTHWISE, (9, 9), (8, 16), (3, 3), stride=2, pad=1),
    "pool": layer(Kind.MAX_POOL, (10, 10), (12, 12), (2, 2), stride=2),
}


def every_tiling(what: Layer, hardware: Hardware) -> Iterator[Tiling]:
    """All sizes of tiles along all axes, all orders of loops that differ."""
    block = hardware.columns
    if what.per_channel:
        block = block if block % what.multiplier == 0 else block * what.multiplier
    outputs = {
        min(n, what.output_channels) for n in range(block, what.output_channels + block, block)
    }
    inputs = [what.input_channels] if what.per_channel else range(1, what.input_channels + 1)
    flows = hardware.dataflows[:1] if what.is_pool else hardware.dataflows
    height, width = what.output_size
    for rows, columns, channels, part in product(
        range(1, height + 1), range(1, width + 1), outputs, inputs
    ):
        cut = {
            "rows": rows < height, "columns": columns < width,
            "output_channels": channels < what.output_channels,
        }  # fmt: skip
        orders = {tuple(a for a in order if cut[a]): order for order in permutations(AXES)}
        for flow, order, buffers in product(flows, orders.values(), BUFFERS):
            yield Tiling(flow, rows, columns, channels, part, order, buffers)


def exact(what: Layer, tiling: Tiling, hardware: Hardware) -> int | None:
    """Cycles by the clock; None if the tiling does not fit."""
    tiles = Tiles(what, tiling, hardware)
    if misfit(tiles, hardware):
        return None
    return run(commands_of(tiles, hardware, DRIVER), hardware.machine).cycles + DRIVER.finish


@pytest.mark.soak
@pytest.mark.parametrize("name", some(LAYERS, 6))
def test_the_search_finds_what_trying_everything_finds(name: str) -> None:
    what = LAYERS[name]
    cycles = [exact(what, tiling, SMALL) for tiling in every_tiling(what, SMALL)]
    known = [count for count in cycles if count is not None]
    best = min(known)
    found = search(Problem(what, TilePlanner(SMALL, DRIVER)), Effort(64, 0), ThisProcess())
    assert exact(what, found.tiling, SMALL) == found.predicted
    assert found.bound <= best <= found.predicted <= 1.02 * best
    assert found.predicted <= found.default


SIZES = st.integers(1, 9)
FIGURES = st.fixed_dictionaries(
    {
        "preload": st.booleans(), "pack_columns": st.booleans(), "outstanding": st.booleans(),
        "command_queue": st.sampled_from([0, 4, 16]), "latency_cycles": st.integers(0, 20),
        "bytes_per_cycle": st.sampled_from([1, 4, 32]), "drain_cycles": st.integers(0, 8),
        "accumulator_bytes": st.sampled_from([0, 4096]),
    }
)  # fmt: skip


@examples(150)
@given(
    st.sampled_from(list(Kind)), st.tuples(SIZES, SIZES), SIZES, SIZES, st.integers(1, 3),
    st.integers(1, 2), st.booleans(), st.booleans(), FIGURES, st.data(),
)  # fmt: skip
def test_no_run_takes_less_than_the_bound(
    kind: Kind, size: tuple[int, int], inputs: int, outputs: int, taps: int, stride: int,
    nchw: bool, adds: bool, figures: dict[str, int], data: st.DataObject,
) -> None:  # fmt: skip
    assume(min(size) >= taps)
    per_channel = kind is not CONVOLUTION
    what = layer(
        kind, size, (inputs, inputs if per_channel else outputs), (taps, taps), stride, nchw=nchw,
        adds=adds and kind is CONVOLUTION,
    )  # fmt: skip
    hardware = Hardware(
        4, 4, 2**16, 64, dataflows=tuple(Dataflow), depthwise=True, pooling_lanes=4, **figures  # type: ignore[arg-type]
    )  # fmt: skip
    channels = data.draw(st.integers(1, -(-what.output_channels // 4))) * 4
    tiling = Tiling(
        data.draw(st.sampled_from(hardware.dataflows)),
        data.draw(st.integers(1, what.output_size[0])),
        data.draw(st.integers(1, what.output_size[1])),
        min(channels, what.output_channels),
        what.input_channels if per_channel else data.draw(st.integers(1, what.input_channels)),
        tuple(data.draw(st.permutations(AXES))),
        data.draw(st.sampled_from(BUFFERS)),
    )
    cycles = exact(what, tiling, hardware)
    assume(cycles is not None)
    assert cycles is not None
    tiles = Tiles(what, tiling, hardware)
    estimates = Estimates(what, hardware, DRIVER)
    found = estimates.of(tiles)
    assert estimates.bound(tiling) <= found.bound <= min(cycles, found.cycles)
    assert found.commands == len(commands_of(tiles, hardware, DRIVER))
    if not hardware.command_queue:
        assert found.cycles == cycles


def test_a_default_is_chosen_at_once_and_is_good() -> None:
    """14x14x256 to 7x7x512 fits badly with whole input channels."""
    hardware = replace(
        SMALL, rows=16, columns=16, scratchpad_bytes=131072, drain_cycles=16, pooling_lanes=16,
        accumulator_bytes=32768, bytes_per_cycle=32, latency_cycles=16, command_queue=16,
    )  # fmt: skip
    what = layer(CONVOLUTION, (14, 14), (256, 512), (3, 3), stride=2, pad=1)
    planner = TilePlanner(hardware, DRIVER)
    tiling = planner.default(what)
    assert tiling is not None
    found = planner.predict(Tiles(what, tiling, hardware))
    assert found.cycles <= 1.01 * found.bound.cycles
