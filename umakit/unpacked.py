# SPDX-License-Identifier: Apache-2.0
"""Calling `tvmgen_NAME_run_unpacked` of a library in this process, through ctypes."""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from umakit.build import compile_c, library_sources
from umakit.errors import DeviceError, InputError
from umakit.library_metadata import load_metadata
from umakit.run import check_inputs


def run_unpacked(library: Path, inputs: Mapping[str, npt.NDArray[Any]]) -> dict[str, Any]:
    """One inference through the interface of plain pointers.

    The workspace is filled with a pattern first, so that reading it before writing shows.

    Args:
        library: an exported library.
        inputs: arrays by input name; a single-input model takes any key.

    Raises:
        InputError: a wrong name, shape or dtype, or more than one inference.
        DeviceError: the run returned a status.
        BuildError: the C compiler is missing or refused.
    """
    description = load_metadata(library)["umakit"]
    interface, memory = description["interface"], description["memory"]
    count, _, batches = check_inputs(description["inputs"], inputs)
    if count != 1:
        raise InputError(f"the inputs hold {count} inferences, this interface runs one")
    arrays = [batch[0] for batch in batches]
    with tempfile.TemporaryDirectory(prefix="umakit-unpacked-") as temporary:
        shared = Path(temporary) / "library.so"
        compile_c(library_sources(library), shared, ["-shared", "-fPIC"])
        function = getattr(ctypes.CDLL(str(shared)), f"{interface}_run_unpacked")
        function.restype = ctypes.c_int32
        outputs = {
            item["name"]: np.empty(item["shape"], item["dtype"]) for item in description["outputs"]
        }
        alignment = int(memory["alignment_bytes"])
        raw = np.full(int(memory["arena_bytes"]) + 2 * alignment, 0xA5, dtype=np.uint8)
        workspace = raw.ctypes.data + (-raw.ctypes.data) % alignment
        pointers = [array.ctypes.data for array in (*arrays, *outputs.values())]
        status = function(*map(ctypes.c_void_p, [*pointers, workspace]))
    if status != 0:
        raise DeviceError(f"the run stopped with status {status}", where=interface, status=status)
    return outputs
