# SPDX-License-Identifier: Apache-2.0
"""Co-simulation: an accelerator's model and its RTL run side by side. Imports no TVM.

`sim/cosim/umakit_cosim.c` compares model and RTL while the unchanged driver runs, and writes the
results to a file. This module builds the program, runs it and reads the file.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy.typing as npt

from umakit import sim
from umakit.devices.build import compile_c, compiling_for, library_sources
from umakit.devices.catalogue import HOST
from umakit.devices.designs import Design, design_objects
from umakit.devices.execution import cause_of, idle_limit, stop_error
from umakit.devices.inputs import write_inputs
from umakit.devices.libraries import libraries_of
from umakit.devices.run import INPUTS, OUTPUTS
from umakit.devices.simulators import Simulator, simulators_of
from umakit.errors import InputError
from umakit.files.processes import HangsError, Limits, TimeLimitError, Watch, started
from umakit.library.metadata import load_metadata, read_description
from umakit.library.roles import SOURCE_FOLDER, device_source
from umakit.library.tar_files import library_folder
from umakit.text.rendering import render

COSIM = sim.source_directory() / "cosim"
"""Folder with the C of the comparison."""

REPORT, WAVE = "report.jsonl", "window.fst"

POLL_SECONDS = 0.2

ALL_ONES = 0xFFFFFFFF
"""State in front of a reset, in place of a seed of random values: flags that a reset leaves out are
set."""

Arrays = Mapping[str, npt.NDArray[Any]]
Tell = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True)
class Window:
    """A range of clock cycles of a design.

    Attributes:
        resets: number of resets before the cycles are counted.
    """

    backend: str
    first: int
    last: int
    resets: int


@dataclass(frozen=True)
class Choice:
    """The part of a run to co-simulate, and options of the comparison.

    Attributes:
        layers: numbers of layers; None for all.
        tiles: number of tiles of each layer; None for all.
        volatile: offsets of registers that are not compared, by backend.
        doorbells: offsets of registers whose writes begin commands, by backend.
        idle: offset of a register of all backends that can be read without effect; None if unknown.
        corrupted: number of a layer whose expected values are corrupted on purpose; None for none.
        pauses: seed of pauses of the memory bus, with other values before resets; 0 for none.
        patience: RTL cycles after the model's end of a command until the command is given up; None
            to derive them from the model's cycles.
        watched: number of a layer, and a bus address in a buffer of the layer. A difference in this
            layer then names the first wrong write to the buffer. None watches no buffer.
    """

    layers: tuple[int, ...] | None = None
    tiles: int | None = None
    volatile: Mapping[str, Sequence[int]] | None = None
    doorbells: Mapping[str, Sequence[int]] | None = None
    idle: int | None = None
    corrupted: int | None = None
    pauses: int = 0
    patience: int | None = None
    window: Window | None = None
    watched: tuple[int, int] | None = None


@dataclass(frozen=True)
class CosimulationRun:
    """The report of a run.

    Attributes:
        layers: records of layers in their order, see `sim/cosim/umakit_cosim.h`.
    """

    layers: tuple[Mapping[str, Any], ...]
    difference: Mapping[str, Any] | None
    seconds: float


def build_cosimulation(
    library: Path, designs: Sequence[Design], *, is_traced: bool = False
) -> Path:
    """Build the program that runs a library on models and RTL side by side."""
    library = library_folder(library)
    program = library / "build" / ("cosim-traced" if is_traced else "cosim")

    def generated(folder: Path, interface: str) -> list[Path]:
        backends = sorted(each.backend for each in designs)
        return _generated(folder, library, interface, backends, is_traced)

    build_with_models(library, designs, COSIM, generated, program, is_traced=is_traced)
    return program


def build_with_models(
    library: Path,
    designs: Sequence[Design],
    parts: Path,
    generated: Callable[[Path, str], Sequence[Path]],
    program: Path,
    *,
    tables: Mapping[str, str] | None = None,
    is_traced: bool = False,
) -> None:
    """Build a program of a library whose devices are opened by files of the caller.

    A model's `NAME_device` is renamed `NAME_model_device`. The function
    `TABLE_simulator` returns the table of a design.

    Args:
        generated: writes further C files into a folder, given the prefix of the library's
            interface, and returns them; one file has the program's `main`.
        tables: stems of the designs' table names, by backend; default: `NAME_rtl`.
    """
    description = read_description(library)
    interface = str(load_metadata(library)["umakit"]["interface"])
    answering = {each.backend for each in designs}
    devices = description.sources.devices
    simulators = simulators_of(library)
    _check_models(answering, {*filter(devices.get, devices), *(s.backend for s in simulators)})
    kept = {library / SOURCE_FOLDER / path for name in answering for path in devices[name]}
    sources = [path for path in library_sources(library) if path not in kept]
    sources += HOST.platform_sources(library / "runtime")
    flags = [f"-D{interface.upper()}_PROFILE", *HOST.program_flags()]
    flags += [f"-I{(library / SOURCE_FOLDER).absolute()}", f"-I{parts}"]
    objects = design_objects(
        designs,
        library / SOURCE_FOLDER,
        compiling_for(HOST, library),
        is_traced=is_traced,
        tables={name: f"{name}_rtl" for name in answering} if tables is None else tables,
    )
    program.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=program.parent) as temporary:
        folder = Path(temporary)
        sources += generated(folder, interface)
        sources += _renamed_devices(folder, library, answering, devices, simulators)
        built = folder / program.name
        sources += sorted(parts.glob("*.c"))
        models = [_without_device(s) if s.backend in answering else s for s in simulators]
        compile_c(sources, built, flags, HOST, models, libraries_of(library), objects)
        built.replace(program)


def _check_models(answering: set[str], simulated: set[str]) -> None:
    for name in sorted(answering - simulated):
        raise InputError(
            f"the accelerator {name} has no simulator, which its RTL is compared with",
            fix="uma run --rtl runs the RTL alone, and uma check --rtl compares its results",
        )


def _generated(
    folder: Path, library: Path, interface: str, backends: Sequence[str], is_traced: bool
) -> list[Path]:
    texts = {
        "cosim_main.c": render(
            "rtl/cosim_main.c.j2",
            interface=interface,
            main=str((library / "runtime" / "main.c").absolute()),
        ),
        "cosim_device.c": render("rtl/cosim_device.c.j2", backends=backends, is_traced=is_traced),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in texts]


def _renamed_devices(
    folder: Path,
    library: Path,
    answering: set[str],
    devices: Mapping[str, Sequence[str]],
    simulators: Sequence[Simulator],
) -> list[Path]:
    files = []
    opened = {
        name: [library / SOURCE_FOLDER / path for path in devices[name]] for name in answering
    }
    for each in simulators:
        if each.backend in answering:
            opened[each.backend] = [each.folder / device_source(each.backend)]
    for name, paths in sorted(opened.items()):
        for path in paths:
            file = folder / f"model_of_{path.name}"
            line = f'#define {name}_device {name}_model_device\n#include "{path.absolute()}"\n'
            file.write_text(line, encoding="utf-8")
            files.append(file)
    return files


def _without_device(simulator: Simulator) -> Simulator:
    names = [name for name in simulator.files.sources if name != device_source(simulator.backend)]
    return replace(simulator, files=simulator.files.model_copy(update={"sources": names}))


def run_cosimulation(
    program: Path,
    library: Path,
    arrays: Arrays,
    choice: Choice,
    *,
    wave: Path | None = None,
    timeout: float | None = None,
    tell: Tell = lambda record: None,
) -> CosimulationRun:
    """Run an inference on models and RTL side by side.

    Args:
        arrays: inputs of one inference by C name, in the order of the interface.
        tell: callback for each record as it is written.
    """
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="umakit-cosim-") as temporary:
        folder = Path(temporary)
        description = load_metadata(library)["umakit"]
        write_inputs(folder / INPUTS, library, description, arrays.values())
        environment = {**os.environ, **_environment(choice, folder / REPORT, wave)}
        with (folder / "said").open("w+") as said:
            with started(
                [str(program), INPUTS, OUTPUTS, "1", "1"], folder, environment,
                Limits(timeout, idle_limit(description)),
                stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT,
            ) as (process, watch):  # fmt: skip
                records = list(_records(process, folder / REPORT, tell))
            _check(watch)
            said.seek(0)
            text = said.read()
    difference = next((each["difference"] for each in records if "difference" in each), None)
    if difference is not None and cause_of(difference["sentence"]).contradicts_description:
        number = int(difference["layer"])
        name = description["layers"][number]["name"]
        what = difference["sentence"].replace(f"in layer {number},", f"in layer {name},")
        raise stop_error(what, cause_of(what))
    layers = tuple(each for each in records if "checked" in each)
    if difference is None and process.returncode != 0:
        what = _failure(process.returncode, text)
        raise stop_error(what, cause_of(what))
    return CosimulationRun(layers, difference, time.monotonic() - began)


def _environment(choice: Choice, report: Path, wave: Path | None) -> dict[str, str]:
    layer, address = choice.watched or (None, None)
    values: dict[str, object] = {
        "REPORT": report,
        "LAYERS": None if choice.layers is None else ",".join(map(str, choice.layers)),
        "TILES": choice.tiles,
        "CORRUPT": choice.corrupted,
        "CATCH_UP": choice.patience,
        "IDLE": choice.idle,
        "WATCH_LAYER": layer,
        "WATCH": address,
        "PAUSES": choice.pauses or None,
        "STATE": ALL_ONES if choice.pauses else None,
        "VOLATILE": _listed(choice.volatile),
        "DOORBELLS": _listed(choice.doorbells),
    }
    if wave is not None and choice.window is not None:
        window = choice.window
        values["WAVE"] = f"{wave.absolute()}:{window.first}:{window.last}"
        values["WAVE_BACKEND"] = window.backend
        values["WAVE_RESETS"] = window.resets
    return {f"UMAKIT_COSIM_{name}": str(each) for name, each in values.items() if each is not None}


def _listed(offsets: Mapping[str, Sequence[int]] | None) -> str | None:
    every = sorted({offset for each in (offsets or {}).values() for offset in each})
    return ",".join(f"0x{offset:x}" for offset in every) or None


def _records(
    process: subprocess.Popen[bytes], report: Path, tell: Tell
) -> Iterator[dict[str, Any]]:
    """Yield the records of a running program as they are written, until the program ends."""
    position, rest = 0, ""
    while True:
        has_ended = process.poll() is not None
        if report.exists():
            with report.open(encoding="utf-8", errors="replace") as stream:
                stream.seek(position)
                rest += stream.read()
                position = stream.tell()
        *lines, rest = rest.split("\n")
        for line in lines:
            record = json.loads(line)
            tell(record)
            yield record
        if has_ended:
            return
        time.sleep(POLL_SECONDS)


def _check(watch: Watch) -> None:
    try:
        watch.check("the co-simulation", "")
    except HangsError:
        raise
    except TimeLimitError as error:
        fix = "give it more time with --timeout, or choose --layers or --sample"
        raise TimeLimitError(error.what, fix=fix) from None


def _failure(code: int, said: str) -> str:
    last = (said.strip().splitlines() or ["it printed nothing"])[-1]
    try:
        report = json.loads(last)
        return f"the run stopped without a difference: {report['message']}"
    except (ValueError, KeyError, TypeError):
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return f"the co-simulation ended with {how}: {last}"
