# SPDX-License-Identifier: Apache-2.0
"""Drawn operators of all dtypes through `uma diff`: it blames nobody, or the one who is wrong.

    python tests/diff_sweep.py --count 5            5 draws of each operator and dtype
    python tests/diff_sweep.py Conv CONV_2D         of these operators

Operators stand side by side in one file, because compiling takes longer than all else. A clean
export must agree; in another one, every second operator has a bug in its C, in the library and in
umakit's CPU kernels alike, and exactly these must be found. The oracles share no code with umakit:
`onnx.reference` and `numpy_tflite`.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnx
from numpy_tflite import NumpyTflite
from numpy_tflite import knows as numpy_knows
from onnx import helper
from onnx.reference import ReferenceEvaluator
from qdq import Qdq
from test_tflite_sweep import SCALED, candidates
from tflite_cases import Case, Tensor, file_of, of, oracle

import umakit
from umakit.errors import UmakitError
from umakit.frontend import import_model
from umakit.library.export import Library
from umakit.pipeline import export_program
from umakit.quantized import quantize_to_integers
from umakit.tools.diff import CPU_KERNELS, NUMPY, DiffResult, diff_model
from umakit.tools.diff import session as of_libraries
from umakit.tools.diff import truth as of_truth

Array = np.ndarray[Any, Any]
Random = np.random.Generator

BATCH = 30
"""Operators in one file."""
INFERENCES = 2

STATUSES = ("agreed", "by NumPy", "reference wrong", "not compared", "umakit wrong", "found")
"""What becomes of an operator: compared with the runtime, with NumPy instead, with NumPy against
the runtime, with umakit's own kernels only; blamed; bugs that were found of those made."""


@dataclass(frozen=True)
class Drawn:
    """An operator in a file.

    Attributes:
        key: format, operator and dtype.
        names: of its operators in the file.
        results: of its results among the file's outputs.
    """

    key: tuple[str, str, str]
    names: frozenset[str]
    results: tuple[str, ...]


@dataclass(frozen=True)
class Batch:
    """A file of operators side by side."""

    content: bytes
    suffix: str
    inputs: Mapping[str, Array]
    drawn: Sequence[Drawn]

    def oracle(self) -> dict[str, list[Array]]:
        """Outputs of each inference by another implementation than all that `uma diff` uses."""
        rows = [{name: a[i] for name, a in self.inputs.items()} for i in range(INFERENCES)]
        if self.suffix == "tflite":
            network = NumpyTflite.read(self.content)
            results = [network.run(row) for row in rows]
        else:
            model = onnx.load_from_string(self.content)
            evaluator, names = ReferenceEvaluator(model), [o.name for o in model.graph.output]
            results = [dict(zip(names, evaluator.run(names, row), strict=True)) for row in rows]
        return {name: [result[name] for result in results] for name in results[0]}


@dataclass
class Coverage:
    """Counts of statuses by key, and what was wrong."""

    counts: dict[tuple[str, str, str], Counter[str]] = field(
        default_factory=lambda: defaultdict(Counter)
    )
    complaints: list[str] = field(default_factory=list)

    def table(self) -> str:
        """Return a row for each operator and dtype, and the sum."""
        total: Counter[str] = Counter()
        head = f"{'operator':34} {'dtype':14}" + "".join(f"{s:>17}" for s in STATUSES)
        rows = [head]
        for (form, operator, dtype), counts in sorted(self.counts.items()):
            total += counts
            cells = "".join(f"{self._cell(counts, s):>17}" for s in STATUSES)
            rows.append(f"{form + ' ' + operator:34} {dtype:14}{cells}")
        cells = "".join(f"{self._cell(total, s):>17}" for s in STATUSES)
        rows.append(f"{'all ' + str(len(self.counts)):34} {'':14}{cells}")
        return "\n".join(rows)

    def _cell(self, counts: Counter[str], status: str) -> str:
        return (
            f"{counts['found']}/{counts['planted']}" if status == "found" else str(counts[status])
        )


# --- TensorFlow Lite -----------------------------------------------------------------------------


def _quantized(random: Random, shape: Sequence[int], dtype: str, scale: float = 0.0) -> Tensor:
    if dtype == "float32":
        return Tensor(tuple(shape))
    limits = np.iinfo(dtype)
    zero = 0 if dtype == "int16" else int(random.integers(limits.min, limits.max + 1))
    reach = 256 if dtype == "int16" else 1
    return Tensor(tuple(shape), dtype, scale or float(random.uniform(0.01, 0.2)) / reach, zero)


