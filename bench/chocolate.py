# SPDX-License-Identifier: Apache-2.0
"""Cycles of four networks on the simulated Chocolate accelerator, against their lower bound.

make bench-chocolate

Outputs are compared with TensorFlow Lite Micro's first. Cycles are those of the device's clock,
from a layer's first access of a register to its last, and do not depend on the machine. What each
feature of the hardware is worth is counted by the cost model, in which it is switched off; one
network runs on the simulator without it too.
"""

from __future__ import annotations

import json
import os
import platform
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import image_networks
import numpy as np
from chocolate_tables import (
    FULL,
    CompileResult,
    LayerResult,
    NetworkResult,
    Results,
    TuningResult,
    VariantResult,
    WidthResult,
    markdown,
)
from tflite_networks import tflite_micro

from umakit import compile_model, patterns, run_library
from umakit.backend import UMABackend
from umakit.backend.registry import find_backend, load_backend_folder
from umakit.library.export import Library
from umakit.machine import Kind, Layer, Prediction, TilePlanner, Tiling
from umakit.machine.space import tiles_on
from umakit.pipeline import ExportOptions, import_network
from umakit.tools.scaffold import new_backend
from umakit.tools.tuning import Effort, tune_model

OUTPUT = Path("build/bench")
NAME = "chocolate_accelerator"

WIDTHS = (16, 32, 64)
"""Bytes that the DMA engine moves in a cycle."""

EFFORT = Effort(simulate=0)
"""Effort of the search, without the simulator: the cost model gives the same cycles."""

NEAR_ENOUGH = 1.01
"""Ratio of cycles to bound below which a layer is not tuned."""

CHAIN_LENGTHS = (10, 100)
"""Convolutions of the networks whose compile time is measured."""


@dataclass(frozen=True)
class Network:
    """A network to measure.

    Attributes:
        name: of it.
        file: of TensorFlow Lite.
    """

    name: str
    file: bytes


@dataclass(frozen=True)
class Variant:
    """The accelerator without a feature.

    Attributes:
        name: what it lacks.
        changes: in `accel.toml`, values by key.
        most_buffers: of tiles, for each tensor.
    """

    name: str
    changes: Mapping[str, str]
    most_buffers: int | None = None

    @property
    def how(self) -> str:
        """How a user gets it."""
        texts = [f"`{key} = {value}`" for key, value in self.changes.items()]
        texts += [] if self.most_buffers is None else [f"`buffers={self.most_buffers}`"]
        return ", ".join(texts)


VARIANTS = (
    Variant("more than two tiles of a tensor", {}, 2),
    Variant("double buffering", {}, 1),
    Variant("any overlap: load, compute, store in turn", {"command_queue": "0"}, 1),
    Variant("operands of the next fold on their way", {"preload": "false", "preload_rows": "1"}),
    Variant("two rows of what stays entering in a cycle", {"preload_rows": "1"}),
    Variant("further positions in columns left over", {"pack_columns": "false"}),
    Variant("transfers requested ahead", {"outstanding": "false"}),
    Variant("other dataflows than output stationary", {"dataflows": '["output_stationary"]'}),
    Variant(
        "output stationary jobs",
        {
            "dataflow": '"weight_stationary"',
            "dataflows": '["weight_stationary", "input_stationary"]',
            "pack_columns": "false",  # is of output stationary jobs
        },
    ),
    Variant("more than 2 commands in the queue", {"command_queue": "2"}),
    Variant("half of the accumulator", {"accumulator_bytes": "16384"}),
    Variant(
        "overlap, and one dataflow only",
        {
            "command_queue": "0",
            "preload": "false",
            "preload_rows": "1",
            "pack_columns": "false",
            "outstanding": "false",
            "dataflows": '["output_stationary"]',
        },
        1,
    ),
)
"""Each feature alone is taken away, and all that make things happen at the same time."""


