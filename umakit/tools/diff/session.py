# SPDX-License-Identifier: Apache-2.0
"""A library and its reference: both are run layer by layer, and every layer is compared alone.

The reference's value of an operator is that of an independent runtime where it knows the operator,
else that of umakit's own CPU kernels, fed with the independent runtime's values. The library is run
twice: as it is, and with every layer's result replaced by the reference's as soon as it has run, so
that each layer computes from right inputs and an error is seen where it is made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from umakit import tvm_api
from umakit.devices import Device
from umakit.library.export import Library
from umakit.partition.partitioner import partition
from umakit.partition.report import OperatorPlacement
from umakit.pipeline import ExportOptions, export_program
from umakit.tools.diff.compare import TensorDifference, compare
from umakit.tools.diff.probe import LayerTrace, Probe
from umakit.tools.diff.references import CPU_KERNELS, DISPLAY_NAMES, ReferenceRun, Runtime
from umakit.tools.diff.values import EveryValue, Value

Array = npt.NDArray[Any]

MOST_CONSTANTS_IN_C = 4 * 1024 * 1024
"""Bytes; a C compiler takes long for more, so they go into a blob."""


@dataclass(frozen=True)
class ReferenceValues:
    """What the reference says about one inference.

    Attributes:
        values: of every operator, computed from values of the reference.
        independent: those that umakit had no part in.
        shared: differences of umakit's CPU kernels from independent values, fed with such values.
        in_the_run: every operator's value without any value being replaced.
        outputs: of the network, by name.
        rewritten: names of operators that umakit computes otherwise on purpose.
    """

    values: Mapping[Value, Array]
    independent: frozenset[Value]
    shared: Mapping[Value, TensorDifference]
    in_the_run: Mapping[Value, Array]
    outputs: Mapping[str, Array]
    rewritten: tuple[str, ...]


class Reference:
    """umakit's CPU kernels, one for each operator, and an independent runtime beside them.

    Args:
        every: the network with all values.
        runtime: None for the CPU kernels alone.
        folder: where the library of the kernels is written and built.
        tolerance: of floats.
    """

    def __init__(
        self, every: EveryValue, runtime: Runtime | None, folder: Path, tolerance: float
    ) -> None:
        self.every = every
        self.name = runtime.name if runtime else CPU_KERNELS
        self._runtime = runtime
        self._tolerance = tolerance
        partitioned = partition(every.model.module, [])
        path = folder / "reference"
        options = ExportOptions(weights=form_of_weights(partitioned.module))
        library = export_program(every.model, partitioned, [], path, options)
        description = library.metadata["umakit"]
        self._c_names = {item["name"]: item["c_name"] for item in description["outputs"]}
        self._types = {item.name: (item.shape, item.dtype) for item in every.model.outputs}
        self._probe = Probe(description, path, folder / "reference_probe")

    def size_of(self, value: Value) -> int:
        """Bytes of a value."""
        shape, dtype = self._types[self.every.names[value]]
        return int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize

    def run(self, inputs: Mapping[str, Array]) -> ReferenceValues:
        """One inference, inputs by name."""
        # First, because it says which layer refuses inputs such as indices out of range.
        free = self._kernels(inputs, {})
        external = self._runtime.run(inputs) if self._runtime else ReferenceRun({}, {})
        rewritten = self._rewritten(free, external.values)
        independent = {v: array for v, array in external.values.items() if v not in rewritten}
        own = self._kernels(inputs, independent) if independent else free
        shared = {v: compare(own[v], a, self._tolerance) for v, a in independent.items()}
        results = {name: free[value] for name, value in self.every.results.items()}
        return ReferenceValues(
            {**own, **independent},
            frozenset(independent),
            shared,
            {**free, **independent},
            {**results, **external.outputs},
            tuple(dict.fromkeys(self.every.operators[row].name for row, _ in sorted(rewritten))),
        )

    def _kernels(
        self, inputs: Mapping[str, Array], forced: Mapping[Value, Array]
    ) -> dict[Value, Array]:
        """Values of all operators by umakit's kernels, each fed with forced values if any."""
        names = {v: self._c_names[name] for v, name in self.every.names.items()}
        traces = self._probe.run(inputs, {names[v]: array for v, array in forced.items()})
        outputs = {name: raw for trace in traces for name, raw in trace.outputs.items()}
        return {
            value: _typed(outputs[names[value]], *self._types[name])
            for value, name in self.every.names.items()
        }

    def _rewritten(
        self, free: Mapping[Value, Array], external: Mapping[Value, Array]
    ) -> frozenset[Value]:
        """Values that differ while everything computed from them agrees: no errors, but rewriting.

        An import may, for example, move a factor from one operator to the next.
        """
        loose = self._tolerance * max(1, len(self.every.operators))
        differing = {
            v for v, array in external.items() if not compare(free[v], array, loose).agrees
        }
        rows = {row for row, _ in differing}
        compared = {row for row, _ in external}
        found = set()
        for value in differing:
            consumers = self._next(value[0], compared)
            if consumers and not consumers & rows:
                found.add(value)
        return frozenset(found)

    def _next(self, row: int, compared: set[int]) -> set[int]:
        """The nearest rows that are computed from a row and are compared."""
        found: set[int] = set()
        open_rows = {row}
        for later in range(row + 1, len(self.every.operators)):
            if self.every.reads.get(later, frozenset()) & open_rows:
                (found if later in compared else open_rows).add(later)
        return found


