# SPDX-License-Identifier: Apache-2.0
"""`uma diff`: finds the first operator of a library whose result differs from a reference."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
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
from umakit.pipeline import ExportOptions, import_network, partition_network
from umakit.testing.differences import DEFAULT_TOLERANCE, TensorDifference, Tolerance, worst_of
from umakit.tools.diff.blame import find_blame, layer_results
from umakit.tools.diff.libraries import (
    compiled_library,
    keeps_results,
    storing,
    written_library,
)
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
    Comparison,
    LibraryUnderTest,
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
    "LayerResult",
    "TensorDifference",
    "diff_model",
]


def diff_model(
    source: str | Path | Any,
    backends: Sequence[UMABackend],
    *,
    library: Path | None = None,
    options: ExportOptions | None = None,
    device: str = HOST.name,
    inputs: Mapping[str, npt.NDArray[Any]] | None = None,
    reference: str = AUTOMATIC,
    tolerance: float = DEFAULT_TOLERANCE,
    integer_tolerance: int = 0,
    most: int | None = None,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    rounding: str | None = None,
    timeout: float | None = None,
    wave: WaveFile | None = None,
    progress: Callable[[str], None] = lambda stage: None,
) -> DiffResult:
    """Compile a network, run it, and compare every layer with a reference.

    Args:
        source: path of an ONNX, TensorFlow Lite or PyTorch file, or a Relax module.
        backends: accelerators in order of priority; they are simulated.
        library: a library that `uma compile` wrote for this model, compared unchanged; only the
            reference is compiled from the model. Then omit `backends` and `options`.
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
        input_shapes: shapes by input name, for symbolic dimensions.
        rounding: as in `compile_model`. With a rounding other than the file format's, `auto`
            selects umakit's CPU kernels, which have the same rounding, unless integers have a
            tolerance.
        timeout: limit in seconds of each run of an inference; default: 600 if the library has an
            accelerator or its device is emulated, else none.
        wave: file for the waveform of the first wrong layer, or of the layer in which the run
            stopped, if a design runs the layer.
        progress: callback with a description of each stage.

    Raises:
        InputError: inputs, tolerance, reference, device or library are invalid.
        BuildError: the device runs no code for the CPU of the options.
        DeviceError: a driver returned an error status, or the program crashed; names the layer.
        UmakitError: the subclass names the stage that refused.
    """
    _check(tolerance, integer_tolerance, most)
    allowed = Tolerance(tolerance, integer_tolerance)
    machine = find_device(device)
    if options is not None:
        check_one_runs(options.cpus, machine)
    progress("importing the network")
    network = import_network(source, input_shapes=input_shapes, rounding=rounding)
    model = network.model
    chosen = (
        random_inferences(network.imported) if inputs is None else given_inferences(model, inputs)
    )
    notices = list(model.notices)
    is_other = rounding == Arithmetic.TFLM.value and runtime_for(source) == ONNX_RUNTIME
    if is_other and reference == AUTOMATIC and integer_tolerance == 0:
        reference = CPU_KERNELS
        notices.append(
            f"rounded as {rounding}, integers are compared with {DISPLAY_NAMES[CPU_KERNELS]}; "
            f"--integer-tolerance compares with {DISPLAY_NAMES[ONNX_RUNTIME]}"
        )
    with temporary_folder("umakit-diff-") as folder, contextlib.ExitStack() as stack:
        if library is None:
            progress("compiling the library")
            partitioned = partition_network(model, backends, options or ExportOptions(), progress)
            notices += partitioned.notices
            made = compiled_library(model, partitioned, backends, folder / "library", options)
        else:
            made = written_library(library, model, machine)
            notices += [str(each) for each in unused_backends(library)]
        designs = designs_for(backends, machine)
        _check_runs_on(made, designs)
        progress("compiling the reference")
        roundings = _own_roundings(made, library, integer_tolerance)
        every = every_value(model, roundings)
        first = first_states(model)
        chosen = [{**first, **chosen[0]}, *chosen[1:]]
        selection = select_references(
            reference, source, every, notices, own_states=_brings_states(chosen, first)
        )
        stack.callback(selection.close)
        layers = made.metadata["umakit"]["layers"]
        if selection.name == CPU_KERNELS and all(each["where"] == "cpu" for each in layers):
            notices += [] if is_other else [_of_umakit_alone(source)]
        if every.changed:
            notices.append(_rounding_notice(roundings, selection))
        of_kernels = Tolerance(tolerance, integer_tolerance if is_other else 0)
        truth = Reference(every, selection, folder, of_kernels, backends)

        def compare(
            tested: Library, program: str, inferences: Sequence[Mapping[str, Any]]
        ) -> DiffResult:
            progress("building the library")
            session = LibraryUnderTest(
                tested, truth, folder / program, allowed, machine,
                designs, timeout,
            )  # fmt: skip
            with _wave_of_stop(session, wave, progress):
                found = _run(session, truth, inferences, allowed, progress)
            if found.blame is not None:
                _write_wave(session, found.blame.layer.number, wave, progress)
            return found

        result = compare(made, "library_probe", chosen[:most])
        if result.differs and keeps_results(made):
            if library is not None:
                notices.append(UNSEEN)
            else:
                progress("compiling a library whose layers store their results")
                path = folder / "stored"
                stored = compiled_library(
                    model, partitioned, backends, path, storing(options, made)
                )
                result = _unhidden(result, compare(stored, "stored_probe", [result.inputs]))
    return replace(
        result, name=model.name, seeds=inputs is None, nodes=nodes_of(source, every.operators),
        notices=(*notices, *result.notices),
    )  # fmt: skip


def _of_umakit_alone(source: Any) -> str:
    """Return the notice of a comparison of umakit with itself."""
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


def _write_wave(
    session: LibraryUnderTest,
    layer: int,
    wave: WaveFile | None,
    progress: Callable[[str], None],
) -> None:
    if wave is not None:
        progress("running again for the waveform")
        session.write_wave(layer, wave)


@contextlib.contextmanager
def _wave_of_stop(
    session: LibraryUnderTest, wave: WaveFile | None, progress: Callable[[str], None]
) -> Iterator[None]:
    try:
        yield
    except DeviceError as error:
        if error.layer is not None and error.layer < len(session.layers):
            _write_wave(session, error.layer, wave, progress)
        raise


UNSEEN = (
    "results that stay in a scratchpad cannot be read: with --backend instead of --library, one "
    "whose layers store them is compiled"
)


def _unhidden(kept: DiffResult, stored: DiffResult) -> DiffResult:
    """Return the result for a library whose layers keep their results in a scratchpad.

    Args:
        kept: result for that library.
        stored: result for the same library with every layer storing its result.
    """
    if not stored.differs:
        notice = (
            "when every layer stores its result, all agree: look at what stays in the scratchpad"
        )
        return replace(kept, notices=(*kept.notices, notice))
    notice = (
        "results that stay in a scratchpad cannot be read: this is the same library with every "
        "layer storing its result"
    )
    return replace(stored, inferences=kept.inferences, notices=(*stored.notices, notice))


def _own_roundings(made: Library, library: Path | None, integer_tolerance: int) -> dict[str, str]:
    """Return the accelerators' own roundings for the reference, by operator.

    With a tolerance, the model's own rounding is the reference.

    Args:
        made: the library under test.
        library: path of a previously compiled library.
        integer_tolerance: as in `diff_model`.

    Raises:
        InputError: the library was compiled before, so its C functions are not available.
    """
    if integer_tolerance:
        return {}
    roundings = {item.name: item.rounding for item in made.report.placements if item.rounding}
    functions = sorted({function_of(name) for name in roundings.values()} - {""})
    if library is not None and functions:
        raise InputError(
            f"{functions[0]} rounds layers of this library in a way of its own",
            where=str(library),
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


def _check(tolerance: float, integer_tolerance: int, most: int | None) -> None:
    if not 0 <= tolerance < 1:
        raise InputError(f"the tolerance is {tolerance:g}, it must be from 0 to below 1")
    if integer_tolerance < 0:
        raise InputError(f"the tolerance of integers is {integer_tolerance}, it must be 0 or more")
    if most is not None and most < 1:
        raise InputError(f"at most {most} inferences are none", fix="run at least one")


def _brings_states(
    inferences: Sequence[Mapping[str, npt.NDArray[Any]]],
    first: Mapping[str, npt.NDArray[Any]],
) -> bool:
    """Whether a user gave states other than a runtime's after a reset."""
    return any(
        not np.array_equal(inputs[name], array) if number == 0 else name in inputs
        for number, inputs in enumerate(inferences)
        for name, array in first.items()
    )


