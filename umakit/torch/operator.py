# SPDX-License-Identifier: Apache-2.0
"""Operators of PyTorch for loaded libraries: a schema from the metadata, an implementation, and
one for shapes alone.

Source: `torch.library` (https://docs.pytorch.org/docs/stable/library.html).
"""

from __future__ import annotations

import keyword
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from umakit.library.metadata import load_metadata
from umakit.torch.loaded import LoadedLibrary, TensorSpec, fingerprint_of

NAMESPACE = "umakit"

_LOCK = threading.Lock()
_OPERATORS: weakref.WeakValueDictionary[str, LibraryOperator] = weakref.WeakValueDictionary()
"""Operators of this process by the fingerprint of their library."""


class LibraryOperator:
    """The operator of a loaded library, `torch.ops.umakit.NAME_FINGERPRINT`.

    It is there as long as this object is.

    Attributes:
        library: the library.
        name: of the operator: the network's and what tells its library from others.
        call: the operator.
    """

    def __init__(self, library: LoadedLibrary) -> None:
        """Register the operator of a library.

        Args:
            library: the library; there must be no other operator of it.
        """
        self.library = library
        network = library.description["interface"].removeprefix("tvmgen_")
        self.name = f"{network}_{library.fingerprint}"
        registration = torch.library.Library(NAMESPACE, "FRAGMENT")
        self.close = weakref.finalize(self, registration._destroy)
        registration.define(self.name + schema_of(library.inputs, library.outputs))

        # What torch keeps of an operator that has ended must not keep its library.
        loaded = weakref.ref(library)

        def run(*tensors: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
            return _single(_alive(loaded).run(tensors))

        def shapes(*tensors: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
            library = _alive(loaded)
            count = library.check(tensors)
            return _single([
                torch.empty(library.batched(each, count), dtype=each.dtype, device="cpu")
                for each in library.outputs
            ])  # fmt: skip

        # Tensors of other devices come here too, so that they are refused in one sentence.
        registration.impl(self.name, run, "CompositeExplicitAutograd")
        # There is no gradient: results are constants to autograd, without a warning.
        registration.impl(self.name, torch.library.fallthrough_kernel, "Autograd")
        torch.library.register_fake(f"{NAMESPACE}::{self.name}", shapes, lib=registration)
        self.call: Any = getattr(getattr(torch.ops, NAMESPACE), self.name).default


def operator_of(library: Path) -> LibraryOperator:
    """Return the operator of an exported library, which is loaded unless it is already.

    Args:
        library: a folder or a tar file that `uma compile` wrote.

    Raises:
        LibraryError: the library is missing or damaged.
        BuildError: there is no C compiler, it reported an error, or the library is for another CPU.
        DeviceError: its weights were refused.
    """
    fingerprint = fingerprint_of(load_metadata(library))
    with _LOCK:
        found = _OPERATORS.get(fingerprint)
        if found is None:
            found = LibraryOperator(LoadedLibrary(library))
            _OPERATORS[fingerprint] = found
        return found


def schema_of(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> str:
    """Return the arguments and results of an operator as `torch.library` takes them."""
    arguments = ", ".join(f"Tensor {_identifier(each.c_name)}" for each in inputs)
    results = ", ".join("Tensor" for _ in outputs)
    return f"({arguments}) -> {results if len(outputs) == 1 else f'({results})'}"


def _identifier(name: str) -> str:
    return f"{name}_" if keyword.iskeyword(name) or name in ("self", "out", "Tensor") else name


def _alive(loaded: weakref.ref[LoadedLibrary]) -> LoadedLibrary:
    library = loaded()
    assert library is not None  # its operator is there as long as it
    return library


def _single(outputs: list[torch.Tensor]) -> torch.Tensor | tuple[torch.Tensor, ...]:
    return outputs[0] if len(outputs) == 1 else tuple(outputs)