@dataclass(frozen=True)
class TensorComparison:
    """A tensor of a layer compared with the reference's.

    Attributes:
        layer: its number.
        c_name: of the tensor.
        value: which value of the network it is.
        got: what the layer computed from the reference's values.
        own: its difference.
        in_the_run: difference in the run of the whole library.
    """

    layer: int
    c_name: str
    value: Value
    got: Array
    own: TensorDifference
    in_the_run: TensorDifference


@dataclass(frozen=True)
class Comparison:
    """One inference.

    Attributes:
        tensors: everything that can be compared, in execution order.
        damaged: by layer, memory that it was not to change.
        outputs: of the network: differences by name.
        reference: what was compared with.
    """

    tensors: tuple[TensorComparison, ...]
    damaged: Mapping[int, tuple[str, ...]]
    outputs: Mapping[str, TensorDifference]
    reference: ReferenceValues


class LibraryUnderTest:
    """A library under examination.

    Args:
        library: a folder or tar file that `uma compile` wrote.
        report: what runs where.
        reference: to compare with.
        program: the file to build around it.
        tolerance: of floats.
        device: where it runs.
    """

    def __init__(
        self,
        library: Library,
        reference: Reference,
        program: Path,
        tolerance: float,
        device: Device,
    ) -> None:
        self.operators: tuple[OperatorPlacement, ...] = library.report.placements
        description = library.metadata["umakit"]
        self.layers: Sequence[Mapping[str, Any]] = description["layers"]
        self.pools: Sequence[Mapping[str, Any]] = description["memory"]["pools"]
        self._reference = reference
        self._tolerance = tolerance
        self._outputs = description["outputs"]
        self._probe = Probe(description, library.path, program, device)
        self.values = self._values()

    def run(self, inputs: Mapping[str, Array]) -> Comparison:
        """Run one inference and compare every layer.

        Raises:
            DeviceError: a driver returned a status, or the program died; names the layer.
        """
        reference = self._reference.run(inputs)
        free = self._probe.run(inputs, {})
        fed = self._probe.run(inputs, {n: reference.values[v] for n, v in self.values.items()})
        tensors = tuple(
            self._compared(number, name, fed[number], free[number], reference)
            for number, layer in enumerate(self.layers)
            for name in layer["outputs"]
            if name in self.values
        )
        damaged = {
            number: tuple(dict.fromkeys([*one.damaged, *other.damaged]))
            for number, (one, other) in enumerate(zip(free, fed, strict=True))
            if one.damaged or other.damaged
        }
        return Comparison(tensors, damaged, self._final(free, reference), reference)

    def _compared(
        self, number: int, name: str, fed: LayerTrace, free: LayerTrace, reference: ReferenceValues
    ) -> TensorComparison:
        value = self.values[name]
        wanted, in_the_run = reference.values[value], reference.in_the_run[value]
        got = _typed(fed.outputs[name], wanted.shape, str(wanted.dtype))
        loose = self._tolerance * (number + 1)
        run = _typed(free.outputs[name], wanted.shape, str(wanted.dtype))
        own = compare(got, wanted, self._tolerance)
        return TensorComparison(number, name, value, got, own, compare(run, in_the_run, loose))

    def _final(
        self, traces: Sequence[LayerTrace], reference: ReferenceValues
    ) -> dict[str, TensorDifference]:
        """Differences of outputs; each layer's rounding may add to that of floats."""
        raw = {name: data for trace in traces for name, data in trace.outputs.items()}
        loose = self._tolerance * len(self.layers)
        differences = {}
        for item in self._outputs:
            wanted = reference.outputs.get(item["name"])
            if wanted is not None and item["c_name"] in raw:
                got = _typed(raw[item["c_name"]], tuple(item["shape"]), item["dtype"])
                if (got.shape, got.dtype) == (wanted.shape, wanted.dtype):
                    differences[item["name"]] = compare(got, wanted, loose)
        return differences

    def _values(self) -> dict[str, Value]:
        """The network's value by C name of the tensor in which a layer leaves it."""
        every = self._reference.every
        rows = _matching_rows(self.operators, every.operators)
        last = {
            max(item["operators"]): n for n, item in enumerate(self.layers) if item["operators"]
        }
        values: dict[str, Value] = {}
        for row, number in last.items():
            for result, name in enumerate(self.layers[number]["outputs"]):
                if row in rows and (rows[row], result) in every.names:
                    values[name] = rows[row], result
        results = {name: v for name, v in every.results.items() if v in every.names}
        written = {name for layer in self.layers for name in layer["outputs"]}
        for item in self._outputs:
            value = results.get(item["name"])
            if value is not None and item["c_name"] in written - set(values):
                values[item["c_name"]] = value
        sizes = self._probe.sizes
        return {n: v for n, v in values.items() if sizes[n] == self._reference.size_of(v)}


