# SPDX-License-Identifier: Apache-2.0
"""Modules of PyTorch that run an exported library."""

from __future__ import annotations

import inspect
import keyword
import os
import tempfile
import threading
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from umakit.errors import InputError
from umakit.library.metadata import load_metadata
from umakit.torch.loaded import LoadedLibrary, TensorSpec, fingerprint_of


class LibraryModule(torch.nn.Module):  # type: ignore[misc]
    """A module that runs an exported library on this machine with simulated accelerators.

    `torch.save` stores the library's sources; `torch.load` compiles them again. The library stays
    loaded as long as one of its modules is alive. The module has no gradient.

    Attributes:
        inputs, outputs: tensors of the network's interface. A call takes the inputs in this order;
        states may be omitted.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]

    def __init__(self, operator: LibraryOperator) -> None:
        super().__init__()
        self._operator = operator
        self._call = operator.call
        self.inputs, self.outputs = operator.library.inputs, operator.library.outputs
        self._data = [each for each in self.inputs if not each.is_state]

    @property
    def operator_name(self) -> str:
        """The name of its operator in `torch.ops.umakit`, the same in each process."""
        return self._operator.name

    def forward(
        self, *tensors: torch.Tensor, **named: torch.Tensor
    ) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """Run the network.

        Args:
            tensors: inputs except states, in the network's order, contiguous and on the CPU. If
                their first extent is a multiple of the input's, the network runs that many times.
            named: inputs, states included, by their C identifier.

        Returns:
            The output, or a tuple of all outputs, as new tensors.

        Raises:
            InputError: a tensor is missing, has another device, dtype or shape, or is not
                contiguous.
            DeviceError: the run failed; carries the driver's status.
        """
        if len(tensors) > len(self._data):
            raise InputError(
                f"the network takes {len(self._data)} tensors besides its states, not "
                f"{len(tensors)}"
            )
        given = dict(zip((each.c_name for each in self._data), tensors, strict=False))
        for name, tensor in named.items():
            if name in given or all(name != each.c_name for each in self.inputs):
                what = "is given twice" if name in given else "is no input of the network"
                raise InputError(f"{name} {what}", fix=f"inputs are {self._names()}")
            given[name] = tensor
        return self._call(*(self._argument(each, given, tensors) for each in self.inputs))

    def extra_repr(self) -> str:
        """Return the tensors of the interface, for `print`."""
        texts = [f"{each.c_name}: {list(each.shape)}" for each in self.inputs]
        return f"{self.operator_name}, {', '.join(texts)}"

    def __reduce__(self) -> tuple[Callable[[bytes], LibraryModule], tuple[bytes]]:
        """Pickle the library's sources; compiled code runs on this machine only."""
        return from_bytes, (self.source_bytes(),)

    def source_bytes(self) -> bytes:
        return self._operator.library.source.read_bytes()

    def _argument(
        self, spec: TensorSpec, given: dict[str, torch.Tensor], tensors: tuple[torch.Tensor, ...]
    ) -> torch.Tensor:
        if spec.c_name in given:
            tensor = given[spec.c_name]
            if not isinstance(tensor, torch.Tensor):
                raise InputError(
                    f"the value is a {type(tensor).__name__}, not a tensor",
                    where=f"input {spec.name!r}",
                    fix="convert it with torch.as_tensor",
                )
            return tensor
        if not spec.is_state:
            raise InputError(f"input {spec.c_name} is missing", fix=f"inputs are {self._names()}")
        shape = list(spec.shape)
        first = self._data[0].shape[0] if self._data and self._data[0].shape else 0
        if shape and first and tensors:
            shape[0] = shape[0] * (tensors[0].shape[0] // first)
        return torch.full(shape, spec.zero, dtype=spec.dtype)

    def _names(self) -> str:
        return ", ".join(each.c_name for each in self.inputs)


def load(library: str | os.PathLike[str]) -> LibraryModule:
    """Return a module that runs an exported library.

    The library is compiled with this machine's C compiler and loaded into this process. Further
    modules of the same library share the loaded library.

    Args:
        library: folder or tar file that `uma compile` wrote.

    Raises:
        LibraryError: the library is missing or damaged.
        BuildError: no C compiler was found, compilation failed, or the library is for another CPU.
        DeviceError: the driver refused the weights.
    """
    path = Path(library)
    fingerprint = fingerprint_of(load_metadata(path))
    with _LOCK:
        operator = _OPERATORS.get(fingerprint)
        if operator is None:
            operator = _OPERATORS[fingerprint] = LibraryOperator(LoadedLibrary(path))
    return _class_for(operator)(operator)


def _class_for(operator: LibraryOperator) -> type[LibraryModule]:
    """Return a class whose `forward` has the library's arguments in its signature.

    `torch.export` matches shapes and names by this signature.
    """

    def forward(
        self: LibraryModule, *tensors: torch.Tensor, **named: torch.Tensor
    ) -> torch.Tensor | tuple[torch.Tensor, ...]:
        return LibraryModule.forward(self, *tensors, **named)

    parameter, kind = inspect.Parameter, inspect.Parameter.POSITIONAL_OR_KEYWORD
    inputs, keyword_only = operator.library.inputs, inspect.Parameter.KEYWORD_ONLY
    parameters = [parameter("self", kind)]
    parameters += [parameter(each.c_name, kind) for each in inputs if not each.is_state]
    parameters += [
        parameter(each.c_name, keyword_only, default=None) for each in inputs if each.is_state
    ]
    forward.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    forward.__doc__ = LibraryModule.forward.__doc__
    return type("LibraryModule", (LibraryModule,), {"forward": forward})


def from_bytes(source: bytes) -> LibraryModule:
    with tempfile.TemporaryDirectory(prefix="umakit-torch-") as folder:
        path = Path(folder) / "library.tar"
        path.write_bytes(source)
        return load(path)


# Operators of PyTorch for loaded libraries: a schema from the metadata, an implementation, and
# one for shapes alone.
#
# Source: `torch.library` (https://docs.pytorch.org/docs/stable/library.html).

NAMESPACE = "umakit"

_LOCK = threading.Lock()
_OPERATORS: weakref.WeakValueDictionary[str, LibraryOperator] = weakref.WeakValueDictionary()
"""Operators of this process by the fingerprint of their library."""


class LibraryOperator:
    """The operator of a loaded library, `torch.ops.umakit.NAME_FINGERPRINT`.

    The operator is registered as long as this object is alive.

    Attributes:
        name: name of the operator: the network's name and the library's fingerprint.
        call: the operator.
    """

    def __init__(self, library: LoadedLibrary) -> None:
        self.library = library
        network = library.description["interface"].removeprefix("tvmgen_")
        self.name = f"{network}_{library.fingerprint}"
        registration = torch.library.Library(NAMESPACE, "FRAGMENT")
        self.close = weakref.finalize(self, registration._destroy)
        registration.define(self.name + schema_of(library.inputs, library.outputs))

        # torch retains parts of an unregistered operator; they must not keep the library alive.
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

        # Tensors of other devices are dispatched here too, for one common refusal.
        registration.impl(self.name, run, "CompositeExplicitAutograd")
        # There is no gradient: results are constants to autograd, without a warning.
        registration.impl(self.name, torch.library.fallthrough_kernel, "Autograd")
        torch.library.register_fake(f"{NAMESPACE}::{self.name}", shapes, lib=registration)
        self.call: Any = getattr(getattr(torch.ops, NAMESPACE), self.name).default


def schema_of(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> str:
    """Return an operator's schema in the notation of `torch.library`."""
    arguments = ", ".join(f"Tensor {_identifier(each.c_name)}" for each in inputs)
    results = ", ".join("Tensor" for _ in outputs)
    return f"({arguments}) -> {results if len(outputs) == 1 else f'({results})'}"


def _identifier(name: str) -> str:
    return f"{name}_" if keyword.iskeyword(name) or name in ("self", "out", "Tensor") else name


def _alive(loaded: weakref.ref[LoadedLibrary]) -> LoadedLibrary:
    library = loaded()
    assert library is not None  # the operator is unregistered together with its library
    return library


def _single(outputs: list[torch.Tensor]) -> torch.Tensor | tuple[torch.Tensor, ...]:
    return outputs[0] if len(outputs) == 1 else tuple(outputs)