def networks() -> Iterator[Network]:
    """All networks; the trained ones where $UMAKIT_MODELS names their folder."""
    folder = Path(os.environ.get("UMAKIT_MODELS", ""))
    trained = {"ResNet-8": "pretrainedResnet_quant.tflite", "DS-CNN": "kws_ref_model.tflite"}
    for name, file in trained.items():
        if (folder / file).is_file():
            yield Network(name, (folder / file).read_bytes())
        else:
            print(f"{name}: left out, UMAKIT_MODELS names no folder with {file}", file=sys.stderr)
    yield Network("MobileNetV1-0.25", image_networks.mobilenet())
    yield Network("ResNet-18", image_networks.resnet18())


def variant_of(folder: Path, changes: Mapping[str, str]) -> UMABackend:
    """The accelerator with other values in its `accel.toml`.

    Raises:
        SystemExit: a key is not there.
    """
    place = new_backend(NAME, folder, "chocolate").folder
    path = place / "accel.toml"
    text = path.read_text(encoding="utf-8")
    for key, value in changes.items():
        text, count = re.subn(rf"(?m)^{key} = .*$", f"{key} = {value}", text)
        if count != 1:
            raise SystemExit(f"accel.toml has {count} lines of {key}")
    path.write_text(text, encoding="utf-8")
    return load_backend_folder(place)


def compiled(
    network: Network, backend: UMABackend, folder: Path, records: Path | None = None
) -> Library:
    """A network as a C library, with tuned tilings if there are records."""
    folder.mkdir(parents=True, exist_ok=True)
    options = ExportOptions(weights="blob", records=records)
    return compile_model(written(network, folder), [backend], folder / "c", options=options)


def written(network: Network, folder: Path) -> Path:
    """Its file."""
    path = folder / "network.tflite"
    path.write_bytes(network.file)
    return path


def simulated(network: Network, backend: UMABackend, library: Library) -> NetworkResult:
    """Run a library and ask for each layer's cycles.

    Raises:
        SystemExit: an output differs from TensorFlow Lite Micro's.
    """
    (declared,) = library.metadata["umakit"]["inputs"]
    values = np.random.default_rng(8).integers(-128, 128, declared["shape"]).astype(np.int8)
    result = run_library(library.path, {declared["name"]: values}, profile=True)
    (output,) = result.outputs.values()
    if not np.array_equal(output, tflite_micro(network.file, values[None])[0]):
        raise SystemExit(f"{network.name}: outputs are not those of TensorFlow Lite Micro")
    assert library.program is not None
    tilings = library.program.planned[NAME].tilings
    layers = [
        result_of(profile.name, composite, tilings, profile.clock_cycles, backend)
        for composite, profile in zip(_calls(library), result.layers, strict=True)
        if composite is not None
    ]
    on_cpu = [row.operator for row in library.report.placements if row.where == "cpu"]
    return NetworkResult(network.name, layers, on_cpu)


def tuned(
    network: Network, backend: UMABackend, folder: Path
) -> tuple[list[LayerResult], TuningResult]:
    """A network's layers with the tilings that a search finds, and what that took."""
    took, records = tune(network, backend, folder)
    library = compiled(network, backend, folder, records)
    layers = simulated(network, backend, library).layers
    return layers, took


def tune(network: Network, backend: UMABackend, folder: Path) -> tuple[TuningResult, Path]:
    """What a search takes, and the records of what it found."""
    folder.mkdir()
    records = folder / "records.json"
    imported = import_network(written(network, folder))
    started = time.process_time()
    found = tune_model(imported, backend, records, effort=EFFORT)
    seconds = time.process_time() - started
    seen = sum(each.seen for each in found)
    return TuningResult(network.name, len(found), seen, seconds), records


def _calls(library: Library) -> list[patterns.Composite | None]:
    """What each step of a network computes, None for those on the CPU."""
    assert library.program is not None
    return [
        library.program.kernels[call.kernel].composite if call.target == NAME else None
        for call in library.program.calls
    ]


