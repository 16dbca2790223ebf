# SPDX-License-Identifier: Apache-2.0
"""Many cases as branches of one network, compiled to one library and compared with a reference."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from umakit import tvm_api
from umakit.devices import HOST, Device
from umakit.devices.designs import designs_for
from umakit.devices.execution import cause_of, stop_error
from umakit.devices.probe import Probe
from umakit.devices.waveforms import Wave, WaveFile, written_wave
from umakit.errors import DeviceError, UmakitError
from umakit.files.staging import temporary_folder
from umakit.library.export import Library
from umakit.operators.drawing import Drawn, Tensor
from umakit.partition.report import CPU
from umakit.pipeline import ExportOptions, compile_model
from umakit.registration.backend import Backend
from umakit.testing.check.cases import Case
from umakit.testing.check.claims import Claim, layers_of
from umakit.testing.check.resumption import Resumption
from umakit.testing.check.rounds import LAYER_SECONDS, RTL_FACTOR, Rounds
from umakit.testing.check.runs import (
    FIRST_FAULT,
    ROUNDS_OF_FAULT,
    LayerRun,
    Round,
    RoundRun,
    planned_rounds,
)
from umakit.testing.harness import AOTModel, llvm_reference, results_of_kernels, rounded
from umakit.testing.registers import map_of

relax = tvm_api.relax
Array = npt.NDArray[Any]


RTL_CYCLES = 1_000_000
"""Predicted cycles of a batch's runs with faults on RTL: a design runs a thousand times slower than
a simulator in C."""


@dataclass
class Member:
    """One case of a batch.

    Attributes:
        inputs: arrays by name of the network's input.
        accepted: whether the patterns accept the layers.
        wanted, got: results of the reference and of the library; None if the case did not run.
        damaged: other memory that the layers have modified.
        stopped: ending of a run that stopped in a layer of the case; empty if none did.
        cycles: predicted and simulated cycles of each layer with both.
    """

    case: Case
    layers: list[Drawn]
    number: int
    inputs: dict[str, Array]
    accepted: bool
    names: list[str] = field(default_factory=list)
    ran: bool = False
    reasons: list[str] = field(default_factory=list)
    wanted: Array | None = None
    got: Array | None = None
    damaged: list[str] = field(default_factory=list)
    stopped: str = ""
    hint: str = ""
    cycles: list[tuple[int, int]] = field(default_factory=list)

    @property
    def title(self) -> str:
        """Layers and input shapes in words."""
        shapes = " and ".join(by(tensor.shape) for tensor in self.layers[0].inputs)
        return f"{' then '.join(each.pattern for each in self.case.layers)} of {shapes}"

    @property
    def has_result(self) -> bool:
        """Whether the case ran to its end or stopped the run."""
        return self.got is not None or bool(self.stopped)


def by(shape: Sequence[int]) -> str:
    return "x".join(str(extent) for extent in shape) or "scalar"


@dataclass
class Batch:
    """A library of many cases; the members are in the order of the network's results."""

    members: list[Member]
    module: tvm_api.IRModule
    library: Library
    backends: Sequence[Backend]
    folder: Path
    program: Rounds
    runs: list[RoundRun] = field(default_factory=list)

    @property
    def inputs(self) -> dict[str, Array]:
        return {name: array for each in self.members for name, array in each.inputs.items()}

    def of_rounds(self, begin: int, end: float = math.inf) -> list[RoundRun]:
        """Return the runs of rounds from `begin` to `end`, exclusively."""
        return [run for run in self.runs if begin <= run.number < end]


def input_array(tensor: Tensor, kind: str, seed: Sequence[int]) -> Array:
    """Return the values of an input.

    Args:
        kind: kind of the other values: `random`, `extreme` for the least and largest integers only,
            `lowest`, `near_zero_point`, or `near_zero`, where rounding of sums changes its
            direction.
    """
    random = np.random.default_rng(list(seed))
    found = _values(tensor, kind, random)
    if tensor.element is not None:
        found[random.random(tensor.shape) < 0.5] = tensor.element
        found.flat[0] = tensor.element
    return found


def _values(tensor: Tensor, kind: str, random: np.random.Generator) -> Array:
    dtype = np.dtype(tensor.dtype)
    if not np.issubdtype(dtype, np.integer):
        return np.asarray(random.standard_normal(tensor.shape), dtype)
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    if kind == "extreme":
        return np.asarray(random.choice([low, high], tensor.shape), dtype)
    if kind == "lowest":
        return np.full(tensor.shape, low, dtype)
    if kind in ("near_zero_point", "near_zero"):
        middle = tensor.zero_point if kind == "near_zero_point" else 0
        near = middle + random.integers(-2, 3, tensor.shape)
        return np.asarray(near.clip(low, high), dtype)
    return np.asarray(random.integers(low, high + 1, tensor.shape), dtype)


