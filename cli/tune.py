# SPDX-License-Identifier: Apache-2.0
"""`uma tune`: searches the best tiling for each layer, or good choices for kernels on a CPU."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from umakit.cli.console import console, print_json, print_whole, progress, say
from umakit.cli.options import (
    DeviceOption,
    JsonOption,
    KeepLayoutOption,
    ModelArgument,
    RoundingOption,
    ShapesOption,
    find_backends,
    parse_shapes,
)
from umakit.cli.tables import new_table
from umakit.cli.tune_cpu import CpuCall, tune_for_cpu

from umakit.devices import HOST
from umakit.errors import InputError
from umakit.text.escaping import shell_word, shown

if TYPE_CHECKING:
    from umakit.machine import Layer, Tiling
    from umakit.tools.tuning import LayerProgress, TunedLayer, Workers

HELP = """Find the best tiling for each layer, or better choices for kernels on a CPU, and write \
them down for `uma compile --records`.

A layer larger than the scratchpad is cut into tiles. Without records the backend chooses at once \
how, by an estimate; here all sizes of tiles, dataflows, orders of loops and numbers of buffers \
are looked at: all by the estimate, the best --clock of them on the exact clock of the cost model, \
the best --simulate of those in the simulator, each as a library of this layer alone.

Each layer is written down when it is done. After Ctrl-C the same command goes on where it \
stopped: layers that have a record of this effort are skipped, unless --again asks for them.

Records are of one model and one backend. They are refused when the model, a figure of the \
hardware, or the way in which umakit counts cycles has changed.

The result does not depend on who does the work: this process, --workers more of them, or the \
workers of a dask scheduler, which need umakit and the backend at the same path \
(`pip install 'umakit\\[cluster]'`).

A tiling such as "os, 4x16x32 by 8, channels > rows, x4" is output stationary, with tiles of 4 \
rows, 16 columns and 32 output channels, in steps over 8 input channels; the loop over channels \
is outside of that over rows, and there are 4 buffers instead of 2.

With --cpu instead of --backend, kernels are tuned for a CPU. Their rules choose at once how many \
results are computed together, and in which order; here up to --trials other choices of each \
kernel run in turns with the rule's own, on this machine by processor time, on a --device by \
counted instructions. A choice is kept if it is faster by 2 % in the median of 15 rounds, and in \
three quarters of them at all, twice and in the end together with all others; of instructions, if \
they are fewer.

Exit code: 0 if all layers are tuned, 130 after Ctrl-C, 2 for a mistake of the call, 1 if a run in \
the simulator failed."""

EPILOG = """Examples:  uma tune net.tflite --backend my_npu --records net.json --workers 4

