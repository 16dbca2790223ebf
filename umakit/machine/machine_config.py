# SPDX-License-Identifier: Apache-2.0
"""The section `[machine]` of `accel.toml`: memories, engines, queues, sizes and costs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    Field,
    PlainValidator,
    PrivateAttr,
    ValidationInfo,
    model_validator,
)

from umakit.machine.config_faults import Section
from umakit.machine.description import Completion
from umakit.machine.formulas import (
    FUNCTIONS,
    CostTable,
    Formula,
    FormulaError,
    parse_formula,
    read_table,
)
from umakit.machine.simulator_config import FilePath

NAME = r"^[a-z][a-z0-9_]*$"

Tensor = Literal["data", "weights", "parameters", "addend", "result"]
JobKind = Literal["convolution", "depthwise", "max_pool", "average_pool"]
Doing = Literal[
    "data", "weights", "parameters", "addend", "result",
    "convolution", "depthwise", "max_pool", "average_pool",
]  # fmt: skip
"""Tasks of an engine: copy tiles of a tensor, or compute layers of a kind."""

Placed = Literal["data", "weights", "parameters", "addend", "result", "sums"]
"""Contents of a memory."""

Axis = Literal["rows", "columns", "output_channels", "input_channels"]

JOBS: tuple[JobKind, ...] = ("convolution", "depthwise", "max_pool", "average_pool")
COPIES: tuple[Tensor, ...] = ("data", "weights", "parameters", "addend", "result")

SIZE_NAMES = (
    "m", "n", "k", "rows", "columns", "channels", "input_channels", "kernel_rows",
    "kernel_columns", "stride_rows", "stride_columns",
)  # fmt: skip
"""The product's m positions, n output channels and k products for each result; the result's rows,
columns and channels; the data's channels; kernel and strides."""

STEP_NAMES = ("first", "last")
"""1 for the first or last job that accumulates a tile over input channels, else 0."""

JOB_NAMES = (*SIZE_NAMES, *STEP_NAMES)
"""Names in the cost of a job."""

COPY_NAMES = ("planes", "rows", "row_bytes", "bytes")
"""Names in the cost of a copy: planes of rows of contiguous bytes, and all of these bytes."""

FOOTPRINT_NAMES = (*SIZE_NAMES, "input_rows", "input_columns")
"""Names in the byte formula of a tile: its sizes, and the size of the data that windows cover."""

RESERVED = frozenset((*FOOTPRINT_NAMES, *STEP_NAMES, *COPY_NAMES, *FUNCTIONS))


def _check_amount(amount: Any) -> int | str:
    if isinstance(amount, str):
        return amount
    if not isinstance(amount, int) or isinstance(amount, bool):
        raise ValueError(f"{amount!r} is neither an integer nor a formula in quotes")
    if not 0 <= amount <= 2**48:
        raise ValueError(f"{amount} is not 0 to 2**48")
    return amount


Amount = Annotated[int | str, PlainValidator(_check_amount)]
"""A number, or a formula of the machine's figures."""


class CostSection(Section):
    """The cost of a job or a copy: formulas or numbers.

    Attributes:
        busy: cycles in which the engine can take no other command, at least 1.
        tail: cycles after the busy cycles until the effect is complete.
        accesses: register accesses to enqueue the command; default: `transfer` or `job` of
            `[machine.driver]`.
    """

    busy: Amount
    tail: Amount = 0
    accesses: Amount | None = None


class EngineSection(Section):
    """An engine of `[machine]`, which runs one command after the other.

    Attributes:
        does: the tensors whose tiles the engine copies (`data`, `weights`, `parameters`, `addend`,
            `result`), and the kinds of layers that the engine computes (`convolution`, `depthwise`,
            `max_pool`, `average_pool`).
        busy, tail, accesses: cost of each command, as in `CostSection`.
        costs: other costs for some entries of `does`, by name.
        queue: name of the queue of its commands; default: the first queue.
        bytes_per_cycle: largest number of bytes that the engine copies in a cycle, for the bound: a
            layer takes at least as long as this engine needs to copy each of its tensors once.
        depth: most commands in the engine at a time: with 2 a command starts in the tail of the
            previous command.
        in_order: whether all commands start in the order of the enqueueing; else loads, stores and
            jobs are three streams, each in order, and of two commands that could start, the older
            command starts.
    """

    name: str = Field(pattern=NAME)
    does: list[Doing] = Field(min_length=1)
    busy: Amount | None = None
    tail: Amount = 0
    accesses: Amount | None = None
    costs: dict[Doing, CostSection] = Field(default={})
    queue: str | None = None
    bytes_per_cycle: Amount | None = None
    depth: Amount = 1
    in_order: bool = False

    def cost_of(self, name: str) -> CostSection | None:
        """Return the cost of an entry of `does`; None if none is given."""
        for each, cost in self.costs.items():
            if each == name:
                return cost
        if self.busy is None:
            return None
        return CostSection(busy=self.busy, tail=self.tail, accesses=self.accesses)


