# SPDX-License-Identifier: Apache-2.0
"""Speed of the simulated systolic array: at native speed, and stepped cycle by cycle.

make bench-sim

A layer runs through the registers of the device, requantized; its rivals compute nothing but the
matrix products that it consists of. Times are compared after the results were.
"""

from __future__ import annotations

import ctypes
import json
import math
import platform
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from rounds import Call, Spread, ratio, take_turns
from systolic_device import VALUES, Array, Config, Device
from systolic_layers import Job, Layer, Weights, draw_weights, expected, place, windows
from systolic_stepped import load, stepped

from umakit.devices.build import compile_c
from umakit.machine.systolic import Dataflow, Product, SystolicArray, systolic_cycles

OUTPUT = Path("build/bench")
ROUNDS = 9
ROUND_SECONDS = 0.01

SIMULATOR, NUMPY, LOOPS, STEPPED = "simulator", "NumPy", "C loops", "stepped"

#: Name: height and width, channels in and out, kernel, stride, depthwise.
LAYERS: dict[str, tuple[int, tuple[int, int], int, int, bool]] = {
    "conv 3x3, ResNet-8 first": (32, (3, 16), 3, 1, False),
    "conv 3x3, ResNet-8": (32, (16, 16), 3, 1, False),
    "conv 3x3 / 2, ResNet-8": (16, (32, 64), 3, 2, False),
    "conv 7x7 / 2, ResNet-18 first": (224, (3, 64), 7, 2, False),
    "conv 3x3, ResNet-18": (14, (256, 256), 3, 1, False),
    "conv 1x1, MobileNet": (14, (128, 256), 1, 1, False),
    "depthwise 3x3, MobileNet": (32, (64, 64), 3, 1, True),
    "depthwise 3x3 / 2, MobileNet": (48, (32, 32), 3, 2, True),
    "dense 640 to 128": (1, (640, 128), 1, 1, False),
    "dense 2048 to 1000": (1, (2048, 1000), 1, 1, False),
}

#: What is stepped: k is a 3x3 convolution's of 16 channels.
PRODUCT = Product(m=256, n=64, k=144)
ARRAYS = ((8, 8), (16, 16), (32, 32))


@dataclass(frozen=True)
class LayerResult:
    """One layer; ratios are times of rivals over the simulator's, above 1 it is faster."""

    layer: str
    macs: int
    macs_per_second: Spread
    ratios: dict[str, Spread]


@dataclass(frozen=True)
class SteppedResult:
    """The same product in both ways; the ratio is the stepped array's time over the other's."""

    dataflow: str
    array: str
    cycles: int
    macs_per_second: Spread
    stepped_macs_per_second: Spread
    ratio: Spread


