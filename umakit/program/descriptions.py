# SPDX-License-Identifier: Apache-2.0
"""Description of each step of a program in terms of the user's model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from umakit.frontend.model import Quantization, WeightsQuantization
from umakit.machine.tiles import IMAGES, SINGULAR, Tiles
from umakit.operators.offload.composite import Composite
from umakit.operators.offload.weighted import Weighted
from umakit.program.program import KernelCall, Program, Role, Tensor
from umakit.registration.backend import Backend

SIDES = ("above", "left", "below", "right")
HIDDEN = ("output_shape", "output_dtype", "addition")
SIZES = ("strides", "dilation", "window")
"""Attributes with rows and columns, printed as 2 x 2."""

LAYOUTS = {"NHWC": "rows, columns, channels", "NCHW": "channels, rows, columns"}


@dataclass(frozen=True)
class TensorDescription:
    """A tensor that a step reads or writes.

    Attributes:
        tensor: name in the program.
        label: name in the user's model; for a result, the label of its step.
        quantization: per-tensor scale and zero point of the model, if any.
        place: for a tensor that exists only in a scratchpad, index of the kernel parameter with its
            offset, counted from the end (-1 is the last); None for other tensors.
    """

    tensor: str
    label: str
    shape: tuple[int, ...]
    dtype: str
    role: Role
    quantization: Quantization | None
    place: int | None = None


@dataclass(frozen=True)
class KernelDescription:
    """Description of a step.

    Attributes:
        label: names of the operators in the user's model.
        target: `cpu` or a backend.
        inputs: operands in the order of the kernel's parameters, including tensors that exist only
            in a scratchpad.
        parameters: operator parameters as text by name, for example `strides`: `2 x 2`.
        tiling: description of the tiling, one sentence each; empty without tiling.
    """

    number: int
    label: str
    operators: tuple[str, ...]
    target: str
    macs: int
    inputs: tuple[TensorDescription, ...]
    outputs: tuple[TensorDescription, ...]
    parameters: Mapping[str, str]
    tiling: tuple[str, ...]
    weights: Mapping[str, WeightsQuantization] = field(default_factory=dict)
    inner: Mapping[str, Quantization] = field(default_factory=dict)


def describe(
    program: Program, backends: Mapping[str, Backend]
) -> tuple[KernelDescription | None, ...]:
    """Return the description of each step of a program; None for a plain copy."""
    return tuple(
        _described(program, number, call, backends.get(call.target)) if call.kernel else None
        for number, call in enumerate(program.calls)
    )


def _described(
    program: Program, number: int, call: KernelCall, backend: Backend | None
) -> KernelDescription:
    kernel = program.kernels[call.kernel]
    composite = kernel.composite
    if composite is not None:
        parameters = _parameters(composite)
    elif parameters := _attributes(kernel.attributes):
        parameters |= {"weights in memory": kernel.weights_layout} if kernel.weights_layout else {}
    else:
        parameters = _attributes(call.attributes)
    tiles = tiles_of(program, composite, backend)
    return KernelDescription(
        number=number,
        label=call.label,
        operators=call.operators,
        target=call.target,
        macs=call.macs,
        inputs=tuple(_tensors(program, call, program.operands_of(call))),
        outputs=tuple(_tensors(program, call, program.results_of(call))),
        parameters=parameters,
        tiling=() if tiles is None else tuple(_tiling(tiles)),
        weights=call.weights,
        inner=call.inner,
    )


def _tensors(
    program: Program, call: KernelCall, tensors: Iterable[tuple[Tensor, str]]
) -> Iterable[TensorDescription]:
    for tensor, place in tensors:
        yield TensorDescription(
            tensor.name, tensor.label, tensor.shape, tensor.dtype, tensor.role,
            program.quantization_of(tensor),
            call.scratch.index(place) - len(call.scratch) if place else None,
        )  # fmt: skip


# --- operators ----------------------------------------------------------------------------------


def _attributes(values: Mapping[str, Any]) -> dict[str, str]:
    """Return attributes of an integer operator as text, without tensor shapes and dtypes."""
    found = {
        name.replace("_", " "): _text(name, value)
        for name, value in values.items()
        if name not in HIDDEN
    }
    if "layout" in found:
        found["layout"] = f"{found['layout']} ({LAYOUTS.get(found['layout'], 'as named')})"
    padding = values.get("padding", ())
    if len(padding) == len(SIDES):
        found["padding"] = ", ".join(f"{n} {side}" for n, side in zip(padding, SIDES, strict=True))
    if len(values.get("clip", ())) == 2:
        found["clip"] = "{} to {}".format(*values["clip"])
    return found


def _parameters(composite: Composite) -> dict[str, str]:
    """Return the parameters of a composite as text, without tensor shapes and dtypes."""
    names = composite.attribute_names()
    found = _attributes({name: getattr(composite, name) for name in names})
    found |= composite.described_parts()
    if isinstance(composite, Weighted):
        found["weights in memory"] = composite.stored_layout
        found["scales"] = f"{composite.scales}, one for each output channel"
        if composite.scales == 1:
            found["scales"] = "1, for all output channels"
    return found


def _text(name: str, value: Any) -> str:
    if not isinstance(value, (tuple, list)):
        return str(value)
    return (" x " if name in SIZES else ", ").join(map(str, value))


# --- tiles --------------------------------------------------------------------------------------


def tiles_of(
    program: Program, composite: Composite | None, backend: Backend | None
) -> Tiles | None:
    """Return the tiles of a layer from the backend's planner; None for layers without tiling."""
    if backend is None or backend.tiling is None or composite is None:
        return None
    planned = program.planned.get(backend.target_name)
    if planned is None:
        return None
    try:
        return backend.tiling.tiles_of(composite, planned.tilings)
    except (TypeError, ValueError):  # the backend does not tile this kind of layer
        return None


def _tiling(tiles: Tiles) -> Iterable[str]:
    """Yield sentences on size, order and location of the tiles."""
    tiling, layer = tiles.tiling, tiles.layer
    (rows, columns), channels = layer.output_size, layer.output_channels
    sizes = {"rows": (tiling.rows, rows), "columns": (tiling.columns, columns)}
    sizes["output_channels"] = (tiling.output_channels, channels)
    parts = [
        f"{min(tile, size)} of {size} {(axis if size > 1 else SINGULAR[axis]).replace('_', ' ')}"
        for axis, (tile, size) in sizes.items()
    ]
    yield f"A tile of the result has {', '.join(parts)}"
    steps = tiles.extents["input_channels"]
    if steps > 1:
        yield (
            f"It is the sum of {steps} steps over at most {tiling.input_channels} of "
            f"{layer.input_channels} input channels"
        )
    if tiles.loops:
        order = [
            f"{tiles.extents[axis]} {'images' if axis == IMAGES else f'tiles of {axis}'}"
            for axis in tiles.loops
        ]
        yield f"Loops, outermost first: {', '.join(order).replace('_', ' ')}"
    places = [
        f"{name} {buffer.tiles} x {buffer.tile_bytes:,} bytes"
        for name, buffer in tiles.buffers.items()
    ]
    yield f"Places for tiles in the scratchpad: {', '.join(places)}"
    yield f"Dataflow of the array: {tiling.dataflow.value.replace('_', ' ')}"