def member_of(case: Case, number: int, claims: dict[str, Claim], accepted: bool) -> Member:
    """Return a case as a member of a batch.

    Args:
        number: position of the case in the batch.
        accepted: whether the patterns accept the layers.

    Raises:
        NotDrawable: no layers can have these settings.
    """
    layers = layers_of(case, claims)
    inputs = {}
    for position, (settings, layer) in enumerate(zip(case.layers, layers, strict=True)):
        kind = str(settings.settings.get("values", "random"))
        for operand, tensor in enumerate(layer.inputs):
            if position and not operand:
                continue  # the result of the layer before
            name = f"case{number}_{position}_{operand}"
            inputs[name] = input_array(tensor, kind, (settings.seed, position, operand))
    return Member(case, layers, number, inputs, accepted)


@tvm_api.one_at_a_time
def network_of(
    members: Sequence[Member], roundings: Mapping[str, str] | None = None
) -> tvm_api.IRModule:
    """Return the network of the cases; `roundings` of accelerators by operator name."""
    builder = relax.BlockBuilder()
    arrays = {name: array for each in members for name, array in each.inputs.items()}
    variables = {
        name: relax.Var(name, relax.TensorType(array.shape, str(array.dtype)))
        for name, array in arrays.items()
    }
    results = []
    with builder.function("main", list(variables.values())):
        with builder.dataflow():
            for member in members:
                number = member.number
                before: Any = None
                member.names = []
                for position, layer in enumerate(member.layers):
                    operands: list[Any] = [
                        before
                        if position and not operand
                        else variables[f"case{number}_{position}_{operand}"]
                        for operand in range(len(layer.inputs))
                    ]
                    emitted: list[Any] = []
                    for step in range(len(layer.steps)):
                        name = f"case{number}_layer{position}_{step}"
                        call = layer.call(step, operands, emitted)
                        own = rounded(call, (roundings or {}).get(name, ""))
                        emitted.append(builder.emit(own, name))
                        member.names.append(name)
                    before = emitted[-1]
                results.append(builder.emit_output(before, f"case{number}_result"))
        builder.emit_func_output(relax.Tuple(results))
    module: tvm_api.IRModule = builder.get()
    return module


def build_batch(
    members: list[Member], backends: Sequence[Backend], folder: Path, device: Device = HOST
) -> Batch:
    """Compile the cases for an accelerator; fill in where they run."""
    folder.mkdir(parents=True, exist_ok=True)
    module = network_of(members)
    library = _compiled(module, backends, folder)
    rows = {row.name: row for row in library.report.placements}
    for member in members:
        found = [rows[name] for name in member.names if name in rows]
        member.ran = bool(found) and all(row.where != CPU for row in found)
        member.reasons = [row.reason for row in found if row.where == CPU]
    description, designs = library.metadata["umakit"], designs_for(backends, device)
    program = Rounds(
        description, library.path, folder / "program", device, flags=("-O1",), designs=designs,
        wrong_writes=wrong_writes(backends),
    )  # fmt: skip
    return Batch(members, module, library, backends, folder, program)


def _compiled(module: tvm_api.IRModule, backends: Sequence[Backend], folder: Path) -> Library:
    options = ExportOptions(keep_layout=True)
    return compile_model(module, backends, folder / "library", name="check", options=options)


def run_batch(batch: Batch, timeout: float | None = None) -> None:
    """Run the library and the reference; fills in results, damaged memory and stops.

    Args:
        timeout: as of `Rounds.run`.

    Raises:
        SilenceError: the device did not answer; nothing is known about any case.
    """
    description = batch.library.metadata["umakit"]
    layers: Sequence[Mapping[str, Any]] = description["layers"]
    rounds = planned_rounds(layers, batch.program.devices, len(batch.members))
    if batch.program.runs_rtl:
        rounds = _cheap_on_rtl(rounds, layers)
    members = [member_at(batch, layer["name"]) for layer in layers]
    resumption = Resumption(
        batch.program,
        batch.inputs,
        [None if member is None else member.number for member in members],
        [[each.pattern for each in member.case.layers] for member in batch.members],
        rounds,
    )
    resumption.run(timeout)
    batch.runs = resumption.runs
    produced: dict[str, Any] = {}
    for run in batch.of_rounds(0, 1):
        if run.has_stopped:
            _note_stop(batch, run)
        for observed, layer, member in zip(run.layers, layers, members, strict=False):
            produced |= observed.outputs
            if member is not None:
                member.damaged += observed.damaged
                member.cycles += _cycles(layer, observed)
    outputs = description["outputs"]
    wanted = llvm_reference(AOTModel(batch.module, batch.inputs, name="check"))
    for member, output in zip(batch.members, outputs, strict=True):
        raw = produced.get(output["c_name"])
        if raw is not None:
            member.got = raw.view(np.dtype(output["dtype"])).reshape(output["shape"])
        member.wanted = wanted[output["name"]]
    _want_own_roundings(batch)