def layer_of(size: tuple[int, int], channels: tuple[int, int], kernel: int, stride: int) -> Layer:
    """A layer whose padding keeps the size, but for the stride."""
    output = (-(-size[0] // stride), -(-size[1] // stride))
    return Layer(
        size=size, channels=channels, kernel=(kernel, kernel), stride=(stride, stride),
        dilation=(1, 1), pad=(kernel // 2, kernel // 2), output=output,
        channels_first=(False, False), gap=0, zero_points=(-3, 5), clip=(-128, 127),
        per_channel=True, rounding=0, seed=7,
    )  # fmt: skip


@dataclass(frozen=True)
class Operands:
    """A layer's values, and the matrix products that it consists of.

    Attributes:
        left, right: int8 [count, m, k] and [count, k, n]. Inputs are without zero point, so that
            they are drawn from a part of int8.
    """

    data: Array
    parameters: Weights
    left: Array
    right: Array

    @property
    def macs(self) -> int:
        count, m, k = self.left.shape
        return int(count * m * k * self.right.shape[2])


def draw_operands(layer: Layer, depthwise: bool) -> Operands:
    """Noise; one product, or one for each channel of a depthwise convolution."""
    random = np.random.default_rng(layer.seed)
    shape = (*layer.size, layer.channels[0])
    data = random.integers(-128, 125, shape).astype(np.int8)
    parameters = draw_weights(layer, depthwise, random)
    zero_point = layer.zero_points[0]
    taken = (windows(layer, data, zero_point)[0] - zero_point).astype(np.int8)
    height, width, rows, columns, channels = taken.shape
    if depthwise:
        left = taken.transpose(4, 0, 1, 2, 3).reshape(channels, height * width, rows * columns)
        right = parameters.weights.reshape(channels, rows * columns, 1)
    else:
        left = taken.reshape(1, height * width, -1)
        right = parameters.weights.reshape(1, layer.channels[1], -1).transpose(0, 2, 1)
    return Operands(data, parameters, np.ascontiguousarray(left), np.ascontiguousarray(right))


def simulator_call(layer: Layer, operands: Operands, depthwise: bool, array: SystolicArray) -> Call:
    """Runs the layer on a device, after its result was checked.

    Raises:
        SystemExit: it is wrong, or its cycles are.
    """
    needed = 2 * (operands.data.nbytes + operands.parameters.weights.nbytes)
    needed += math.prod(layer.output) * layer.channels[1] + 64 * layer.channels[1] + (1 << 12)
    device = Device(
        Config(
            array_rows=array.rows,
            array_columns=array.columns,
            scratchpad_bytes=1 << needed.bit_length(),
        )
    )
    job = Job(device, layer, "DEPTHWISE" if depthwise else "CONVOLUTION")
    device.write("DATAFLOW", VALUES["DATAFLOW"][array.dataflow.name])
    job.put("IFMAP_START", place(layer, operands.data))
    job.put_weights(operands.parameters, depthwise)
    result, cycles = job.run()
    if not np.array_equal(result, expected(layer, operands.data, operands.parameters, depthwise)):
        raise SystemExit(f"{layer}: wrong result")
    count, m, k = operands.left.shape
    product = Product(m, count * operands.right.shape[2], k)
    if cycles != systolic_cycles(product, array).cycles:
        raise SystemExit(f"{layer}: wrong cycles: {cycles}")

    def call() -> None:
        device.control("CLEAR", "ARRAY_START")
        device.wait()

    return call


def numpy_call(operands: Operands) -> Call:
    """NumPy multiplies int32."""
    left, right = operands.left.astype(np.int32), operands.right.astype(np.int32)
    return lambda: np.matmul(left, right)


def load_loops(folder: Path) -> ctypes.CDLL:
    """The plain loops, compiled as the simulator is."""
    library = folder / "products.so"
    compile_c([Path(__file__).with_name("products.c")], library, ["-shared", "-fPIC"])
    return ctypes.CDLL(str(library))


def loops_call(loops: ctypes.CDLL, operands: Operands) -> Call:
    """Plain loops multiply int8.

    Raises:
        SystemExit: the result is not NumPy's.
    """
    (count, m, k), n = operands.left.shape, operands.right.shape[2]
    result = np.empty((count, m, n), np.int32)
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in (operands.left, operands.right, result)]
    sizes = [ctypes.c_size_t(size) for size in (count, m, n, k)]

    def call() -> Array:
        loops.multiply(*pointers, *sizes)
        return result

    if not np.array_equal(call(), numpy_call(operands)()):
        raise SystemExit(f"{operands.left.shape}: wrong product")
    return call


def speed(macs: int, seconds: list[float]) -> Spread:
    """Multiply-accumulates in a second."""
    return Spread.of([macs / second for second in seconds])


def bench_layers(loops: ctypes.CDLL) -> Iterator[LayerResult]:
    """Layers at native speed, against their rivals."""
    for name, (size, channels, kernel, stride, depthwise) in LAYERS.items():
        print(name, file=sys.stderr, flush=True)
        layer = layer_of((size, size), channels, kernel, stride)
        operands = draw_operands(layer, depthwise)
        calls = {
            SIMULATOR: simulator_call(layer, operands, depthwise, SystolicArray(16, 16)),
            NUMPY: numpy_call(operands),
            LOOPS: loops_call(loops, operands),
        }
        rounds = take_turns(calls, ROUNDS, ROUND_SECONDS)
        yield LayerResult(
            name,
            operands.macs,
            speed(operands.macs, rounds[SIMULATOR]),
            {rival: ratio(rounds, rival, SIMULATOR) for rival in (NUMPY, LOOPS)},
        )


def bench_stepped(folder: Path) -> Iterator[SteppedResult]:
    """One product in all dataflows and arrays, in both ways; a convolution of 1x1 is one."""
    binary = load(folder)
    layer = layer_of((PRODUCT.m, 1), (PRODUCT.k, PRODUCT.n), 1, 1)
    operands = draw_operands(layer, False)
    left, right = operands.left[0], operands.right[0]
    for dataflow in Dataflow:
        for rows, columns in ARRAYS:
            array = SystolicArray(rows, columns, dataflow)
            print(f"{dataflow.value}, {rows} x {columns}", file=sys.stderr, flush=True)
            wanted = systolic_cycles(PRODUCT, array).cycles
            result, cycles = stepped(binary, left, right, array)
            if cycles != wanted or not np.array_equal(result, numpy_call(operands)()[0]):
                raise SystemExit(f"{array}: the stepped array is wrong")
            calls: dict[str, Call] = {
                SIMULATOR: simulator_call(layer, operands, False, array),
                STEPPED: lambda array=array: stepped(binary, left, right, array),  # type: ignore[misc]
            }
            rounds = take_turns(calls, ROUNDS, ROUND_SECONDS)
            yield SteppedResult(
                dataflow.value,
                f"{rows} x {columns}",
                cycles,
                speed(operands.macs, rounds[SIMULATOR]),
                speed(operands.macs, rounds[STEPPED]),
                ratio(rounds, STEPPED, SIMULATOR),
            )


def _text(spread: Spread, unit: float = 1.0) -> str:
    low, median, high = (value / unit for value in (spread.low, spread.median, spread.high))
    return f"{median:,.3g} | {low:,.3g} to {high:,.3g}"


def markdown(layers: list[LayerResult], products: list[SteppedResult]) -> str:
    """Two tables, and what their columns mean."""
    lines = [
        "| layer | MMAC | simulator GMAC/s | quartiles | time of NumPy / simulator | quartiles "
        "| of C loops / simulator | quartiles |\n|---|--:|--:|--:|--:|--:|--:|--:|\n"
    ]
    for item in layers:
        ratios = " | ".join(_text(item.ratios[rival]) for rival in (NUMPY, LOOPS))
        lines.append(
            f"| {item.layer} | {item.macs / 1e6:,.3g} | {_text(item.macs_per_second, 1e9)} "
            f"| {ratios} |\n"
        )
    lines.append(
        "\n| dataflow | array | cycles | simulator GMAC/s | quartiles | stepped MMAC/s | quartiles "
        "| time of stepped / simulator | quartiles |\n|---|---|--:|--:|--:|--:|--:|--:|--:|\n"
    )
    for row in products:
        lines.append(
            f"| {row.dataflow} | {row.array} | {row.cycles:,} "
            f"| {_text(row.macs_per_second, 1e9)} | {_text(row.stepped_macs_per_second, 1e6)} "
            f"| {_text(row.ratio)} |\n"
        )
    return "".join(lines) + _explanation()


def _explanation() -> str:
    return (
        "\nThe simulator computes whole layers of int8 through its registers, bias and "
        "requantization included, and gives their cycles in closed form; NumPy (int32 `matmul`) "
        "and C (three loops, int8 to int32) compute only the matrix products, of inputs that are "
        "laid out for them. Layers run on an array of 16 x 16 in output stationary order; speed "
        "does not depend on it. What is stepped moves the operands of each cell each cycle: "
        f"{PRODUCT.m} x {PRODUCT.k} times {PRODUCT.k} x {PRODUCT.n}, without requantization; "
        "products and cycles are equal in both. One thread, `-O3`, time of the thread, all "
        f"programs in turns, {ROUNDS} rounds of at least 10 ms each; above 1 the simulator is "
        f"faster. NumPy {np.__version__}, {platform.machine()}.\n"
    )


def main() -> int:
    """Returns 0; stops where a result is wrong."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        layers = list(bench_layers(load_loops(folder)))
        products = list(bench_stepped(folder))
    OUTPUT.mkdir(parents=True, exist_ok=True)
    text = markdown(layers, products)
    (OUTPUT / "simulator.md").write_text(text, encoding="utf-8")
    values = {"layers": [asdict(item) for item in layers],
              "stepped": [asdict(item) for item in products]}  # fmt: skip
    (OUTPUT / "simulator.json").write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
