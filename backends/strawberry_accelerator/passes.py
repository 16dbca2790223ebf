# SPDX-License-Identifier: Apache-2.0
"""TIR passes of the strawberry_accelerator: a layer becomes copies in, a calculation, a copy out.

TIR is TVM's loop program. A TIR pass is a function from a prim func to a prim func. This one gets a
layer as plain loops over its operands,

    for y, x, o in ...:
        sum = bias[o]
        for ky, kx, c in ...:
            sum += (data[y + ky, x + kx, c] - zero_point) * weights[o, ky, kx, c]
        result[y, x, o] = clip(requantize(sum, multipliers[o], shifts[o]) + zero_point)

and returns the four steps that the hardware wants instead:

    dma_in(data, ...); dma_in(weights, ...); ...     operands into the scratchpad
    calculate(...)                                   the array works on the scratchpad
    dma_out(result, ...)                             the result back to shared memory

The loops need not be looked at, because `patterns.parameters_of` says what they compute.
"""

from typing import Any

from umakit import patterns, tir
from umakit.backend import ArraySection

DMA_IN = "strawberry_accelerator_dma_in"
DMA_OUT = "strawberry_accelerator_dma_out"
CALCULATE = "strawberry_accelerator_calculate"
SCRATCHPAD = "scratchpad"

# In the order of the enumerators in the driver's header. C that is generated has them by name:
# `STRAWBERRY_ACCELERATOR_WEIGHT_STATIONARY` instead of 1.
DATAFLOWS = ("output_stationary", "weight_stationary", "input_stationary")


def StrawberryLayerPass(array: ArraySection) -> Any:
    """A pass that puts driver calls in the place of a layer's loops.

    Args:
        array: what `accel.toml` says about it.
    """
    return tir.prim_func_pass(
        "StrawberryLayerPass", lambda function: load_calculate_store(function, array)
    )


def load_calculate_store(function: Any, array: ArraySection) -> Any:
    """The prim func of a layer with driver calls as its body; others as they are."""
    layer = patterns.parameters_of(function)
    if not isinstance(layer, patterns.Weighted):
        return function

    # The prim func's parameters are the tensors in shared memory: data, weights, bias,
    # multipliers, shifts and, last, the result.
    *operands, result = function.params

    # Each gets a place in the scratchpad for the time of the layer. The memory plan chooses the
    # offsets, so that places of one layer do not overlap and nothing in use is overwritten.
    places = [tir.scratchpad_copy(tensor, SCRATCHPAD) for tensor in (*operands, result)]

    # A driver call is the name of a C function and its arguments. In the generated C each call
    # becomes `status = name(arguments); if (status != 0) return status;`.
    copies_in = [
        (DMA_IN, [tir.pointer(tensor), tir.pointer(place), tir.buffer_bytes(tensor)])
        for tensor, place in zip(operands, places[:-1], strict=True)
    ]
    calculate = (CALCULATE, [*map(tir.pointer, places), *calculation(layer, array)])
    copy_out = (DMA_OUT, [tir.pointer(places[-1]), tir.pointer(result), tir.buffer_bytes(result)])

    calls = tir.driver_calls([*copies_in, calculate, copy_out])
    return tir.with_body(function, tir.allocate(places, calls))


def calculation(layer: patterns.Weighted, array: ArraySection) -> list[int]:
    """Arguments of the driver behind the offsets: what to calculate."""
    sizes = layer.scalars
    if isinstance(layer, patterns.QDense):
        # A fully connected layer is a 1x1 convolution of an image of one column.
        image = [layer.rows, 1, layer.inputs, layer.rows, 1, layer.outputs]
        window = [1, 1, 1, 1, 0, 0, 1, 1]
    else:
        image = [
            sizes[f"{side}{axis}"]
            for side, axes in (
                ("", ("height", "width", "input_channels")),
                ("output_", ("height", "width", "channels")),
            )
            for axis in axes
        ]
        window = [
            sizes[f"{name}_{side}"]
            for name, sides in (
                ("kernel", ("height", "width")),
                ("stride", ("y", "x")),
                ("pad", ("top", "left")),
                ("dilation", ("y", "x")),
            )
            for side in sides
        ]
    depthwise = isinstance(layer, patterns.QDepthwise)
    channels_first = getattr(layer, "layout", "NHWC") == "NCHW"
    scale = ("scales", "input_zero_point", "output_zero_point", "lowest", "highest", "rounding")
    return [
        array.columns, DATAFLOWS.index(array.dataflow), int(depthwise), int(channels_first),
        *image, *window, *(sizes[name] for name in scale),
    ]  # fmt: skip
