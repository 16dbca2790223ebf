# SPDX-License-Identifier: Apache-2.0
"""`uma cosim`: runs a network on the model of an accelerator and on its RTL, side by side."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from umakit.backend.base import UMABackend
from umakit.devices.catalogue import RTL
from umakit.devices.cosimulation import (
    Choice,
    CosimulationRun,
    Window,
    build_cosimulation,
    run_cosimulation,
)
from umakit.devices.designs import Design, designs_for
from umakit.devices.verilator import is_verilated
from umakit.errors import InputError
from umakit.files.staging import temporary_folder
from umakit.library.export import Library
from umakit.partition.report import OperatorPlacement
from umakit.pipeline import (
    ExportOptions,
    Network,
    export_program,
    import_network,
    partition_network,
)
from umakit.testing.registers.register_check import (
    doorbells_of,
    idle_register,
    named_register,
    volatile_of,
)
from umakit.text.spelling import closest
from umakit.tools.cosim.layers import layers_of, parts_of, read_layers
from umakit.tools.cosim.result import (
    WAVE,
    CosimDifference,
    CosimFiles,
    CosimLayer,
    CosimResult,
    wave_cycles,
)
from umakit.tools.inputs import first_states, given_inferences, random_inferences

__all__ = [
    "CosimDifference",
    "CosimFiles",
    "CosimLayer",
    "CosimResult",
    "CosimSettings",
    "cosim_model",
]

COMPILING = "compiling the RTL with Verilator, once for each version of its files"

Tell = Callable[[str], None]


Array = npt.NDArray[Any]


@dataclass(frozen=True)
class CosimSettings:
    """Settings of a co-simulation.

    Attributes:
        inputs: arrays by input name, possibly with a leading dimension for several inferences;
            None: random inputs with a fixed seed.
        layers: names of layers to co-simulate; none: all.
        sample: number of tiles of each layer to co-simulate; None: all.
        jobs: number of processes, each with a share of the layers.
        corrupt: name of a layer with a corrupted expected byte, which the comparison has to find.
        pauses: seed of pauses of the memory bus, which must not affect results; 0 for none.
        patience: RTL cycles, or 4 times the model's cycles if that is more, after which a command
            that the model has ended is given up; None: 1,000 times the model's cycles, at least
            1,000,000.
        most: maximum number of inferences; None for all.
        input_shapes, rounding, options: as in `umakit.compile_model`.
        files: files for the waveform and the inputs of a difference; None: not written.
        timeout: limit in seconds of each run.
    """

    inputs: Mapping[str, Array] | None = None
    layers: Sequence[str] = ()
    sample: int | None = None
    jobs: int = 1
    corrupt: str | None = None
    pauses: int = 0
    patience: int | None = None
    most: int | None = 1
    input_shapes: Mapping[str, Sequence[int]] | None = None
    rounding: str | None = None
    options: ExportOptions | None = None
    files: CosimFiles | None = None
    timeout: float | None = None

    @property
    def is_partial(self) -> bool:
        """Whether the RTL takes part in some layers or tiles only."""
        return bool(self.layers) or self.sample is not None or self.jobs > 1


def cosim_model(
    source: str | Path | Any,
    backends: Sequence[UMABackend],
    settings: CosimSettings | None = None,
    *,
    progress: Tell = lambda stage: None,
    **given: Any,
) -> CosimResult:
    """Compile a network, and co-simulate its accelerators with a section `[rtl]`.

    The driver's register accesses go to both. Read values are compared, and written memory at each
    completion. The first difference ends the run. `given` replace attributes of `settings`.
    """
    how = replace(settings or CosimSettings(), **given)
    designs = tuple(designs_for(backends, RTL))
    network = import_network(source, input_shapes=how.input_shapes, rounding=how.rounding)
    run = partial(_cosim, network, backends, designs, how, progress)
    options = how.options or ExportOptions()
    # The memories of the RTL hold nothing of layers that it does not run.
    stored = replace(options, keep_in_scratchpads=False)
    if how.is_partial:
        return run(stored, PARTIAL)
    result = run(options)
    if result.difference is None or not options.keep_in_scratchpads:
        return result
    # A wrong result that stays in a scratchpad only shows in a later layer.
    progress("looking for the layer: each stores its results now")
    precise = run(stored, STORED)
    if precise.difference is not None:
        return precise
    return replace(result, notices=(*result.notices, KEPT))


PARTIAL = (
    "layers load and store all their tensors here, so that the RTL can take part in some; a run "
    "without --layers, --sample and --jobs is of the library that `uma compile` writes"
)
STORED = (
    "layers load and store all their tensors here, so that the difference is in the layer where it "
    "is made; the library that `uma compile` writes may keep results in a scratchpad"
)
KEPT = (
    "the difference is only there if results stay in a scratchpad between layers, so that it may "
    "be made by an earlier layer than the one that is named"
)


@dataclass(frozen=True)
class _Session:
    """An exported network under co-simulation.

    Attributes:
        choice: uncompared registers, doorbell registers, and tiles.
        program: the program without waveforms.
    """

    backends: Mapping[str, UMABackend]
    designs: tuple[Design, ...]
    how: CosimSettings
    progress: Tell
    library: Library
    choice: Choice
    program: Path

    @property
    def description(self) -> Mapping[str, Any]:
        """The section `umakit` of the library's metadata."""
        return self.library.metadata["umakit"]  # type: ignore[no-any-return]

    def arrays(self, inference: Mapping[str, Array]) -> dict[str, Array]:
        """Return the inputs of an inference by C name."""
        inputs = self.description["inputs"]
        return {item["c_name"]: np.asarray(inference[item["name"]]) for item in inputs}

    def run(self, arrays: Mapping[str, Array], choice: Choice, **how: Any) -> CosimulationRun:
        """Run the program once; `how` are further arguments of `run_cosimulation`."""
        program, timeout = how.pop("program", self.program), self.how.timeout
        return run_cosimulation(program, self.library.path, arrays, choice, timeout=timeout, **how)


