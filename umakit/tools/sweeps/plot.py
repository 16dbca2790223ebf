# SPDX-License-Identifier: Apache-2.0
"""A picture of a sweep: predicted cycles against each cost, with the machines of the front."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from umakit.errors import InputError
from umakit.files.outputs import SWEEP_PLOT, check_file, check_parent
from umakit.files.staging import write_picture
from umakit.text.escaping import shortened, shown
from umakit.tools.sweeps.settings import Settings
from umakit.tools.sweeps.sweep import Cost, Sweep, SweptMachine, cost_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".svg", ".png", ".pdf")
AXIS_LABELS: dict[Cost, str] = {
    "cells": "multiply-accumulates in a cycle",
    "scratchpad": "bytes of scratchpads",
}
MOST_LABELLED = 12
"""Maximum number of machines of the front labelled with their settings."""

LONGEST_LABEL = 60


def check_plot(path: Path, inputs: Iterable[Path] = (), *, force: bool = False) -> None:
    """Refuse a file that could not be written, before anything is computed."""
    if path.suffix.lower() not in FORMATS:
        raise InputError(
            "a sweep is drawn as SVG, PNG or PDF", where=str(path), fix="end its name in .svg"
        )
    check_parent(path)
    check_file(path, SWEEP_PLOT, inputs, force=force)


def draw_sweep(
    sweep: Sweep, path: Path, inputs: Iterable[Path] = (), *, force: bool = False
) -> None:
    """Draw the machines of a sweep whose cycles are known. Equal sweeps give equal files.

    Args:
        path: file ending in `.svg`, `.png` or `.pdf`; written in full or not at all. An earlier
            plot of umakit is replaced.
        inputs: input files, which must not be overwritten.
        force: whether a file that umakit did not write is replaced too.
    """
    check_plot(path, inputs, force=force)
    write_picture(_figure(sweep), path, SWEEP_PLOT, inputs, force=force)


def _figure(sweep: Sweep) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.5 * len(sweep.costs), 5), layout="constrained")
    panels = figure.subplots(1, len(sweep.costs), squeeze=False, sharey=True)[0]
    for axes, cost in zip(panels, sweep.costs, strict=True):
        _draw(axes, sweep, cost)
    panels[0].set_ylabel("predicted cycles")
    title = shortened(shown(f"{sweep.model} on {sweep.backend}"), 100)
    figure.suptitle(f"{title}: {len(sweep.machines)} machines", parse_math=False)
    return figure


def _draw(axes: Axes, sweep: Sweep, cost: Cost) -> None:
    known = [
        (spent, each.machine.cycles, each)
        for each in sweep.machines
        if (spent := cost_of(each.machine, cost)) is not None and each.machine.cycles is not None
    ]
    others = [(x, y) for x, y, each in known if not each.on_front]
    front = [(x, y, each) for x, y, each in known if each.on_front]
    if others:
        axes.scatter(
            [x for x, _ in others], [y for _, y in others],
            color="0.6", s=22, label="other machines",
        )  # fmt: skip
    if front:
        axes.scatter(
            [x for x, _, _ in front], [y for _, y, _ in front],
            color="tab:blue", s=40, zorder=3, label="front",
        )  # fmt: skip
        _label(axes, front)
        axes.legend(loc="best", fontsize="small")
    axes.set_xlabel(AXIS_LABELS[cost])
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.tick_params(axis="x", labelrotation=20)
    axes.set_axisbelow(True)
    axes.grid(color="0.9")
    axes.margins(0.12)


def _label(axes: Axes, front: list[tuple[int, int, SweptMachine]]) -> None:
    labels: dict[tuple[int, int], str] = {}
    for x, y, each in front:
        labels.setdefault((x, y), settings_text(each.machine.settings))
    left, right = axes.get_xlim()
    for (x, y), text in list(labels.items())[:MOST_LABELLED]:
        is_right = x > (left + right) / 2
        axes.annotate(
            shortened(shown(text), LONGEST_LABEL), (x, y), xytext=(-5 if is_right else 5, 5),
            textcoords="offset points", ha="right" if is_right else "left", fontsize=6,
            parse_math=False,
        )  # fmt: skip


def settings_text(settings: Settings) -> str:
    """Return settings as one text, such as `array.rows=32 scratchpad.size=65536`."""
    return " ".join(f"{key}={value}" for key, value in settings.items())
