# SPDX-License-Identifier: Apache-2.0
"""`uma report`: an HTML page about a network on an accelerator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from umakit.cli.compare import CompareOption, compare_networks, measuring_of
from umakit.cli.console import print_json, print_whole, progress, say, say_notices, say_wrapped
from umakit.cli.limits import (
    BudgetOption,
    Checks,
    FailIfOption,
    SizeOption,
    WriteBudgetOption,
    check_options,
    read_checks,
    size_text,
)
from umakit.cli.options import (
    BackendOption,
    ChooseOption,
    CpuClockOption,
    CpuOption,
    DeviceOption,
    ForceOption,
    InferencesOption,
    JsonOption,
    KeepLayoutOption,
    RecordsOption,
    RequireOffloadOption,
    RoundingOption,
    ShapesOption,
    TraceOption,
    device_of,
    find_backends,
    parse_shapes,
    path_of,
)
from umakit.cli.tables import (
    Table,
    macs_summary,
    print_energy,
    print_inferences,
    print_owners,
    say_trace,
    text_table,
)

from umakit.files.outputs import PAGE, TRACE, check_distinct, check_file, check_parent
from umakit.tools.columns import (
    UNKNOWN,
    Column,
    TextTable,
    count,
    known_count,
    known_percent,
    known_ratio,
)

if TYPE_CHECKING:
    from umakit.tools.page.figures import Page
    from umakit.tools.record import AcceleratorBounds, LayerRecord
    from umakit.tools.trace import Trace, TraceSummary


HELP = """Write a page about a network on an accelerator: cycles, bounds, timeline, memory.

