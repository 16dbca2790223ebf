# SPDX-License-Identifier: Apache-2.0
"""Sources of compared reports: saved files, exported libraries, models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from umakit.devices import HOST
from umakit.errors import InputError, short_path
from umakit.library.tar_files import SUFFIX
from umakit.tools.comparison.measured import Arrays, library_report, size_view
from umakit.tools.comparison.reading import is_report_file, read_report, report_of
from umakit.tools.comparison.saved import Report

if TYPE_CHECKING:
    from umakit.backend.base import UMABackend
    from umakit.library.options import ExportOptions

Kind = Literal["saved report", "library", "model"]


@dataclass(frozen=True)
class Measuring:
    """Settings for compiling and running networks for a report.

    Attributes:
        backends: accelerators of models, in order of priority.
        inputs, inputs_name, seed, cpu_clock, device: as in `umakit.tools.page.make_page`.
        input_shapes, rounding, options: as in `umakit.tools.page.make_page`, for models.
        with_size: whether to compile the code for a measurement of its size.
    """

    backends: Sequence[UMABackend] = ()
    inputs: Arrays | None = None
    inputs_name: str = ""
    seed: int = 0
    cpu_clock: float | None = None
    device: str = HOST.name
    input_shapes: Mapping[str, Sequence[int]] | None = None
    rounding: str | None = None
    options: ExportOptions | None = None
    with_size: bool = False


def kind_of(path: Path) -> Kind:
    """Return the kind of a path; a missing path counts as model, whose reader reports it."""
    if is_report_file(path):
        return "saved report"
    if path.is_dir() or path.suffix == SUFFIX:
        return "library"
    return "model"


def open_report(
    path: Path, how: Measuring, progress: Callable[[str], None] = lambda stage: None
) -> Report:
    """Read a saved report, or make the report of a library or a model.

    Args:
        path: a file of `uma report --json`, a library of `uma compile`, or a model.
        how: settings for running a library or a model.
        progress: callback with a description of each stage.

    Raises:
        UmakitError: the subclass names the stage that refused.
    """
    kind = kind_of(path)
    if kind == "saved report":
        return read_report(path)
    if kind == "library":
        return library_report(
            path, inputs=how.inputs, inputs_name=how.inputs_name, seed=how.seed,
            cpu_clock=how.cpu_clock, device=how.device, with_size=how.with_size,
            progress=progress,
        )  # fmt: skip
    return model_report(path, how, progress)


def model_report(
    model: Path, how: Measuring, progress: Callable[[str], None] = lambda stage: None
) -> Report:
    """Compile a model, run it, and return its report.

    Raises:
        UmakitError: the subclass names the stage that refused.
    """
    from umakit.tools.page import make_page

    sizes: list[dict[str, Any]] = []

    def measure(folder: Path, *ran: object) -> None:
        if how.with_size:
            sizes.append(size_view(folder, progress))

    page = make_page(
        model, how.backends, inputs=how.inputs, inputs_name=how.inputs_name, seed=how.seed,
        input_shapes=how.input_shapes, rounding=how.rounding, options=how.options,
        cpu_clock=how.cpu_clock, device=how.device, progress=progress, observe=measure,
    )  # fmt: skip
    return report_of(page.as_json() | ({"size": sizes[0]} if sizes else {}))


def refuse_needless(
    kinds: Sequence[Kind], compiling: Mapping[str, Any], running: Mapping[str, Any]
) -> None:
    """Refuse options that no side of the comparison needs.

    Args:
        kinds: kinds of the compared sides.
        compiling: options of compiling a model, by name.
        running: options of runs, by name.

    Raises:
        InputError: names the first option.
    """
    what = " and ".join(dict.fromkeys(kinds))
    wanted = {} if "model" in kinds else dict(compiling)
    if not {"model", "library"} & set(kinds):
        wanted |= running
    for name, value in wanted.items():
        if value:
            raise InputError(f"{name} has no effect on a {what}", fix=f"leave {name} out")


def different_names(one: UMABackend, other: UMABackend) -> None:
    """Refuse two backends with the same name: TVM identifies functions and targets by the name.

    Raises:
        InputError: the folders differ and the names do not.
    """
    if one.target_name == other.target_name and one.folder != other.folder:
        raise InputError(
            f"{short_path(one.folder)} and {short_path(other.folder)} both are {one.target_name}",
            fix="save one report with --json, and compare it with the other",
        )
