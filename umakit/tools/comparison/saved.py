# SPDX-License-Identifier: Apache-2.0
"""What a comparison needs of a report, read from what `uma report --json` printed.

Keys that are not here are ignored, so that a report of a newer umakit can be read as long as its
version is the same. Imports neither TVM nor the pipeline.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from umakit.errors import RecordsError, short_path
from umakit.files.documents import Document
from umakit.text.identities import LayerIdentity, SourceOperator
from umakit.tools.comparison.adding_up import contradiction
from umakit.tools.report_format import FORMAT, VERSION

CPU = "cpu"
AGAIN = "write it again with `uma report MODEL --backend NAME --json > FILE`"


Count = Annotated[int, Field(ge=0)]
"""A number of cycles, bytes or other things."""


@dataclass(frozen=True)
class Parts:
    """Cycles by the state of the engines, as `umakit.tools.accounting.Parts`."""

    computing: Count
    waits: dict[str, Count]
    registers: Count
    idle: Count
    undivided: Count

    def wait(self, name: str) -> int:
        """Return the cycles of a wait, 0 for one that never was."""
        return self.waits.get(name, 0)


@dataclass(frozen=True)
class Operator:
    """The `name` and kind (`operator`) of an operator, where it runs, and why on the CPU."""

    operator: str
    name: str
    where: str
    reason: str


@dataclass(frozen=True)
class Row:
    """The figures of an owner of cycles, as `umakit.tools.accounting.Row`.

    Attributes:
        identity: None between layers, which is `owner` too.
        clock_cycles: measured cycles of the accelerators' clocks.
        moved_bytes: bytes on the bus.
        read_bytes, written_bytes: of a step on the CPU.
    """

    owner: Literal["layer", "cpu step", "between layers"]
    name: str
    where: str
    identity: LayerIdentity | None
    kind: str
    macs: Count
    clock_cycles: Count | None
    parts: Parts | None
    register_reads: Count | None = None
    register_writes: Count | None = None
    moved_bytes: Count | None = None
    read_bytes: Count | None = None
    written_bytes: Count | None = None

    @property
    def on_cpu(self) -> bool:
        """Whether it is a step on the CPU."""
        return self.owner == "cpu step"


@dataclass(frozen=True)
class Tiled:
    """How a layer is cut, its predicted cycles, and the bound by its MACs and bytes in cycles."""

    tiling: str
    predicted_cycles: Count
    bound: Count


@dataclass(frozen=True)
class Layer:
    """What a report knows of a layer besides its row.

    Attributes:
        predicted_cycles: by a cost model; None without one.
        tiled: None for a layer that no planner cut, or if nothing says how.
        clock_cycles, identity: as in its row; None if only that has them.
    """

    predicted_cycles: Count | None = None
    tiled: Tiled | None = None
    clock_cycles: Count | None = None
    identity: LayerIdentity | None = None


@dataclass(frozen=True)
class Accounting:
    """The owners of all cycles, as `umakit.tools.accounting.Accounting`."""

    rows: tuple[Row, ...]
    clock_cycles: Count | None
    unknown_layers: Count
    cpu_clock_hz: float | None
    cycles: Count | None
    parts: Parts | None


@dataclass(frozen=True)
class Scratchpad:
    """A memory of an accelerator, and how many bytes of it are used."""

    name: str
    used_bytes: Count


@dataclass(frozen=True)
class Memory:
    """The memory plan in bytes."""

    arena_bytes: Count
    constants_bytes: Count
    scratchpads: tuple[Scratchpad, ...]


@dataclass(frozen=True)
class NamedBound:
    """A bound of all layers on an accelerator in cycles, as in `umakit.tools.page.bounds`."""

    name: str
    cycles: Count | None


@dataclass(frozen=True)
class Bounds:
    """The bounds of an accelerator's layers, and their measured cycles."""

    accelerator: str
    clock_cycles: Count | None
    bounds: tuple[NamedBound, ...]

    def cycles(self, name: str) -> int | None:
        """Return a bound by its name; None if it is not known."""
        return next((each.cycles for each in self.bounds if each.name == name), None)


@dataclass(frozen=True)
class Size:
    """What `--size` measured, in bytes; `compiler` is the command line that it is for."""

    compiler: str
    text_bytes: Count
    static_bytes: Count
    stack_bytes: Count | None


