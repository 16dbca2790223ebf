# SPDX-License-Identifier: Apache-2.0
"""Networks of one or several layers of given sizes, and the cycles of a layer in the simulator.

Cycles depend on sizes, and on some accelerators on values. Weights are therefore random;
quantization parameters are arbitrary.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from umakit import tvm_api
from umakit.backend.base import UMABackend
from umakit.devices.run import run_library
from umakit.files.staging import temporary_folder
from umakit.machine import Kind, Layer, Tiling
from umakit.operators.parameters import Parameters
from umakit.operators.registry import parameters_class
from umakit.pipeline import ExportOptions, compile_model

ZERO_POINT = 3
ADD_LEFT_SHIFT = 20
"""Left shift in bits of the operands of an addition, as in TensorFlow Lite for int8."""

INT8 = (-128, 127)


def network_of(layer: Layer) -> Any:
    """Return a Relax module whose `main` takes the layer's data and computes the layer."""
    return network_of_layers([layer])


def network_of_layers(
    layers: Sequence[Layer], dense: Collection[Layer] = (), rounding: str = "tflm"
) -> Any:
    """Return a Relax module whose `main` takes the data of several layers and computes each.

    Inputs are `data` for one layer, or `data0`, `data1` and so on for several, whose results form a
    tuple. Tensors that layers add, `addend` or `addend0` and so on, are further inputs.

    Args:
        dense: the fully connected layers among them, with data of rows x channels; they are
            convolutions of one column with a kernel of one element.
        rounding: rounding of results, one of `umakit.patterns.ROUNDINGS`.
    """
    relax = tvm_api.relax
    builder = relax.BlockBuilder()
    numbers = [""] if len(layers) == 1 else [str(number) for number in range(len(layers))]

    def variable(name: str, shape: tuple[int, ...]) -> Any:
        return relax.Var(name, relax.TensorType(shape, "int8"))

    inputs = [
        variable(
            f"data{number}",
            (layer.input_size[0], layer.input_channels)
            if layer in dense
            else _shape(layer, layer.input_size, layer.input_channels),
        )
        for number, layer in zip(numbers, layers, strict=True)
    ]
    addends = {
        number: variable(f"addend{number}", _shape(layer, layer.output_size, layer.output_channels))
        for number, layer in zip(numbers, layers, strict=True)
        if layer.adds
    }
    with builder.function("main", [*inputs, *addends.values()]):
        with builder.dataflow():
            results = []
            for number, layer, data in zip(numbers, layers, inputs, strict=True):
                operator, constants = _operator(layer, is_dense=layer in dense)
                operands = [data, *(relax.const(each, str(each.dtype)) for each in constants)]
                operator = replace(operator, rounding=rounding)
                computed = builder.emit(operator.call(operands, None))
                if layer.adds:
                    added = replace(_sum(layer), rounding=rounding)
                    computed = builder.emit(added.call([computed, addends[number]], None))
                results.append(computed)
            whole = results[0] if len(layers) == 1 else relax.Tuple(results)
            result = builder.emit_output(whole)
        builder.emit_func_output(result)
    return builder.get()


def _operator(layer: Layer, *, is_dense: bool) -> tuple[Parameters, list[Any]]:
    if layer.is_pool:
        return _pool(layer)
    return _dense(layer) if is_dense else _convolution(layer)


def _convolution(layer: Layer) -> tuple[Parameters, list[Any]]:
    operator: Parameters = parameters_class("conv2d")(
        **_common(layer),
        dilation=layer.dilation,
        groups=layer.input_channels if layer.per_channel else 1,
        input_zero_point=ZERO_POINT,
    )
    inputs = 1 if layer.per_channel else layer.input_channels
    shape = (layer.output_channels, *layer.kernel, inputs)
    if layer.channels_first:
        shape = (layer.output_channels, inputs, *layer.kernel)
    return operator, _constants(layer, shape)