class QueueSection(Section):
    """A queue of commands, shared by all engines that name the queue.

    Attributes:
        entries: most waiting and running commands; 0: the driver waits for the end of each command.
        completion: action of the driver without a free entry, see `umakit.machine.Queue`.
        in_order: whether the commands of all engines start in the order of the enqueueing: a
            command that cannot start holds up all commands behind it.
    """

    name: str = Field(pattern=NAME)
    entries: Amount
    completion: Completion = "interrupt"
    in_order: bool = False


@dataclass(frozen=True)
class CostFormulas:
    """The formulas of a `CostSection`, and its key in the file."""

    key: str
    busy: Formula
    tail: Formula
    accesses: Formula | None


class DriverSection(Section):
    """Register accesses of the driver's calls, a cycle each: `umakit.machine.DriverCosts`."""

    begin: Amount = 0
    configure: Amount = 0
    configure_add: Amount = 0
    transfer: Amount = 1
    job: Amount = 1
    check: Amount = 0
    finish: Amount = 0


class MachineSection(Section):
    """The section `[machine]`: limits of tiles, engines, queues and costs of commands.

    Every number may be a formula of `figures`: integers, names, + - * // %, parentheses, min, max
    and ceil_div. The memories are the `[[memory]]` with `address = "offset"`.

    Attributes:
        macs_per_cycle: largest number of multiply-accumulates in a cycle, for bound and roofline.
        bytes_per_cycle: largest number of bytes that all engines together copy in a cycle.
        figures: numbers for formulas, with names of your own; a later figure may use earlier
            figures. Macros of `[simulator]` may use figures: `defines = ["LANES={lanes}"]`.
        tables: CSV files for formulas, by the name of the function: with the columns m, n and
            cycles, `name(m, n)` is the cycles of a row, and `name(m, n, 5)` is 5 if no row matches.
        units, whole_units, limits, block_channels, sum_bytes, sums_in_result: as in
            `umakit.machine.TileMachine`. Without `sum_bytes` and `sums_in_result`, input channels
            are not cut.
        footprints: bytes of a tile by tensor, and of `sums`; default: the bytes of the tile, each
            contiguous part padded to rows of the memory.
        engine: the engines; one engine copies each tensor, and one computes each kind of job.
        queue: the queues; default: one queue without entries.
        driver: register accesses of the driver's calls.
    """

    macs_per_cycle: Amount
    bytes_per_cycle: Amount
    figures: dict[Annotated[str, Field(pattern=NAME)], Amount] = Field(default={})
    tables: dict[Annotated[str, Field(pattern=NAME)], FilePath] = Field(default={})
    units: dict[Axis, Amount] = Field(default={})
    whole_units: list[Axis] = Field(default=[])
    limits: dict[Axis, Amount] = Field(default={})
    block_channels: Amount = 1
    sum_bytes: Amount = 0
    sums_in_result: bool = False
    footprints: dict[Placed, Amount] = Field(default={})
    engine: list[EngineSection] = Field(min_length=1)
    queue: list[QueueSection] = Field(default=[])
    driver: DriverSection = DriverSection()
    _tables: dict[str, CostTable] = PrivateAttr(default_factory=dict)
    _figures: dict[str, int] = PrivateAttr(default_factory=dict)
    _numbers: dict[str, int] = PrivateAttr(default_factory=dict)
    _footprints: dict[str, Formula] = PrivateAttr(default_factory=dict)
    _costs: dict[str, CostFormulas] = PrivateAttr(default_factory=dict)

    @property
    def read_tables(self) -> Mapping[str, CostTable]:
        """The tables that formulas look up, by name."""
        return self._tables

    @property
    def values(self) -> Mapping[str, int]:
        """The computed figures, by name."""
        return self._figures

    @property
    def numbers(self) -> Mapping[str, int]:
        """The computed numbers by key, such as `macs_per_cycle`, `units.rows` and
        `engine.NAME.depth`."""
        return self._numbers

    @property
    def footprint_formulas(self) -> Mapping[str, Formula]:
        """The formulas of the bytes of a tile by tensor, and of `sums`."""
        return self._footprints

    @property
    def cost_formulas(self) -> Mapping[str, CostFormulas]:
        """The formulas of costs by tensor and kind of layer."""
        return self._costs

    def _amount(self, key: str, amount: int | str) -> int:
        try:
            found = parse_formula(amount, self._figures, self._tables)(self._figures)
        except FormulaError as error:
            raise ValueError(f"machine.{key}: {error}") from None
        if found < 0:
            raise ValueError(f"machine.{key}: {amount} is {found}, less than 0")
        return found

    def _formula(self, key: str, amount: int | str, names: Collection[str]) -> Formula:
        try:
            return parse_formula(amount, {*names, *self._figures}, self._tables)
        except FormulaError as error:
            raise ValueError(f"machine.{key}: {error}") from None

    @model_validator(mode="after")
    def _whole(self, info: ValidationInfo) -> Self:
        self._read(info.context)
        for name, figure in self.figures.items():
            if name in RESERVED or name in self.tables:
                raise ValueError(f"machine.figures.{name}: formulas have this name already")
            self._figures[name] = self._amount(f"figures.{name}", figure)
        for key, number, least in self._amounts():
            self._numbers[key] = self._amount(key, number)
            if self._numbers[key] < least:
                raise ValueError(f"machine.{key}: {number} is less than {least}")
        for name, bytes_ in self.footprints.items():
            key = f"footprints.{name}"
            self._footprints[name] = self._formula(key, bytes_, FOOTPRINT_NAMES)
        self._check_engines()
        return self

    def _read(self, context: Any) -> None:
        for name, file in self.tables.items():
            if not isinstance(context, Path):
                raise ValueError(f"machine.tables.{name}: only an accel.toml can name files")
            if name in RESERVED:
                raise ValueError(f"machine.tables.{name}: formulas have this name already")
            try:
                self._tables[name] = read_table(context, file)
            except ValueError as error:
                raise ValueError(f"machine.tables.{name}: {error}") from None

    def _amounts(self) -> Iterator[tuple[str, int | str, int]]:
        """Yield the key, the value and the smallest allowed value of each number."""
        yield "macs_per_cycle", self.macs_per_cycle, 1
        yield "bytes_per_cycle", self.bytes_per_cycle, 1
        yield "block_channels", self.block_channels, 1
        yield "sum_bytes", self.sum_bytes, 0
        for key in ("units", "limits"):
            for axis, amount in getattr(self, key).items():
                yield f"{key}.{axis}", amount, 1
        for engine in self.engine:
            yield f"engine.{engine.name}.depth", engine.depth, 1
            if engine.bytes_per_cycle is not None:
                yield f"engine.{engine.name}.bytes_per_cycle", engine.bytes_per_cycle, 1
        for queue in self.queue:
            yield f"queue.{queue.name}.entries", queue.entries, 0
        for name in DriverSection.model_fields:
            least = 1 if name in ("transfer", "job") else 0
            yield f"driver.{name}", getattr(self.driver, name), least

    def _check_engines(self) -> None:
        queues = [each.name for each in self.queue]
        for kind, all_ in {"queue": queues, "engine": [each.name for each in self.engine]}.items():
            for one in all_:
                if all_.count(one) > 1:
                    raise ValueError(f"machine.{kind}: two are called {one}")
        entries = {self._numbers[f"queue.{name}.entries"] > 0 for name in queues}
        if len(entries) > 1:
            raise ValueError("machine.queue: queues with and without entries do not go together")
        done: dict[str, str] = {}
        for engine in self.engine:
            key = f"engine.{engine.name}"
            if engine.queue is not None and engine.queue not in queues:
                raise ValueError(f"machine.{key}.queue: there is no queue {engine.queue}")
            for name in engine.costs:
                if name not in engine.does:
                    raise ValueError(f"machine.{key}.costs.{name}: does has no {name}")
            for name in engine.does:
                if name in done:
                    raise ValueError(f"machine.{key}.does: {done[name]} does {name} already")
                done[name] = engine.name
                self._check_cost(engine, name)
        if not done.keys() & set(JOBS):
            names = ", ".join(JOBS)
            raise ValueError(f"machine.engine: none computes; name one of {names} in does")
        weighted = ("weights", "parameters") if done.keys() & set(JOBS[:2]) else ()
        for name in ("data", *weighted, "result"):
            if name not in done:
                raise ValueError(f"machine.engine: none copies {name}; name it in does of one")

    def _check_cost(self, engine: EngineSection, name: str) -> None:
        key, cost = f"engine.{engine.name}", engine.cost_of(name)
        names: tuple[str, ...] = JOB_NAMES if name in JOBS else COPY_NAMES
        if cost is None:
            raise ValueError(f"machine.{key}: {name} has no cost; give busy, or costs.{name}")
        key += f".costs.{name}" if name in list(engine.costs) else ""
        accesses = cost.accesses
        self._costs[name] = CostFormulas(
            f"machine.{key}",
            self._formula(f"{key}.busy", cost.busy, names),
            self._formula(f"{key}.tail", cost.tail, names),
            None if accesses is None else self._formula(f"{key}.accesses", accesses, names),
        )
