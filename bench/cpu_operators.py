# SPDX-License-Identifier: Apache-2.0
"""Speed of single float32 operators on this machine, against ONNX Runtime with one thread.

make bench-cpu-operators

As `make bench-cpu`, for pools, reductions, normalizations, element-wise operators and transposes.
"""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import cpu as networks_bench
import library
import networks
import numpy as np
import onnx
import rounds
import tools

from umakit.cpu.description import Cpu, find_cpu

OUTPUT = Path("build/bench/cpu_operators.md")
ROUNDS, SECONDS = 7, 0.01
Body = Callable[[networks.Graph, str], str]

IMAGE, SEQUENCE = (1, 64, 56, 56), (1, 128, 768)


def _node(operator: str, **attributes: object) -> Body:
    return lambda graph, x: graph.node(operator, x, **attributes)


def _behind_conv(operator: str, **attributes: object) -> Body:
    """An operator in NHWC, the layout of convolutions."""
    return lambda graph, x: graph.node(operator, graph.conv(x, 64, 1), **attributes)


def _chain(*operators: str) -> Body:
    def body(graph: networks.Graph, x: str) -> str:
        for operator in operators:
            x = graph.node(operator, x)
        return x

    return body


def _sum(axis: int) -> Body:
    return lambda graph, x: graph.node("ReduceSum", x, graph.constant([axis], "int64"))


def _residual(graph: networks.Graph, x: str) -> str:
    return graph.node("Relu", graph.node("Add", x, graph.node("Abs", x)))


def _bias(graph: networks.Graph, x: str) -> str:
    return graph.node("Relu", graph.node("Add", x, graph.random(64, 1, 1)))


def _clip(graph: networks.Graph, x: str) -> str:
    return graph.node("Clip", x, graph.constant(-1.0), graph.constant(1.5))


def _gelu(graph: networks.Graph, x: str) -> str:
    erf = graph.node("Erf", graph.node("Mul", x, graph.constant(math.sqrt(0.5))))
    sum_ = graph.node("Add", erf, graph.constant(1.0))
    return graph.node("Mul", graph.node("Mul", x, sum_), graph.constant(0.5))


def _layer_norm(graph: networks.Graph, x: str) -> str:
    return graph.node("LayerNormalization", x, graph.random(768), graph.random(768))


def _batch_norm(graph: networks.Graph, x: str) -> str:
    return graph.node("Relu", graph.batch_norm(x))


def _instance_norm(graph: networks.Graph, x: str) -> str:
    return graph.node("InstanceNormalization", x, graph.random(64), graph.random(64))