def _dense(layer: Layer) -> tuple[Parameters, list[Any]]:
    shape = (layer.output_size[0], layer.output_channels)
    operator: Parameters = parameters_class("dense")(
        **{**_result(layer), "output_shape": shape}, input_zero_point=ZERO_POINT
    )
    return operator, _constants(layer, (layer.output_channels, layer.input_channels))


def _constants(layer: Layer, shape: tuple[int, ...]) -> list[Any]:
    weights = np.random.default_rng(0).integers(-127, 128, shape).astype(np.int8)
    bias = np.zeros(layer.output_channels, np.int32)
    multipliers = np.full(layer.scales, 2**30, np.int32)
    return [weights, bias, multipliers, np.full(layer.scales, -8, np.int8)]


def _pool(layer: Layer) -> tuple[Parameters, list[Any]]:
    pool = parameters_class("max_pool2d" if layer.kind is Kind.MAX_POOL else "avg_pool2d")
    return pool(**_common(layer), window=layer.kernel), []


def _sum(layer: Layer) -> Parameters:
    """Return the operator that adds a tensor to a convolution's result; both have one scale."""
    operator: Parameters = parameters_class("add")(
        **_result(layer),
        zero_points=(ZERO_POINT, ZERO_POINT),
        left_shift=ADD_LEFT_SHIFT,
        multipliers=(2**30, 2**30, 2**30),
        shifts=(0, 0, 1 - ADD_LEFT_SHIFT),
    )
    return operator


def _result(layer: Layer) -> dict[str, Any]:
    return {
        "output_shape": _shape(layer, layer.output_size, layer.output_channels),
        "output_dtype": "int8",
        "output_zero_point": ZERO_POINT,
        "clip": INT8,
        "rounding": "tflm",
    }


def _common(layer: Layer) -> dict[str, Any]:
    ends = [
        max((output - 1) * stride + (taps - 1) * dilation + 1 - size - before, 0)
        for output, stride, taps, dilation, size, before in zip(
            layer.output_size, layer.strides, layer.kernel, layer.dilation, layer.input_size,
            layer.padding, strict=True,
        )
    ]  # fmt: skip
    return {
        **_result(layer),
        "strides": layer.strides,
        "padding": (*layer.padding, *ends),
        "layout": "NCHW" if layer.channels_first else "NHWC",
    }


def _shape(layer: Layer, size: tuple[int, int], channels: int) -> tuple[int, ...]:
    if layer.channels_first:
        return (layer.images, channels, *size)
    return (layer.images, *size, channels)


def simulated_cycles(backend: UMABackend, layer: Layer, tiling: Tiling) -> int | None:
    """Return the device cycles of a layer, from its first register access to its last.

    Returns:
        The cycles; None if the backend takes the layer in another way, has no simulator, or one
        without a clock.
    """
    if backend.tiling is None or not has_simulator(backend):
        return None
    target = backend.target_name
    options = ExportOptions(tilings={target: {layer: tiling}})
    with temporary_folder("umakit-tune-") as temporary:
        library = compile_model(network_of(layer), [backend], temporary / "layer", options=options)
        if library.program is None or library.program.planned[target].layers != [layer]:
            return None
        views = library.metadata["umakit"]["inputs"]
        inputs = drawn_inputs(views)
        profile = run_library(library.path, inputs, profile=True).layers
        own = [each.clock_cycles for each in profile if each.where == target]
        return None if None in own else sum(cycles or 0 for cycles in own) or None


def drawn_inputs(views: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return random int8 values for the inputs of a network, the same values every time.

    The cycles of some accelerators depend on values, for example if the accelerator skips zeros.

    Args:
        views: `inputs` of the library's metadata.
    """
    random = np.random.default_rng(0)
    return {
        view["name"]: random.integers(-128, 128, view["shape"]).astype(view["dtype"])
        for view in views
    }


def has_simulator(backend: UMABackend) -> bool:
    """Whether a simulator implements a backend's device; a backend's own may have no clock."""
    return backend.configuration.device.simulator != "none"
