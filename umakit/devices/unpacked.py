# SPDX-License-Identifier: Apache-2.0
"""Calling `tvmgen_NAME_run_unpacked` of a library in this process through ctypes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Placed:
    """The memory of an inference.

    Attributes:
        pointers: addresses of the arguments of `_run_unpacked`.
        outputs: arrays by output name, written by a call.
        kept: all memory behind the arguments.
    """

    pointers: tuple[int, ...]
    outputs: dict[str, npt.NDArray[Any]]
    kept: list[npt.NDArray[Any]]


@dataclass(frozen=True)
class UnpackedLibrary:
    """A library that is loaded in this process, with the inputs of an inference.

    Attributes:
        binary: the library.
        description: section `umakit` of its metadata.
        inputs: an array for each input.
        weights: content of the weights blob; None for a library without one.
        name: name of the weights blob in messages.
    """

    binary: ctypes.CDLL
    description: Mapping[str, Any]
    inputs: tuple[npt.NDArray[Any], ...]
    weights: npt.NDArray[np.uint8] | None
    name: str

    def place(self, offset: Callable[[], int] = lambda: 0) -> Placed:
        """Return new memory for an inference.

        The workspace is filled with a pattern, which exposes reads of uninitialized memory.

        Args:
            offset: called for each tensor and pool; returns an offset in bytes, a multiple of 64,
                from the first aligned address.

        Raises:
            DeviceError: the driver refused the weights.
        """

        def empty(tensor: Mapping[str, Any]) -> npt.NDArray[Any]:
            alignment = max(16, tensor.get("alignment_bytes", 1))
            memory = _aligned_memory(tensor["size_bytes"], alignment, offset())
            array: npt.NDArray[Any] = memory.view(tensor["dtype"]).reshape(tensor["shape"])
            return array

        inputs = [empty(item) for item in self.description["inputs"]]
        for array, values in zip(inputs, self.inputs, strict=True):
            array[...] = values
        outputs = {item["name"]: empty(item) for item in self.description["outputs"]}
        pools = [
            _aligned_memory(pool["used_bytes"], pool["alignment_bytes"], offset())
            for pool in self.description["memory"]["pools"]
        ]
        pointers = [array.ctypes.data for array in (*inputs, *outputs.values())]
        kept = [*inputs, *pools]
        if self.weights is not None:
            blob = _aligned_memory(self.weights.size, BLOB_ALIGNMENT, offset())
            blob[:] = self.weights
            kept.append(blob)
            interface, place = self.description["interface"], blob.ctypes.data
            pointers.append(open_weights(self.binary, interface, place, blob.size, self.name))
        pointers += [pool.ctypes.data for pool in pools]
        return Placed(tuple(pointers), outputs, kept)

    def check(self, status: int) -> None:
        """Raise the error of a status.

        Raises:
            DeviceError: the status is not 0.
        """
        if status != 0:
            raise run_error(self.binary, self.description, status)


def compiled_library(
    library: Path, folder: Path, sources: Sequence[Path] = (), flags: Sequence[str] = ()
) -> ctypes.CDLL:
    """Compile a library for this machine and load it into this process.

    Args:
        library: an exported library.
        folder: folder for the shared library, kept while the library is used.
        sources: further C files to link.
        flags: further compiler flags.

    Raises:
        BuildError: the C compiler is missing or reported an error.
    """
    shared = folder / "library.so"
    compile_c(
        [*library_sources(library), *sources],
        shared,
        ["-shared", "-fPIC", *flags, *cpu_flags(library, HOST)],
        simulators=simulators_of(library),
        libraries=libraries_of(library),
    )
    return ctypes.CDLL(str(shared))


def run_error(binary: ctypes.CDLL, description: Mapping[str, Any], status: int) -> DeviceError:
    """Return the error of a run that ended with a status other than 0.

    Args:
        binary: the library.
        description: section `umakit` of the library's metadata.
        status: status of the run.
    """
    interface = description["interface"]
    text = _status_text(binary, interface, status)
    sentence, own = stopped(description, status, text)
    return DeviceError(sentence, where=interface, fix=stop_hint(status, text), status=own)


def open_weights(binary: ctypes.CDLL, interface: str, address: int, size: int, name: str) -> int:
    """Open a weights blob and return the address of its data.

    Args:
        binary: the library.
        interface: prefix of the library's functions.
        address: address of the blob, a multiple of `BLOB_ALIGNMENT`.
        size: size of the blob in bytes.
        name: name of the blob in messages.

    Raises:
        DeviceError: the driver refused the weights.
    """
    opened = ctypes.c_void_p()
    function = getattr(binary, f"{interface}_open_weights")
    function.restype = ctypes.c_int32
    status = function(ctypes.c_void_p(address), ctypes.c_size_t(size), ctypes.byref(opened))
    if status != 0:
        raise DeviceError(
            f"the weights were refused with status {status}", where=name, status=status
        )
    return opened.value or 0


def load_unpacked(
    library: Path,
    inputs: Mapping[str, npt.NDArray[Any]],
    folder: Path,
    sources: Sequence[Path] = (),
    flags: Sequence[str] = (),
) -> UnpackedLibrary:
    """Compile a library and load it into this process.

    Args:
        library: an exported library.
        inputs: arrays by input name; a single-input model accepts any name.
        folder: folder for the shared library, kept while the library is used.
        sources: further C files to link.
        flags: further compiler flags.

    Raises:
        InputError: an array has a wrong name, shape or dtype, or there is more than one inference.
        BuildError: the C compiler is missing or reported an error.
    """
    description = description_for(library, HOST)
    count, _, batches = check_inputs(description["inputs"], inputs)
    if count != 1:
        raise InputError(f"the inputs hold {count} inferences, this interface runs one")
    binary = compiled_library(library, folder, sources, flags)
    has_blob = description["weights"] == "blob"
    weights = np.frombuffer(read_weights(library), np.uint8) if has_blob else None
    name = str(library / weights_path(description["name"]))
    arrays = tuple(batch[0] for batch in batches)
    return UnpackedLibrary(binary, description, arrays, weights, name)


def run_unpacked(library: Path, inputs: Mapping[str, npt.NDArray[Any]]) -> dict[str, Any]:
    """Run one inference through the interface with plain pointers.

    The workspace is filled with a pattern first, which exposes reads of uninitialized memory.

    Args:
        library, inputs: as of `load_unpacked`.

    Raises:
        InputError: an array has a wrong name, shape or dtype, or there is more than one inference.
        DeviceError: the run returned an error status.
        BuildError: the C compiler is missing or reported an error.
    """
    with temporary_folder("umakit-unpacked-") as temporary:
        loaded = load_unpacked(library, inputs, temporary)
        placed = loaded.place()
        function = getattr(loaded.binary, run_unpacked_symbol(loaded.description))
        function.restype = ctypes.c_int32
        loaded.check(function(*map(ctypes.c_void_p, placed.pointers)))
    return placed.outputs


def _status_text(binary: ctypes.CDLL, interface: str, status: int) -> str:
    function = getattr(binary, f"{interface}_status_string")
    function.restype = ctypes.c_char_p
    text: bytes = function(ctypes.c_int32(status))
    return text.decode("utf-8")


def _aligned_memory(size: int, alignment: int, offset: int = 0) -> npt.NDArray[np.uint8]:
    """Return aligned memory that is filled with a pattern.

    Args:
        size: size in bytes.
        alignment: alignment of the address in bytes.
        offset: offset in bytes from the first aligned address; rounded up to the alignment.
    """
    behind = -(-offset // alignment) * alignment
    raw = np.full(size + alignment + behind, 0xA5, dtype=np.uint8)
    start = -raw.ctypes.data % alignment + behind
    return raw[start : start + size]