def _run(
    tested: LibraryUnderTest,
    truth: Reference,
    inferences: Sequence[Mapping[str, npt.NDArray[Any]]],
    tolerance: Tolerance,
    progress: Callable[[str], None],
) -> DiffResult:
    """Run inferences up to the first difference; pass on the reference's states."""
    states: dict[str, npt.NDArray[Any]] = {}
    worst: tuple[LayerResult, ...] = ()
    outputs: dict[str, TensorDifference] = {}
    rewritten: dict[str, None] = {}
    wrong: dict[str, Disagreement] = {}
    stops: dict[int, str] = {}
    for number, given in enumerate(inferences):
        progress(f"running inference {number}")
        inputs = {**states, **given}
        comparison = tested.run(inputs)
        reference = comparison.reference
        states = truth.next_states(reference)
        rewritten |= dict.fromkeys(reference.rewritten)
        stops |= {number: reference.stopped} if reference.stopped else {}
        for each in reference.disagreements:
            before = wrong.setdefault(each.operator.name, each)
            difference = worst_of(before.difference, each.difference)
            wrong[each.operator.name] = replace(each, difference=difference)
        blame = find_blame(tested, truth, comparison, inputs, tolerance)
        layers = layer_results(tested, truth, comparison)
        notices = [rewritten_notice(list(rewritten), truth.name)] if rewritten else []
        notices += stop_notices(stops, truth.name)
        result = DiffResult(
            name="",
            reference=truth.name if len(stops) <= number else truth.name_without_runtime,
            tolerance=tolerance.relative,
            integer_tolerance=tolerance.lsb,
            inferences=number + 1,
            seeds=False,
            layers=layers,
            outputs=dict(comparison.outputs),
            blame=blame,
            inputs=dict(inputs),
            notices=tuple(notices),
            disagreements=tuple(wrong.values()),
        )
        if result.differs:
            return result
        worst = _worst(worst, layers) if worst else layers
        outputs = _worst_outputs(outputs, comparison)
    return replace(result, layers=worst, outputs=outputs)


def _worst(
    earlier: tuple[LayerResult, ...], new: tuple[LayerResult, ...]
) -> tuple[LayerResult, ...]:
    return tuple(_worse(*pair) for pair in zip(earlier, new, strict=True))


def _worse(one: LayerResult, other: LayerResult) -> LayerResult:
    if one.own is None or other.own is None:
        return one
    worse, better = (one, other) if one.own.largest >= other.own.largest else (other, one)
    run = worse.in_the_run
    if run is not None and better.in_the_run is not None:
        run = worst_of(better.in_the_run, run)
    return replace(worse, own=worst_of(one.own, other.own), in_the_run=run)


def _worst_outputs(
    earlier: Mapping[str, TensorDifference], comparison: Comparison
) -> dict[str, TensorDifference]:
    return {
        name: worst_of(earlier[name], item) if name in earlier else item
        for name, item in comparison.outputs.items()
    }