OPERATORS: dict[str, tuple[tuple[int, ...], Body]] = {
    "MaxPool 3x3/2": (
        (1, 64, 112, 112), _node("MaxPool", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    ),
    "MaxPool 2x2/2": (IMAGE, _node("MaxPool", kernel_shape=[2, 2], strides=[2, 2])),
    "Conv 1x1, MaxPool 3x3/2": (
        (1, 8, 112, 112), _behind_conv("MaxPool", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    ),
    "Conv 1x1, MaxPool 2x2/2": (
        (1, 8, 112, 112), _behind_conv("MaxPool", kernel_shape=[2, 2], strides=[2, 2])
    ),
    "Conv 1x1, AveragePool 3x3": (
        (1, 8, 56, 56), _behind_conv("AveragePool", kernel_shape=[3, 3], pads=[1] * 4)
    ),
    "Conv 1x1, GlobalAveragePool": ((1, 8, 56, 56), _behind_conv("GlobalAveragePool")),
    "AveragePool 3x3": (IMAGE, _node("AveragePool", kernel_shape=[3, 3], pads=[1] * 4)),
    "GlobalAveragePool": ((1, 512, 7, 7), _node("GlobalAveragePool")),
    "Softmax 1000": ((1, 1000), _node("Softmax", axis=-1)),
    "Softmax 8x128x128": ((8, 128, 128), _node("Softmax", axis=-1)),
    "LogSoftmax 16x1000": ((16, 1000), _node("LogSoftmax", axis=-1)),
    "Softmax 21x64x64, axis 1": ((1, 21, 64, 64), _node("Softmax", axis=1)),
    "ReduceMean, last": (SEQUENCE, _node("ReduceMean", axes=[-1])),
    "ReduceMax, last": (SEQUENCE, _node("ReduceMax", axes=[-1])),
    "ReduceSum, middle": (SEQUENCE, _sum(1)),
    "ReduceMax, middle": (SEQUENCE, _node("ReduceMax", axes=[1])),
    "ReduceMean, first": ((128, 768), _node("ReduceMean", axes=[0])),
    "ReduceMean, rows and columns": (IMAGE, _node("ReduceMean", axes=[2, 3])),
    "LayerNormalization": (SEQUENCE, _layer_norm),
    "InstanceNormalization": (IMAGE, _instance_norm),
    "BatchNormalization, Relu": (IMAGE, _batch_norm),
    "Abs, Add, Relu": (IMAGE, _residual),
    "Add of channels, Relu": (IMAGE, _bias),
    "Clip": (IMAGE, _clip),
    "Sigmoid": (SEQUENCE, _node("Sigmoid")),
    "Tanh": (SEQUENCE, _node("Tanh")),
    "Exp": (SEQUENCE, _node("Exp")),
    "HardSwish": (IMAGE, _node("HardSwish")),
    "Gelu": (SEQUENCE, _gelu),
    "Transpose to NHWC": (IMAGE, _node("Transpose", perm=[0, 2, 3, 1])),
    "Transpose to NCHW": ((1, 56, 56, 64), _node("Transpose", perm=[0, 3, 1, 2])),
    "Transpose of heads": ((1, 128, 12, 64), _node("Transpose", perm=[0, 2, 1, 3])),
}  # fmt: skip


def network(name: str) -> onnx.ModelProto:
    """A network of an operator."""
    shape, body = OPERATORS[name]
    graph = networks.Graph("net", seed=1)
    graph.output(body(graph, graph.input("input", *shape)))
    return graph.model()


def bench_operator(name: str, cpu: Cpu, folder: Path) -> tuple[str, dict[str, float]]:
    """A row of the table, and medians of the ratios to ONNX Runtime."""
    model = network(name)
    inputs = networks.random_inputs(model)
    ((input_name, values),) = inputs.items()
    path = folder / "net.onnx"
    folder.mkdir()
    onnx.save(model, str(path))
    session = library.reference_session(model)
    wanted = session.run(None, inputs)[0].ravel()
    runner, generic = networks_bench.runner, find_cpu("generic")
    runners = {
        "native": runner(path, cpu, folder / "native", ["-O3", *cpu.flags]),
        "generic": runner(path, generic, folder / "generic", networks_bench.GENERIC_FLAGS),
    }
    for each, run in runners.items():
        difference = np.abs(run(values, wanted.size) - wanted).max() / np.abs(wanted).max()
        if not difference <= networks_bench.TOLERANCE:
            raise SystemExit(f"{name}, {each}: off by {difference:.2g} of the largest output")
    # Filling a new output with NaN would take as long as a short operator.
    result = np.empty_like(wanted)
    calls = {n: (lambda run=run: run(values, wanted.size, result)) for n, run in runners.items()}
    calls["ort"] = lambda: session.run(None, {input_name: values})
    found = rounds.take_turns(calls, ROUNDS, SECONDS)
    spreads = {each: rounds.ratio(found, each, "ort") for each in runners}
    cells = [f"{s.median:.2f} ({s.low:.2f} to {s.high:.2f})" for s in spreads.values()]
    microseconds = 1e6 * sorted(found["ort"])[ROUNDS // 2]
    row = f"| {name} | {'x'.join(map(str, values.shape))} | {microseconds:,.0f} "
    return f"{row}| {' | '.join(cells)} |", {n: spread.median for n, spread in spreads.items()}


def main() -> int:
    """Write the table."""
    cpu = find_cpu("native")
    rows, medians = [], []
    with tempfile.TemporaryDirectory() as temporary:
        for number, name in enumerate(sys.argv[1:] or OPERATORS):
            row, ratios = bench_operator(name, cpu, Path(temporary) / str(number))
            rows.append(row)
            medians.append(ratios)
            print(row, file=sys.stderr, flush=True)
    means = [math.exp(np.mean([math.log(each[key]) for each in medians])) for key in medians[0]]
    lines = [
        "| operator | input | ONNX Runtime, us | native | generic, -march=native |",
        "|---|---|--:|--:|--:|",
        *rows,
        f"| geometric mean | | | {' | '.join(f'{mean:.2f}' for mean in means)} |",
        "",
        networks_bench.explanation(cpu),
    ]
    tools.publish(lines, OUTPUT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
