# SPDX-License-Identifier: Apache-2.0
"""`uma tune --backend`: searches the best tiling for each layer on an accelerator."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from umakit.cli.console import (
    console,
    print_json,
    print_whole,
    progress,
    say,
    say_notices,
    say_wrapped,
)
from umakit.cli.options import find_backends
from umakit.cli.tables import new_table
from umakit.cli.tune_call import TuneCall

from umakit.text.escaping import shown

if TYPE_CHECKING:
    from umakit.backend.base import UMABackend
    from umakit.machine import Layer, Tiling
    from umakit.pipeline import Network
    from umakit.tools.tuning import TunedLayer
    from umakit.tools.tuning.search import Progress


@dataclass(frozen=True)
class BackendSearch:
    """The options of `uma tune --backend`.

    Attributes:
        clock, simulate: extent of the search.
        scheduler: address of a dask scheduler; None for workers of this machine.
    """

    backend: str
    clock: int
    simulate: int
    workers: int
    scheduler: str | None


def tune_for_backend(call: TuneCall, search: BackendSearch) -> int:
    network, backend, files = _opened(call, search)
    finished: list[TunedLayer] = []
    try:
        _tune(call, search, network, backend, files, finished.append)
    except KeyboardInterrupt:
        say(
            f"interrupted; {len(finished)} layers are in {call.records}, the same command goes on",
            error=True,
        )
        return 130
    if call.as_json:
        print_json(_view(call.records, finished))
        return 0
    print_whole(_table(finished))
    say_wrapped(BOUND)
    say(origin(finished, backend.target_name))
    is_new = any(each.seen for each in finished)
    say(f"Wrote {call.records}" if is_new else f"All is in {call.records}")
    say(call.next_command("--backend", search.backend))
    return 0


BOUND = (
    "bound: cycles that no tiling of the layer can beat; best / bound: cycles of the best tiling "
    "relative to the bound"
)
"""The line that explains the columns of `_table`."""


def _opened(call: TuneCall, search: BackendSearch) -> tuple[Network, UMABackend, list[Path]]:
    with progress() as tell:
        tell("loading TVM")
        from umakit.frontend import model_files
        from umakit.pipeline import import_network
        from umakit.registration.sources.tree import input_files
        from umakit.tools.tuning import check_records_file
        from umakit.tools.tuning.simulate import has_simulator

        (found,) = find_backends([search.backend])
        files = model_files(call.model)
        check_records_file(call.records, input_files(backends=[found], model=files))
        tell("importing the network")
        network = import_network(call.model, input_shapes=call.shapes, rounding=call.rounding)
    say_notices((*network.imported.notices, *found.notices))
    if search.simulate and found.tiling is not None and not has_simulator(found):
        say(
            f"note: umakit does not simulate {found.target_name}: the cost model alone chooses",
            error=True,
        )
    return network, found, files


def _tune(
    call: TuneCall,
    search: BackendSearch,
    network: Network,
    backend: UMABackend,
    files: list[Path],
    add: Callable[[TunedLayer], None],
) -> None:
    """Tune all layers; add each layer once its record is written."""
    from umakit.tools.tuning import Effort, tune_model
    from umakit.tools.tuning.workers import workers_of

    with workers_of(search.workers, search.scheduler) as pool, _shown() as (show, done):

        def keep(tuned: TunedLayer) -> None:
            add(tuned)
            done(tuned)

        tune_model(
            network, backend, call.records, effort=Effort(search.clock, search.simulate),
            again=call.again, workers=pool, tell=show, done=keep,
            inputs=files, keep_layout=call.keep_layout,
        )  # fmt: skip


Show = Callable[..., None]
Done = Callable[["TunedLayer"], None]


@contextlib.contextmanager
def _shown() -> Iterator[tuple[Show, Done]]:
    if not sys.stderr.isatty():
        yield lambda *progress: None, _say_done
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bars

    columns = (MofNCompleteColumn(), BarColumn(20), TextColumn("{task.description}", markup=False))
    with Bars(*columns, console=console(error=True), transient=True) as bar:
        task = bar.add_task("", total=None)

        def show(number: int, count: int, operators: tuple[str, ...], now: Progress) -> None:
            text = f"{operators[0]}: {now.stage}, {now.seen:,} tilings"
            text += f", best {now.best:,} cycles predicted"
            bar.update(task, total=count, completed=number - 1, description=shown(text))

        yield show, lambda tuned: bar.advance(task)


def _say_done(tuned: TunedLayer) -> None:
    from umakit.tools.tuning import kind_of

    if tuned.seen:
        record = tuned.record
        say(
            f"{record.operators[0]}: {tuned.seen:,} tilings, best {record.cycles:,} cycles "
            f"({kind_of(record)})",
            error=True,
        )


def _table(layers: list[TunedLayer]) -> Any:
    """Return a table of each layer's cycles; totals count repeated layers repeatedly."""
    from umakit.tools.tuning import kind_of, totals

    records = [each.record for each in layers]
    sums = totals(records)
    numbers = ["times", "default", "best", "bound", "best / bound"]
    kinds = ["cycles"] if len(sums) > 1 else []
    table = new_table("layer", *numbers, *kinds, "tiling", right=numbers)
    for record in records:
        table.add_row(
            _layer_text(record.layer), str(len(record.operators)), f"{record.default_cycles:,}",
            f"{record.cycles:,}", f"{record.bound:,}", f"{record.cycles / record.bound:.3f}",
            *([kind_of(record)] if kinds else []), _tiling_text(record.tiling, record.layer),
        )  # fmt: skip
    table.add_section()
    for each in sums:
        table.add_row(
            f"total, {each.cycles_are}", str(each.layers), f"{each.default:,}", f"{each.best:,}",
            f"{each.bound:,}", f"{each.best / each.bound:.3f}",
            *([each.cycles_are] if kinds else []), "", style="bold",
        )  # fmt: skip
    return table


def origin(layers: list[TunedLayer], backend: str) -> str:
    measured = sum(each.record.is_measured for each in layers)
    if measured == len(layers):
        return f"All cycles are measured in the simulator of {backend}"
    if measured:
        return (
            f"The cycles of {measured} of {len(layers)} layers are measured in the simulator of "
            f"{backend}; those of all others are predicted by the cost model"
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
    from umakit.tools.tuning import kind_of, totals

    return {
        "records": str(records),
        "layers": [
            {
                **each.record.as_json(),
                "default_simulated": each.record.default_simulated,
                "default_cycles": each.record.default_cycles,
                "cycles": each.record.cycles,
                "cycles_are": kind_of(each.record),
                "seen": each.seen,
            }
            for each in layers
        ],
        "totals": [each.as_json() for each in totals(each.record for each in layers)],
    }
