# SPDX-License-Identifier: Apache-2.0
"""Exported libraries, compiled and loaded into this process, and called with tensors."""

from __future__ import annotations

import _ctypes
import ctypes
import hashlib
import json
import math
import shutil
import tempfile
import threading
import weakref
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from umakit.devices import HOST
from umakit.devices.cpus import description_for
from umakit.devices.unpacked import BLOB_ALIGNMENT, compiled_library, open_weights, run_error
from umakit.errors import InputError
from umakit.library.cpu_sections import run_unpacked_symbol
from umakit.library.metadata import load_metadata, read_weights, weights_path
from umakit.library.tar_files import write_package

MOST_ALIGNED = 64
"""Alignment of memory that torch allocates for CPU tensors, in bytes."""

_ACCELERATORS: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
"""Locks of accelerators by name, held by a run: a concurrent run would be refused as busy."""


@dataclass(frozen=True)
class TensorSpec:
    """A tensor of a library's interface.

    Attributes:
        name: name in the network.
        c_name: name as a C identifier.
        alignment: alignment of the address, in bytes.
        is_state: whether the tensor is a state, which an output of the network replaces.
        zero: zero point: the integer that represents 0.
    """

    name: str
    c_name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    alignment: int
    is_state: bool
    zero: int

    @classmethod
    def of(cls, described: Mapping[str, Any]) -> TensorSpec:
        """Return a tensor of `inputs` or `outputs` of a library's metadata."""
        return cls(
            described["name"],
            described["c_name"],
            tuple(described["shape"]),
            getattr(torch, described["dtype"]),
            max(1, described.get("alignment_bytes") or 1),
            bool(described.get("next_state")),
            int(described.get("zero_point") or 0),
        )

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