@dataclass(frozen=True)
class Target:
    """An accelerator that the network was offered to."""

    name: str


@dataclass(frozen=True)
class Report:
    """The figures of a network on accelerators.

    Attributes:
        model: file name of the network, or the name of a library.
        model_sha256: its digest.
        umakit_version: version that wrote the report.
        inputs: description of the inputs that the cycles were measured with.
        accelerators: in order of priority.
        operators: all operators with the reasons why some are on the CPU.
        layers: a layer for each row, but for what lies between them.
        total_macs, offloaded_macs: multiply-accumulates, and those on accelerators.
        size: None if nothing was compiled to measure it.
        clock_cycles: measured cycles of layers on accelerators; None if only their accounting has
            them.
        has_tilings: whether it says how layers are cut, which libraries do not.
    """

    model: str
    model_sha256: str
    umakit_version: str
    inputs: str
    accelerators: tuple[Target, ...]
    operators: tuple[Operator, ...]
    layers: tuple[Layer, ...]
    accounting: Accounting
    memory: Memory
    total_macs: Count
    offloaded_macs: Count
    bounds: tuple[Bounds, ...] = ()
    size: Size | None = None
    clock_cycles: Count | None = None
    has_tilings: bool = True
    format: str = FORMAT
    version: int = VERSION

    @property
    def title(self) -> str:
        """The network and where it runs, for a reader."""
        names = " + ".join(each.name for each in self.accelerators) or "the CPU"
        return f"{self.model} on {names}"

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The layers and steps on the CPU in the order of execution."""
        rows = [row for row in self.accounting.rows if row.owner != "between layers"]
        return tuple(Step(row, layer) for row, layer in zip(rows, self.layers, strict=True))

    @property
    def between(self) -> Row | None:
        """What lies between the layers."""
        rows = self.accounting.rows
        return next((row for row in rows if row.owner == "between layers"), None)

    def as_text(self) -> str:
        """Return it as the text of a file that `read_report` reads."""
        first = {"format": self.format, "version": self.version}
        return json.dumps(first | asdict(self), indent=1) + "\n"


@dataclass(frozen=True)
class Step:
    """A layer or a step on the CPU, with all that is known of it."""

    row: Row
    layer: Layer
    identity: LayerIdentity = field(init=False)

    def __post_init__(self) -> None:
        identity = self.row.identity
        if identity is None:  # of a report that nothing but a hand wrote
            operators = (SourceOperator(self.row.name),)
            identity = LayerIdentity(self.row.name, "operators", operators, 0)
        object.__setattr__(self, "identity", identity)


REPORT: Document[Report] = Document(
    FORMAT, VERSION, "report that `uma report --json` printed", TypeAdapter(Report), RecordsError,
    is_strict=True,
    instead_of_special="name a saved report", instead_of_another=AGAIN, instead_of_damaged=AGAIN,
)  # fmt: skip


def is_report_file(path: Path) -> bool:
    """Whether a path is a report, and not a model: a Relax module is JSON as well.

    All texts in files of JSON that cannot be a Relax module are taken for reports; `read_report`
    refuses those that are none.
    """
    if path.suffix != ".json" or not path.is_file():
        return False
    try:
        content = path.read_bytes()
        start = content[:2000].decode("utf-8", errors="replace")
    except OSError:
        return False
    if f'"{FORMAT}"' in start or '"model_sha256"' in start:
        return True
    is_text = "\0" not in start and "\N{REPLACEMENT CHARACTER}" not in start[:-4]
    return is_text and not (b'"nodes"' in content or b'"root_index"' in content)


def read_report(path: Path) -> Report:
    """Read a saved report.

    Raises:
        RecordsError: it cannot be read, is none, is of another version, or does not add up.
    """
    report = REPORT.read(path)
    _check(report, short_path(path))
    return report


def report_of(view: Mapping[str, Any]) -> Report:
    """Return the report with the keys of `uma report --json`."""
    report = REPORT.adapter.validate_json(json.dumps(view), strict=True)
    _check(report, "report")
    return report


def _check(report: Report, where: str) -> None:
    """Refuse a report whose figures contradict each other."""
    what = contradiction(report)
    if what is not None:
        raise RecordsError(what, where=where, fix=AGAIN)
