# SPDX-License-Identifier: Apache-2.0
"""Speed of float32 networks on this machine, against ONNX Runtime with one thread.

make bench-cpu

Each network is exported for this machine's CPU (`--cpu native`) and for any (`generic`), and runs
in turns with ONNX Runtime; outputs are compared with its outputs first. The last two networks were
not looked at while the schedules were made; U-Net and the keyword network led to filled channels.
"""

from __future__ import annotations

import math
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import library
import models
import networks
import numpy as np
import onnx
import onnxruntime
import rounds
import tools

import umakit
from umakit.cpu.description import Cpu, find_cpu

OUTPUT = Path("build/bench/cpu.md")
ROUNDS, SECONDS = 9, 0.03
TOLERANCE = 1e-4
GENERIC_FLAGS = ["-O3", "-march=native", "-ffp-contract=fast"]
"""Flags with which C for any CPU is compiled for this one."""


def u_net() -> onnx.ModelProto:
    """A small U-Net: 76x60x3, two levels, five classes for each pixel."""
    graph = networks.Graph("u_net", seed=11)
    x = graph.input("input", 1, 3, 76, 60)
    levels = []
    for filters in (12, 20):
        x = _twice(graph, x, filters)
        levels.append(x)
        x = graph.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = _twice(graph, x, 36)
    for filters, skipped in zip((20, 12), reversed(levels), strict=True):
        scales = graph.constant([1.0, 1.0, 2.0, 2.0])
        x = graph.node(
            "Resize", x, "", scales, mode="nearest", nearest_mode="floor",
            coordinate_transformation_mode="asymmetric",
        )  # fmt: skip
        x = graph.node("Concat", x, skipped, axis=1)
        graph.channels(x, {20: 56, 12: 32}[filters])
        x = _twice(graph, x, filters)
    graph.output(graph.node("Sigmoid", graph.conv(x, 5, 1, bias=True), name="output"))
    return graph.model()


def _twice(graph: networks.Graph, x: str, filters: int) -> str:
    for _ in range(2):
        x = graph.node("Relu", graph.batch_norm(graph.conv(x, filters, 3)))
    return x


def keywords() -> onnx.ModelProto:
    """A keyword network with odd sizes: 61 frames of 13 coefficients, 35 words."""
    graph = networks.Graph("keywords", seed=12)
    x = graph.input("input", 1, 1, 61, 13)
    x = graph.node("Relu", graph.conv(x, 28, (8, 3), bias=True, pads=[3, 1, 4, 1], strides=[2, 1]))
    for filters in (28, 44, 44):
        x = graph.node("Relu", graph.batch_norm(graph.conv(x, filters, (5, 3))))
    x = graph.node("Flatten", graph.node("GlobalAveragePool", x))
    graph.output(graph.node("Softmax", graph.dense(x, 44, 35), name="output"))
    return graph.model()


def fire() -> onnx.ModelProto:
    """Modules of SqueezeNet: 57x43x3, concatenations, max pools with odd sizes, ten classes."""
    graph = networks.Graph("fire", seed=13)
    x = graph.input("input", 1, 3, 57, 43)
    x = graph.node("Relu", graph.conv(x, 22, 3, bias=True, strides=[2, 2]))
    for squeezed, expanded in ((12, 26), (16, 38)):
        x = graph.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2])
        x = graph.node("Relu", graph.conv(x, squeezed, 1, bias=True))
        sides = [graph.node("Relu", graph.conv(x, expanded, k, bias=True)) for k in (1, 3)]
        x = graph.node("Concat", *sides, axis=1)
        graph.channels(x, 2 * expanded)
    x = graph.node("GlobalAveragePool", graph.conv(x, 10, 1, bias=True))
    graph.output(graph.node("Softmax", graph.node("Flatten", x), name="output"))
    return graph.model()


def inverted() -> onnx.ModelProto:
    """Inverted residuals of MobileNetV2 with ReLU6: 70x54x3, three classes."""
    graph = networks.Graph("inverted", seed=14)
    x = _clipped(graph, graph.conv(graph.input("input", 1, 3, 70, 54), 18, 3, strides=[2, 2]))
    channels = 18
    for filters, stride in ((14, 1), (22, 2), (22, 1), (34, 2), (34, 1)):
        start = x
        x = _clipped(graph, graph.conv(x, 6 * channels, 1))
        x = _clipped(graph, graph.conv(x, 6 * channels, 3, group=0, strides=[stride] * 2))
        x = graph.batch_norm(graph.conv(x, filters, 1))
        x = graph.node("Add", x, start) if stride == 1 and filters == channels else x
        channels = filters
    x = graph.node("Flatten", graph.node("GlobalAveragePool", x))
    graph.output(graph.dense(x, channels, 3, name="output"))
    return graph.model()