def layers_of(library: Library) -> list[Layer]:
    """The sizes of a network's convolutions on the accelerator."""
    return [Layer.of(composite) for composite in _calls(library) if is_convolution(composite)]


def is_convolution(composite: patterns.Composite | None) -> bool:
    """Whether it is one; depthwise and with a fused addition too."""
    return isinstance(composite, patterns.QConv2d | patterns.QDepthwise)


def result_of(
    name: str,
    composite: patterns.Composite,
    tilings: Mapping[Layer, Tiling],
    cycles: int,
    backend: UMABackend,
) -> LayerResult:
    """What is told of a layer that was compiled with these tilings and took so many cycles."""
    layer, tiles = Layer.of(composite), planner_of(backend).tiles_of(composite, tilings)
    prediction = planner_of(backend).predict(tiles)
    assert prediction.run is not None  # the kit's own prediction has one
    held, bound = prediction.run.breakdown, prediction.bound
    height, width = layer.input_size
    rows, columns = layer.output_size
    spent = {
        FULL: bound.compute,
        "in part": held.compute - bound.compute,
        "drain": held.drain,
        "load": held.load,
        "store": held.store,
        "driver": held.driver + prediction.cycles - held.cycles,
    }
    return LayerResult(
        name=name,
        kind="fully connected" if isinstance(composite, patterns.QDense) else kind_of(layer),
        shape=f"{height}x{width}x{layer.input_channels} to "
        f"{rows}x{columns}x{layer.output_channels}",
        is_convolution=is_convolution(composite),
        macs=layer.macs,
        simulated=cycles,
        predicted=prediction.cycles,
        compute_bound=bound.compute,
        memory_bound=bound.memory,
        spent=spent,
    )


def planner_of(backend: UMABackend) -> TilePlanner:
    """What cuts its layers into tiles."""
    assert backend.tiling is not None
    return backend.tiling


def kind_of(layer: Layer) -> str:
    """What a layer computes, in a few words."""
    window = "x".join(map(str, layer.kernel))
    stride = f" / {layer.strides[0]}" if max(layer.strides) > 1 else ""
    if layer.is_pool:
        return f"{layer.kind.value.replace('_', ' ')} {window}{stride}"
    name = "depthwise" if layer.kind is Kind.DEPTHWISE else "conv"
    return f"{name} {window}{stride}{' + add' if layer.adds else ''}"


def predicted(layers: Sequence[Layer], backend: UMABackend) -> list[Prediction]:
    """What layers cost with the default tilings of a backend.

    Raises:
        SystemExit: a layer does not fit.
    """
    planner, found = planner_of(backend), []
    for layer in layers:
        tiling = planner.default(layer)
        if tiling is None:
            raise SystemExit(f"{layer} does not fit")
        found.append(planner.predict(tiles_on(layer, tiling, planner.hardware)))
    return found


def bench_variant(
    variant: Variant, layers: Mapping[str, list[Layer]], check: Network, folder: Path
) -> VariantResult:
    """All networks without a feature.

    Args:
        layers: convolutions by network.
        check: the network to simulate.
    """
    backend = variant_of(folder, variant.changes)
    if variant.most_buffers is not None:
        planner_of(backend).most_buffers = variant.most_buffers
    cycles = {
        name: sum(each.cycles for each in predicted(items, backend))
        for name, items in layers.items()
    }
    ran = simulated(check, backend, compiled(check, backend, folder)).layers
    both = [sum(values) for values in zip(*((r.predicted, r.simulated) for r in ran), strict=True)]
    return VariantResult(variant.name, variant.how, cycles, both[0] / both[1] - 1)


def bench_width(width: int, layers: Mapping[str, list[Layer]], folder: Path) -> WidthResult:
    """All networks with another DMA engine."""
    backend = variant_of(folder, {"bytes_per_cycle": str(width)})
    found = {name: predicted(items, backend) for name, items in layers.items()}
    bounds = {name: [each.bound for each in items] for name, items in found.items()}
    return WidthResult(
        width,
        {name: sum(each.cycles for each in items) for name, items in found.items()},
        {name: sum(each.cycles for each in items) for name, items in bounds.items()},
        {
            name: sum(each.cycles for each in items if each.memory > each.compute)
            for name, items in bounds.items()
        },
    )


