# SPDX-License-Identifier: Apache-2.0
"""Calling `tvmgen_NAME_run_unpacked` of a library in this process through ctypes."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from umakit.devices import HOST
from umakit.devices.build import compile_c, library_sources
from umakit.devices.cpus import cpu_flags, description_for
from umakit.devices.execution import cause_of, stopped
from umakit.devices.inputs import check_inputs
from umakit.devices.libraries import libraries_of
from umakit.devices.simulators import simulators_of
from umakit.errors import DeviceError, InputError
from umakit.files.staging import temporary_folder
from umakit.library.cpu_sections import run_unpacked_symbol
from umakit.library.metadata import load_metadata, read_weights, weights_path
from umakit.library.tar_files import library_folder
from umakit.text.rendering import render

BLOB_ALIGNMENT = 16
"""Alignment of a weights blob in memory, in bytes."""


@dataclass(frozen=True)
class Placed:
    """The memory of an inference.

    Attributes:
        pointers: addresses of the arguments of `_run_unpacked`.
    """

    pointers: tuple[int, ...]
    outputs: dict[str, npt.NDArray[Any]]
    kept: list[npt.NDArray[Any]]


@dataclass(frozen=True)
class UnpackedLibrary:
    """A library that is loaded in this process, with the inputs of an inference.

    Attributes:
        weights: content of the weights blob; None for a library without one.
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
        """Raise the error of a status."""
        if status != 0:
            raise run_error(self.binary, self.description, status)


def compiled_library(
    library: Path, folder: Path, sources: Sequence[Path] = (), flags: Sequence[str] = ()
) -> ctypes.CDLL:
    """Compile a library for this machine and load it into this process.

    Args:
        folder: folder for the shared library, kept while the library is used.
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
    """Return the error of a run that ended with a status other than 0."""
    interface = description["interface"]
    text = _status_text(binary, interface, status)
    sentence, own = stopped(description, status, text)
    return DeviceError(sentence, where=interface, fix=cause_of(text, status).value, status=own)


def open_weights(binary: ctypes.CDLL, interface: str, address: int, size: int, name: str) -> int:
    """Open a weights blob and return the address of its data."""
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
        inputs: arrays by input name; a single-input model accepts any name.
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
        offset: offset in bytes from the first aligned address; rounded up to the alignment.
    """
    behind = -(-offset // alignment) * alignment
    raw = np.full(size + alignment + behind, 0xA5, dtype=np.uint8)
    start = -raw.ctypes.data % alignment + behind
    return raw[start : start + size]


PAGE = 4096
"""Bytes of a page of memory. Addresses this far apart map to the same sets of a first-level
cache."""

TURN_SECONDS = 0.02
"""Time of a turn, at least: a shorter inference is repeated."""


class TimedLibrary:
    """A library whose layers are timed in this process.

    Args:
        library: an exported library with all layers on the CPU.
        folder: an empty folder, kept while the library is used.

    Attributes:
        outputs: arrays by output name of one inference.
    """

    def __init__(self, library: Path, inputs: Mapping[str, npt.NDArray[Any]], folder: Path) -> None:
        description = load_metadata(library)["umakit"]
        interface, self._layers = description["interface"], len(description["layers"])
        pools = len(description["memory"]["pools"]) + (description["weights"] == "blob")
        arguments = len(description["inputs"]) + len(description["outputs"]) + pools
        source = folder / "layer_times.c"
        values = {"interface": interface, "layers": self._layers, "arguments": arguments}
        source.write_text(render("tuning/layer_times.c.j2", **values), encoding="utf-8")
        headers = library_folder(library) / "codegen/host/include"
        flags = [f"-D{interface.upper()}_PROFILE", f"-I{headers.absolute()}"]
        self._library = load_unpacked(library, inputs, folder, [source], flags)
        self._function = self._library.binary.umakit_time_layers
        self._function.restype = ctypes.c_int32
        self._random = np.random.default_rng(0)
        self.move()
        self.times(1)
        self.outputs = {name: array.copy() for name, array in self._placed.outputs.items()}
        seconds = float(self.times(1).sum())
        self.repeats = math.ceil(TURN_SECONDS / max(seconds, 1e-7))

    def move(self) -> None:
        """Allocate other memory for all tensors, at random offsets from page boundaries.

        The speed of a kernel varies by up to a fifth with the cache sets shared by its tensors. At
        a fixed placement, a library could be faster by chance.
        """
        self._placed = self._library.place(lambda: 64 * int(self._random.integers(PAGE // 64)))
        pointers = self._placed.pointers
        self._arguments = (ctypes.c_void_p * len(pointers))(*pointers)

    def times(self, inferences: int) -> npt.NDArray[np.float64]:
        """Run some inferences and return the mean processor time of each layer in seconds."""
        found = np.zeros(self._layers, np.uint64)
        pointer = ctypes.c_void_p(found.ctypes.data)
        self._library.check(self._function(self._arguments, ctypes.c_int64(inferences), pointer))
        return found.astype(np.float64) / inferences * 1e-9


def take_turns(libraries: Sequence[TimedLibrary], rounds: int) -> npt.NDArray[np.float64]:
    """Return seconds of each layer as [library, round, layer].

    Times are processor times of this thread, without other programs. In each round, every library
    has a turn, so disturbances affect all libraries alike. Before its turn, a library moves to
    other memory and runs one uncounted inference.
    """
    repeats = min(each.repeats for each in libraries)
    found: list[list[npt.NDArray[np.float64]]] = []
    for _ in range(rounds):
        turn = []
        for each in libraries:
            each.move()
            each.times(1)
            turn.append(each.times(repeats))
        found.append(turn)
    return np.array(found).transpose(1, 0, 2)