def _cosim(
    network: Network,
    backends: Sequence[UMABackend],
    designs: Sequence[Design],
    how: CosimSettings,
    progress: Tell,
    options: ExportOptions,
    *notices: str,
) -> CosimResult:
    model = network.model
    with temporary_folder("umakit-cosim-") as folder:
        partitioned = partition_network(model, backends, options, progress)
        library = export_program(
            model, partitioned, backends, folder / "library", options, progress
        )
        description = library.metadata["umakit"]
        designs = _used_designs(designs, library)
        by_name = {backend.target_name: backend for backend in backends}
        chosen = _numbers(description, designs, how.layers)
        choice = Choice(
            layers=chosen if how.layers or how.jobs > 1 else None,
            tiles=how.sample,
            volatile={each.backend: volatile_of(by_name[each.backend]) for each in designs},
            doorbells={each.backend: doorbells_of(by_name[each.backend]) for each in designs},
            idle=idle_register(by_name[designs[0].backend]) if len(designs) == 1 else None,
            pauses=how.pauses,
            patience=how.patience,
            corrupted=_corrupted(description, designs, how.corrupt, how.layers),
        )
        is_cached = all(is_verilated(each.files) for each in designs)
        progress("building the program" if is_cached else COMPILING)
        program = build_cosimulation(library.path, designs)
        session = _Session(by_name, designs, how, progress, library, choice, program)
        inferences = [
            {**first_states(model), **each}
            for each in (
                random_inferences(model)
                if how.inputs is None
                else given_inferences(model, how.inputs)
            )[: how.most]
        ]
        result = _compare(session, inferences)
        if result.difference is not None:
            inference = inferences[result.difference.inference]
            result = replace(result, difference=_explained(session, result, inference))
        notices = (*model.notices, *partitioned.notices, *notices)
        return replace(result, notices=notices, equal_accesses=choice.idle is not None)


