# SPDX-License-Identifier: Apache-2.0
"""Tilings that a compilation is given: they hold for it, and for no other."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from umakit import ExportOptions, compile_model, find_backend, patterns, tvm_api
from umakit.backend import UMABackend
from umakit.library.export import Library
from umakit.lower import accelerator_kernels
from umakit.machine import Layer, TilePlanner, Tiling
from umakit.machine.planner import PlannedLayers
from umakit.partition.partitioner import partition
from umakit.patterns import Composite
from umakit.pipeline import import_network
from umakit.tools.tuning.tune import tiled_layers

CHOCOLATE = "chocolate_accelerator"
MODEL = Path(__file__).parents[1] / "examples" / "digits" / "digits_int8.onnx"

Tilings = Mapping[Layer, Tiling]


@pytest.fixture
def backend() -> UMABackend:
    return find_backend(CHOCOLATE)


def planner_of(backend: UMABackend) -> TilePlanner:
    assert backend.tiling is not None
    return backend.tiling


def with_buffers(backend: UMABackend, buffers: int) -> Tilings:
    """The default tiling of each layer of the network, but with so many buffers."""
    tilings = {}
    for layer in tiled_layers(import_network(MODEL), backend):
        tiling = planner_of(backend).default(layer)
        assert tiling is not None
        tilings[layer] = replace(tiling, buffers=buffers)
    return tilings


def composite_of(backend: UMABackend) -> Composite:
    """The first layer of the network that the backend cuts into tiles."""
    partitioned = partition(import_network(MODEL).model.module, [backend])
    module = accelerator_kernels(partitioned, [backend])
    found = map(patterns.parameters_of, (each for _, each in tvm_api.prim_functions(module)))
    return next(composite for composite in found if composite is not None)


def compiled(backend: UMABackend, tilings: Tilings | None, path: Path) -> Library:
    options = ExportOptions() if tilings is None else ExportOptions(tilings={CHOCOLATE: tilings})
    return compile_model(MODEL, [backend], path, options=options)


def sources(library: Library) -> dict[str, bytes]:
    folder = library.path / "codegen" / "host"
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


def test_compilations_in_several_threads_have_their_own_tilings(
    backend: UMABackend, tmp_path: Path
) -> None:
    given = {"one": with_buffers(backend, 1), "two": with_buffers(backend, 2), "default": None}
    alone = {name: compiled(backend, given[name], tmp_path / f"alone_{name}") for name in given}
    assert len({str(sorted(sources(each).items())) for each in alone.values()}) == 3
    with ThreadPoolExecutor(len(given)) as threads:
        futures = {
            name: threads.submit(compiled, backend, given[name], tmp_path / name) for name in given
        }
        libraries = {name: future.result() for name, future in futures.items()}
    for name, library in libraries.items():
        assert sources(library) == sources(alone[name]), name
        assert library.program is not None
        planned = library.program.planned[CHOCOLATE]
        assert planned.tilings == (given[name] or {})
        assert len(planned.layers) == 6
        assert planned.tuned == ([] if given[name] is None else planned.layers)


def test_passes_in_several_threads_get_tilings_of_their_own_compilation(
    backend: UMABackend,
) -> None:
    planner, composite = planner_of(backend), composite_of(backend)
    layer, meeting = Layer.of(composite), threading.Barrier(2, timeout=60)
    default = planner.default(layer)
    assert default is not None

    def cut(buffers: int) -> tuple[Tiling, PlannedLayers]:
        planned = PlannedLayers({layer: replace(default, buffers=buffers)})
        with planner.planning(planned):
            meeting.wait()
            tiles = planner.tiles_of(composite)
            meeting.wait()
        return tiles.tiling, planned

    with ThreadPoolExecutor(2) as threads:
        for buffers, (tiling, planned) in zip((1, 2), threads.map(cut, (1, 2)), strict=True):
            assert tiling.buffers == buffers
            assert planned.tuned == planned.layers == [layer]


def test_a_planner_forgets_tilings_at_the_end_of_the_compilation(
    backend: UMABackend,
) -> None:
    planner, composite = planner_of(backend), composite_of(backend)
    layer = Layer.of(composite)
    default = planner.default(layer)
    assert default is not None
    other = replace(default, buffers=1 if default.buffers > 1 else 2)
    outer, inner = PlannedLayers({layer: other}), PlannedLayers()
    with pytest.raises(ZeroDivisionError), planner.planning(outer):
        assert planner.tiles_of(composite).tiling == other
        with planner.planning(inner):
            assert planner.tiles_of(composite).tiling == default
        # A planner that this compilation does not have; and tilings that are given at the call.
        assert TilePlanner(planner.hardware, planner.driver).tiles_of(composite).tiling == default
        assert planner.tiles_of(composite, {}).tiling == default
        raise ZeroDivisionError
    assert planner.tiles_of(composite).tiling == default
    assert (outer.layers, outer.tuned) == ([layer], [layer])
    assert (inner.layers, inner.tuned) == ([layer], [])
