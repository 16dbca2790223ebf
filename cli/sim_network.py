# SPDX-License-Identifier: Apache-2.0
"""`uma sim MODEL`: predicts a network on an accelerator and on variants of the accelerator."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from umakit.cli.console import (
    NARROWEST_NAME,
    console,
    print_json,
    print_whole,
    progress,
    say,
    say_notices,
    say_wrapped,
)
from umakit.cli.options import find_backends, parse_shapes
from umakit.cli.tables import offload_summary, print_inferences, text_table

from umakit.errors import InputError
from umakit.files.outputs import check_distinct

if TYPE_CHECKING:
    from umakit.backend.base import UMABackend
    from umakit.tools.sweeps import Cost, Source, Sweep
    from umakit.tools.sweeps.settings import Settings

BOTH = "both"


@dataclass(frozen=True)
class SweepFiles:
    """The files that a sweep writes.

    Attributes:
        force: whether the picture may replace a file that umakit did not write.
    """

    records: Path | None
    plot: Path | None
    force: bool

    @property
    def written(self) -> list[Path]:
        return [path for path in (self.records, self.plot) if path is not None]

    def check(self, inputs: list[Path]) -> None:
        """Refuse files that must not be written."""
        from umakit.tools.sweeps.plot import check_plot
        from umakit.tools.sweeps.records import check_records

        check_distinct(self.records, self.plot)
        if self.plot is not None:
            check_plot(self.plot, inputs, force=self.force)
        if self.records is not None:
            check_records(self.records, inputs)


def simulate_network(model: Path, options: Mapping[str, Any], files: SweepFiles) -> int:
    """Predict a network on one machine, or on all machines of a sweep, and print the result.

    Args:
        options: options of the command by parameter name.
    """
    shapes, as_json = parse_shapes(options["input_shapes"]), options["as_json"]
    costs, sweeps, inferences = _costs(options["cost"]), options["sweep"], options["inferences"]
    with progress() as tell:
        tell("loading TVM")
        from umakit.frontend import model_files
        from umakit.registration.sources.tree import input_files
        from umakit.tools.sweeps import Source, parse_settings, parse_sweeps, read_configuration

        (found,) = find_backends([options["backend"]])
        read = input_files(backends=[found], model=model_files(model))
        files.check(read)
        if not sweeps and (files.written or options["simulate"]):
            raise InputError("--records, --plot and --simulate go with --sweep only")
        if sweeps and inferences is not None:
            raise InputError(
                "--inferences is of one machine", fix="leave --sweep or --inferences out"
            )
        configuration = read_configuration(found.folder)
        settings = parse_settings(options["set_"] or [], configuration)
        points = parse_sweeps(sweeps or [], configuration, settings)
        source = Source.of(
            model, found.folder, shapes=shapes, rounding=options["rounding"],
            keep_layout=options["keep_layout"], others=files.written,
        )  # fmt: skip
        if not sweeps:
            return _one(source, found, settings, inferences, tell, as_json)
        _check_predicts(found)
    return _many(options, source, points, costs, files, read)


def _costs(text: str) -> tuple[Cost, ...]:
    known: tuple[Cost, ...] = ("cells", "scratchpad")
    if text == BOTH:
        return known
    for each in known:
        if each == text:
            return (each,)
    raise InputError(f"--cost {text!r} is not one of cells, scratchpad and both")


def _check_predicts(backend: UMABackend) -> None:
    from umakit.tools.sweeps.predict import without_cost_model

    sentence = without_cost_model(backend)
    if sentence:
        raise InputError(sentence, fix="`uma report` counts them where a simulator answers")


def _one(
    source: Source,
    backend: UMABackend,
    settings: Settings,
    inferences: int | None,
    tell: Callable[[str], None],
    as_json: bool,
) -> int:
    from umakit.tools.energy.columns import missing_text
    from umakit.tools.sweeps.columns import network_table
    from umakit.tools.sweeps.points import network_of, predict_with
    from umakit.tools.sweeps.predict import without_cost_model

    tell("importing the network")
    network = network_of(source)
    predicted = predict_with(source, network, settings, tell, inferences)
    missing = without_cost_model(backend)
    say_notices(predicted.notices, as_json)
    if as_json:
        view = {
            "model": Path(source.model).name,
            "backend": backend.target_name,
            "settings": dict(settings),
            **predicted.as_json(),
        }
        print_json(view)
        return 0
    if missing:
        say(f"note: {missing}", error=True)
    table = text_table("layer", network_table(predicted))
    table.columns[0].min_width = NARROWEST_NAME
    print_whole(table)
    say_wrapped(offload_summary(predicted.report))
    lacking = missing_text(predicted.energy)
    if lacking:
        say_wrapped(lacking)
    if predicted.inferences is not None:
        print_inferences(predicted.inferences)
    return 0


def _many(
    options: Mapping[str, Any],
    source: Source,
    points: list[dict[str, Any]],
    costs: tuple[Cost, ...],
    files: SweepFiles,
    read: list[Path],
) -> int:
    from umakit.tools.sweeps import sweep_machines
    from umakit.tools.sweeps.plot import draw_sweep
    from umakit.tools.tuning.workers import workers_of

    with _shown() as tell:
        try:
            with workers_of(options["workers"], options["scheduler"]) as workers:
                sweep = sweep_machines(
                    source, points, costs=costs, simulate=options["simulate"],
                    records=files.records, inputs=read, workers=workers, tell=tell,
                )  # fmt: skip
        except KeyboardInterrupt:
            if files.records is None:
                raise
            say(f"interrupted; the same command goes on with {files.records}", error=True)
            return 130
    if files.plot is not None:
        draw_sweep(sweep, files.plot, read, force=files.force)
    say_notices(sweep.common_notices, options["as_json"])
    if options["as_json"]:
        print_json(sweep.as_json())
    else:
        _print(sweep, options["simulate"], files)
    none = all(each.machine.refused for each in sweep.machines)
    return 1 if sweep.failed or none else 0


def _print(sweep: Sweep, simulate: bool, files: SweepFiles) -> None:
    from umakit.tools.sweeps.columns import (
        NOTE,
        front_sentence,
        notes_of,
        sweep_sentence,
        sweep_table,
    )

    table = text_table("", sweep_table(sweep, simulate))
    for column in table.columns:
        if column.header in ("", NOTE):  # short columns, worthless if cut
            column.min_width = max(1, len(str(column.header)))
    print_whole(table)
    for number, note in enumerate(notes_of(sweep), start=1):
        say_wrapped(f"({number}) {note}")
    say_wrapped(sweep_sentence(sweep))
    say_wrapped(front_sentence(sweep))
    for path in files.written:
        say(f"Wrote {path}")


@contextlib.contextmanager
def _shown() -> Iterator[Callable[[str, int, int], None]]:
    if sys.stderr.isatty():
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        columns = (TextColumn("{task.description}"), BarColumn(20), MofNCompleteColumn(),
                   TimeRemainingColumn())  # fmt: skip
        with Progress(*columns, console=console(error=True), transient=True) as bar:
            task = bar.add_task("")
            yield lambda stage, done, count: bar.update(
                task, description=stage, completed=done, total=count
            )
        return
    yield _Lines().tell


class _Lines:
    """Prints progress as lines without a terminal, after the first two seconds."""

    def __init__(self) -> None:
        self._started = self._last = time.monotonic()
        self._stage, self._first = "", 0
        self._begun: float | None = None

    def tell(self, stage: str, done: int, count: int) -> None:
        now = time.monotonic()
        if stage != self._stage:
            self._stage, self._first, self._begun = stage, done, None
        elif self._begun is None and done > self._first:  # workers have started by now
            self._first, self._begun = done, now
        if now - self._last < 2:
            return
        self._last, text = now, f"{stage}: {done} of {count} machines"
        new = done - self._first
        if self._begun is not None and new and done < count:
            text += f", {(now - self._begun) / new * (count - done):.0f} s left"
        say(f"[{now - self._started:5.1f} s] {text}", error=True)