def _used_designs(asked: Sequence[Design], library: Library) -> tuple[Design, ...]:
    """Return the designs that run layers of a library."""
    used = {layer["where"] for layer in library.metadata["umakit"]["layers"]}
    designs = tuple(each for each in asked if each.backend in used)
    if not designs:
        names = {each.backend for each in asked}
        why = [each for each in library.report.unused if each.backend in names]
        raise InputError(
            "no layer of the network runs on an accelerator with a section [rtl]"
            f"{': ' if why else ''}{'; '.join(each.what for each in why)}",
            fix=why[0].fix if why else "`uma partition` says why",
        )
    return designs


def _explained(
    session: _Session, result: CosimResult, inference: Mapping[str, Array]
) -> CosimDifference:
    """Return the difference with names of registers and elements, and write its files."""
    found, files, arrays = result.difference, session.how.files, session.arrays(inference)
    assert found is not None
    if files is not None and found.kind == "memory":
        session.progress("running again to find the first wrong write")
        found = _with_first_write(session, found, arrays)
    layers, placements = session.description["layers"], session.library.report.placements
    named = _with_element(found, layers, placements)
    named = _with_register(named, session.backends[named.backend])
    if files is None:
        return named
    session.progress("running again for the waveform")
    named = replace(named, wave_cycles=wave_cycles(named.facts, _begin(result, named)))
    wave = _wave(session, named, arrays)
    return replace(
        named, inputs=files.write_inputs(inference), wave=files.write_wave(wave) if wave else ""
    )


def _numbers(
    description: Mapping[str, Any], designs: Sequence[Design], names: Sequence[str]
) -> tuple[int, ...]:
    """Return the numbers of layers by name; without names, of all layers with a design."""
    answering = {design.backend for design in designs}
    there = {
        layer["name"]: number
        for number, layer in enumerate(description["layers"])
        if layer["where"] in answering
    }
    for name in names:
        if name not in there:
            near = closest(name, list(there))
            raise InputError(
                f"no layer {name} runs on an accelerator with a section [rtl]",
                fix=f"write {near}" if near else f"the layers are {', '.join(there)}",
            )
    return tuple(there[name] for name in dict.fromkeys(names or there))


def _corrupted(
    description: Mapping[str, Any],
    designs: Sequence[Design],
    name: str | None,
    layers: Sequence[str],
) -> int | None:
    """Return the number of the layer of --corrupt."""
    if name is None:
        return None
    (number,) = _numbers(description, designs, [name])
    if layers and name not in layers:
        raise InputError(
            f"the RTL takes no part in {name}, the layer of --corrupt, which is not in --layers",
            fix=f"add {name} to --layers, or choose one of {', '.join(layers)}",
        )
    return number


def _compare(session: _Session, inferences: Sequence[Mapping[str, Array]]) -> CosimResult:
    layers: tuple[CosimLayer, ...] = ()
    seconds, described = 0.0, session.description
    for number, inference in enumerate(inferences):
        runs = _runs(session, session.arrays(inference))
        seconds += max(run.seconds for run in runs)
        if number == 0:
            layers = read_layers(described, runs)
        found = [run.difference for run in runs if run.difference is not None]
        if found:
            first = min(found, key=lambda each: int(each["layer"]))
            name = described["layers"][int(first["layer"])]["name"]
            difference = CosimDifference(
                layer=name,
                backend=first["backend"],
                kind=first["kind"],
                sentence=_sentence(first, name),
                facts=first,
                inference=number,
            )
            return CosimResult(layers, difference, number + 1, seconds)
    return CosimResult(layers, None, len(inferences), seconds)


SLOW = "; if it is only slow, give it more cycles with --patience"


def _sentence(found: Mapping[str, Any], layer: str) -> str:
    """Return the sentence of a difference with the layer's name, and advice for slow RTL."""
    what = re.sub(r"in layer \d+", lambda match: f"in layer {layer}", found["sentence"], count=1)
    is_late = found["kind"] == "status" or "no interrupt of the RTL" in what
    return what + SLOW if is_late else what


