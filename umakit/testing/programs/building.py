# SPDX-License-Identifier: Apache-2.0
"""A library of drawn layers, with the driver's register accesses recorded on the model."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy.typing as npt

from umakit import sim, tvm_api
from umakit.devices.catalogue import RTL
from umakit.devices.cosimulation import build_with_models
from umakit.devices.designs import designs_for
from umakit.devices.inputs import write_inputs
from umakit.devices.simulators import simulators_of
from umakit.errors import DeviceError
from umakit.pipeline import ExportOptions, compile_model
from umakit.registration.backend import Backend
from umakit.testing.programs.recording import Recording, read_recording
from umakit.text.rendering import render

PARTS = sim.source_directory() / "programs"
"""Folder with the C that records and replays."""

RECORDING = "recording.txt"
SECONDS = 120.0
"""Time limit of the recording."""


def build_programs(
    backend: Backend,
    network: tvm_api.IRModule,
    inputs: Mapping[str, npt.NDArray[Any]],
    folder: Path,
    *,
    is_traced: bool = False,
) -> tuple[Path, Recording]:
    """Build the program that records and replays, and record the layers of a network.

    Args:
        backend: the backend, which has a model and a design.
        network: network with layers for the backend.
        inputs: arrays by name.
        folder: folder for files.
        is_traced: whether the program can write waveforms.

    Returns:
        The program, and the recording.

    Raises:
        UmakitError: the layers cannot be compiled, or the design does not fit its description.
        DeviceError: the driver failed on the model in its first layer.
    """
    options = ExportOptions(keep_layout=True)
    library = compile_model(
        network, [backend], folder / "library", name="programs", options=options
    )
    name = backend.target_name

    # A team's simulator has a table with the backend's name. Without one, the design has the same
    # object as in other programs.
    table = f"{name}_rtl" if simulators_of(library.path) else name

    def generated(into: Path, interface: str) -> list[Path]:
        text = render(
            "rtl/programs_main.c.j2",
            interface=interface,
            name=name,
            table=table,
            is_traced=is_traced,
            main=str((library.path / "runtime" / "main.c").absolute()),
        )
        (into / "programs_main.c").write_text(text, encoding="utf-8")
        return [into / "programs_main.c"]

    program = folder / "programs"
    designs = designs_for([backend], RTL)
    tables = {name: table}
    build_with_models(
        library.path, designs, PARTS, generated, program, tables=tables, is_traced=is_traced
    )
    description = library.metadata["umakit"]
    return program, _recorded(program, library.path, description, inputs, folder)


def _recorded(
    program: Path,
    library: Path,
    description: Mapping[str, Any],
    arrays: Mapping[str, npt.NDArray[Any]],
    folder: Path,
) -> Recording:
    ordered = [arrays[each["name"]] for each in description["inputs"]]
    write_inputs(folder / "inputs", library, description, ordered)
    environment = {**os.environ, "UMAKIT_PROGRAMS_RECORD": str(folder / RECORDING)}
    try:
        ended = subprocess.run(
            [str(program), "inputs", "outputs", "1", "1"], cwd=folder, env=environment,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise DeviceError(f"the driver does not end within {SECONDS:g} s on the model") from None
    path = folder / RECORDING
    found = read_recording(path.read_text(encoding="ascii") if path.exists() else "")
    if ended.returncode != 0 and not found.layers:
        last = (f"{ended.stdout}\n{ended.stderr}".strip().splitlines() or ["it printed nothing"])[
            -1
        ]
        raise DeviceError(f"the driver failed on the model: {last}")
    return found
