# SPDX-License-Identifier: Apache-2.0
"""Sources of compared reports: saved files, exported libraries, models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from umakit.devices import find_device
from umakit.devices.cpus import description_for
from umakit.devices.run import run_library, select_inputs
from umakit.errors import InputError, short_path
from umakit.library.tar_files import SUFFIX
from umakit.tools.accounting import account
from umakit.tools.columns import view
from umakit.tools.comparison.reading import is_report_file, read_report, report_of
from umakit.tools.comparison.saved import Report
from umakit.tools.record import CPU, FORMAT, VERSION
from umakit.tools.runs import Measuring
from umakit.tools.size import library_size

if TYPE_CHECKING:
    from umakit.backend.base import UMABackend

Kind = Literal["saved report", "library", "model"]


def kind_of(path: Path) -> Kind:
    """Return the kind of a path; a missing path counts as model, whose reader reports it."""
    if is_report_file(path):
        return "saved report"
    if path.is_dir() or path.suffix == SUFFIX:
        return "library"
    return "model"


def open_report(
    path: Path,
    backends: Sequence[UMABackend],
    how: Measuring,
    progress: Callable[[str], None] = lambda stage: None,
) -> Report:
    """Read a saved report, or make the report of a library or a model.

    Args:
        path: a file of `uma report --json`, a library of `uma compile`, or a model.
    """
    kind = kind_of(path)
    if kind == "saved report":
        return read_report(path)
    if kind == "library":
        return library_report(path, how, progress)
    return model_report(path, backends, how, progress)


def model_report(
    model: Path,
    backends: Sequence[UMABackend],
    how: Measuring,
    progress: Callable[[str], None] = lambda stage: None,
) -> Report:
    from umakit.tools.page import make_page

    sizes: list[dict[str, Any]] = []

    def measure(folder: Path, *ran: object) -> None:
        if how.with_size:
            sizes.append(size_view(folder, progress))

    page = make_page(model, backends, measuring=how, progress=progress, observe=measure)
    return report_of(page.as_json() | ({"size": sizes[0]} if sizes else {}))


def library_report(
    library: Path, how: Measuring, progress: Callable[[str], None] = lambda stage: None
) -> Report:
    """Run a library on a device, accelerators simulated, and return its report.

    The report has neither bounds nor tilings, which need the model.

    Args:
        how: settings of the run; random inputs are 0 for unquantized integers.
    """
    description = description_for(library, find_device(how.device))
    progress("building and running")
    if how.inputs is None:
        arrays, inputs_name = (
            random_arrays(description["inputs"], how.seed),
            f"random, seed {how.seed}",
        )
    else:
        arrays, inputs_name = select_inputs(library, how.inputs), how.inputs_name
    result = run_library(library, arrays, profile=True, record_commands=True, device=how.device)
    layers = description["layers"]
    view = {
        "format": FORMAT,
        "version": VERSION,
        "model": description["name"],
        "model_sha256": description["model_sha256"],
        "umakit_version": description["version"],
        "inputs": inputs_name,
        "accelerators": [{"name": each["name"]} for each in description["backends"]],
        "operators": description["operators"],
        "has_tilings": False,
        "layers": [{"predicted_cycles": each.get("predicted_cycles")} for each in layers],
        "accounting": account(description, result, how.cpu_clock).as_json(),
        "memory": description["memory"],
        "total_macs": sum(each["macs"] for each in layers),
        "offloaded_macs": sum(each["macs"] for each in layers if each["where"] != CPU),
        "size": size_view(library, progress) if how.with_size else None,
    }
    return report_of(view)


def size_view(library: Path, progress: Callable[[str], None]) -> dict[str, Any]:
    """Return the sizes of the code of a library on this machine, in bytes."""
    progress("measuring the code")
    return view(library_size(library), "compiler text_bytes static_bytes stack_bytes")


def random_arrays(inputs: Sequence[Mapping[str, Any]], seed: int) -> dict[str, npt.NDArray[Any]]:
    """Return an inference of random numbers for the `inputs` of a library's metadata.

    Bytes are uniform over their type, floats normally distributed, and all other integers 0,
    because they may be indices. States are omitted.
    """
    random, arrays = np.random.default_rng(seed), {}
    for each in inputs:
        dtype = np.dtype(each["dtype"])
        if each.get("next_state"):
            continue
        if dtype == np.bool_:
            arrays[each["name"]] = random.integers(0, 2, each["shape"]).astype(dtype)
        elif np.issubdtype(dtype, np.floating):
            arrays[each["name"]] = random.standard_normal(each["shape"]).astype(dtype)
        elif dtype.itemsize == 1:
            limits = np.iinfo(dtype)
            arrays[each["name"]] = random.integers(
                limits.min, limits.max, each["shape"], dtype, endpoint=True
            )
        else:
            arrays[each["name"]] = np.zeros(each["shape"], dtype)
    return arrays


def refuse_needless(
    kinds: Sequence[Kind], compiling: Mapping[str, Any], running: Mapping[str, Any]
) -> None:
    """Refuse options that no side of the comparison needs.

    Args:
        compiling: options of compiling a model, by name.
        running: options of runs, by name.
    """
    what = " and ".join(dict.fromkeys(kinds))
    wanted = {} if "model" in kinds else dict(compiling)
    if not {"model", "library"} & set(kinds):
        wanted |= running
    for name, value in wanted.items():
        if value:
            raise InputError(f"{name} has no effect on a {what}", fix=f"leave {name} out")


def different_names(one: UMABackend, other: UMABackend) -> None:
    """Refuse two backends with the same name: TVM identifies functions and targets by the name."""
    if one.target_name == other.target_name and one.folder != other.folder:
        raise InputError(
            f"{short_path(one.folder)} and {short_path(other.folder)} both are {one.target_name}",
            fix="save one report with --json, and compare it with the other",
        )