def _runs(session: _Session, arrays: Mapping[str, Array]) -> list[CosimulationRun]:
    described, choice = session.description, session.choice
    tell = layers_of(described, session.designs, choice.layers, session.progress)
    parts = parts_of(described, choice, session.how.jobs)
    with ThreadPoolExecutor(max_workers=len(parts)) as pool:
        return list(pool.map(lambda part: session.run(arrays, part, tell=tell), parts))


def _with_register(difference: CosimDifference, backend: UMABackend) -> CosimDifference:
    facts = dict(difference.facts)
    offset = facts.get("offset")
    name = None if offset is None else named_register(backend, int(offset))
    if name is not None:
        facts["register"] = name
    if "pointers" in facts:
        facts["pointer_names"] = [
            named_register(backend, int(each)) or f"0x{int(each):x}" for each in facts["pointers"]
        ]
    writes = facts.get("last_writes") or []
    facts["last_write_names"] = [named_register(backend, int(offset)) for offset, _ in writes]
    return replace(difference, facts=facts)


def _with_first_write(
    session: _Session, difference: CosimDifference, arrays: Mapping[str, Array]
) -> CosimDifference:
    """Run again with the buffer of a difference watched, and return the difference.

    The result contains the first wrong write, if the RTL wrote any differing byte.
    """
    facts = difference.facts
    number = int(facts["layer"])
    choice = replace(
        session.choice,
        layers=_up_to(session.choice.layers, number),
        watched=(number, int(facts["address"])),
    )
    again = session.run(arrays, choice).difference or {}
    if again.get("address") != facts["address"]:
        return difference
    written = {key: again[key] for key in ("written_byte", "written_cycle") if key in again}
    return replace(difference, facts={**facts, "written_byte": None, **written})


def _up_to(layers: tuple[int, ...] | None, last: int) -> tuple[int, ...] | None:
    return None if layers is None else tuple(each for each in layers if each <= last)


def _with_element(
    difference: CosimDifference,
    layers: Sequence[Mapping[str, Any]],
    placements: Sequence[OperatorPlacement],
) -> CosimDifference:
    """Return a difference with its element in the layer's result.

    Unchanged if the buffer and the result have different numbers of elements.
    """
    facts = difference.facts
    if difference.kind != "memory":
        return difference
    shape = placements[layers[int(facts["layer"])]["operators"][-1]].shape
    size, rest = divmod(int(facts["buffer_bytes"]), math.prod(shape))
    if rest or not size:
        return difference
    byte = facts["byte"] if facts.get("written_byte") is None else facts["written_byte"]
    element = [int(each) for each in np.unravel_index(int(byte) // size, shape)]
    return replace(difference, facts={**facts, "element": element, "shape": list(shape)})


def _begin(result: CosimResult, difference: CosimDifference) -> int:
    """Return the cycle of the RTL's clock in which the layer of a difference began.

    Zero if the RTL was reset during the run.
    """
    if difference.facts["resets"] or difference.inference:
        return 0
    before = (each for each in result.layers if each.where == difference.backend)
    return sum(each.rtl_cycles or 0 for each in before if each.name != difference.layer)


def _wave(session: _Session, difference: CosimDifference, arrays: Mapping[str, Array]) -> bytes:
    """Run again with a waveform of the difference's cycles, and return the file's content.

    Empty if the design's clock is unknown.
    """
    facts = difference.facts
    if difference.wave_cycles is None:
        return b""
    first, last = difference.wave_cycles
    layers = _up_to(session.choice.layers, int(facts["layer"]))
    library = session.library.path
    path = library.parent / WAVE
    program = build_cosimulation(library, session.designs, is_traced=True)
    window = Window(difference.backend, first, last, int(facts["resets"]))
    choice = replace(session.choice, layers=layers, window=window)
    session.run(arrays, choice, program=program, wave=path)
    return path.read_bytes() if path.exists() else b""