uma tune net.onnx --cpu native --records net.json"""

TunedBackendOption = Annotated[
    str | None,
    typer.Option("--backend", "-b", help="Name or folder of the accelerator.", show_default=False),
]
TunedCpuOption = Annotated[
    str | None,
    typer.Option(
        "--cpu",
        help="CPU whose kernels are tuned, in place of --backend: native (this machine), another "
        "name that `uma compile --cpu` takes, or a TOML file.",
        show_default=False,
    ),
]
TrialsOption = Annotated[
    int, typer.Option(min=1, max=1000, help="With --cpu: other choices of a kernel to try.")
]
SecondsOption = Annotated[
    float,
    typer.Option(min=1, max=1e7, help="With --cpu: no trial begins after this time."),
]
RecordsOption = Annotated[
    Path,
    typer.Option(
        "--records",
        "-r",
        "--output",
        "-o",
        help="The file to write, or to go on with.",
        show_default=False,
    ),
]
ClockOption = Annotated[
    int, typer.Option(min=1, max=100_000, help="Tilings of a layer to run on the exact clock.")
]
SimulateOption = Annotated[
    int,
    typer.Option(
        min=0, max=100, help="Of the best of them, how many to run in the simulator; 0 for none."
    ),
]
WorkersOption = Annotated[int, typer.Option(min=1, max=1024, help="Processes of this machine.")]
SchedulerOption = Annotated[
    str | None,
    typer.Option(
        help="Use the workers of the dask scheduler at this address, such as tcp://host:8786.",
        show_default=False,
    ),
]
AgainOption = Annotated[
    bool, typer.Option("--again", help="Also look at layers that have a record.")
]


OF_BACKENDS = ("clock", "simulate", "workers", "scheduler")
OF_CPUS = ("device", "trials", "seconds")
"""Options that are for accelerators alone, and for CPUs alone."""


def tune(
    context: typer.Context,
    model: ModelArgument,
    records: RecordsOption,
    backend: TunedBackendOption = None,
    cpu: TunedCpuOption = None,
    clock: ClockOption = 64,
    simulate: SimulateOption = 3,
    workers: WorkersOption = 1,
    scheduler: SchedulerOption = None,
    device: DeviceOption = HOST.name,
    trials: TrialsOption = 12,
    seconds: SecondsOption = 900.0,
    again: AgainOption = False,
    input_shapes: ShapesOption = None,
    rounding: RoundingOption = None,
    keep_layout: KeepLayoutOption = False,
    as_json: JsonOption = False,
) -> int:
    """Registered with the help text above."""
    shapes = parse_shapes(input_shapes)
    _check_kind(context, backend, cpu)
    if cpu is not None:
        return tune_for_cpu(
            CpuCall(
                model, cpu, records, device, trials, seconds, again, shapes, rounding,
                keep_layout, as_json,
            )
        )  # fmt: skip
    assert backend is not None  # as `_check_kind` says
    with progress() as tell:
        tell("loading TVM")
        from umakit.frontend import model_files
        from umakit.pipeline import import_network
        from umakit.registration.inputs import input_files
        from umakit.tools.tuning import Effort, check_records_file, tune_model
        from umakit.tools.tuning.simulate import has_simulator

        (found,) = find_backends([backend])
        files = model_files(model)
        check_records_file(records, input_files(backends=[found], model=files))
        tell("importing the network")
        network = import_network(model, input_shapes=shapes, rounding=rounding)
    for notice in (*network.imported.notices, *found.notices):
        say(f"note: {notice}", error=True)
    if simulate and found.tiling is not None and not has_simulator(found):
        say(
            f"note: umakit does not simulate {found.target_name}: the cost model alone chooses",
            error=True,
        )
    finished: list[TunedLayer] = []
    try:
        with _workers(workers, scheduler) as pool, _shown() as (show, done):

            def keep(tuned: TunedLayer) -> None:
                finished.append(tuned)
                done(tuned)

            tune_model(
                network, found, records, effort=Effort(clock, simulate), again=again,
                workers=pool, tell=show, done=keep,
                inputs=files, keep_layout=keep_layout,
            )  # fmt: skip
    except KeyboardInterrupt:
        say(
            f"interrupted; {len(finished)} layers are in {records}, the same command goes on",
            error=True,
        )
        return 130
    if as_json:
        print_json(_view(records, finished))
        return 0
    print_whole(_table(finished))
    say(origin(finished, found.target_name))
    say(f"Wrote {records}" if any(each.seen for each in finished) else f"All is in {records}")
    options = f"--backend {shell_word(backend)} --records {shell_word(str(records))}"
    options += " --keep-layout" if keep_layout else ""
    say(f"Next: uma compile {shell_word(str(model))} {options} -o LIBRARY")
    return 0


def _check_kind(context: typer.Context, backend: str | None, cpu: str | None) -> None:
    """Refuse a call for an accelerator and a CPU, or for none, or with options of the other.

    Raises:
        InputError: names the options.
    """
    if (backend is None) == (cpu is None):
        given = "both --backend and --cpu" if cpu else "neither --backend nor --cpu"
        raise InputError(f"there is {given}", fix="give one of them")
    kind, others = ("--cpu", OF_BACKENDS) if cpu else ("--backend", OF_CPUS)
    for name in others:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise InputError(f"--{name} has no meaning with {kind}", fix="leave it out")


def _workers(count: int, scheduler: str | None) -> AbstractContextManager[Workers]:
    from umakit.tools.tuning import cluster_workers, local_workers

    return local_workers(count) if scheduler is None else cluster_workers(scheduler)


Show = Callable[["LayerProgress"], None]
Done = Callable[["TunedLayer"], None]


@contextlib.contextmanager
def _shown() -> Iterator[tuple[Show, Done]]:
    """Show a progress bar on a terminal; elsewhere print a line for each tuned layer."""
    if not sys.stderr.isatty():
        yield lambda at: None, _say_done
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (MofNCompleteColumn(), BarColumn(20), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=console(error=True), transient=True) as bar:
        task = bar.add_task("", total=None)

        def show(at: LayerProgress) -> None:
            now = at.progress
            text = f"{at.operators[0]}: {now.stage}, {now.seen:,} tilings, best {now.best:,} cycles"
            bar.update(task, total=at.count, completed=at.number - 1, description=shown(text))

        yield show, lambda tuned: bar.advance(task)


def _say_done(tuned: TunedLayer) -> None:
    if tuned.seen:
        record = tuned.record
        say(
            f"{record.operators[0]}: {tuned.seen:,} tilings, best {record.cycles:,} cycles",
            error=True,
        )


def _table(layers: list[TunedLayer]) -> Any:
    """Return a table of each layer's cycles; the total counts repeated layers repeatedly."""
    numbers = ["times", "default", "best", "bound", "/ bound"]
    table = new_table("layer", *numbers, "tiling", right=numbers)
    default = best = bound = 0
    for tuned in layers:
        record, times = tuned.record, len(tuned.record.operators)
        default, best = default + times * record.default, best + times * record.cycles
        bound += times * record.bound
        table.add_row(
            _layer_text(record.layer), str(times), f"{record.default:,}", f"{record.cycles:,}",
            f"{record.bound:,}", f"{record.cycles / record.bound:.3f}",
            _tiling_text(record.tiling, record.layer),
        )  # fmt: skip
    table.add_section()
    table.add_row(
        "total", str(sum(len(each.record.operators) for each in layers)), f"{default:,}",
        f"{best:,}", f"{bound:,}", f"{best / bound:.3f}", "", style="bold",
    )  # fmt: skip
    return table