The network is compiled and run on this machine or an emulated device, accelerators are simulated.
The page is one HTML file that loads nothing: what was offloaded and why not the rest, cycles of
each layer as predicted and simulated against their lower bound and what holds them, bounds of the
whole network and what each layer loses to what, a timeline of DMA and array, a roofline and a
memory map."""

EPILOG = """Examples:  uma report digits_int8.onnx --backend strawberry_accelerator -o digits.html

           uma report digits_int8.onnx --backend strawberry_accelerator --trace trace.json

           uma report digits_int8.onnx --backend chocolate_accelerator --inferences 10

           uma report digits_int8.onnx --backend strawberry_accelerator --cpu cortex-m4
           --device qemu-cortex-m4"""
DEFAULT_OUTPUT = Path("report.html")

OptionalModelArgument = Annotated[
    Path | None,
    typer.Argument(
        help="An ONNX (.onnx), TensorFlow Lite (.tflite) or PyTorch (.pt2) file, or a Relax module "
        "(.json); may be left out with --compare.",
        show_default=False,
    ),
]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        help="The HTML file to write; default: report.html or comparison.html, none with --json. "
        "An earlier one is replaced.",
        show_default=False,
    ),
]
InputsOption = Annotated[
    Path | None,
    typer.Option(
        "--inputs",
        "-i",
        help="Arrays by input name (npz); default: random ones, the same every time.",
        show_default=False,
    ),
]
SeedOption = Annotated[int, typer.Option(min=0, help="Of the random inputs.")]


def report(
    context: typer.Context,
    model: OptionalModelArgument = None,
    backend: BackendOption = None,
    output: OutputOption = None,
    inputs: InputsOption = None,
    seed: SeedOption = 0,
    inferences: InferencesOption = None,
    input_shapes: ShapesOption = None,
    rounding: RoundingOption = None,
    records: RecordsOption = None,
    keep_layout: KeepLayoutOption = False,
    choose: ChooseOption = "order",
    cpu: CpuOption = "generic",
    device: DeviceOption = "host",
    trace: TraceOption = None,
    cpu_clock: CpuClockOption = None,
    compare: CompareOption = None,
    fail_if: FailIfOption = None,
    budget: BudgetOption = None,
    write_budget: WriteBudgetOption = None,
    size: SizeOption = False,
    require_offload: RequireOffloadOption = False,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> int:
    shapes = parse_shapes(input_shapes)
    check_options(model, compare, budget, write_budget, trace)
    checks = read_checks(fail_if, budget, compares=compare is not None)
    options = {**context.params, "device": device_of(device, backend)}
    if compare is not None:
        return compare_networks(options, compare, shapes, checks)
    assert model is not None
    destination = output or (None if as_json else DEFAULT_OUTPUT)
    files = Files(destination, trace, write_budget, force)
    with progress() as tell:
        done = _measure(model, options, shapes, files, checks, tell)
    say_notices(done.page.notices, as_json)
    if as_json:
        traced = {"trace": done.trace.as_json()} if done.trace else {}
        print_json(done.figures | traced | checks.as_json())
        return checks.said(as_json)
    _print(done.page)
    if size:
        say_wrapped(size_text(done.figures["size"]))
    code = checks.said(as_json)
    for file in (destination, *done.budget):
        say(f"Wrote {file}")
    if done.trace is not None:
        say_trace(trace, done.trace)
    return code


@dataclass(frozen=True)
class Files:
    """The files that a report writes; None for none.

    Attributes:
        force: whether a file that umakit did not write is replaced too.
    """

    page: Path | None
    trace: Path | None
    budget: Path | None
    force: bool

    def __post_init__(self) -> None:
        check_distinct(self.page, self.trace, self.budget)
        for file in (self.page, self.trace):
            if file is not None:
                check_parent(file)

    def check(self, read: list[Path]) -> None:
        if self.budget is not None:
            from umakit.tools.comparison.budget import check_budget

            check_budget(self.budget, read, force=self.force)
        if self.page is not None:
            check_file(self.page, PAGE, read, force=self.force)
        if self.trace is not None:
            check_file(self.trace, TRACE, read, force=self.force)


@dataclass(frozen=True)
class Done:
    """The figures of a network, the written files of a budget, and what the trace contains."""

    page: Page
    figures: dict[str, Any]
    budget: list[Path]
    trace: TraceSummary | None


def _measure(
    model: Path,
    options: dict[str, Any],
    shapes: Mapping[str, Sequence[int]],
    files: Files,
    checks: Checks,
    tell: Callable[[str], None],
) -> Done:
    """Compile and run a network, check its figures, and write the files.

    Args:
        options: options of the command by parameter name.
    """
    tell("loading TVM")
    from umakit.cpu.description import cpu_file
    from umakit.devices.catalogue import device_file
    from umakit.files.staging import write_file
    from umakit.frontend import model_files
    from umakit.registration.sources.tree import input_files
    from umakit.tools.comparison.budget import write_budget
    from umakit.tools.comparison.reading import report_of
    from umakit.tools.comparison.sources import size_view
    from umakit.tools.page import html, make_page
    from umakit.tools.trace import write_trace
    from umakit.tools.trace.reported import trace_of_report

    found = find_backends(options["backend"])
    read = input_files(
        path_of(options, "inputs"), path_of(options, "records"), cpu_file(options["cpu"]),
        device_file(options["device"]), *checks.read, backends=found, model=model_files(model),
    )  # fmt: skip
    files.check(read)
    traces: list[Trace] = []
    sizes: dict[str, Any] = {}

    def observe(*ran: Any) -> None:
        if files.trace is not None:
            traces.append(trace_of_report(found, *ran))
        if options["size"]:
            sizes["size"] = size_view(ran[0], tell)

    measuring = measuring_of(options, shapes)
    page = make_page(model, found, measuring=measuring, progress=tell, observe=observe)
    figures, force = page.as_json() | sizes, files.force
    checks.check_limits(figures)
    if files.page is not None:
        write_file(files.page, html(page).encode("utf-8"), PAGE, read, force=force)
    saved: list[Path] = []
    written = None
    if files.budget is not None:
        saved = [files.budget, write_budget(files.budget, report_of(figures), read, force=force)]
    if files.trace is not None:
        written = write_trace(files.trace, traces[0], read, force=force, progress=tell)
    return Done(page, figures, saved, written)


def _print(page: Page) -> None:
    print_whole(layer_table(page))
    for bounds in page.bounds:
        say("")
        print_whole(bounds_table(bounds))
        for line in notes_on(bounds):
            say_wrapped(line)
    print_owners(page.accounting, with_host=True)
    print_energy(page.accounting)
    say_wrapped(
        f"{page.offloaded_text}, {macs_summary(page.offload)}; {page.accounting.cpu_summary}"
    )
    for sentence in page.accounting.host.sentences:
        say_wrapped(sentence)
    if page.inferences is not None:
        print_inferences(page.inferences)
    for each in page.accelerators:
        if each.calibrated:
            say_wrapped(f"predicted for {each.name} from costs measured at {each.calibrated}")


def layer_table(page: Page) -> Table:
    macs = Column("MACs", lambda layer: count(layer.macs))
    simulated = Column("simulated", lambda layer: _own(layer, known_count(layer.clock_cycles)))
    if not page.tiled:
        where = Column("where", lambda layer: layer.where, is_text=True)
        return text_table("layer", TextTable.of(page.layers, (where, macs, simulated)))
    columns = (macs, simulated, *TILED)
    table = text_table("layer", TextTable.of(page.layers, columns))
    table.add_section()
    for total in page.totals:
        table.add_row(
            total.label,
            count(total.macs),
            known_count(total.cycles.clock_cycles),
            known_count(total.predicted_cycles),
            known_percent(total.difference),
            count(total.bound),
            known_ratio(total.ratio),
            style="bold",
        )
    return table


def _own(layer: LayerRecord, text: str) -> str:
    return "" if layer.on_cpu else text


def _tiled(of: Callable[[LayerRecord], str]) -> Callable[[LayerRecord], str]:
    return lambda layer: _own(layer, UNKNOWN if layer.tiled is None else of(layer))


TILED = (
    Column("predicted", _tiled(lambda layer: count(layer.predicted_cycles))),
    Column("difference", _tiled(lambda layer: known_percent(layer.difference))),
    Column("bound", _tiled(lambda layer: count(layer.bound))),
    Column("/ bound", _tiled(lambda layer: known_ratio(layer.ratio))),
    Column("bottleneck", lambda layer: "CPU" if layer.on_cpu else layer.bottleneck, is_text=True),
)
"""Columns of layers that planners cut into tiles."""


def bounds_table(bounds: AcceleratorBounds) -> Table:
    columns = (
        Column("cycles", lambda each: known_count(each.cycles)),
        Column("bytes", lambda each: known_count(each.bytes) if each.name in WITH_BYTES else ""),
        Column("simulated / bound", lambda each: known_ratio(each.ratio)),
    )
    found = TextTable.of(bounds.bounds, columns, name=lambda each: str(each.title))
    return text_table(f"bound on {bounds.accelerator}", found)


WITH_BYTES = ("network", "scratchpad")
"""Bounds of which the moved bytes are a part."""


def notes_on(bounds: AcceleratorBounds) -> Iterator[str]:
    """Yield lines about work outside the table, and about unknown figures."""
    if bounds.share is not None and bounds.share < 1:
        share = f"{100 * bounds.share:.1f} %"
        yield (
            f"bounds are for what {bounds.accelerator} runs: {share} of the network's "
            "multiply-accumulates"
        )
    unknown = dict.fromkeys(text for each in bounds.bounds for text in each.unknown)
    if unknown:
        yield f"not known for {bounds.accelerator}: {'; '.join(unknown)}"
    if bounds.not_counted:
        yield f"bytes of operands not counted, as unknown: {', '.join(bounds.not_counted)}"