class LoadedLibrary:
    """A library that is compiled for this machine and loaded into this process.

    Attributes:
        description: section `umakit` of the library's metadata.
        inputs, outputs: tensors of the library's interface.
        fingerprint: digest of the metadata, equal for the same library in any process.
        source: the library as a tar file, kept as long as this object.
    """

    def __init__(self, library: Path) -> None:
        metadata = load_metadata(library)
        self.description: Mapping[str, Any] = description_for(library, HOST)
        self.fingerprint = fingerprint_of(metadata)
        self.inputs = tuple(map(TensorSpec.of, self.description["inputs"]))
        self.outputs = tuple(map(TensorSpec.of, self.description["outputs"]))
        folder = Path(tempfile.mkdtemp(prefix="umakit-torch-"))
        self.source = folder / "library.tar"
        try:
            write_package(library, self.source, force=False)
            self._binary = compiled_library(library, folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        self.close = weakref.finalize(self, _unload, self._binary, folder)
        self._function = getattr(self._binary, run_unpacked_symbol(self.description))
        self._function.restype = ctypes.c_int32
        self._pools = self.description["memory"]["pools"]
        self._weights = (
            self._open_weights(library) if self.description["weights"] == "blob" else None
        )
        self._accelerators = sorted({each["name"] for each in self.description["backends"]})

    def run(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Run the library, once for each part of a batch, and return a new tensor for each
        output."""
        count = self.check(tensors)
        outputs = [
            torch.empty(self.batched(each, count), dtype=each.dtype) for each in self.outputs
        ]
        pools = [_aligned_bytes(p["used_bytes"], p["alignment_bytes"]) for p in self._pools]
        with self._exclusive():
            for index in range(count):
                self._run_one(tensors, outputs, [pool[1] for pool in pools], index)
        return outputs

    def check(self, tensors: Sequence[torch.Tensor]) -> int:
        """Check device, dtype and shape of tensors, and return the batch size in inferences."""
        if len(tensors) != len(self.inputs):
            names = ", ".join(each.name for each in self.inputs)
            raise InputError(
                f"the library takes {len(self.inputs)} tensors ({names}), not {len(tensors)}"
            )
        counts = [_check(each, tensor) for each, tensor in zip(self.inputs, tensors, strict=True)]
        if any(count != counts[0] for count in counts):
            pairs = zip(self.inputs, counts, strict=True)
            sizes = ", ".join(f"{each.name}: {count}" for each, count in pairs)
            raise InputError(
                f"the inputs hold different numbers of inferences ({sizes})",
                fix="give each input the same multiple of its first extent",
            )
        return counts[0] if counts else 1

    def batched(self, tensor: TensorSpec, count: int) -> list[int]:
        """Return the shape of an output for a number of inferences."""
        if not tensor.shape:
            return [count] if count != 1 else []
        first, *others = tensor.shape
        return [first * count, *others]

    def _run_one(
        self,
        tensors: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
        pools: Sequence[int],
        index: int,
    ) -> None:
        kept, pointers, results = [], [], []
        specs, whole = (*self.inputs, *self.outputs), (*tensors, *outputs)
        for number, (spec, tensor) in enumerate(zip(specs, whole, strict=True)):
            size = spec.elements * tensor.element_size()
            own = address = tensor.data_ptr() + index * size
            if address % spec.alignment:
                copy, address = _aligned_bytes(size, spec.alignment)
                kept.append(copy)
                if number < len(self.inputs):
                    ctypes.memmove(address, own, size)
                else:
                    results.append((own, address, size))
            pointers.append(address)
        if self._weights is not None:
            pointers.append(self._weights[1])
        status = self._function(*map(ctypes.c_void_p, [*pointers, *pools]))
        if status != 0:
            raise run_error(self._binary, self.description, status)
        for own, address, size in results:
            ctypes.memmove(own, address, size)

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Lock the library's accelerators, in the order of their names, against deadlock."""
        with ExitStack() as taken:
            for name in self._accelerators:
                taken.enter_context(_ACCELERATORS[name])
            yield

    def _open_weights(self, library: Path) -> tuple[torch.Tensor, int]:
        data = read_weights(library)
        memory, address = _aligned_bytes(len(data), BLOB_ALIGNMENT)
        ctypes.memmove(address, data, len(data))
        interface, name = self.description["interface"], weights_path(self.description["name"])
        opened = open_weights(self._binary, interface, address, len(data), str(library / name))
        return memory, opened


def fingerprint_of(metadata: Mapping[str, Any]) -> str:
    """Return a digest of metadata that identifies a library, in hexadecimal."""
    text = json.dumps(metadata, sort_keys=True)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:12]


def _check(spec: TensorSpec, tensor: torch.Tensor) -> int:
    where = f"input {spec.name!r}"
    if tensor.device.type not in ("cpu", "meta"):
        raise InputError(
            f"the tensor is on {tensor.device}, the library runs on the CPU", where=where,
            fix="call .cpu() first",
        )  # fmt: skip
    if tensor.dtype != spec.dtype:
        raise InputError(
            f"the tensor is {_dtype(tensor.dtype)}, the library takes {_dtype(spec.dtype)}",
            where=where, fix=f"call .to({spec.dtype}), or quantize it as the network's input is",
        )  # fmt: skip
    shape = tuple(tensor.shape)
    first = spec.shape[0] if spec.shape else 1
    fits = len(shape) == len(spec.shape) and shape[1:] == spec.shape[1:]
    if not fits or (shape and shape[0] != first and (not first or shape[0] % first)):
        batch = f", or a multiple of its first extent, {first}" if spec.shape else ""
        raise InputError(
            f"the tensor has shape {list(shape)}, the library takes {list(spec.shape)}{batch}",
            where=where, fix="export the network for this shape with --input-shapes",
        )  # fmt: skip
    if not tensor.is_contiguous():
        raise InputError(
            "the tensor is not contiguous", where=where, fix="call .contiguous() first"
        )
    return shape[0] // first if shape and first else 1


def _dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _aligned_bytes(size: int, alignment: int) -> tuple[torch.Tensor, int]:
    """Return new memory, and the first aligned address in the memory."""
    memory = torch.empty(size + (alignment if alignment > MOST_ALIGNED else 0), dtype=torch.uint8)
    address = memory.data_ptr()
    address += -address % alignment
    return memory, address


def _unload(binary: ctypes.CDLL, folder: Path) -> None:
    _ctypes.dlclose(binary._handle)
    shutil.rmtree(folder, ignore_errors=True)