def _clipped(graph: networks.Graph, x: str) -> str:
    limits = [graph.constant(limit) for limit in (0.0, 6.0)]
    return graph.node("Clip", graph.batch_norm(x), *limits)


NETWORKS: dict[str, Callable[[], onnx.ModelProto]] = {
    **models.MODELS,
    "resnet18": networks.resnet18,
    "u_net": u_net,
    "keywords": keywords,
    "fire": fire,
    "inverted": inverted,
}


def runner(model: Path, cpu: Cpu, folder: Path, flags: list[str]) -> tools.Runner:
    """A function that runs a network that is exported for a CPU."""
    folder.mkdir(parents=True)
    options = umakit.ExportOptions(cpu=cpu.name)
    made = umakit.compile_model(model, [], folder / "library", name="net", options=options)
    return tools.runner(tools.generated_of(made), folder, flags)


def bench_network(name: str, cpu: Cpu, folder: Path) -> tuple[str, dict[str, float]]:
    """A row of the table, and medians of the ratios to ONNX Runtime."""
    model = NETWORKS[name]()
    inputs = networks.random_inputs(model)
    ((input_name, values),) = inputs.items()
    path = folder / f"{name}.onnx"
    onnx.save(model, str(path))
    session = library.reference_session(model)
    wanted = session.run(None, inputs)[0].ravel()
    runners = {
        "native": runner(path, cpu, folder / f"{name}_native", ["-O3", *cpu.flags]),
        "generic": runner(path, find_cpu("generic"), folder / f"{name}_generic", GENERIC_FLAGS),
        "generic -O3": runner(path, find_cpu("generic"), folder / f"{name}_plain", ["-O3"]),
    }
    for each, run in runners.items():
        difference = np.abs(run(values, wanted.size) - wanted).max() / np.abs(wanted).max()
        if not difference <= TOLERANCE:
            raise SystemExit(f"{name}, {each}: off by {difference:.2g} of the largest output")
    calls = {each: (lambda run=run: run(values, wanted.size)) for each, run in runners.items()}
    calls["ort"] = lambda: session.run(None, {input_name: values})
    found = rounds.take_turns(calls, ROUNDS, SECONDS)
    spreads = {each: rounds.ratio(found, each, "ort") for each in runners}
    cells = [f"{s.median:.2f} ({s.low:.2f} to {s.high:.2f})" for s in spreads.values()]
    microseconds = 1e6 * sorted(found["ort"])[ROUNDS // 2]
    row = f"| {name} | {microseconds:,.0f} | {' | '.join(cells)} |"
    return row, {each: spread.median for each, spread in spreads.items()}


def explanation(cpu: Cpu) -> str:
    """What the figures of a table are, and what they were measured with."""
    compiler = subprocess.run(["gcc", "--version"], capture_output=True, text=True, check=True)
    return (
        "Times over those of ONNX Runtime in the same rounds: medians, and quartiles in brackets. "
        f"ONNX Runtime {onnxruntime.__version__}, one thread; {compiler.stdout.splitlines()[0]}; "
        f"native is {cpu.name}; {platform.processor() or platform.machine()}."
    )


def main() -> int:
    """Write the table."""
    cpu = find_cpu("native")
    rows, medians = [], []
    with tempfile.TemporaryDirectory() as temporary:
        for name in sys.argv[1:] or NETWORKS:
            row, ratios = bench_network(name, cpu, Path(temporary))
            rows.append(row)
            medians.append(ratios)
            print(row, file=sys.stderr, flush=True)
    means = [math.exp(np.mean([math.log(each[key]) for each in medians])) for key in medians[0]]
    lines = [
        "| network | ONNX Runtime, us | native | generic, -march=native | generic, -O3 |",
        "|---|--:|--:|--:|--:|",
        *rows,
        f"| geometric mean | | {' | '.join(f'{mean:.2f}' for mean in means)} |",
        "",
        explanation(cpu),
    ]
    tools.publish(lines, OUTPUT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