def compile_seconds(file: bytes, backends: Sequence[UMABackend], folder: Path) -> float:
    """Processor time from a file to C."""
    folder.mkdir()
    path = folder / "network.tflite"
    path.write_bytes(file)
    started = time.process_time()
    compile_model(path, backends, folder / "c")
    return time.process_time() - started


def bench_compile(lengths: Sequence[int], folder: Path) -> Iterator[CompileResult]:
    """Chains of equal and of different convolutions."""
    for equal in (True, False):
        for count in lengths:
            print(f"compile {count} layers", file=sys.stderr, flush=True)
            file = image_networks.chain(count, equal)
            place = folder / f"{count}-{equal}"
            place.mkdir()
            yield CompileResult(
                count, equal,
                compile_seconds(file, [], place / "cpu"),
                compile_seconds(file, [find_backend(NAME)], place / "chocolate"),
            )  # fmt: skip


def bench_tuning(lengths: Sequence[int], folder: Path) -> Iterator[TuningResult]:
    """Chains of different convolutions: equal ones are tuned once."""
    for count in lengths:
        print(f"tune {count} layers", file=sys.stderr, flush=True)
        chain = Network(f"{count} convolutions", image_networks.chain(count, equal=False))
        yield tune(chain, find_backend(NAME), folder / f"tuned-{count}")[0]


def machine() -> str:
    """The name of this one's processor."""
    cpuinfo = Path("/proc/cpuinfo")
    text = cpuinfo.read_text(encoding="utf-8") if cpuinfo.is_file() else ""
    found = re.search(r"(?m)^model name\s*: (.*)$", text)
    return found[1] if found else platform.machine()


def bench(
    cases: Sequence[Network], variants: Sequence[Variant], lengths: Sequence[int], folder: Path
) -> Results:
    """Measure everything.

    Args:
        cases: the first one is also simulated in each variant.
        variants: of the accelerator.
        lengths: of the chains that are compiled.
        folder: for what is written on the way.
    """
    backend = find_backend(NAME)
    ran, layers, tuning = [], {}, []
    for case in cases:
        print(case.name, file=sys.stderr, flush=True)
        library = compiled(case, backend, folder / case.name)
        result = simulated(case, backend, library)
        layers[case.name] = layers_of(library)
        if sum(e.simulated for e in result.layers if e.is_convolution) > NEAR_ENOUGH * sum(
            e.bound for e in result.layers if e.is_convolution
        ):
            print(f"{case.name}: tuning", file=sys.stderr, flush=True)
            better, took = tuned(case, backend, folder / f"{case.name}, tuned")
            result = replace(result, tuned=better)
            tuning.append(took)
        ran.append(result)
    widths = []
    for width in WIDTHS:
        print(f"{width} bytes a cycle", file=sys.stderr, flush=True)
        widths.append(bench_width(width, layers, folder / f"width{width}"))
    found = []
    for number, variant in enumerate(variants):
        print(variant.name, file=sys.stderr, flush=True)
        found.append(bench_variant(variant, layers, cases[0], folder / f"variant{number}"))
    times = list(bench_compile(lengths, folder))
    tuning += bench_tuning(lengths, folder)
    return Results(ran, widths, found, times, tuning, machine())


def main() -> int:
    """Returns 0; stops where an output is wrong."""
    with tempfile.TemporaryDirectory() as name:
        results = bench(list(networks()), VARIANTS, CHAIN_LENGTHS, Path(name))
    text = markdown(results)
    OUTPUT.mkdir(parents=True, exist_ok=True)
    (OUTPUT / "chocolate.md").write_text(text, encoding="utf-8")
    (OUTPUT / "chocolate.json").write_text(
        json.dumps(asdict(results), indent=2) + "\n", encoding="utf-8"
    )
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
