# SPDX-License-Identifier: Apache-2.0
"""Layer-by-layer comparison of a library with a reference.

The reference value of an operator comes from an independent runtime if it computes the operator,
else from umakit's own CPU kernels with inputs from the independent runtime. If umakit's kernels and
the runtime disagree, or without a runtime, NumPy decides. The library is run twice: unchanged, and
with every layer's result replaced by the reference's right after the layer. In the second run each
layer computes from correct inputs, and an error shows in its own layer.
"""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from umakit.backend.base import UMABackend
from umakit.devices import HOST, Device
from umakit.devices.cpus import description_for
from umakit.devices.designs import Design
from umakit.devices.probe import LayerTrace, Probe
from umakit.devices.waveforms import Wave, WaveFile, written_wave
from umakit.errors import DeviceError, InputError
from umakit.files.staging import temporary_folder
from umakit.frontend import Model
from umakit.library.export import Library
from umakit.library.identities import identities_of
from umakit.library.metadata import load_metadata
from umakit.partition.layouts.operators import OTHER_NAMES
from umakit.partition.partitioner import Partitioned
from umakit.partition.report import OffloadReport, OperatorPlacement
from umakit.pipeline import ExportOptions, export_program
from umakit.testing.differences import TensorDifference, Tolerance, compare
from umakit.tools.diff.references import CPU_KERNELS
from umakit.tools.diff.result import NO_VALUE, STAYS, UNMATCHED, LayerResult
from umakit.tools.diff.truth import Reference, ReferenceValues, typed
from umakit.tools.diff.values import Value, form_of_weights


def compiled_library(
    model: Model,
    partitioned: Partitioned,
    backends: Sequence[UMABackend],
    path: Path,
    options: ExportOptions | None,
) -> Library:
    """Compile a partitioned network; by default, large weights go into a blob."""
    options = options or ExportOptions(weights=form_of_weights(partitioned.module, backends))
    return export_program(model, partitioned, backends, path, options)


def keeps_results(library: Library) -> bool:
    """Whether layers keep results in a scratchpad, where they cannot be compared."""
    traffic = library.metadata["umakit"]["memory"].get("traffic")
    return bool(traffic and traffic["kept"])


def storing(options: ExportOptions | None, library: Library) -> ExportOptions:
    """Return the options of an otherwise equal library whose layers all store their results."""
    options = options or ExportOptions(weights=library.metadata["umakit"]["weights"])
    return replace(options, keep_in_scratchpads=False)


def written_library(path: Path, model: Model, device: Device = HOST) -> Library:
    """Read a library that `uma compile` wrote for a model; select the CPU for the device."""
    description = description_for(path, device)
    metadata = {**load_metadata(path), "umakit": description}
    if model.fingerprint and description["model_sha256"] != model.fingerprint:
        raise InputError(
            "is the library of another model file", where=str(path), fix="compile this one"
        )
    written = [(item["name"], list(item["shape"])) for item in description["inputs"]]
    wanted = [(item.name, list(item.shape)) for item in model.inputs]
    if written != wanted:
        raise InputError(
            f"was compiled for inputs {_listed(written)}, not {_listed(wanted)}",
            where=str(path),
            fix="give the same --input-shapes",
        )
    placements = tuple(
        OperatorPlacement(**row, macs=0, shape=(), dtype="") for row in description["operators"]
    )
    return Library(path, metadata, OffloadReport(placements))


def _listed(inputs: Sequence[tuple[str, list[int]]]) -> str:
    return ", ".join(f"{name} {shape}" for name, shape in inputs)


Array = npt.NDArray[Any]

MOVES = {"permute_dims", "reshape", "squeeze", "expand_dims", "layout_transform"}
"""Operators inserted by passes, whose errors show in the layers that read them."""


@dataclass(frozen=True)
class Comparison:
    """The comparison of one inference.

    Attributes:
        inputs: arrays by name of the network's input.
    """

    layers: tuple[LayerResult, ...]
    outputs: Mapping[str, TensorDifference]
    reference: ReferenceValues
    inputs: Mapping[str, Array]


