# SPDX-License-Identifier: Apache-2.0
"""Small networks compiled for a backend, to find the patterns, calls and memories it uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from umakit import tir, tvm_api
from umakit.errors import UmakitError
from umakit.library.driver_notices import is_of_driver
from umakit.lower import Lowered, lower
from umakit.lower.kernels import Kernel
from umakit.partition.partitioner import Partitioned
from umakit.pipeline import partition_model
from umakit.registration.backend import Backend
from umakit.testing.example_networks import QuantizedNetwork
from umakit.testing.harness import AOTModel, conv2d_model

Progress = Callable[[str], None]


@dataclass
class Probes:
    """The results of compiling small networks for a backend.

    Attributes:
        taken: patterns that matched a layer.
        calls: patterns by C function and number of arguments.
        memories: patterns by name of the scratchpad with their buffers.
        first: the network with most patterns among those that can be compiled.
        errors: errors of stages, by the patterns of the network.
    """

    taken: set[str] = field(default_factory=set)
    calls: dict[tuple[str, int], set[str]] = field(default_factory=dict)
    memories: dict[str, set[str]] = field(default_factory=dict)
    first: AOTModel | None = None
    errors: list[UmakitError] = field(default_factory=list)

    @property
    def functions(self) -> list[str]:
        """The names of the driver's functions that are called."""
        return sorted({function for function, _ in self.calls})


def probe(backend: Backend, tell: Progress) -> Probes:
    """Partition small networks for a backend until each of its patterns has matched a layer.

    Networks with new patterns are lowered.
    """
    found = Probes()
    most, wanted = 0, {pattern.name for pattern in backend.patterns}
    for label, model in networks():
        if found.taken >= wanted:
            break
        tell(f"compiling {label}")
        try:
            _, partitioned = partition_model(model.module, [backend], name=model.name)
            patterns = _patterns_of(partitioned, backend)
            if not patterns - found.taken:
                continue
            found.taken |= patterns
            _note(lower(partitioned, [backend]), backend, patterns, found)
        except UmakitError as error:
            if str(error) not in map(str, found.errors):
                found.errors.append(error)
            continue
        if len(patterns) > most:
            found.first, most = model, len(patterns)
    return found


def networks() -> Iterator[tuple[str, AOTModel]]:
    yield "a float32 convolution", conv2d_model(channels=8, height=8, width=8, filters=8, kernel=3)
    yield "a float32 network", float_network()
    for dtype in ("int8", "int16"):
        for layout in ("NHWC", "NCHW"):
            for rounding in ("tflm", "ort"):
                label = f"an {dtype} network ({layout}, rounding {rounding})"
                yield label, integer_network(dtype, layout, rounding)


def integer_network(dtype: str, layout: str, rounding: str) -> AOTModel:
    """Return a quantized network of convolutions, sums, pools and a fully connected layer."""
    start = QuantizedNetwork(12, 12, 16, layout=layout, rounding=rounding, dtype=dtype)
    start.conv2d(16).conv2d(16, 1)
    if dtype == "int8":
        start.residual()
    start.conv2d(32, 3, 2, padding="valid").conv2d(32, 1).conv2d(32, depthwise=True)
    return start.pool2d("max").pool2d("average").conv2d(32, 1).dense(16).model("doctor")


@tvm_api.one_at_a_time
def float_network() -> AOTModel:
    """Return a float32 network: two convolutions, one with bias and relu, a pool, a matmul."""
    relax = tvm_api.relax
    random = np.random.default_rng(0)

    def constant(*shape: int) -> object:
        return relax.const(random.standard_normal(shape).astype("float32"))

    image = random.standard_normal((1, 8, 8, 8)).astype("float32")
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(image.shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            value = builder.emit(relax.op.nn.conv2d(x, constant(8, 8, 3, 3), padding=(1,) * 4))
            value = builder.emit(relax.op.add(value, constant(1, 8, 1, 1)))
            value = builder.emit(relax.op.nn.relu(value))
            value = builder.emit(relax.op.nn.conv2d(value, constant(16, 8, 1, 1)))
            value = builder.emit(relax.op.nn.max_pool2d(value, (2, 2), (2, 2)))
            value = builder.emit(relax.op.reshape(value, (1, 256)))
            value = builder.emit(relax.op.matmul(value, constant(256, 8)))
            result = builder.emit_output(relax.op.add(value, constant(1, 8)), "result")
        builder.emit_func_output(result)
    return AOTModel(builder.get(), {"x": image}, output_tolerance=1e-3, name="doctor")


def _patterns_of(partitioned: Partitioned, backend: Backend) -> set[str]:
    start = f"{backend.target_name}."
    outer = [function for _, function in tvm_api.relax_functions(partitioned.module)]
    inner = [
        binding.value
        for function in outer
        for binding in tvm_api.bindings_of(function)
        if isinstance(binding.value, tvm_api.Function)
    ]
    names = {str(tvm_api.function_attribute(each, "Composite") or "") for each in outer + inner}
    return {name.removeprefix(start) for name in names if name.startswith(start)}


def _note(lowered: Lowered, backend: Backend, patterns: set[str], found: Probes) -> None:
    for name, kernel in lowered.kernels.items():
        if kernel.target != backend.target_name:
            continue
        starts = {f"{backend.target_name}_{pattern}": pattern for pattern in patterns}
        longest = max((start for start in starts if name.startswith(start)), key=len, default="")
        of_kernel = {starts[longest]} if longest else patterns
        for function, count in _calls_of(kernel):
            if is_of_driver(function):
                found.calls.setdefault((function, count), set()).update(of_kernel)
        for parameter in kernel.scratch:
            if parameter.pool:
                found.memories.setdefault(parameter.pool, set()).update(of_kernel)


def _calls_of(kernel: Kernel) -> Iterator[tuple[str, int]]:
    for node in kernel.driver_calls:
        count = len(node.operands if node.text is None else node.text.call.arguments)
        yield node.function, count
    for call in tvm_api.collect([*kernel.statements], tvm_api.Call):
        if tvm_api.is_external_call(call) or tir.is_driver_call(call):
            yield str(call.args[0].value), len(call.args) - 1
