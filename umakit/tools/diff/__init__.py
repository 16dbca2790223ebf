# SPDX-License-Identifier: Apache-2.0
"""`uma diff`: finds the first operator of a library whose result differs from a reference."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from umakit.backend.base import UMABackend
from umakit.devices import HOST, find_device
from umakit.devices.cpus import check_one_runs
from umakit.devices.designs import Design, designs_for
from umakit.devices.waveforms import WaveFile
from umakit.errors import DeviceError, InputError
from umakit.files.staging import temporary_folder
from umakit.library.export import Library
from umakit.operators.numeric.fixed_point import Arithmetic
from umakit.operators.offload.rounding import function_of
from umakit.partition.partitioner import Partitioned
from umakit.pipeline import ExportOptions, import_network, partition_network
from umakit.testing.differences import DEFAULT_TOLERANCE, TensorDifference, Tolerance, worst_of
from umakit.tools.diff.blame import find_blame
from umakit.tools.diff.references import (
    AUTOMATIC,
    CPU_KERNELS,
    DISPLAY_NAMES,
    NUMPY,
    ONNX_RUNTIME,
    REFERENCES,
    Selection,
    nodes_of,
    runtime_for,
    select_references,
)
from umakit.tools.diff.result import Blame, DiffResult, Disagreement, LayerResult
from umakit.tools.diff.session import (
    LibraryUnderTest,
    compiled_library,
    keeps_results,
    storing,
    written_library,
)
from umakit.tools.diff.truth import Reference, rewritten_notice, stop_notices
from umakit.tools.diff.values import every_value
from umakit.tools.inputs import first_states, given_inferences, random_inferences
from umakit.tools.model_or_library import unused_backends

__all__ = [
    "AUTOMATIC",
    "CPU_KERNELS",
    "DEFAULT_TOLERANCE",
    "DISPLAY_NAMES",
    "NUMPY",
    "REFERENCES",
    "Blame",
    "DiffResult",
    "DiffSettings",
    "LayerResult",
    "TensorDifference",
    "diff_model",
]


Progress = Callable[[str], None]


@dataclass(frozen=True)
class DiffSettings:
    """The parts of a comparison, and the differences that count as agreement.

    Attributes:
        library: a library that `uma compile` wrote for this model, compared unchanged; only the
            reference is compiled from the model. Then omit backends and `options`.
        options: as in `compile_model`; by default large weights go into a blob.
        device: device for the library, a name in `umakit.devices.DEVICES`; the reference runs on
            the host.
        inputs: arrays by input name, with one more leading dimension for several inferences;
            default: three random inferences with fixed seeds. States that are omitted or lack this
            dimension are passed on between inferences, as in `umakit.run_library`.
        reference: a name of `REFERENCES`; `auto` selects the most independent one that works.
        tolerance: tolerance of floats, relative to the largest magnitude of the reference's tensor;
            absolute if that is 0.
        integer_tolerance: tolerance of integers in LSB, for hardware with its own rounding.
        most: maximum number of inferences; default: all. The comparison ends with the first
            differing inference.
        rounding: as in `compile_model`. With a rounding other than the file format's, `auto`
            selects umakit's CPU kernels, which have the same rounding, unless integers have a
            tolerance.
        timeout: limit in seconds of each run of an inference; default: 600 if the library has an
            accelerator or its device is emulated, else none.
        wave: file for the waveform of the first wrong layer, or of the layer in which the run
            stopped, if a design runs the layer.
    """

    library: Path | None = None
    options: ExportOptions | None = None
    device: str = HOST.name
    inputs: Mapping[str, npt.NDArray[Any]] | None = None
    reference: str = AUTOMATIC
    tolerance: float = DEFAULT_TOLERANCE
    integer_tolerance: int = 0
    most: int | None = None
    input_shapes: Mapping[str, Sequence[int]] | None = None
    rounding: str | None = None
    timeout: float | None = None
    wave: WaveFile | None = None

    def check(self) -> None:
        if not 0 <= self.tolerance < 1:
            raise InputError(f"the tolerance is {self.tolerance:g}, it must be from 0 to below 1")
        if self.integer_tolerance < 0:
            raise InputError(
                f"the tolerance of integers is {self.integer_tolerance}, it must be 0 or more"
            )
        if self.most is not None and self.most < 1:
            raise InputError(f"at most {self.most} inferences are none", fix="run at least one")


def diff_model(
    source: str | Path | Any,
    backends: Sequence[UMABackend],
    settings: DiffSettings | None = None,
    *,
    progress: Progress = lambda stage: None,
    **given: Any,
) -> DiffResult:
    """Compile a network, run it, and compare every layer; `given` replace attributes of
    `settings`."""
    settings = replace(settings or DiffSettings(), **given)
    settings.check()
    comparing = _Comparing(source, backends, settings, progress)
    with temporary_folder("umakit-diff-") as folder, contextlib.ExitStack() as stack:
        return comparing.run(folder, stack)


class _Comparing:
    """A comparison of a network under way, with its notices."""

    def __init__(
        self,
        source: str | Path | Any,
        backends: Sequence[UMABackend],
        settings: DiffSettings,
        progress: Progress,
    ) -> None:
        self._source, self._backends, self._settings = source, backends, settings
        self._progress = progress
        self._device = find_device(settings.device)
        if settings.options is not None:
            check_one_runs(settings.options.cpus, self._device)
        progress("importing the network")
        shapes, rounding = settings.input_shapes, settings.rounding
        network = import_network(source, input_shapes=shapes, rounding=rounding)
        self._model = network.model
        self._states = first_states(self._model)
        first, *others = (
            random_inferences(network.imported)
            if settings.inputs is None
            else given_inferences(self._model, settings.inputs)
        )
        self._inferences = [{**self._states, **first}, *others]
        self._notices = list(self._model.notices)
        runtime = runtime_for(source)
        self._rounds_otherwise = rounding == Arithmetic.TFLM.value and runtime == ONNX_RUNTIME
        self._wanted = settings.reference
        is_exact = settings.integer_tolerance == 0
        if self._rounds_otherwise and self._wanted == AUTOMATIC and is_exact:
            self._wanted = CPU_KERNELS
            self._notices.append(
                f"rounded as {rounding}, integers are compared with {DISPLAY_NAMES[CPU_KERNELS]}; "
                f"--integer-tolerance compares with {DISPLAY_NAMES[ONNX_RUNTIME]}"
            )
        self._designs: Sequence[Design] = ()
        self._partitioned: Partitioned | None = None

    def run(self, folder: Path, stack: contextlib.ExitStack) -> DiffResult:
        """Compare all inferences, up to the first that differs."""
        library = self._library(folder)
        self._designs = designs_for(self._backends, self._device)
        _check_runs_on(library, self._designs)
        self._progress("compiling the reference")
        truth = self._truth(library, folder, stack)
        inferences = self._inferences[: self._settings.most]
        result = self._compared(library, folder / "library_probe", truth, inferences)
        if result.differs and keeps_results(library):
            result = self._with_stored_results(result, library, folder, truth)
        return replace(
            result,
            name=self._model.name,
            seeds=self._settings.inputs is None,
            nodes=nodes_of(self._source, truth.every.operators),
            notices=(*self._notices, *result.notices),
        )

    def _library(self, folder: Path) -> Library:
        written, options = self._settings.library, self._settings.options
        if written is not None:
            library = written_library(written, self._model, self._device)
            self._notices += [str(each) for each in unused_backends(written)]
            return library
        self._progress("compiling the library")
        self._partitioned = partition_network(
            self._model, self._backends, options or ExportOptions(), self._progress
        )
        self._notices += self._partitioned.notices
        path = folder / "library"
        return compiled_library(self._model, self._partitioned, self._backends, path, options)

    def _truth(self, library: Library, folder: Path, stack: contextlib.ExitStack) -> Reference:
        settings = self._settings
        roundings = _own_roundings(library, settings)
        every = every_value(self._model, roundings)
        own_states = _brings_states(self._inferences, self._states)
        selection = select_references(
            self._wanted, self._source, every, self._notices, own_states=own_states
        )
        stack.callback(selection.close)
        layers = library.metadata["umakit"]["layers"]
        is_alone = selection.name == CPU_KERNELS and all(each["where"] == "cpu" for each in layers)
        if is_alone and not self._rounds_otherwise:
            self._notices.append(_of_umakit_alone(self._source))
        if every.changed:
            self._notices.append(_rounding_notice(roundings, selection))
        lsb = settings.integer_tolerance if self._rounds_otherwise else 0
        of_kernels = Tolerance(settings.tolerance, lsb)
        return Reference(every, selection, folder, of_kernels, self._backends)

    def _compared(
        self,
        library: Library,
        program: Path,
        truth: Reference,
        inferences: Sequence[Mapping[str, npt.NDArray[Any]]],
    ) -> DiffResult:
        self._progress("building the library")
        settings = self._settings
        allowed = Tolerance(settings.tolerance, settings.integer_tolerance)
        session = LibraryUnderTest(
            library, truth, program, allowed, self._device, self._designs, settings.timeout
        )
        try:
            found = _run(session, inferences, self._progress)
        except DeviceError as error:
            if error.layer is not None and error.layer < len(session.layers):
                self._write_wave(session, error.layer)
            raise
        if found.blame is not None:
            self._write_wave(session, found.blame.layer.number)
        return found

    def _write_wave(self, session: LibraryUnderTest, layer: int) -> None:
        if self._settings.wave is not None:
            self._progress("running again for the waveform")
            session.write_wave(layer, self._settings.wave)

    def _with_stored_results(
        self, kept: DiffResult, library: Library, folder: Path, truth: Reference
    ) -> DiffResult:
        """Return the result for the same library with every layer storing its result."""
        if self._partitioned is None:
            self._notices.append(f"{UNREADABLE}: {INSTEAD}")
            return kept
        self._progress("compiling a library whose layers store their results")
        options = storing(self._settings.options, library)
        path = folder / "stored"
        other = compiled_library(self._model, self._partitioned, self._backends, path, options)
        stored = self._compared(other, folder / "stored_probe", truth, [kept.inputs])
        if not stored.differs:
            return replace(kept, notices=(*kept.notices, ALL_AGREE))
        notice = f"{UNREADABLE}: this is the same library with every layer storing its result"
        return replace(stored, inferences=kept.inferences, notices=(*stored.notices, notice))


UNREADABLE = "results that stay in a scratchpad cannot be read"
INSTEAD = "with --backend instead of --library, one whose layers store them is compiled"
ALL_AGREE = "when every layer stores its result, all agree: look at what stays in the scratchpad"


def _of_umakit_alone(source: Any) -> str:
    independent = (
        "leave out --reference cpu"
        if runtime_for(source)
        else ("compare the network as a file of ONNX or TensorFlow Lite")
    )
    return (
        "umakit's CPU kernels are compared with themselves, fused and scheduled as in the library "
        "with one for each operator: an operator that both compute wrong is not found; "
        f"for an independent reference, {independent}"
    )


def _check_runs_on(library: Library, designs: Sequence[Design]) -> None:
    """Refuse designs without a layer in the library: they would not be compared."""
    places = {layer["where"] for layer in library.metadata["umakit"]["layers"]}
    if designs and not any(design.backend in places for design in designs):
        names = " or ".join(design.backend for design in designs)
        raise InputError(
            f"no layer runs on the design of {names}, so that there is nothing to compare",
            where="--rtl",
            fix="uma partition says why; --rounding changes which layers are taken",
        )


def _own_roundings(made: Library, settings: DiffSettings) -> dict[str, str]:
    """Return the accelerators' own roundings for the reference, by operator.

    With a tolerance, the model's own rounding is the reference.
    """
    if settings.integer_tolerance:
        return {}
    roundings = {item.name: item.rounding for item in made.report.placements if item.rounding}
    functions = sorted({function_of(name) for name in roundings.values()} - {""})
    if settings.library is not None and functions:
        raise InputError(
            f"{functions[0]} rounds layers of this library in a way of its own",
            where=str(settings.library),
            fix="compare with --backend instead of --library, or by LSB with --integer-tolerance",
        )
    return roundings


def _rounding_notice(roundings: Mapping[str, str], selection: Selection) -> str:
    functions = ", ".join(sorted({function_of(name) or name for name in roundings.values()}))
    runtime = selection.runtime
    other = "the model's rounding" if runtime is None else DISPLAY_NAMES[runtime.name]
    return (
        f"{len(roundings)} operators are rounded by {functions}: these and what follows are "
        f"compared with {DISPLAY_NAMES[CPU_KERNELS]} of the same rounding; --integer-tolerance "
        f"compares with {other}"
    )


def _brings_states(
    inferences: Sequence[Mapping[str, npt.NDArray[Any]]], first: Mapping[str, npt.NDArray[Any]]
) -> bool:
    return any(
        not np.array_equal(inputs[name], array) if number == 0 else name in inputs
        for number, inputs in enumerate(inferences)
        for name, array in first.items()
    )


def _run(
    tested: LibraryUnderTest,
    inferences: Sequence[Mapping[str, npt.NDArray[Any]]],
    progress: Progress,
) -> DiffResult:
    truth, tolerance = tested.reference, tested.tolerance
    states: dict[str, npt.NDArray[Any]] = {}
    worst: tuple[LayerResult, ...] = ()
    outputs: dict[str, TensorDifference] = {}
    rewritten: dict[str, None] = {}
    wrong: dict[str, Disagreement] = {}
    stops: dict[int, str] = {}
    for number, given in enumerate(inferences):
        progress(f"running inference {number}")
        comparison = tested.run({**states, **given})
        reference = comparison.reference
        states = truth.next_states(reference)
        rewritten |= dict.fromkeys(reference.rewritten)
        stops |= {number: reference.stopped} if reference.stopped else {}
        for each in reference.disagreements:
            before = wrong.setdefault(each.operator.name, each)
            difference = worst_of(before.difference, each.difference)
            wrong[each.operator.name] = replace(each, difference=difference)
        notices = [rewritten_notice(list(rewritten), truth.name)] if rewritten else []
        notices += stop_notices(stops, truth.name)
        result = DiffResult(
            name="",
            reference=truth.name if len(stops) <= number else truth.name_without_runtime,
            tolerance=tolerance.relative,
            integer_tolerance=tolerance.lsb,
            inferences=number + 1,
            seeds=False,
            layers=comparison.layers,
            outputs=dict(comparison.outputs),
            blame=find_blame(tested, comparison),
            inputs=dict(comparison.inputs),
            notices=tuple(notices),
            disagreements=tuple(wrong.values()),
        )
        if result.differs:
            return result
        layers = comparison.layers
        worst = tuple(map(_worse, worst, layers)) if worst else layers
        outputs |= {
            name: worst_of(outputs[name], item) if name in outputs else item
            for name, item in comparison.outputs.items()
        }
    return replace(result, layers=worst, outputs=outputs)


def _worse(one: LayerResult, other: LayerResult) -> LayerResult:
    if one.own is None or other.own is None:
        return one
    worse, better = (one, other) if one.own.largest >= other.own.largest else (other, one)
    run = worse.in_the_run
    if run is not None and better.in_the_run is not None:
        run = worst_of(better.in_the_run, run)
    return replace(worse, own=worst_of(one.own, other.own), in_the_run=run)