class LibraryUnderTest:
    """The library under test.

    Args:
        tolerance: differences of a layer that count as agreement; outputs of the whole run may
            differ by this tolerance for each layer.
        timeout: time limit in seconds of each run; default: as of `run_library`.
    """

    def __init__(
        self,
        library: Library,
        reference: Reference,
        program: Path,
        tolerance: Tolerance,
        device: Device,
        designs: Sequence[Design] = (),
        timeout: float | None = None,
    ) -> None:
        self.operators: tuple[OperatorPlacement, ...] = library.report.placements
        description = self._description = library.metadata["umakit"]
        self._library, self._program, self._designs = library.path, program, designs
        self.layers: Sequence[Mapping[str, Any]] = description["layers"]
        self._identities = identities_of(description)
        self.pools: Sequence[Mapping[str, Any]] = description["memory"]["pools"]
        self.reference, self.tolerance = reference, tolerance
        self._outputs = description["outputs"]
        self._inputs = [(item["name"], item["c_name"]) for item in description["inputs"]]
        self._probe = Probe(description, library.path, program, device, designs=designs)
        self._timeout = timeout
        self._last: tuple[Mapping[str, Array], Mapping[str, Array]] = {}, {}
        self._axes: dict[str, tuple[int, ...]] = {}
        every = self.reference.every.operators
        self._rows = _matching_rows(self.operators, every)
        self.values = self._values()

    def _why_not_compared(self, number: int) -> str:
        layer = self.layers[number]
        if not layer["outputs"]:
            return STAYS
        moves = {self.operators[row].operator for row in layer["operators"]} <= MOVES
        known = not layer["operators"] or max(layer["operators"]) in self._rows
        return NO_VALUE if known or moves else UNMATCHED

    def run(self, inputs: Mapping[str, Array]) -> Comparison:
        """Run one inference and compare every layer; a DeviceError names the layer."""
        reference = _with_inputs(
            self.reference.run(inputs), self.reference.name, self._inputs, inputs
        )
        self._last = inputs, {}
        free = self._probe.run(inputs, {}, self._timeout)
        forced = {n: self._stored(n, reference.fed[v]) for n, v in self.values.items()}
        self._last = inputs, forced
        fed = self._probe.run(inputs, forced, self._timeout)
        layers = tuple(
            self._layer(number, fed[number], free[number], reference)
            for number in range(len(self.layers))
        )
        return Comparison(layers, self._final(free, reference), reference, inputs)

    def write_wave(self, number: int, file: WaveFile) -> None:
        """Repeat the last run of a design up to a layer, and write the waveform of this layer.

        Nothing is written for a layer that does not run on a design.
        """
        layer = self.layers[number]
        if layer["where"] not in {design.backend for design in self._designs}:
            return
        wave = Wave(layer["where"], number, layer["name"], is_alone=True)
        # A separate folder for generated files, beside the first program.
        folder = self._program.with_name(f"{self._program.name}_traced")
        folder.mkdir(exist_ok=True)
        probe = Probe(
            self._description, self._library, folder / "probe", HOST,
            designs=self._designs, is_traced=True,
        )  # fmt: skip
        with (
            temporary_folder("umakit-wave-") as temporary,
            written_wave(file, wave, temporary) as environment,
            contextlib.suppress(DeviceError),  # the run may end with the waveform
        ):
            probe.run(*self._last, self._timeout, environment)

    def _layer(
        self, number: int, fed: LayerTrace, free: LayerTrace, reference: ReferenceValues
    ) -> LayerResult:
        """Return the result of a layer, with the worst of its tensors."""
        layer = self.layers[number]
        plain = LayerResult(
            number,
            layer["name"],
            layer["where"],
            tuple(self.operators[row] for row in layer["operators"]),
            damaged=tuple(dict.fromkeys([*free.damaged, *fed.damaged])),
            identity=self._identities[number],
        )
        found: LayerResult | None = None
        for name in layer["outputs"]:
            if name in self.values:
                other = self._compared(plain, name, fed, free, reference)
                is_worse = found is None or _differing(other) > _differing(found)
                found = other if is_worse else found
        return found or replace(plain, not_compared=self._why_not_compared(number))

    def _compared(
        self,
        layer: LayerResult,
        name: str,
        fed: LayerTrace,
        free: LayerTrace,
        reference: ReferenceValues,
    ) -> LayerResult:
        value = self.values[name]
        wanted, in_the_run = reference.values[value], reference.in_the_run[value]
        got = self._in_order_of_model(name, fed.outputs[name], wanted)
        run = self._in_order_of_model(name, free.outputs[name], wanted)
        return replace(
            layer,
            output=name,
            shape=got.shape,
            dtype=str(got.dtype),
            reference=reference.origins.get(value, CPU_KERNELS),
            own=compare(got, wanted, self.tolerance),
            in_the_run=compare(run, in_the_run, self.tolerance.added_up(layer.number + 1)),
            value=value,
            got=got,
        )

    def _stored(self, name: str, array: Array) -> Array:
        axes = self._axes.get(name)
        return array if axes is None else np.ascontiguousarray(array.transpose(axes))

    def _in_order_of_model(self, name: str, raw: npt.NDArray[np.uint8], wanted: Array) -> Array:
        axes = self._axes.get(name)
        if axes is None:
            return typed(raw, wanted.shape, str(wanted.dtype))
        shape = tuple(wanted.shape[axis] for axis in axes)
        return typed(raw, shape, str(wanted.dtype)).transpose(np.argsort(axes))

    def _final(
        self, traces: Sequence[LayerTrace], reference: ReferenceValues
    ) -> dict[str, TensorDifference]:
        """Return the differences of outputs; rounding errors of layers add up."""
        raw = {name: data for trace in traces for name, data in trace.outputs.items()}
        loose = self.tolerance.added_up(len(self.layers))
        differences = {}
        for item in self._outputs:
            wanted = reference.outputs.get(item["name"])
            if wanted is not None and item["c_name"] in raw:
                got = typed(raw[item["c_name"]], tuple(item["shape"]), item["dtype"])
                if (got.shape, got.dtype) == (wanted.shape, wanted.dtype):
                    differences[item["name"]] = compare(got, wanted, loose)
        return differences

    def _values(self) -> dict[str, Value]:
        every, rows = self.reference.every, self._rows
        last = {
            max(item["operators"]): n for n, item in enumerate(self.layers) if item["operators"]
        }
        values: dict[str, Value] = {}
        for row, number in last.items():
            axes = self.operators[row].axes
            for result, name in enumerate(self.layers[number]["outputs"]):
                if row in rows and ((rows[row], result) in every.names or rows[row] < 0):
                    values[name] = rows[row], result
                    self._axes |= {name: axes} if axes else {}
        results = {name: v for name, v in every.results.items() if v in every.names}
        written = {name for layer in self.layers for name in layer["outputs"]}
        for item in self._outputs:
            value = results.get(item["name"])
            if value is not None and item["c_name"] in written - set(values):
                values[item["c_name"]] = value
        sizes = self._probe.sizes
        return {
            name: value
            for name, value in values.items()
            if value[0] < 0 or sizes[name] == self.reference.size_of(value)
        }


