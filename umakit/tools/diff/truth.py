# SPDX-License-Identifier: Apache-2.0
"""The reference values of an inference, and the reference that computed each value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from umakit.devices.probe import Probe
from umakit.partition.partitioner import partition
from umakit.pipeline import ExportOptions, export_program
from umakit.registration.backend import Backend
from umakit.testing.differences import TensorDifference, Tolerance, compare
from umakit.tools.diff.decider import NotDecided, decided
from umakit.tools.diff.process import RuntimeStopped
from umakit.tools.diff.references import (
    CPU_KERNELS,
    DISPLAY_NAMES,
    NUMPY,
    ModelFile,
    ReferenceRun,
    Selection,
    cannot_be_reference,
)
from umakit.tools.diff.result import Disagreement
from umakit.tools.diff.values import EveryValue, Value, computed_from, form_of_weights

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class ReferenceValues:
    """The reference values of one inference.

    Attributes:
        values: values of every operator, computed from `fed` values.
        fed: values of every operator that later operators are computed from: after a wrong operator
            of a runtime, its later results are correct for the wrong inputs.
        origins: names of `REFERENCES` by value; umakit's CPU kernels for missing entries.
        shared: differences of umakit's CPU kernels from independent values, given such inputs.
        in_the_run: values of every operator in a run without replaced values.
        rewritten: names of operators that umakit deliberately computes in another way.
        disagreements: operators that the runtime computes differently from umakit and NumPy.
        stopped: reason for a runtime without a result; empty with a result.
    """

    values: Mapping[Value, Array]
    fed: Mapping[Value, Array]
    origins: Mapping[Value, str]
    shared: Mapping[Value, TensorDifference]
    in_the_run: Mapping[Value, Array]
    outputs: Mapping[str, Array]
    rewritten: tuple[str, ...] = ()
    disagreements: tuple[Disagreement, ...] = ()
    stopped: str = ""


class Reference:
    """The reference: umakit's CPU kernels, one per operator, an independent runtime, and NumPy.

    Args:
        backends: backends whose C functions the kernels may call to round.
    """

    def __init__(
        self,
        every: EveryValue,
        selection: Selection,
        folder: Path,
        tolerance: Tolerance,
        backends: Sequence[Backend] = (),
    ) -> None:
        self.every = every
        self.name = selection.name
        self.name_without_runtime = NUMPY if selection.file else CPU_KERNELS
        self._selection = selection
        self._tolerance = tolerance
        partitioned = partition(every.model.module, [])
        path = folder / "reference"
        options = ExportOptions(weights=form_of_weights(partitioned.module))
        library = export_program(every.model, partitioned, backends, path, options)
        description = library.metadata["umakit"]
        self._c_names = {item["name"]: item["c_name"] for item in description["outputs"]}
        self._types = {item.name: (item.shape, item.dtype) for item in every.model.outputs}
        self._probe = Probe(description, path, folder / "reference_probe")

    def size_of(self, value: Value) -> int:
        shape, dtype = self._types[self.every.names[value]]
        return int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize

    def run(self, inputs: Mapping[str, Array]) -> ReferenceValues:
        # Run the kernels first: they name the layer that refuses inputs such as indices out of
        # range.
        free = self._kernels(inputs, {})
        external, stopped = self._external(inputs)
        rewritten = self._rewritten(free, external.values)
        theirs = {
            value: array
            for value, array in external.values.items()
            if value not in rewritten and value[0] not in self.every.changed
        }
        own = self._kernels(inputs, theirs) if theirs else free
        fed = {**own, **theirs}
        right: Mapping[Value, Array]
        if theirs or external.values:
            right, disagreements = self._against_runtime(own, theirs, external.values, inputs)
        else:
            right, disagreements = self._without_runtime(own, inputs), []
        independent = {**theirs, **right}
        origins = {v: NUMPY if v in right else self.name for v in independent}
        shared = {v: compare(own[v], a, self._tolerance) for v, a in independent.items()}
        wrong = computed_from({value[0] for value, _ in disagreements}, self.every.reads)
        results = {name: free[value] for name, value in self.every.results.items()}
        is_theirs = not self.every.changed
        in_the_run = {v: a for v, a in theirs.items() if is_theirs and v[0] not in wrong}
        outputs = {
            name: array
            for name, array in external.outputs.items()
            if is_theirs and self.every.results.get(name, (-1, 0))[0] not in wrong
        }
        return ReferenceValues(
            {**own, **independent},
            fed,
            origins,
            shared,
            {**free, **in_the_run},
            {**results, **outputs},
            tuple(dict.fromkeys(self.every.operators[row].name for row, _ in sorted(rewritten))),
            tuple(each for _, each in disagreements),
            stopped,
        )

    def _external(self, inputs: Mapping[str, Array]) -> tuple[ReferenceRun, str]:
        """Return the results of the runtime, or the reason for their absence."""
        runtime = self._selection.runtime
        if runtime is None:
            return ReferenceRun({}, {}), ""
        try:
            return runtime.run(inputs), ""
        except RuntimeStopped as stop:
            if self._selection.is_demanded:
                raise cannot_be_reference(runtime.name, str(stop)) from None
            return ReferenceRun({}, {}), str(stop)

    def _against_runtime(
        self,
        own: Mapping[Value, Array],
        theirs: Mapping[Value, Array],
        external: Mapping[Value, Array],
        inputs: Mapping[str, Array],
    ) -> tuple[dict[Value, Array], list[tuple[Value, Disagreement]]]:
        """Return correct values where the runtime is wrong, and the disagreements."""
        right: dict[Value, Array] = {}
        disagreements = []
        file = self._selection.file
        if file is None:
            return {}, []
        known = file.known(external, inputs)
        for value, array in theirs.items():
            if compare(own[value], array, self._tolerance).agrees:
                continue
            found = self._by_numpy(file, value, own[value], array, known)
            if found is not None and found[1]:
                right[value] = found[0]
                operator = self.every.operators[value[0]]
                difference = compare(array, found[0], self._tolerance)
                disagreement = Disagreement(operator, self.name, difference, both_right=found[2])
                disagreements.append((value, disagreement))
        return right, disagreements

    def _without_runtime(
        self, own: Mapping[Value, Array], inputs: Mapping[str, Array]
    ) -> dict[Value, Array]:
        """Return NumPy's values, each computed from values of umakit's kernels."""
        file = self._selection.file
        if file is None:
            return {}
        known, right = file.known(own, inputs), {}
        for value, tensor in sorted(file.tensors.items(), key=lambda item: item[0]):
            if value not in own or value[0] in self.every.changed:
                continue
            found = self._by_numpy(file, value, own[value], None, known)
            if found is None:
                continue
            others = {name: array for name, array in known.items() if name != tensor}
            is_wrong = not compare(own[value], found[0], self._tolerance).agrees
            if is_wrong and self._agree_behind(file, value, own, others):
                known = others  # the value is rewritten
                continue
            right[value] = found[0]
        return right

    def _agree_behind(
        self, file: ModelFile, value: Value, own: Mapping[Value, Array], known: Mapping[Any, Array]
    ) -> bool:
        """Whether a real value is rewritten: all values computed from it agree."""
        rows = self._next(value[0], {row for row, _ in file.tensors})
        results = [each for each in file.tensors if each[0] in rows and each in own]
        found = [self._by_numpy(file, each, own[each], None, known) for each in results]
        return (
            bool(results)
            and _is_real(own[value])
            and all(
                item is not None and compare(own[each], item[0], self._tolerance).agrees
                for each, item in zip(results, found, strict=True)
            )
        )

    def _by_numpy(
        self,
        file: ModelFile,
        value: Value,
        own: Array,
        theirs: Array | None,
        known: Mapping[Any, Array],
    ) -> tuple[Array, bool, bool] | None:
        try:
            expected = file.decider.expected(file.tensors[value], known)
            return decided(own, theirs, expected, self._tolerance)
        except (NotDecided, AttributeError, IndexError, TypeError, ValueError):
            return None

    def next_states(self, values: ReferenceValues) -> dict[str, Array]:
        """Return the states for the next inference, by name of the input."""
        return {item.name: values.outputs[item.next_state] for item in self.every.states}

    def _kernels(
        self, inputs: Mapping[str, Array], forced: Mapping[Value, Array]
    ) -> dict[Value, Array]:
        names = {v: self._c_names[name] for v, name in self.every.names.items()}
        traces = self._probe.run(inputs, {names[v]: array for v, array in forced.items()})
        outputs = {name: raw for trace in traces for name, raw in trace.outputs.items()}
        return {
            value: typed(outputs[names[value]], *self._types[name])
            for value, name in self.every.names.items()
        }

    def _rewritten(
        self, free: Mapping[Value, Array], external: Mapping[Value, Array]
    ) -> frozenset[Value]:
        """Return values that differ although all results computed from them agree.

        These are not errors but rewritten operators of real numbers: an import may, for example,
        move a factor from one operator to the next.
        """
        loose = self._tolerance.added_up(max(1, len(self.every.operators)))
        differing = {
            v for v, array in external.items() if not compare(free[v], array, loose).agrees
        }
        rows = {row for row, _ in differing}
        compared = {row for row, _ in external}
        found = set()
        for value in differing:
            consumers = self._next(value[0], compared)
            if consumers and not consumers & rows and _is_real(external[value]):
                found.add(value)
        return frozenset(found)

    def _next(self, row: int, compared: set[int]) -> set[int]:
        found: set[int] = set()
        open_rows = {row}
        for later in range(row + 1, len(self.every.operators)):
            if self.every.reads.get(later, frozenset()) & open_rows:
                (found if later in compared else open_rows).add(later)
        return found


def typed(raw: npt.NDArray[np.uint8], shape: tuple[int, ...], dtype: str) -> Array:
    return np.frombuffer(raw.tobytes(), np.dtype(dtype)).reshape(shape)


def _is_real(array: Array) -> bool:
    return bool(array.dtype.kind == "f")


def rewritten_notice(names: Sequence[str], reference: str) -> str:
    """Return the notice about operators that differ without effect."""
    listed = ", ".join(names)
    return (
        f"{DISPLAY_NAMES[reference]} computes {listed} otherwise, but what follows is equal: "
        f"umakit rewrites it on import, so it is compared with {DISPLAY_NAMES[CPU_KERNELS]}"
    )


def stop_notices(stops: Mapping[int, str], reference: str) -> list[str]:
    """Return a notice for each reason why the runtime has no result."""
    notices = []
    for reason in dict.fromkeys(stops.values()):
        numbers = [str(number) for number, each in stops.items() if each == reason]
        which = f"inference{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}"
        left = f"{DISPLAY_NAMES[NUMPY]} and {DISPLAY_NAMES[CPU_KERNELS]}"
        notices.append(
            f"{DISPLAY_NAMES[reference]} is not the reference of {which}: {reason}; {left} are"
        )
    return notices
