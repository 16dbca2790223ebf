# SPDX-License-Identifier: Apache-2.0
"""Accelerators of the tutorials with other hardware, and networks on them and on the CPU."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from umakit import compile_model, run_library
from umakit.backend import UMABackend
from umakit.backend.registry import load_backend_folder
from umakit.devices.run import LayerProfile, RunResult
from umakit.library.export import Library
from umakit.machine.commands import moved_bytes
from umakit.machine.energy import EventCounts
from umakit.testing.example_networks import QuantizedNetwork
from umakit.tools.energy import counts_of
from umakit.tools.energy.predicted import counts_of_tiles
from umakit.tools.scaffold import new_backend

Array = npt.NDArray[Any]

SECTION = re.compile(r"(?m)^\[+(\w+)\]+$")


def accelerator_with(
    folder: Path, tutorial: str, values: Mapping[str, Any], name: str = "edited"
) -> UMABackend:
    """A new backend whose `accel.toml` has other values.

    Args:
        folder: to write it to.
        tutorial: that it is made from.
        values: by section and key, as `array.rows`.
        name: of the backend.
    """
    written = new_backend(name, folder, tutorial).folder
    path = written / "accel.toml"
    head, *parts = SECTION.split(path.read_text(encoding="utf-8"))
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    for place, value in values.items():
        section, key = place.split(".")
        text = str(value).lower() if isinstance(value, bool) else repr(value).replace("'", '"')
        edited, count = re.subn(rf"(?m)^{key} = ([^#\n]*)", f"{key} = {text} ", sections[section])
        assert count == 1, place
        sections[section] = edited
    body = [f"[[{name}]]{text}" if name == "memory" else f"[{name}]{text}"
            for name, text in sections.items()]  # fmt: skip
    path.write_text(head + "".join(body), encoding="utf-8")
    return load_backend_folder(written)


def same_as_the_cpu(
    network: QuantizedNetwork, backend: UMABackend, folder: Path
) -> tuple[Library, RunResult]:
    """A network's library and its run, whose outputs are those of the CPU's kernels."""
    model = network.model()
    inputs = dict(model.inputs)
    library = compile_model(model.module, [backend], folder / "library", name="net")
    accelerated = run_library(library.path, inputs, profile=True)
    plain = compile_model(model.module, [], folder / "cpu", name="net")
    for name, values in run_library(plain.path, inputs).outputs.items():
        np.testing.assert_array_equal(accelerated.outputs[name], values)
        assert len(np.unique(values)) > 3 or values.size < 8
    return library, accelerated


def inputs_of(library: Library, count: int) -> dict[str, Array]:
    """Noise and smooth signals for a network with an int8 input, twice `count` but for 1."""
    (input_view,) = library.metadata["umakit"]["inputs"]
    shape = (count, *input_view["shape"])
    random = np.random.default_rng(8)
    smooth = np.clip(random.normal(0, 9, shape).cumsum(axis=-1), -128, 127)
    both = np.concatenate([random.integers(-128, 128, shape), smooth])[:: 2 if count == 1 else 1]
    return {input_view["name"]: both.astype(np.int8)}


def check_predictions(
    library: Library, ran: RunResult, backend: UMABackend, *, rel: float = 0.02
) -> int:
    """The cost model predicts cycles and traffic of each layer that is cut into tiles.

    Returns:
        How many layers are.
    """
    program, planner = library.program, backend.tiling
    assert program is not None and planner is not None
    count = 0
    for call, profile in zip(program.calls, ran.layers, strict=True):
        if profile.where == "cpu":
            continue
        count += 1
        composite = program.kernels[call.kernel].composite if call.kernel else None
        assert composite is not None
        tiles = planner.tiles_of(composite)
        where = (profile.name, tiles.layer, tiles.tiling, planner.machine)
        prediction = planner.predict(tiles)
        assert prediction.cycles == pytest.approx(profile.clock_cycles, rel=rel), where
        assert prediction.bound.cycles <= (profile.clock_cycles or 0), where
        assert moved_bytes(tiles) == profile.moved_bytes, where
        is_exact = prediction.cycles == profile.clock_cycles
        counts = counts_of_tiles(backend, planner, tiles, prediction)
        polls = backend.configuration.device.completion == "polling"
        _check_counts(profile, counts, is_exact=is_exact, polls=polls)
    return count


def _check_counts(
    measured: LayerProfile, predicted: EventCounts, *, is_exact: bool, polls: bool
) -> None:
    """Predicted counts are those of the simulator, to the unit, as far as both are known."""
    counted = counts_of(measured)
    for name, value in predicted.plain.items():
        if is_exact or name not in ("cycles", "idle_cycles", "register_accesses"):
            is_unknown = name == "register_accesses" and (polls or value is None)
            assert value == (None if is_unknown else counted.plain[name]), (measured.name, name)
    if counted.memories:
        assert predicted.memories == counted.memories, measured.name