def _with_inputs(
    reference: ReferenceValues,
    name: str,
    names: Sequence[tuple[str, str]],
    inputs: Mapping[str, Array],
) -> ReferenceValues:
    """Return reference values with the network's inputs added.

    Transposes of inputs have these values. Row -1 is the first input.
    """
    given = {(-1 - number, 0): inputs[item] for number, (item, _) in enumerate(names)}
    return replace(
        reference,
        values={**reference.values, **given},
        fed={**reference.fed, **given},
        origins={**reference.origins, **dict.fromkeys(given, name)},
        in_the_run={**reference.in_the_run, **given},
    )


def _matching_rows(
    operators: Sequence[OperatorPlacement], others: Sequence[OperatorPlacement]
) -> dict[int, int]:
    """Match rows of one report to rows of another, which a backend's passes may have changed.

    A transpose added by umakit matches its input: a row, or a network input as -1, -2, ...
    """
    if any(operator.changes_layout for operator in operators):
        return _matching_own_rows(operators, others)
    if [(o.operator, o.name) for o in operators] == [(o.operator, o.name) for o in others]:
        return {row: row for row in range(len(operators))}
    last = {operator.name: row for row, operator in enumerate(others)}
    yields: dict[str, set[str]] = {}
    for operator in others:
        yields.setdefault(operator.name, set()).add(operator.yields)
    ours = {operator.name: row for row, operator in enumerate(operators)}
    return {
        row: last[name]
        for name, row in ours.items()
        # A node whose result is quantized twice has two results under one name.
        if len(yields.get(name, ())) == 1 and _same_type(operators[row], others[last[name]])
    }


def _matching_own_rows(
    operators: Sequence[OperatorPlacement], others: Sequence[OperatorPlacement]
) -> dict[int, int]:
    own = [row for row, operator in enumerate(operators) if not operator.changes_layout]
    one = [(_name_in_any_layout(operators[row]), operators[row].name) for row in own]
    other = [(_name_in_any_layout(operator), operator.name) for operator in others]
    blocks = difflib.SequenceMatcher(None, one, other, autojunk=False).get_matching_blocks()
    found = {
        own[block.a + offset]: block.b + offset for block in blocks for offset in range(block.size)
    }
    for row, operator in enumerate(operators):
        source = operator.transposes
        if source is not None and (source < 0 or source in found):
            found[row] = source if source < 0 else found[source]
    return found


def _name_in_any_layout(operator: OperatorPlacement) -> str:
    return OTHER_NAMES.get(operator.operator, operator.operator)


def _same_type(one: OperatorPlacement, other: OperatorPlacement) -> bool:
    return not one.dtype or (one.shape, one.dtype) == (other.shape, other.dtype)


def _differing(layer: LayerResult) -> int:
    return 0 if layer.own is None else layer.own.differing