def _cheap_on_rtl(rounds: list[Round], layers: Sequence[Mapping[str, Any]]) -> list[Round]:
    cycles = sum(int(each.get("predicted_cycles") or each["macs"] or 1) for each in layers)
    of_faults = range(FIRST_FAULT, len(rounds), ROUNDS_OF_FAULT)
    most = min(len(of_faults), RTL_CYCLES // (ROUNDS_OF_FAULT * cycles))
    chosen = rounds[:FIRST_FAULT]
    for number in range(most):
        begin = of_faults[number * len(of_faults) // most]
        chosen = chosen + rounds[begin : begin + ROUNDS_OF_FAULT]
    return chosen


def _cycles(layer: Mapping[str, Any], run: LayerRun) -> Iterator[tuple[int, int]]:
    predicted = layer.get("predicted_cycles")
    before, after = run.counters.get(layer["where"], {}).get("clock", (None, None))
    if predicted is not None and before is not None and after is not None:
        yield predicted, after - before


def _want_own_roundings(batch: Batch) -> None:
    placements = batch.library.report.placements
    roundings = {row.name: row.rounding for row in placements if row.rounding}
    members = [each for each in batch.members if any(name in roundings for name in each.names)]
    if members:
        inputs = {name: array for each in members for name, array in each.inputs.items()}
        module = network_of(members, roundings)
        folder = batch.folder / "rounded"
        results = results_of_kernels(module, inputs, batch.backends, folder)
        for member, result in zip(members, results, strict=True):
            member.wanted = result


def _note_stop(batch: Batch, run: RoundRun) -> None:
    what = run.failure or batch.program.ended(run)
    if cause_of(what).contradicts_description:
        raise stop_error(what, cause_of(what))
    member = member_of_layer(batch, run.completed)
    if member is None:
        raise DeviceError(what, where=batch.program.place(run), fix=batch.program.hint(run))
    member.stopped = f"{what} in {batch.program.place(run)}"
    member.hint = batch.program.hint(run)


def member_at(batch: Batch, layer_name: str) -> Member | None:
    """Return the case of a layer of the library; None for a layer of no case."""
    number = layer_name.removeprefix("case").partition("_")[0]
    return batch.members[int(number)] if number.isdecimal() else None


def member_of_layer(batch: Batch, number: int) -> Member | None:
    """Return the case of a layer by the layer's number, which may be beyond the ends."""
    layers = batch.library.metadata["umakit"]["layers"]
    return member_at(batch, layers[number]["name"]) if 0 <= number < len(layers) else None


def wrong_writes(backends: Sequence[Backend]) -> dict[str, tuple[int, int]]:
    """Return offset and value of an erroneous write for each backend.

    The write stores the reset value into the first read-only register. A backend has no such write
    without a register map, or if the map does not declare the write an error.
    """
    found = {}
    for backend in backends:
        mapped = map_of(backend)
        if mapped is None or mapped[0].access.wrong != "error":
            continue
        for register in mapped[0].registers:
            if register.access == "ro":
                found[backend.target_name] = (register.offset, register.reset)
                break
    return found


def write_wave(
    backend: Backend, case: Case, claims: Mapping[str, Claim], device: Device, file: WaveFile
) -> None:
    """Run a case once more, with its own data and without faults, and write the waveform.

    No waveform is written of a case that does not compile, or has no layer on the design.
    """
    member = member_of(case, 0, dict(claims), accepted=True)
    with temporary_folder("umakit-wave-") as folder:
        try:
            library = _compiled(network_of([member]), [backend], folder)
        except UmakitError:  # the failure of the case
            return
        description = library.metadata["umakit"]
        if backend.target_name not in {layer["where"] for layer in description["layers"]}:
            return
        probe = Probe(
            description, library.path, folder / "probe", device,
            designs=designs_for([backend], device), is_traced=True,
        )  # fmt: skip
        wave = Wave(backend.target_name)
        with (
            written_wave(file, wave, folder) as environment,
            contextlib.suppress(DeviceError),  # the failure of the case
        ):
            # Give up a silent design at the end of its waveform.
            limit = {"UMAKIT_RTL_CYCLES": str(wave.most_cycles)}
            probe.run(member.inputs, {}, RTL_FACTOR * LAYER_SECONDS, {**environment, **limit})