def _weights(
    random: Random, shape: Sequence[int], dtype: str, axis: int, data: Tensor
) -> list[Tensor]:
    """Weights and bias; per channel or not."""
    outputs = shape[axis]
    if dtype == "float32":
        values = random.normal(0, 1, shape).astype("float32")
        return [of(values, "float32"), of(random.normal(0, 1, outputs), "float32")]
    count = outputs if dtype != "uint8" and random.integers(2) else 1
    scales = tuple(float(s) for s in np.float32(np.exp(random.uniform(-6, -3, count))))
    kind = "uint8" if dtype == "uint8" else "int8"
    limits = np.iinfo(kind)
    values = random.integers(max(limits.min, -127), limits.max + 1, shape)
    zero = 128 if kind == "uint8" else 0
    assert isinstance(data.scale, float)
    weights = replace(of(values, kind, 1.0, zero), scale=scales, axis=axis)
    biases = tuple(float(np.float32(data.scale) * np.float32(s)) for s in scales)
    wide = "int64" if dtype == "int16" else "int32"
    bias = replace(of(random.integers(-999, 999, outputs), wide, 1.0), scale=biases)
    return [weights, bias]


def tflite_convolution(random: Random, dtype: str) -> Case:
    """CONV_2D or DEPTHWISE_CONV_2D with groups, steps, dilation, padding and an activation."""
    height, width, inputs = (int(n) for n in random.integers(3, 9, 3))
    window = [int(n) for n in random.integers(1, 4, 2)]
    same, step, spread = (int(random.integers(2)), *(int(n) for n in random.integers(1, 3, 2)))
    step = 1 if spread > 1 else step
    extents = [(n - 1) * spread + 1 for n in window]
    rows, columns = (
        -(-size // step) if same else (size - extent) // step + 1
        for size, extent in zip((height, width), extents, strict=True)
    )
    if min(rows, columns) < 1:
        return tflite_convolution(random, dtype)
    x = _quantized(random, (1, height, width, inputs), dtype)
    options = {"Padding": 1 - same, "FusedActivationFunction": int(random.integers(4))}
    options |= {f"Stride{axis}": step for axis in "HW"}
    options |= {f"Dilation{axis}Factor": spread for axis in "HW"}
    if random.integers(2):
        times = int(random.integers(1, 3))
        shape = (1, *window, inputs * times)
        y = _quantized(random, (1, rows, columns, inputs * times), dtype)
        given = [x, *_weights(random, shape, dtype, 3, x)]
        options |= {"DepthMultiplier": times}
        return Case("DEPTHWISE_CONV_2D", given, [y], "DepthwiseConv2DOptions", options)
    outputs = int(random.integers(1, 9))
    y = _quantized(random, (1, rows, columns, outputs), dtype)
    given = [x, *_weights(random, (outputs, *window, inputs), dtype, 0, x)]
    return Case("CONV_2D", given, [y], "Conv2DOptions", options)


def tflite_dense(random: Random, dtype: str) -> Case:
    """FULLY_CONNECTED."""
    rows, inputs, outputs = (int(n) for n in random.integers(1, 20, 3))
    x, y = _quantized(random, (rows, inputs), dtype), _quantized(random, (rows, outputs), dtype)
    given = [x, *_weights(random, (outputs, inputs), dtype, 0, x)]
    return Case("FULLY_CONNECTED", given, [y], "FullyConnectedOptions")


def tflite_space_to_batch(random: Random, dtype: str) -> Case:
    """SPACE_TO_BATCH_ND with padding, as of dilated convolutions."""
    block, channels = (int(n) for n in random.integers(1, 4, 2))
    before = [int(n) for n in random.integers(0, 4, 2)]
    sizes = [int(n) for n in random.integers(2, 7, 2)]
    widths = [[b, -(b + size) % block] for b, size in zip(before, sizes, strict=True)]
    out = [(size + sum(w)) // block for size, w in zip(sizes, widths, strict=True)]
    x = _quantized(random, (1, *sizes, channels), dtype)
    y = replace(x, shape=(block * block, *out, channels))
    return Case("SPACE_TO_BATCH_ND", [x, of([block, block]), of(widths)], [y])


def tflite_pool(random: Random, dtype: str) -> Case:
    """A pool with a padding."""
    code = ("MAX_POOL_2D", "AVERAGE_POOL_2D")[int(random.integers(2))]
    height, width, channels = (int(n) for n in random.integers(3, 9, 3))
    window, step = (int(n) for n in random.integers(1, 4, 2))
    x = _quantized(random, (1, height, width, channels), dtype)
    y = replace(x, shape=(1, -(-height // step), -(-width // step), channels))
    options = {"StrideH": step, "StrideW": step, "FilterHeight": window, "FilterWidth": window}
    return Case(code, [x], [y], "Pool2DOptions", options)


TFLITE: Sequence[Callable[[Random, str], Case]] = (
    tflite_convolution, tflite_convolution, tflite_dense, tflite_space_to_batch, tflite_pool,
)  # fmt: skip


def tflite_cases(count: int, words: Sequence[str]) -> dict[bool, list[tuple[str, Case]]]:
    """Cases that umakit takes, with dtypes, by whether TensorFlow Lite Micro has a kernel."""
    drawn = [(dtype, case) for _, dtype, case in candidates()]
    for number, make in enumerate(TFLITE):
        for dtype in ("float32", *SCALED):
            randoms = [np.random.default_rng([number, n, len(dtype)]) for n in range(count)]
            drawn += [(dtype, make(random, dtype)) for random in randoms]
    found: dict[bool, list[tuple[str, Case]]] = defaultdict(list)
    for dtype, case in drawn:
        if (not words or case.code in words) and _is_taken(file_of([case])[0], "tflite"):
            found[_has_kernel(case)].append((dtype, case))
    return found


def _has_kernel(case: Case) -> bool:
    content, tensors, outputs = file_of([case])
    random = np.random.default_rng(0)
    inputs = {
        name: t.drawn(random) if t.values is None else t.values for name, t in tensors.items()
    }
    try:
        oracle(content, inputs, outputs)
    except (RuntimeError, ValueError):
        return False
    return True


def tflite_batches(count: int, words: Sequence[str]) -> Iterator[Batch]:
    """Files of operators that umakit takes."""
    for taken in tflite_cases(count, words).values():
        for start in range(0, len(taken), BATCH):
            part = taken[start : start + BATCH]
            content, tensors, outputs = file_of([case for _, case in part])
            random = np.random.default_rng(start)
            inputs = {
                name: (t.drawn(random)[2:] if t.values is None else t.values)[:INFERENCES]
                for name, t in tensors.items()
            }
            drawn = []
            for number, (dtype, case) in enumerate(part):
                names = [name for name in outputs if name.startswith(f"y{number}_")]
                drawn.append(Drawn(("tflite", case.code, dtype), frozenset(names), tuple(names)))
            yield Batch(content, "tflite", inputs, drawn)


def _is_taken(content: bytes, suffix: str) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"net.{suffix}"
        path.write_bytes(content)
        try:
            quantize_to_integers(import_model(path))
        except UmakitError:
            return False
    return True


# --- ONNX ----------------------------------------------------------------------------------------


class Drawing(Qdq):
    """Operators side by side, each with inputs and outputs of its own."""

    def __init__(self, seed: int) -> None:
        super().__init__("int8", seed, opset=21)
        self.outputs: list[str] = []

    def real(self, shape: Sequence[int]) -> str:
        """A float input."""
        name = f"x{len(self.inputs)}"
        self.inputs.append(helper.make_tensor_value_info(name, 1, list(shape)))
        self.shapes.append(tuple(shape))
        return name

    def given(self, shape: Sequence[int]) -> str:
        """An input of the dtype that is drawn, as real numbers."""
        if self.dtype == "float32":
            return self.real(shape)
        wide = "16" in self.dtype
        return self.input(shape, float(self.random.uniform(0.01, 0.05)) / (256 if wide else 1))

    def ended(self, x: str, scale: float = 0.0) -> str:
        """The end of an operator: quantized and dequantized, as exporters write it."""
        if self.dtype != "float32":
            scale = scale or float(self.random.uniform(0.02, 0.2))
            scale /= 256 if "16" in self.dtype else 1
            x = self.quantize(x, scale)
            node = self.nodes[-1]
            x = self.node("DequantizeLinear", x, *node.input[1:])
        self.outputs.append(x)
        return x

    def parameters(self, shape: Sequence[int], axis: int = 0) -> str:
        """Weights: real, or of 8 or 4 bits, per tensor or channel."""
        if self.dtype == "float32":
            return self.constant(self.random.normal(0, 1, shape))
        kinds = ("int8", "uint8") if self.dtype == "uint8" else ("int8",)
        kind = self.random.choice(kinds)
        return str(self.weights(shape, kind, bool(self.random.integers(2)), axis=axis)[0])

    def model_of_all(self) -> onnx.ModelProto:
        """Return the model with all outputs."""
        results = [helper.make_tensor_value_info(name, 1, None) for name in self.outputs]
        graph = helper.make_graph(self.nodes, "g", self.inputs, results, self.constants)
        opsets = [helper.make_opsetid("", self.opset)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        return onnx.shape_inference.infer_shapes(model)


def onnx_convolution(q: Drawing) -> str:
    """Conv with groups, steps, dilation and padding, with or without an activation."""
    groups = int(q.random.choice([1, 1, 2, 4]))
    window = [int(n) for n in q.random.integers(1, 4, 2)]
    outputs = groups * int(q.random.integers(1, 4))
    weights = q.parameters((outputs, 2, *window))
    attributes = {
        "group": groups, "strides": [int(n) for n in q.random.integers(1, 3, 2)],
        "dilations": [int(n) for n in q.random.integers(1, 3, 2)],
        "pads": [int(n) for n in q.random.integers(0, 3, 4)],
    }  # fmt: skip
    x = q.node("Conv", q.given((1, 2 * groups, 8, 9)), weights, **attributes)
    return q.ended(q.node("Relu", x) if q.random.integers(2) else x)


def onnx_gemm(q: Drawing) -> str:
    """Gemm with weights as they are multiplied or transposed."""
    inputs, outputs = (int(n) for n in q.random.integers(1, 40, 2))
    turned = int(q.random.integers(2))
    shape = (outputs, inputs) if turned else (inputs, outputs)
    weights = q.parameters(shape, axis=0 if turned else 1)
    return q.ended(q.node("Gemm", q.given((3, inputs)), weights, transB=turned))


def onnx_product(q: Drawing) -> str:
    """MatMul with weights or of two inputs."""
    inputs, outputs = (int(n) for n in q.random.integers(1, 70, 2))
    x = q.given((2, inputs))
    other = q.given((inputs, outputs)) if q.random.integers(3) == 0 else q.parameters(
        (inputs, outputs), axis=1
    )  # fmt: skip
    return q.ended(q.node("MatMul", x, other))


def onnx_weight_only(q: Drawing) -> str:
    """MatMul or Gemm of real numbers and weights of 4 or 8 bits."""
    kind = str(q.random.choice(["int8", "uint8", "int4", "uint4"]))
    inputs, outputs = 16 * int(q.random.integers(1, 5)), int(q.random.integers(1, 20))
    reach = {"int8": 127, "uint8": 255, "int4": 7, "uint4": 15}[kind]
    low = -reach if kind[0] == "i" else 0
    number = getattr(onnx.TensorProto, kind.upper())
    values = q.random.integers(low, reach + 1, (inputs, outputs))
    form, attributes = int(q.random.integers(3)), {}
    shape: tuple[int, ...] = ()
    if form == 1:
        shape, attributes = (outputs,), {"axis": 1}
    elif form == 2:
        shape, attributes = (inputs // 16, outputs), {"axis": 0, "block_size": 16}
    names = [f"w{len(q.constants)}", f"z{len(q.constants)}"]
    q.constants.append(helper.make_tensor(names[0], number, values.shape, values.ravel()))
    count = int(np.prod(shape))
    q.constants.append(helper.make_tensor(names[1], number, shape, np.full(count, reach // 2)))
    scale = q.constant(np.exp(q.random.uniform(-6, -4, shape)))
    weights = q.node("DequantizeLinear", names[0], scale, names[1], **attributes)
    x = q.given((3, inputs))
    x = q.node("Relu", x) if q.random.integers(2) else x
    x = q.node(str(q.random.choice(["MatMul", "Gemm"])), x, weights)
    q.outputs.append(x)
    return x


def onnx_one(operator: str, scale: float = 0.0, **attributes: Any) -> Callable[[Drawing], str]:
    """An operator of one input."""
    return lambda q: q.ended(q.node(operator, q.given((2, 3, 6, 5)), **attributes), scale)


def onnx_two(operator: str) -> Callable[[Drawing], str]:
    """An operator of two inputs, which broadcast."""
    return lambda q: q.ended(
        q.node(operator, q.given((2, 3, 6, 5)), q.given(((2, 3, 6, 5), (3, 1, 1), (5,))[
            int(q.random.integers(3))
        ]))
    )  # fmt: skip


def onnx_resize(q: Drawing) -> str:
    """Resize by a factor."""
    mode = str(q.random.choice(["nearest", "linear"]))
    factors = q.constant([1, 1, 2, 2])
    return q.ended(q.node("Resize", q.given((1, 2, 4, 5)), "", factors, mode=mode))


def onnx_concatenation(q: Drawing) -> str:
    """Concat of two inputs."""
    return q.ended(q.node("Concat", q.given((1, 2, 3)), q.given((1, 4, 3)), axis=1))


def onnx_pad(q: Drawing) -> str:
    """Pad with 0."""
    widths = q.constant([0, 0, 1, 2, 0, 0, 2, 0], "int64")
    return q.ended(q.node("Pad", q.given((1, 2, 4, 5)), widths))


POOL = {"kernel_shape": [2, 3], "strides": [2, 1]}

ONNX: Mapping[str, Callable[[Drawing], str]] = {
    "Conv": onnx_convolution, "Gemm": onnx_gemm, "MatMul": onnx_product,
    "weight-only": onnx_weight_only, "Resize": onnx_resize, "Concat": onnx_concatenation,
    "Pad": onnx_pad,
    **{name: onnx_two(name) for name in ("Add", "Mul", "Sub", "Div", "Max", "Min")},
    **{name: onnx_one(name) for name in (
        "Relu Elu HardSwish LeakyRelu Identity Abs Neg GlobalAveragePool Erf Flatten"
    ).split()},
    "Sigmoid": onnx_one("Sigmoid", 1 / 256), "Tanh": onnx_one("Tanh", 1 / 128),
    "Softmax": onnx_one("Softmax", 1 / 256, axis=-1), "HardSigmoid": onnx_one("HardSigmoid", 0.01),
    "MaxPool": onnx_one("MaxPool", **POOL), "AveragePool": onnx_one("AveragePool", **POOL),
    "Transpose": onnx_one("Transpose", perm=[0, 2, 3, 1]),
    "SpaceToDepth": lambda q: q.ended(q.node("SpaceToDepth", q.given((1, 2, 4, 6)), blocksize=2)),
    "DepthToSpace": lambda q: q.ended(q.node("DepthToSpace", q.given((1, 8, 2, 3)), blocksize=2)),
    "ReduceMean": lambda q: q.ended(
        q.node("ReduceMean", q.given((2, 3, 4, 5)), q.constant([2, 3], "int64"))
    ),
}  # fmt: skip

ONNX_DTYPES = ("float32", "int8", "uint8", "int16", "uint16")


def onnx_batches(count: int, words: Sequence[str]) -> Iterator[Batch]:
    """Files of operators that umakit takes."""
    tasks = [
        (name, dtype, [number, place, len(dtype), ord(dtype[0])])
        for number, name in enumerate(ONNX)
        for dtype in ONNX_DTYPES
        for place in range(count)
        if not words or name in words
    ]
    taken = []
    for name, dtype, seed in tasks:
        alone = Drawing(0)
        draw_one(alone, name, dtype, seed)
        if _is_taken(alone.model_of_all().SerializeToString(), "onnx"):
            taken.append((name, dtype, seed))
    for start in range(0, len(taken), BATCH):
        q, drawn = Drawing(0), []
        for name, dtype, seed in taken[start : start + BATCH]:
            before = len(q.nodes)
            result = draw_one(q, name, dtype, seed)
            own = [n for n in q.nodes[before:] if "quantize" not in n.name]
            names = frozenset(node.name for node in own)
            drawn.append(Drawn(("onnx", name, dtype), names, (result,)))
        q.random = np.random.default_rng(start)
        inputs = {name: rows[:INFERENCES] for name, rows in q.samples(4.0).items()}
        yield Batch(q.model_of_all().SerializeToString(), "onnx", inputs, drawn)


def draw_one(q: Drawing, name: str, dtype: str, seed: Sequence[int]) -> str:
    """Add an operator to a file; return the name of its result."""
    q.dtype, q.random = dtype, np.random.default_rng(list(seed))
    return ONNX[name](q)


# --- bugs ----------------------------------------------------------------------------------------

BUG = """{{
        uint8_t *bytes = (uint8_t *)(void *)({result});
        float *reals = (float *)(void *)bytes;
        if ({is_real}) for (int i = 0; i < {size} / 4; i++) reals[i] = reals[i] * 1.01f + 0.01f;
        else bytes[0] ^= {bit}u;
    }}
    """

BITS = {("tflite", "uint8"): 16, ("onnx", "int16"): 2, ("onnx", "uint16"): 2}
"""The bit of a result that a bug changes; the lowest one where the runtime has integers. Between
rounded float32 and rounded integers of 16 bits one LSB is no bug, and without a runtime NumPy
knows TensorFlow Lite's integers to 2 LSB."""


def plant(
    library: Library, names: Sequence[frozenset[str]], bits: Sequence[int], rows: Sequence[str]
) -> set[int]:
    """Change a result right after the last layer of each operator has computed it.

    Args:
        library: a library in a folder.
        names: names of each operator in the model file.
        bits: the bit of an integer that changes.
        rows: names of all operators of the network, which the library of umakit's CPU kernels
            lacks: its outputs are called after the rows.

    Returns:
        The operators that have a layer.
    """
    description = library.metadata["umakit"]
    layers, found = description["layers"], set()
    (source,) = (p for p in library.path.rglob("*.c") if "AFTER_LAYER(0);" in p.read_text())
    text = source.read_text(encoding="utf-8")
    for place, each in enumerate(names):
        if any(item["name"].startswith("value_") for item in description["outputs"]):
            last = max((row for row, name in enumerate(rows) if name in each), default=-1)
            of_row = [o["c_name"] for o in description["outputs"] if o["name"] == f"value_{last}_0"]
            own = [n for n, layer in enumerate(layers) if {*of_row} & {*layer["outputs"]}]
        else:
            own = [n for n, layer in enumerate(layers) if each & _names_of(layer["identity"])]
            own = [n for n in own if layers[n]["outputs"]]
        if own:
            text = _planted(
                text, max(own), layers[max(own)]["outputs"][-1], description, bits[place]
            )
            found.add(place)
    source.write_text(text, encoding="utf-8")
    return found


def _names_of(identity: Mapping[str, Any]) -> set[str]:
    return {operator["name"] for operator in identity["operators"]}


def _planted(text: str, number: int, name: str, description: Mapping[str, Any], bit: int) -> str:
    """Change a tensor behind the call of the layer that computes it."""
    end = text.index(f"AFTER_LAYER({number});")
    call = text[text.rindex("/* ", 0, end) : end].split(");\n")[0]
    named = re.compile(rf"\b({name}|{name.upper()}_OFFSET)\b")
    result = [each for each in re.split(r",\n|\(\n", call) if named.search(each)]
    outputs = {item["c_name"]: item for item in description["outputs"]}
    pools = {t["c_name"]: t for pool in description["memory"]["pools"] for t in pool["tensors"]}
    size = (outputs.get(name) or pools[name])["size_bytes"]
    cast = re.match(r"\s*\((\w+) \*\)", result[-1])
    dtype = cast[1] if cast else outputs[name]["dtype"]
    bug = BUG.format(
        result=result[-1].strip(), size=size, is_real=int(dtype in ("float", "float32")), bit=bit
    )
    return f"{text[:end]}{bug}{text[end:]}"


# --- comparison ----------------------------------------------------------------------------------


@contextlib.contextmanager
def plant_in(names: Sequence[frozenset[str]], bits: Sequence[int]) -> Iterator[set[int]]:
    """Let the next comparison have a bug in each operator, in all its libraries.

    Yields:
        The operators that got a bug.
    """
    found, rows = set(range(len(names))), list[str]()

    def export(*arguments: Any, **named: Any) -> Library:
        library = export_program(*arguments, **named)
        if not rows:
            rows.extend(item.name for item in library.report.placements)
        found.intersection_update(plant(library, names, bits, rows))
        return library

    with (
        mock.patch.object(of_truth, "export_program", export),
        mock.patch.object(of_libraries, "export_program", export),
    ):
        yield found


def compared(batch: Batch) -> DiffResult:
    """Return what `uma diff` says."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"net.{batch.suffix}"
        path.write_bytes(batch.content)
        return diff_model(path, [], inputs=dict(batch.inputs))


def _owners(batch: Batch, names: set[str]) -> list[Drawn]:
    return [each for each in batch.drawn if each.names & names]


def try_clean(batch: Batch, coverage: Coverage) -> list[Drawn]:
    """Compare a clean export; nobody may be blamed who is right by the oracle.

    Returns:
        What is compared with another implementation than umakit's.
    """
    independent = []
    result = compared(batch)
    wrong = {item.operator.name for item in result.disagreements}
    for each in batch.drawn:
        layers = [
            layer for layer in result.layers
            if layer.identity and each.names & _names_of(layer.identity.as_json())
        ]  # fmt: skip
        origins = {layer.reference for layer in layers if layer.own is not None}
        if not all(layer.agrees for layer in layers):
            status = "umakit wrong"
            away = _away(batch, each)
            if not away > SAME:
                coverage.complaints.append(f"{each.key} {each.results}: blamed; oracle: {away:g}")
        elif each.names & wrong:
            status = "reference wrong"
        elif origins <= {CPU_KERNELS}:
            status = "not compared"
        else:
            status = "by NumPy" if origins <= {CPU_KERNELS, NUMPY} else "agreed"
        coverage.counts[each.key][status] += 1
        independent += [each] if status not in ("not compared", "umakit wrong") else []
    if result.blame is None and result.differs:
        coverage.complaints.append(f"{batch.suffix}: outputs differ, and no layer does")
    return independent


SAME = 1e-6
"""Part of the largest number by which results may differ from the oracle's and are still equal."""


def _away(batch: Batch, drawn: Drawn) -> float:
    """Return how far umakit's outputs are from the oracle's, as a part of the largest number.

    NaN where the oracle does not know the operator.
    """
    if batch.suffix == "tflite" and not numpy_knows(batch.content):
        return float("nan")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"net.{batch.suffix}"
        path.write_bytes(batch.content)
        library = umakit.compile_model(path, [], Path(folder) / "library")
        rows = {name: array[:INFERENCES] for name, array in batch.inputs.items()}
        outputs = umakit.run_library(library.path, rows).outputs
    wanted = batch.oracle()
    return max(
        float(np.abs(np.float64(outputs[name][n]) - np.float64(wanted[name][n])).max())
        / (float(np.abs(np.float64(wanted[name][n])).max()) or 1.0)
        for name in drawn.results
        for n in range(INFERENCES)
    )


def try_planted(batch: Batch, independent: Sequence[Drawn], coverage: Coverage) -> None:
    """Compare an export with bugs in every second operator: exactly these must be blamed."""
    planted = independent[::2]
    bits = [BITS.get((each.key[0], each.key[2]), 1) for each in planted]
    with plant_in([each.names for each in planted], bits) as found:
        result = compared(batch)
    made = [planted[number] for number in sorted(found)]
    wrong = [layer for layer in result.layers if not layer.agrees]
    blamed = [
        each for layer in wrong if layer.identity
        for each in _owners(batch, _names_of(layer.identity.as_json()))
    ]  # fmt: skip
    for each in made:
        coverage.counts[each.key]["planted"] += 1
        if each in blamed:
            coverage.counts[each.key]["found"] += 1
        else:
            coverage.complaints.append(f"{each.key} {each.results}: its bug was not found")
    coverage.complaints += [
        f"{each.key} {each.results}: blamed for a bug elsewhere"
        for each in blamed
        if each in independent and each not in made
    ]
    if result.blame is not None and not result.blame.shared:
        coverage.complaints.append(f"{result.blame.layer.name}: not found in umakit's kernels")


def sweep(count: int, words: Sequence[str] = (), *, every: int = 1) -> Coverage:
    """Try drawn operators.

    Args:
        count: draws of each operator and dtype.
        words: operators; all if there is none.
        every: one of as many files is tried.
    """
    coverage = Coverage()
    batches = [*tflite_batches(count, words), *onnx_batches(count, words)]
    for batch in batches[::every]:
        try_planted(batch, try_clean(batch, coverage), coverage)
        print(f"{len(batch.drawn)} operators", *coverage.complaints, sep="\n", file=sys.stderr)
    return coverage


def main(arguments: Sequence[str]) -> int:
    """Print the coverage and what was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("operators", nargs="*")
    parser.add_argument("--count", type=int, default=3)
    options = parser.parse_args(arguments)
    coverage = sweep(options.count, options.operators)
    print(coverage.table(), *coverage.complaints, sep="\n")
    return 1 if coverage.complaints else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
