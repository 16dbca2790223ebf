# SPDX-License-Identifier: Apache-2.0
"""Calling `tvmgen_NAME_run_unpacked` of a library in this process through ctypes."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from umakit.devices import HOST
from umakit.devices.build import compile_c, library_sources
from umakit.devices.cpus import cpu_flags, description_for
from umakit.devices.execution import stop_hint
from umakit.devices.inputs import check_inputs
from umakit.devices.libraries import libraries_of
from umakit.devices.simulators import simulators_of
from umakit.devices.statuses import stopped
from umakit.errors import DeviceError, InputError
from umakit.files.staging import temporary_folder
from umakit.library.cpu_sections import run_unpacked_symbol
from umakit.library.metadata import read_weights, weights_path

BLOB_ALIGNMENT = 16
"""Alignment of a weights blob in memory, in bytes."""


def run_unpacked(library: Path, inputs: Mapping[str, npt.NDArray[Any]]) -> dict[str, Any]:
    """Run one inference through the interface with plain pointers.

    The workspace is filled with a pattern first, which exposes reads of uninitialized memory.

    Args:
        library: an exported library.
        inputs: arrays by input name; a single-input model accepts any name.

    Raises:
        InputError: an array has a wrong name, shape or dtype, or there is more than one inference.
        DeviceError: the run returned an error status.
        BuildError: the C compiler is missing or reported an error.
    """
    description = description_for(library, HOST)
    interface, memory = description["interface"], description["memory"]
    count, _, batches = check_inputs(description["inputs"], inputs)
    if count != 1:
        raise InputError(f"the inputs hold {count} inferences, this interface runs one")
    arrays = [
        _copied(batch[0], item) for item, batch in zip(description["inputs"], batches, strict=True)
    ]
    with temporary_folder("umakit-unpacked-") as temporary:
        shared = temporary / "library.so"
        sources = library_sources(library)
        flags = ["-shared", "-fPIC", *cpu_flags(library, HOST)]
        compile_c(
            sources,
            shared,
            flags,
            simulators=simulators_of(library),
            libraries=libraries_of(library),
        )
        binary = ctypes.CDLL(str(shared))
        function = getattr(binary, run_unpacked_symbol(description))
        function.restype = ctypes.c_int32
        outputs = {item["name"]: _empty(item) for item in description["outputs"]}
        kept = [_aligned_memory(p["used_bytes"], p["alignment_bytes"]) for p in memory["pools"]]
        pointers = [array.ctypes.data for array in (*arrays, *outputs.values())]
        if description["weights"] == "blob":
            pointers.append(_open_weights(binary, library, description, kept))
        pointers += [pool.ctypes.data for pool in kept[: len(memory["pools"])]]
        status = function(*map(ctypes.c_void_p, pointers))
        text = _status_text(binary, interface, status)
    if status != 0:
        sentence, own = stopped(description, status, text)
        raise DeviceError(sentence, where=interface, fix=stop_hint(status, text), status=own)
    return outputs


def _status_text(binary: ctypes.CDLL, interface: str, status: int) -> str:
    """Return the library's description of a status."""
    function = getattr(binary, f"{interface}_status_string")
    function.restype = ctypes.c_char_p
    text: bytes = function(ctypes.c_int32(status))
    return text.decode("utf-8")


def _empty(tensor: Mapping[str, Any]) -> npt.NDArray[Any]:
    """Return an array for a tensor of the interface, at a multiple of its alignment."""
    memory = _aligned_memory(tensor["size_bytes"], max(16, tensor.get("alignment_bytes", 1)))
    array: npt.NDArray[Any] = memory.view(tensor["dtype"]).reshape(tensor["shape"])
    return array


def _copied(array: npt.NDArray[Any], tensor: Mapping[str, Any]) -> npt.NDArray[Any]:
    """Return a copy of an input at a multiple of its alignment."""
    copy = _empty(tensor)
    copy[...] = array
    return copy


def _aligned_memory(size: int, alignment: int) -> npt.NDArray[np.uint8]:
    """Return aligned memory that is filled with a pattern."""
    raw = np.full(size + alignment, 0xA5, dtype=np.uint8)
    start = -raw.ctypes.data % alignment
    return raw[start : start + size]


def _open_weights(
    binary: ctypes.CDLL,
    library: Path,
    description: Mapping[str, Any],
    kept: list[npt.NDArray[np.uint8]],
) -> int:
    """Open a weights blob and return the address of its data; its memory is appended to `kept`."""
    data = np.frombuffer(read_weights(library), np.uint8)
    blob = _aligned_memory(data.size, BLOB_ALIGNMENT)
    blob[:] = data
    kept.append(blob)
    opened = ctypes.c_void_p()
    function = getattr(binary, f"{description['interface']}_open_weights")
    function.restype = ctypes.c_int32
    status = function(
        ctypes.c_void_p(blob.ctypes.data), ctypes.c_size_t(blob.size), ctypes.byref(opened)
    )
    if status != 0:
        raise DeviceError(
            f"the weights were refused with status {status}",
            where=str(library / weights_path(description["name"])),
            status=status,
        )
    return opened.value or 0