def origin(layers: list[TunedLayer], backend: str) -> str:
    """Return where the cycles of the best tilings come from, as a sentence."""
    measured = sum(each.record.simulated is not None for each in layers)
    if measured == len(layers):
        return f"The best are measured in the simulator of {backend}; others are predicted"
    if measured:
        return (
            f"The best of {measured} of {len(layers)} layers are measured in the simulator of "
            f"{backend}; all others are predicted"
        )
    return "All cycles are predicted by the cost model; nothing was measured"


def _layer_text(layer: Layer) -> str:
    """Return a layer as text, such as `convolution 3x3/2, 32x32x16 to 16x16x32`."""
    stride = "" if layer.strides == (1, 1) else f"/{layer.strides[0]}"
    sizes = [
        "x".join(map(str, (*size, channels)))
        for size, channels in (
            (layer.input_size, layer.input_channels),
            (layer.output_size, layer.output_channels),
        )
    ]
    kind = layer.kind.value + (" + add" if layer.adds else "")
    return f"{kind} {layer.kernel[0]}x{layer.kernel[1]}{stride}, {sizes[0]} to {sizes[1]}"


def _tiling_text(tiling: Tiling, layer: Layer) -> str:
    """Return dataflow, tile sizes, loops from outside to inside, and buffers as text."""
    from umakit.machine.space import sizes_of

    flow = "".join(word[0] for word in tiling.dataflow.value.split("_"))
    text = f"{flow}, {tiling.rows}x{tiling.columns}x{tiling.output_channels}"
    if not layer.per_channel and tiling.input_channels < layer.input_channels:
        text += f" by {tiling.input_channels}"
    whole = {"rows": layer.output_size[0], "columns": layer.output_size[1]}
    whole["output_channels"] = layer.output_channels
    sizes = sizes_of(tiling)
    loops = [name.replace("output_", "") for name in tiling.order if sizes[name] < whole[name]]
    text += f", {' > '.join(loops)}" if loops else ", whole"
    if loops and tiling.buffers != 2:
        text += f", x{tiling.buffers}"
    return text


def _view(records: Path, layers: list[TunedLayer]) -> dict[str, Any]:
    return {
        "records": str(records),
        "layers": [
            {
                **each.record.as_json(),
                "cycles": each.record.cycles,
                "cycles_are": "predicted" if each.record.simulated is None else "measured",
                "seen": each.seen,
            }
            for each in layers
        ],
    }
