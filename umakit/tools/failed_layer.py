# SPDX-License-Identifier: Apache-2.0
"""The layer in which a run of a library failed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from umakit.devices import Device, find_device
from umakit.devices.cpus import description_for
from umakit.devices.execution import fix_in_layer
from umakit.devices.inputs import check_inputs
from umakit.devices.probe import Probe
from umakit.errors import DeviceError, UmakitError
from umakit.files.processes import TimeLimitError, is_of_limit
from umakit.files.staging import temporary_folder

Array = npt.NDArray[Any]


def with_layer(
    error: DeviceError,
    library: Path,
    arrays: Mapping[str, Array],
    device: str | Device,
    timeout: float | None,
    cpu: str = "",
) -> DeviceError:
    """Return the error of a run with the running layer, if a second run finds the layer.

    The failed inference, or the first one after a crash or a time limit, runs again layer by layer.
    If this run succeeds or fails in another way, the layer stays unknown.

    Args:
        arrays: inputs of the run by name, as for `umakit.run_library`.
        timeout: time limit of each run in seconds, if the user chose one.
        cpu: as in `umakit.run_library`.
    """
    machine = find_device(device)
    description = description_for(library, machine, cpu)
    inputs = _inputs_of(description["inputs"], arrays, error.inference or 0)
    if inputs is None:
        return error
    with temporary_folder("umakit-layer-") as folder:
        try:
            Probe(description, library, folder / "probe", machine).run(inputs, {}, timeout)
        except DeviceError as again:
            both_waited = isinstance(error, TimeLimitError) and is_of_limit(again.what)
            if both_waited or again.what == error.what or error.status == again.status != 0:
                where = error.where if error.inference is None else f"inference {error.inference}"
                return DeviceError(
                    error.what,
                    where=f"{where}, {again.where}",
                    fix=fix_in_layer(error),
                    status=error.status,
                    inference=error.inference,
                    layer=again.layer,
                )
        except UmakitError:  # for example, the program is too large for the device
            return error
    return error


def _inputs_of(
    expected: list[dict[str, Any]], arrays: Mapping[str, Array], index: int
) -> dict[str, Array] | None:
    _, _, checked = check_inputs(expected, arrays)
    if any(len(array) <= index for array in checked):
        return None
    return {
        item["name"]: np.ascontiguousarray(array[index])
        for item, array in zip(expected, checked, strict=True)
    }
