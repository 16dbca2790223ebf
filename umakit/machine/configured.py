# SPDX-License-Identifier: Apache-2.0
"""The machine that the section `[machine]` of an `accel.toml` describes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from math import lcm

from umakit.errors import AcceleratorConfigError
from umakit.machine.accelerator_config import AcceleratorConfig, MemorySection
from umakit.machine.commands import DriverCosts
from umakit.machine.config_faults import described_fault
from umakit.machine.costs import Copy, Cost, Figure, TileSizes, flat
from umakit.machine.description import Does, Engine, Machine, Memory, Queue, Stream
from umakit.machine.formulas import Formula, FormulaError
from umakit.machine.layer import Kind, Layer
from umakit.machine.machine_config import (
    JOBS,
    STEP_NAMES,
    CostFormulas,
    EngineSection,
)
from umakit.machine.tile_machine import TileMachine

NO_QUEUE = "commands"
"""Name of the queue of a machine that names none."""


class ConfiguredMachine(TileMachine):
    """The machine of an `accel.toml` with a section `[machine]`.

    A subclass may override a part of the machine, such as `job` or `footprint`.

    Args:
        configuration: contents of the file.

    Raises:
        AcceleratorConfigError: the section `[machine]` is missing or contradicts itself.
    """

    def __init__(self, configuration: AcceleratorConfig) -> None:
        self._name, self._path = configuration.accelerator.name, configuration.path
        section = configuration.machine
        if section is None:
            raise self._refusal("there is no section [machine]")
        self._section = section
        self._memory_sections = configuration.scratchpads
        if not self._memory_sections:
            raise self._refusal('[machine] needs a [[memory]] with address = "offset"')
        self.alignment = configuration.dma.alignment
        numbers = section.numbers
        for name in ("macs_per_cycle", "bytes_per_cycle", "block_channels", "sum_bytes"):
            setattr(self, name, numbers[name])
        self.engine_bytes_per_cycle = {
            each.name: numbers[f"engine.{each.name}.bytes_per_cycle"]
            for each in section.engine
            if each.bytes_per_cycle is not None
        }
        self.units = {axis: numbers[f"units.{axis}"] for axis in section.units}
        self.limits = {axis: numbers[f"limits.{axis}"] for axis in section.limits}
        self.whole_units = tuple(section.whole_units)
        self.sums_in_result = section.sums_in_result
        self.memories = {name: each.name for each in self._memory_sections for name in each.holds}
        self.streams = {
            name: f"{engine.name}.{_does(name)}"
            for engine in section.engine
            for name in engine.does
        }
        self._costs = section.cost_formulas
        self.jobs_by_step = any(
            {*STEP_NAMES} & formula.names
            for name, costs in self._costs.items()
            for formula in (costs.busy, costs.tail, costs.accesses)
            if name in JOBS and formula is not None
        )
        self._footprints = section.footprint_formulas
        if Kind.CONVOLUTION.value in self._costs:
            self._check_footprints()

    @cached_property
    def machine(self) -> Machine:
        section, numbers = self._section, self._section.numbers
        queues = tuple(
            Queue(each.name, numbers[f"queue.{each.name}.entries"], each.completion, each.in_order)
            for each in section.queue
        ) or (Queue(NO_QUEUE, 0),)
        return Machine(
            tuple(
                Memory(
                    each.name, each.size or 0, each.banks, each.exclusive, each.row_bytes,
                    _tile_alignment(each),
                )
                for each in self._memory_sections
            ),
            tuple(
                Engine(
                    each.name, _streams(each), each.queue or queues[0].name,
                    numbers[f"engine.{each.name}.depth"], each.in_order,
                )
                for each in section.engine
            ),
            queues,
        )  # fmt: skip

    @property
    def driver(self) -> DriverCosts:
        """The register accesses of the driver's calls, from `[machine.driver]`."""
        section = self._section
        return DriverCosts(
            **{name: section.numbers[f"driver.{name}"] for name, _ in section.driver}
        )

    def refusal(self, layer: Layer) -> str:
        """Refuse layers that no engine computes, and additions if no engine copies the addend."""
        if layer.kind.value not in self._costs:
            return f"no engine of [machine] computes {layer.kind.value}"
        if layer.adds and "addend" not in self._costs:
            return "no engine of [machine] copies an addend"
        return ""

    def job(self, sizes: TileSizes) -> Cost:
        values = {**_size_values(sizes), "first": int(sizes.first), "last": int(sizes.last)}
        return self._cost(self._costs[sizes.layer.kind.value], values)

    def copy(self, copied: Copy) -> Cost:
        values = {
            "planes": copied.planes,
            "rows": copied.rows,
            "row_bytes": copied.row_bytes,
            "bytes": copied.planes * copied.rows * copied.row_bytes,
        }
        return self._cost(self._costs[copied.tensor], values)

    def footprint(self, tensor: str, sizes: TileSizes, covered: tuple[int, int]) -> int:
        if tensor not in self._footprints:
            return super().footprint(tensor, sizes, covered)
        return self._bytes(tensor, sizes, covered)

    def sums(self, sizes: TileSizes, steps: int) -> int:
        if "sums" not in self._footprints:
            return super().sums(sizes, steps)
        return self._bytes("sums", sizes, (0, 0))

    def _check_footprints(self) -> None:
        """Compare formulas with the bytes of one position of whole blocks, where no row has
        padding.

        Raises:
            AcceleratorConfigError: a formula yields less.
        """
        block, inputs = self.block_channels, self.unit("input_channels")
        layer = Layer(
            Kind.CONVOLUTION, 1, (1, 1), (1, 1), 2 * inputs, block, (1, 1), scales=block,
            stored_channels=block,
        )  # fmt: skip
        sizes = TileSizes(layer, self.dataflows[0], 1, 1, block, inputs)
        for name in self._footprints:
            if self._is_overridden(name):
                continue
            if name == "sums":
                self.kept_bytes(sizes, 2)
            else:
                self.tile_bytes(name, sizes, (1, 1), 2)

    def _states(self, name: str) -> bool:
        """Whether a formula or an overridden method gives the bytes of a tile."""
        return name in self._footprints or self._is_overridden(name)

    def _is_overridden(self, name: str) -> bool:
        own = type(self).sums if name == "sums" else type(self).footprint
        return own not in (ConfiguredMachine.sums, ConfiguredMachine.footprint)

    def _too_small(
        self, name: str, found: int, needed: int, sizes: TileSizes, *, is_sum: bool
    ) -> AcceleratorConfigError:
        error = super()._too_small(name, found, needed, sizes, is_sum=is_sum)
        if self._is_overridden(name):
            return error
        return self._refusal(
            f"machine.footprints.{name}: {error.what}",
            fix='write "4 * m * n", or more'
            if is_sum
            else "let it be larger, or remove it: tiles then have the bytes that are copied",
        )

    def figures(self) -> dict[str, Figure]:
        """Return the figures that identify the machine: of its parts, formulas and tables."""
        section = self._section
        written = {
            "figures": section.values,
            "tables": {name: table.digest for name, table in section.read_tables.items()},
            "footprints": {name: each.text for name, each in self._footprints.items()},
            "costs": {
                name: {
                    "busy": each.busy.text,
                    "tail": each.tail.text,
                    "accesses": each.accesses.text if each.accesses else "",
                }
                for name, each in self._costs.items()
            },
        }
        found = {name: value for key, each in written.items() for name, value in flat(key, each)}
        return {**found, **super().figures()}

    def _cost(self, costs: CostFormulas, values: Mapping[str, int]) -> Cost:
        busy = self._value(f"{costs.key}.busy", costs.busy, values, 1)
        tail = self._value(f"{costs.key}.tail", costs.tail, values, 0)
        if costs.accesses is None:
            return Cost(busy, tail)
        accesses = self._value(f"{costs.key}.accesses", costs.accesses, values, 1)
        return Cost(busy, tail, accesses=accesses)

    def _bytes(self, tensor: str, sizes: TileSizes, covered: tuple[int, int]) -> int:
        height, width = covered
        values = {**_size_values(sizes), "input_rows": height, "input_columns": width}
        least = 0 if tensor == "sums" else 1
        return self._value(f"machine.footprints.{tensor}", self._footprints[tensor], values, least)

    def _value(self, key: str, formula: Formula, values: Mapping[str, int], least: int) -> int:
        try:
            found = formula({**self._section.values, **values} if formula.names else values)
        except FormulaError as error:
            raise self._refusal(f"{key}: {error}") from None
        if found < least:
            used = [f"{name} = {values[name]}" for name in sorted(formula.names) if name in values]
            sizes = f" for {', '.join(used)}" if used else ""
            raise self._refusal(f"{key}: {formula.text!r} is {found}{sizes}, less than {least}")
        return found

    def _refusal(
        self, message: str, fix: str = "correct its section [machine]"
    ) -> AcceleratorConfigError:
        where = f"accel.toml of {self._name}"
        if self._path is not None:
            message, where, _ = described_fault(self._path, message, AcceleratorConfig)
        return AcceleratorConfigError(message, where=where, fix=fix)


def _tile_alignment(memory: MemorySection) -> int:
    """Return the alignment of tiles in a memory, in bytes, for the memory plan too."""
    if "alignment" in memory.model_fields_set or memory.banks == 1:
        return memory.alignment
    return lcm((memory.size or 0) // memory.banks, memory.alignment)


def _size_values(sizes: TileSizes) -> dict[str, int]:
    layer, product = sizes.layer, sizes.product
    return {
        "m": product.m,
        "n": product.n,
        "k": product.k,
        "rows": sizes.rows,
        "columns": sizes.columns,
        "channels": sizes.output_channels,
        "input_channels": sizes.input_channels,
        "kernel_rows": layer.kernel[0],
        "kernel_columns": layer.kernel[1],
        "stride_rows": layer.strides[0],
        "stride_columns": layer.strides[1],
    }


def _does(name: str) -> Does:
    if name in JOBS:
        return "compute"
    return "store" if name == "result" else "load"


def _streams(engine: EngineSection) -> tuple[Stream, ...]:
    done = dict.fromkeys(_does(name) for name in engine.does)
    return tuple(Stream(f"{engine.name}.{does}", does) for does in done)
