# SPDX-License-Identifier: Apache-2.0
"""The report of an exported library, from a run and the metadata.

The report has the keys of `uma report --json` that a comparison reads, without bounds and tilings,
which need the model. Imports neither TVM nor the pipeline.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from umakit.devices import HOST, find_device
from umakit.devices.cpus import description_for
from umakit.devices.run import run_library, select_inputs
from umakit.tools.accounting import account
from umakit.tools.comparison.reading import report_of
from umakit.tools.comparison.saved import Report
from umakit.tools.record import CPU, FORMAT, VERSION
from umakit.tools.size import library_size

Arrays = Mapping[str, npt.NDArray[Any]]


def library_report(
    library: Path,
    *,
    inputs: Arrays | None = None,
    inputs_name: str = "",
    seed: int = 0,
    cpu_clock: float | None = None,
    device: str = HOST.name,
    with_size: bool = False,
    progress: Callable[[str], None] = lambda stage: None,
) -> Report:
    """Run a library on a device, accelerators simulated, and return its report.

    Args:
        library: folder or tar file that `uma compile` wrote.
        inputs: arrays by input name; figures are means over the inferences. Default: one inference
            of random numbers, with 0 for unquantized integers.
        inputs_name: description of the inputs.
        seed: seed of the random numbers.
        cpu_clock: cycles a second of the CPU, as in `umakit.tools.accounting.account`.
        device: name of the device in `umakit.devices.DEVICES`.
        with_size: whether to compile the code for a measurement of its size.
        progress: callback with a description of each stage.

    Raises:
        LibraryError: the library is missing or damaged.
        InputError: the inputs do not fit.
        DeviceError: the run failed.
        BuildError: a compiler is missing or refused the sources.
    """
    description = description_for(library, find_device(device))
    progress("building and running")
    if inputs is None:
        arrays, inputs_name = random_arrays(description["inputs"], seed), f"random, seed {seed}"
    else:
        arrays = select_inputs(library, inputs)
    result = run_library(library, arrays, profile=True, record_commands=True, device=device)
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
        "accounting": account(description, result, cpu_clock).as_json(),
        "memory": description["memory"],
        "total_macs": sum(each["macs"] for each in layers),
        "offloaded_macs": sum(each["macs"] for each in layers if each["where"] != CPU),
        "size": size_view(library, progress) if with_size else None,
    }
    return report_of(view)


def size_view(library: Path, progress: Callable[[str], None]) -> dict[str, Any]:
    """Return the sizes of the code of a library on this machine, in bytes.

    Raises:
        BuildError: a compiler is missing or refused the sources.
    """
    progress("measuring the code")
    size = library_size(library)
    return {
        "compiler": size.compiler,
        "text_bytes": size.text_bytes,
        "static_bytes": size.static_bytes,
        "stack_bytes": size.stack_bytes,
    }


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