def _matching_rows(
    operators: Sequence[OperatorPlacement], others: Sequence[OperatorPlacement]
) -> dict[int, int]:
    """Rows of one report by rows of another, which a backend's passes may have changed."""
    if [(o.operator, o.name) for o in operators] == [(o.operator, o.name) for o in others]:
        return {row: row for row in range(len(operators))}
    last = {operator.name: row for row, operator in enumerate(others)}
    ours = {operator.name: row for row, operator in enumerate(operators)}
    return {
        row: last[name]
        for name, row in ours.items()
        if name in last and _same_type(operators[row], others[last[name]])
    }


def _same_type(one: OperatorPlacement, other: OperatorPlacement) -> bool:
    """Whether results have one shape and dtype; a written library's report does not say them."""
    return not one.dtype or (one.shape, one.dtype) == (other.shape, other.dtype)


def form_of_weights(module: Any) -> Literal["c", "blob"]:
    """How constants are written where nobody says it: a C compiler takes long for many."""
    constants = tvm_api.collect(module["main"], tvm_api.GenericConst)
    arrays = [tvm_api.constant_array(constant) for constant in constants]
    size = sum(array.nbytes for array in arrays if array is not None)
    return "blob" if size > MOST_CONSTANTS_IN_C else "c"


def _typed(raw: npt.NDArray[np.uint8], shape: tuple[int, ...], dtype: str) -> Array:
    return np.frombuffer(raw.tobytes(), np.dtype(dtype)).reshape(shape)


def rewritten_notice(names: Sequence[str], reference: str) -> str:
    """What is said about operators that differ without effect."""
    listed = ", ".join(names)
    return (
        f"{DISPLAY_NAMES[reference]} computes {listed} otherwise, but what follows is equal: "
        f"umakit rewrites it on import, so it is compared with {DISPLAY_NAMES[CPU_KERNELS]}"
    )
