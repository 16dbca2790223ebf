# SPDX-License-Identifier: Apache-2.0
"""The lane_npu as a cost model sees it; its figures are those of the simulator, in accel.toml."""

from umakit.backend import AcceleratorConfig
from umakit.machine import (
    Copy,
    Cost,
    Engine,
    Machine,
    Memory,
    Queue,
    Stream,
    TileMachine,
    TileSizes,
)

ROW_BYTES = 32
WEIGHTS = ("weights", "parameters")


def whole(count: int, unit: int) -> int:
    """Return a count rounded up to whole units."""
    return -(-count // unit) * unit


class LaneNpu(TileMachine):
    def __init__(self, configuration: AcceleratorConfig) -> None:
        defines = configuration.simulator.defines if configuration.simulator else []
        figures = {name: int(value) for name, value in (each.split("=") for each in defines)}
        self.step, self.lanes = figures["INPUT_STEP"], figures["OUTPUT_LANES"]
        self.pipeline = figures["PIPELINE_CYCLES"]
        self.memories = dict.fromkeys(WEIGHTS, "weights")
        self.units = {"input_channels": self.step}
        self.block_channels = self.lanes
        self.sum_bytes = figures["SUM_BYTES"]
        channels = [
            tuple(
                figures[f"CHANNEL{number}_{name}"] for name in ("WIDTH", "LATENCY", "OUTSTANDING")
            )
            for number in range(1 + ("CHANNEL1_WIDTH" in figures))
        ]
        engines = [
            Engine("array", (Stream("jobs", "compute"),), "array", depth=2),
            Engine(
                "dma0", (Stream("loads", "load"), Stream("stores", "store")), "dma0", channels[0][2]
            ),
        ]
        if len(channels) == 2:
            engines.append(Engine("dma1", (Stream("weights", "load"),), "dma1", channels[1][2]))
            self.streams = dict.fromkeys(WEIGHTS, "weights")
        self.channels = dict.fromkeys(WEIGHTS, channels[-1])
        self.channels |= dict.fromkeys(("data", "addend", "result"), channels[0])
        self._machine = Machine(
            tuple(
                Memory(each.name, each.size or 0, each.banks, row_bytes=ROW_BYTES)
                for each in configuration.scratchpads
            ),
            tuple(engines),
            tuple(Queue(each.name, figures["QUEUE_ENTRIES"], "stall") for each in engines),
        )
        self.macs_per_cycle = self.lanes * self.step
        self.bytes_per_cycle = sum(width for width, _, _ in channels)

    @property
    def machine(self) -> Machine:
        return self._machine

    def job(self, sizes: TileSizes) -> Cost:
        """The weights of a pass, a row a cycle, enter while the pass before runs."""
        layer = sizes.layer
        steps = 1 if layer.per_channel else whole(sizes.input_channels, self.step) // self.step
        rows = 1 if layer.per_channel else self.step
        passes = whole(sizes.output_channels, self.lanes) // self.lanes * layer.window * steps
        return Cost(rows + passes * max(sizes.positions, rows), self.pipeline, sizes.product.macs)

    def copy(self, copied: Copy) -> Cost:
        width, latency, _ = self.channels[copied.tensor]
        return Cost(copied.planes * copied.rows * -(-copied.row_bytes // width), latency)

    def sums(self, sizes: TileSizes, steps: int) -> int:
        """Every job needs them."""
        return 4 * sizes.positions * whole(sizes.output_channels, self.lanes)

    def footprint(self, tensor: str, sizes: TileSizes, covered: tuple[int, int]) -> int:
        """Positions x channels, whatever the order in shared memory."""
        if tensor in WEIGHTS:
            return super().footprint(tensor, sizes, covered)
        positions, channels = sizes.positions, sizes.output_channels
        if tensor == "data":
            positions, channels = covered[0] * covered[1], sizes.input_channels
        return positions * whole(channels, ROW_BYTES)
