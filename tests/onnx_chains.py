# SPDX-License-Identifier: Apache-2.0
"""A drawn ONNX operator between other ones, which compilers fuse with it.

`onnx_drawing` draws networks of one operator. Here its data come out of elementwise operators, and
its result goes through some that take tensors of any shape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

FLOATS = ("float32", "float64")
SIGNED = (*FLOATS, "int8", "int32", "int64")
OLDEST = 13
"""First opset in which operators are put around one: their attributes are inputs since then."""

LARGEST = 6000
"""Elements of a tensor, above which nothing grows: emulators are slow."""


@dataclass
class Chain:
    """Nodes behind a value.

    Attributes:
        random: what is drawn.
        value, shape, dtype: the last value.
        opset: of the model.
        nodes, constants: that were added.
    """

    random: np.random.Generator
    value: str
    shape: tuple[int, ...]
    dtype: str
    opset: int
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)

    def integer(self, low: int, high: int) -> int:
        """From `low` to `high`, both included."""
        return int(self.random.integers(low, high + 1))

    def constant(self, values: Any, dtype: str = "") -> str:
        """A constant of the dtype of the value, or another one."""
        name = f"chain_constant{len(self.constants)}"
        array = np.asarray(values).astype(dtype or self.dtype)
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def reals(self, *shape: int) -> str:
        """A constant of random numbers, which are small enough for any dtype."""
        return self.constant(self.random.integers(0, 8, shape) / (4 if "f" in self.dtype else 1))

    def node(self, operator: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        """The first result of a node; others are not used."""
        name = f"chain{len(self.nodes)}"
        names = [name, *(f"{name}_{n}" for n in range(1, outputs))]
        self.nodes.append(helper.make_node(operator, inputs, names, name, **attributes))
        return name

    def then(self, operator: str, *more: str, shape: Sequence[int] = (), **attributes: Any) -> None:
        """A node of the last value, which becomes the last value."""
        self.value = self.node(operator, self.value, *more, **attributes)
        self.shape = tuple(shape) or self.shape


Step = Callable[[Chain], None]


def unary(operator: str) -> Step:
    return lambda chain: chain.then(operator)


def with_itself(operator: str) -> Step:
    return lambda chain: chain.then(operator, chain.value)


def with_constant(operator: str) -> Step:
    """A binary operator with a constant that broadcasts."""

    def step(chain: Chain) -> None:
        shape = chain.shape[chain.integer(0, len(chain.shape)) :]
        chain.then(operator, chain.reals(*shape))

    return step


def concatenation(chain: Chain) -> None:
    axis = chain.integer(0, len(chain.shape) - 1)
    other = chain.node("Neg", chain.value) if chain.dtype in SIGNED else chain.value
    shape = [n * (1 + (place == axis)) for place, n in enumerate(chain.shape)]
    pair = [chain.value, other]
    first, second = pair if chain.integer(0, 1) else pair[::-1]
    chain.value = first
    chain.then("Concat", second, shape=shape, axis=axis)


def pad(chain: Chain) -> None:
    widths = [chain.integer(0, 2) for _ in range(2 * len(chain.shape))]
    rank = len(chain.shape)
    shape = [n + widths[i] + widths[rank + i] for i, n in enumerate(chain.shape)]
    value = [chain.constant(chain.integer(0, 1))] if chain.integer(0, 1) else []
    chain.then("Pad", chain.constant(widths, "int64"), *value, shape=shape)


def transpose(chain: Chain) -> None:
    perm = [int(axis) for axis in chain.random.permutation(len(chain.shape))]
    chain.then("Transpose", shape=[chain.shape[axis] for axis in perm], perm=perm)


def reshape(chain: Chain) -> None:
    count = int(np.prod(chain.shape))
    first = int(chain.random.choice([n for n in range(1, count + 1) if count % n == 0]))
    shape = [[count], [first, count // first], [1, first, 1, count // first]][chain.integer(0, 2)]
    chain.then("Reshape", chain.constant(shape, "int64"), shape=shape)


def reduction(chain: Chain) -> None:
    axis, keeps = chain.integer(0, len(chain.shape) - 1), chain.integer(0, 1)
    shape = [n for place, n in enumerate(chain.shape) if place != axis]
    if keeps or not shape:
        shape, keeps = [1 if p == axis else n for p, n in enumerate(chain.shape)], 1
    kinds = ["ReduceSum"] + (["ReduceMean", "ReduceMax", "ReduceL2"] if chain.opset >= 18 else [])
    operator = str(chain.random.choice(kinds))
    axes = chain.constant([axis], "int64")
    chain.then(operator, axes, shape=shape, keepdims=keeps)


def part(chain: Chain) -> None:
    axis = chain.integer(0, len(chain.shape) - 1)
    start = chain.integer(0, chain.shape[axis] - 1)
    step = chain.integer(1, 2)
    size = -(-(chain.shape[axis] - start) // step)
    bounds = [chain.constant([n], "int64") for n in (start, chain.shape[axis], axis, step)]
    shape = [size if place == axis else n for place, n in enumerate(chain.shape)]
    chain.then("Slice", *bounds, shape=shape)


def gather(chain: Chain) -> None:
    axis, count = chain.integer(0, len(chain.shape) - 1), chain.integer(1, 3)
    rows = chain.constant(chain.random.integers(0, chain.shape[axis], count), "int64")
    shape = [count if place == axis else n for place, n in enumerate(chain.shape)]
    chain.then("Gather", rows, shape=shape, axis=axis)


def tile(chain: Chain) -> None:
    times = [chain.integer(1, 2) for _ in chain.shape]
    times[-1] *= 8 if chain.shape[-1] < 8 else 1
    shape = [n * m for n, m in zip(chain.shape, times, strict=True)]
    chain.then("Tile", chain.constant(times, "int64"), shape=shape)


def expand(chain: Chain) -> None:
    shape = [chain.integer(2, 3), *chain.shape]
    chain.then("Expand", chain.constant(shape, "int64"), shape=shape)


def split(chain: Chain) -> None:
    axis = chain.integer(0, len(chain.shape) - 1)
    size = chain.shape[axis]
    if size < 2:
        return
    first = chain.integer(1, size - 1)
    shape = [first if place == axis else n for place, n in enumerate(chain.shape)]
    sizes = chain.constant([first, size - first], "int64")
    chain.then("Split", sizes, shape=shape, axis=axis, outputs=2)


def choice(chain: Chain) -> None:
    """The absolute value, which is continuous, by a comparison."""
    condition = chain.node("Greater", chain.value, chain.constant(0))
    other, data = chain.node("Neg", chain.value), chain.value
    chain.value = condition
    chain.then("Where", data, other)


def softmax(chain: Chain) -> None:
    chain.then("Softmax", axis=chain.integer(-1, len(chain.shape) - 1))


def product(chain: Chain) -> None:
    columns = chain.integer(1, 20)
    chain.then("MatMul", chain.reals(chain.shape[-1], columns), shape=[*chain.shape[:-1], columns])


def batch_norm(chain: Chain) -> None:
    count = chain.shape[1]
    values = [chain.reals(count) for _ in range(3)]
    chain.then("BatchNormalization", *values, chain.constant(np.full(count, 1.5)))


def convolution(chain: Chain) -> None:
    groups = 1 if chain.integer(0, 2) else chain.shape[1]
    filters = chain.shape[1] if groups > 1 else chain.integer(1, 20)
    kernel = [chain.integer(1, 3) for _ in chain.shape[2:]]
    sizes = [n + 3 - k for n, k in zip(chain.shape[2:], kernel, strict=True)]
    shape = [chain.shape[0], filters, *sizes]
    weights = chain.reals(filters, chain.shape[1] // groups, *kernel)
    chain.then("Conv", weights, shape=shape, pads=[1] * 2 * len(kernel), group=groups)


def pool(operator: str) -> Step:
    def step(chain: Chain) -> None:
        kernel = [min(n, chain.integer(1, 3)) for n in chain.shape[2:]]
        sizes = [n - k + 1 for n, k in zip(chain.shape[2:], kernel, strict=True)]
        chain.then(operator, shape=[*chain.shape[:2], *sizes], kernel_shape=kernel)

    return step


ELEMENTWISE: dict[str, Step] = {
    **{name: unary(name) for name in ("Neg", "Abs", "Relu")},
    "Add": with_constant("Add"), "Mul": with_constant("Mul"), "AddSelf": with_itself("Add"),
    "Max": with_constant("Max"),
}  # fmt: skip
"""Operators of signed numbers, whose results are exact: an inexact number before a step would make
another result of it."""

ANY: dict[str, Step] = {
    "Concat": concatenation, "Pad": pad, "Transpose": transpose, "Reshape": reshape, "Slice": part,
    "Gather": gather, "Tile": tile, "Expand": expand, "Split": split,
}  # fmt: skip
"""Operators of tensors of any dtype."""

SMOOTH: dict[str, Step] = {
    "Sigmoid": unary("Sigmoid"), "Tanh": unary("Tanh"), "Where": choice, "Softmax": softmax,
    "Reduce": reduction, "MulSelf": with_itself("Mul"),
}  # fmt: skip
"""Operators of floats that are continuous."""

IMAGES: dict[str, Step] = {
    "Conv": convolution, "MaxPool": pool("MaxPool"), "AveragePool": pool("AveragePool"),
    "BatchNormalization": batch_norm,
}  # fmt: skip
"""Operators of float32 with at least 3 axes."""

STEPS = {**ELEMENTWISE, **ANY, **SMOOTH, **IMAGES, "MatMul": product}


def allowed(chain: Chain) -> list[str]:
    """Names of the steps that may follow."""
    names: list[str] = []
    if chain.dtype in FLOATS or (chain.dtype in SIGNED and chain.opset >= 14):
        names += ELEMENTWISE
    if chain.dtype in FLOATS:
        names += [name for name in SMOOTH if name not in ("Softmax", "Reduce")]
    if chain.shape and min(chain.shape) > 0:
        small = np.prod(chain.shape) <= LARGEST
        names += [name for name in ANY if small or name not in ("Concat", "Pad", "Tile", "Expand")]
        names += ["Softmax", "Reduce"] if chain.dtype in FLOATS else []
        names += ["MatMul"] if chain.dtype == "float32" else []
    if chain.dtype == "float32" and 3 <= len(chain.shape) <= 5 and min(chain.shape) > 0:
        names += IMAGES
    return names


def type_of(value: onnx.ValueInfoProto) -> tuple[tuple[int, ...], str]:
    """Shape and dtype of a value whose type is known."""
    tensor = value.type.tensor_type
    shape = tuple(dimension.dim_value for dimension in tensor.shape.dim)
    return shape, str(helper.tensor_dtype_to_np_dtype(tensor.elem_type))


def chained(model: onnx.ModelProto, seed: Sequence[int]) -> tuple[onnx.ModelProto, list[str]]:
    """The network of one operator, with others before and behind it.

    Args:
        model: the network, whose types are known; its inputs keep their names and types.
        seed: of what is drawn.

    Returns:
        The network and the names of `STEPS` that were drawn; itself and none in old opsets.
    """
    opset = next(each.version for each in model.opset_import if not each.domain)
    if opset < OLDEST:
        return model, []
    random = np.random.default_rng(list(seed))
    made = onnx.ModelProto()
    made.CopyFrom(model)
    graph, drawn = made.graph, list[str]()
    (core,) = graph.node
    before: list[onnx.NodeProto] = []
    constants: list[onnx.TensorProto] = []
    for number, value in enumerate(graph.input):
        shape, dtype = type_of(value)
        if dtype not in FLOATS or random.integers(3) == 0:
            continue
        chain = Chain(random, value.name, shape, dtype, opset)
        name = str(random.choice([*ELEMENTWISE]))
        ELEMENTWISE[name](chain)
        drawn.append(name)
        _rename(chain, f"before{number}_")
        before += chain.nodes
        constants += chain.constants
        core.input[:] = [chain.value if each == value.name else each for each in core.input]
    shape, dtype = type_of(graph.output[0])
    chain = Chain(random, graph.output[0].name, shape, dtype, opset)
    for _ in range(int(random.integers(1, 4))):
        names = allowed(chain)
        if names:
            drawn.append(str(random.choice(names)))
            STEPS[drawn[-1]](chain)
    _rename(chain, "behind_")
    nodes = [*before, core, *chain.nodes]
    del graph.node[:], graph.value_info[:]
    graph.node.extend(nodes)
    graph.initializer.extend([*constants, *chain.constants])
    if chain.nodes:
        last = helper.make_tensor_value_info(
            chain.value, helper.np_dtype_to_tensor_dtype(np.dtype(chain.dtype)), chain.shape
        )
        others = [*graph.output] if random.integers(3) == 0 else [*graph.output[1:]]
        del graph.output[:]
        graph.output.extend([*others, last])
    return made, drawn


def _rename(chain: Chain, prefix: str) -> None:
    """Let names of a chain differ from those of others."""
    own = {name for node in chain.nodes for name in node.output}
    own |= {tensor.name for tensor in chain.constants}
    for node in chain.nodes:
        node.name = f"{prefix}{node.name}"
        for names in (node.input, node.output):
            names[:] = [f"{prefix}{name}" if name in own else name for name in names]
    for tensor in chain.constants:
        tensor.name = f"{prefix}{tensor.name}"
    chain.value = f"{prefix}{chain.value}" if chain.value in own else chain.value
