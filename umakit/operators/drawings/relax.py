# SPDX-License-Identifier: Apache-2.0
"""Drawings of patterns of TVM: nested Relax operators of floats."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from umakit import tvm_api
from umakit.operators import drawing as draw
from umakit.operators.drawings.families import SIZES
from umakit.operators.drawings.windows import FEW, IMAGE, WINDOW, pool_of, window_of
from umakit.tvm_api import Expr, relax

KERNEL_LAYOUTS = {"NCHW": "OIHW", "NHWC": "HWIO"}
DTYPE: draw.Choices = {"dtype": ("float32",)}
FLOAT_IMAGE: draw.Choices = {
    **IMAGE, "layout": ("NCHW", "NHWC"), "channels": SIZES, **DTYPE,
}  # fmt: skip
CONVOLUTION: draw.Choices = {
    **FLOAT_IMAGE,
    "filters": SIZES,
    "groups": (1, 2, 3, 4, 8),
    "kernel_height": FEW,
    "kernel_width": FEW,
    **WINDOW,
    "dilation_y": (1, 2, 3),
    "dilation_x": (1, 2, 3),
}
POOL: draw.Choices = {
    **FLOAT_IMAGE, "window_height": FEW, "window_width": FEW, **WINDOW,
}  # fmt: skip
MATRIX: draw.Choices = {
    "rows": (1, 2, 3, 17), "inputs": SIZES, "outputs": SIZES, **DTYPE,
}  # fmt: skip
ELEMENTS: draw.Choices = {
    "axes": (2, 4, 1, 3), "size": SIZES, "other": SIZES, **DTYPE,
}  # fmt: skip
OPERAND: draw.Choices = {"operand": ("same", "channels", "element")}

Operand = draw.Input | draw.Result | draw.Array
Made = tuple[Operand, draw.Tensor]


class _Walk:
    """Makes the layer of one pattern, operand by operand."""

    def __init__(
        self, settings: draw.Settings, data: draw.Tensor | None, random: draw.Random
    ) -> None:
        self.settings, self._data, self.random = settings, data, random
        self.inputs: list[draw.Tensor] = []
        self.steps: list[draw.Step] = []
        self.macs = 0
        self._known: list[tuple[tvm_api.DFPattern, Made]] = []

    def value(self, pattern: tvm_api.DFPattern, leaf: Callable[[], draw.Tensor]) -> Made:
        """Return an operand; the operators of its pattern compute it, if there are any."""
        for known, made in self._known:
            if known.same_as(pattern):
                return made
        call = tvm_api.call_of_pattern(pattern)
        if call is None:
            made = self._leaf(pattern, leaf())
        elif call[0] not in OPERATORS and not _is_unary(*call):
            raise draw.NotDrawable(f"the operator {call[0]}")
        else:
            made = OPERATORS.get(call[0], (_unary, ELEMENTS))[0](self, call[0], call[1])
        self._known.append((pattern, made))
        return made

    def constant(self, pattern: tvm_api.DFPattern, shape: Sequence[int], layout: str) -> Made:
        """Return weights or another second operand; a constant unless operators compute it."""
        call = tvm_api.call_of_pattern(pattern)
        if call is not None and call[0] == "relax.permute_dims":
            operand, tensor = self.constant(call[1][0], shape[::-1], layout)
            return self.step(
                relax.op.permute_dims, [operand], draw.Tensor(tuple(shape), tensor.dtype)
            )
        if call is not None:
            return self.value(pattern, lambda: draw.Tensor(tuple(shape), "float32", 0, layout))
        array = self.random.standard_normal(tuple(shape)).astype(str(self.settings["dtype"]))
        return array, draw.Tensor(tuple(shape), str(array.dtype), 0, layout)

    def step(
        self, make: Callable[..., Expr], operands: Sequence[Operand], result: draw.Tensor
    ) -> Made:
        """Append the call of an operator."""
        self.steps.append(draw.Step(lambda given: make(*given), tuple(operands)))
        self.macs += math.prod(result.shape)
        return draw.Result(len(self.steps) - 1), result

    def _leaf(self, pattern: tvm_api.DFPattern, tensor: draw.Tensor) -> Made:
        if tvm_api.is_constant_pattern(pattern):
            array = self.random.standard_normal(tensor.shape).astype(tensor.dtype)
            return array, tensor
        if not self.inputs and self._data is not None:
            if len(self._data.shape) != len(tensor.shape) or self._data.dtype != tensor.dtype:
                raise draw.NotDrawable("another kind of tensor")
            tensor = self._data
        self.inputs.append(tensor)
        return draw.Input(len(self.inputs) - 1), tensor


def _image(walk: _Walk) -> draw.Tensor:
    settings = walk.settings
    sizes = {"N": "batch", "H": "height", "W": "width", "C": "channels"}
    layout = str(settings["layout"])
    shape = tuple(int(settings[sizes[axis]]) for axis in layout)
    return draw.Tensor(shape, str(settings["dtype"]), 0, layout)


def _convolution(walk: _Walk, name: str, operands: Sequence[tvm_api.DFPattern]) -> Made:
    settings = walk.settings
    data, image = walk.value(operands[0], lambda: _image(walk))
    sizes = dict(zip(image.layout, image.shape, strict=True))
    kernel = (int(settings["kernel_height"]), int(settings["kernel_width"]))
    dilation = (int(settings["dilation_y"]), int(settings["dilation_x"]))
    padding, strides, (rows, columns) = window_of(settings, image, kernel, dilation)
    groups, filters = int(settings["groups"]), int(settings["filters"])
    if sizes["C"] % groups or filters % groups:
        raise draw.NotDrawable("channels that are no multiple of the groups")
    layout = KERNEL_LAYOUTS[image.layout]
    extents = {"O": filters, "I": sizes["C"] // groups, "H": kernel[0], "W": kernel[1]}
    weights, _ = walk.constant(operands[1], [extents[axis] for axis in layout], layout)
    result = {"N": sizes["N"], "H": rows, "W": columns, "C": filters}
    shape = tuple(result[axis] for axis in image.layout)
    walk.macs += math.prod(shape) * math.prod(kernel) * extents["I"]

    def make(*given: Expr) -> Expr:
        made: Expr = relax.op.nn.conv2d(
            *given, strides=strides, padding=padding, dilation=dilation, groups=groups,
            data_layout=image.layout, kernel_layout=layout,
        )  # fmt: skip
        return made

    return walk.step(make, [data, weights], draw.Tensor(shape, image.dtype, 0, image.layout))


def _pool(walk: _Walk, name: str, operands: Sequence[tvm_api.DFPattern]) -> Made:
    settings = walk.settings
    data, image = walk.value(operands[0], lambda: _image(walk))
    window = (int(settings["window_height"]), int(settings["window_width"]))
    padding, strides, (rows, columns) = pool_of(settings, image, window)
    sizes = dict(zip(image.layout, image.shape, strict=True)) | {"H": rows, "W": columns}
    function = _function(name)

    def make(*given: Expr) -> Expr:
        made: Expr = function(
            *given, pool_size=window, strides=strides, padding=padding, layout=image.layout
        )
        return made

    shape = tuple(sizes[axis] for axis in image.layout)
    return walk.step(make, [data], draw.Tensor(shape, image.dtype, 0, image.layout))


def _matrix_product(walk: _Walk, name: str, operands: Sequence[tvm_api.DFPattern]) -> Made:
    settings = walk.settings
    rows = (int(settings["rows"]), int(settings["inputs"]))
    data, tensor = walk.value(operands[0], lambda: draw.Tensor(rows, "float32"))
    outputs = int(settings["outputs"])
    weights, _ = walk.constant(operands[1], [tensor.shape[-1], outputs], "IO")
    walk.macs += math.prod(tensor.shape) * outputs
    result = draw.Tensor((*tensor.shape[:-1], outputs), tensor.dtype)
    return walk.step(relax.op.matmul, [data, weights], result)


def _elements(walk: _Walk) -> draw.Tensor:
    settings = walk.settings
    sizes = (1, int(settings["other"]), 2, int(settings["size"]))
    return draw.Tensor(sizes[-int(settings["axes"]) :], str(settings["dtype"]))


def _binary(walk: _Walk, name: str, operands: Sequence[tvm_api.DFPattern]) -> Made:
    first, second = operands
    if tvm_api.call_of_pattern(first) is None and tvm_api.call_of_pattern(second) is not None:
        right, tensor = walk.value(second, lambda: _elements(walk))
        left, _ = _other(walk, first, tensor)
    else:
        left, tensor = walk.value(first, lambda: _elements(walk))
        right, _ = _other(walk, second, tensor)
    return walk.step(_function(name), [left, right], tensor)


def _other(walk: _Walk, pattern: tvm_api.DFPattern, tensor: draw.Tensor) -> Made:
    kind = str(walk.settings["operand"])
    if kind == "same":
        return walk.value(pattern, lambda: tensor)
    shape = [1] * len(tensor.shape)
    if kind == "channels":
        axis = tensor.layout.index("C") if len(tensor.shape) == 4 else len(tensor.shape) - 1
        shape[axis] = tensor.shape[axis]
    return walk.constant(pattern, shape, tensor.layout)


def _clip(walk: _Walk, name: str, operands: Sequence[tvm_api.DFPattern]) -> Made:
    data, tensor = walk.value(operands[0], lambda: _elements(walk))
    return walk.step(lambda given: relax.op.clip(given, 0, 6), [data], tensor)


def _unary(walk: _Walk, name: str, operands: Sequence[tvm_api.DFPattern]) -> Made:
    data, tensor = walk.value(operands[0], lambda: _elements(walk))
    return walk.step(_function(name), [data], tensor)


def _function(name: str) -> Callable[..., Any]:
    found: Any = relax.op
    for part in name.removeprefix("relax.").split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise draw.NotDrawable(f"the operator {name}")
    return found  # type: ignore[no-any-return]


def _is_unary(name: str, operands: Sequence[tvm_api.DFPattern]) -> bool:
    if len(operands) != 1:
        return False
    try:
        parameters = inspect.signature(_function(name)).parameters.values()
    except (draw.NotDrawable, ValueError):
        return False
    needed = [each for each in parameters if each.default is inspect.Parameter.empty]
    return len(needed) == 1


Maker = Callable[[_Walk, str, Sequence[tvm_api.DFPattern]], Made]
OPERATORS: Mapping[str, tuple[Maker, draw.Choices]] = {
    "relax.nn.conv2d": (_convolution, CONVOLUTION),
    "relax.nn.max_pool2d": (_pool, POOL),
    "relax.nn.avg_pool2d": (_pool, POOL),
    "relax.matmul": (_matrix_product, MATRIX),
    "relax.clip": (_clip, ELEMENTS),
    **{
        f"relax.{name}": (_binary, {**ELEMENTS, **OPERAND})
        for name in ("add", "subtract", "multiply", "divide", "maximum", "minimum")
    },
}
"""Operators with several operands, each with its operand builder and settings."""


def drawing_of(alternatives: Sequence[tvm_api.DFPattern]) -> draw.Drawing | None:
    """Return the drawing of alternative patterns; None if none can be drawn."""
    patterns = [pattern for pattern in alternatives if _is_drawable(pattern)]
    if not patterns:
        return None
    settings: dict[str, tuple[draw.Setting, ...]] = {}
    if len(patterns) > 1:
        settings["alternative"] = tuple(range(len(patterns)))
    for name, _ in (each for pattern in patterns for each in _operators(pattern)):
        settings |= OPERATORS.get(name, (_unary, ELEMENTS))[1]

    def build(chosen: draw.Settings, data: draw.Tensor | None, random: draw.Random) -> draw.Drawn:
        walk = _Walk(chosen, data, random)
        pattern = patterns[int(chosen.get("alternative", 0)) % len(patterns)]
        _, result = walk.value(pattern, lambda: _elements(walk))
        if not walk.inputs:
            raise draw.NotDrawable("only constants")
        return draw.Drawn(tuple(walk.inputs), tuple(walk.steps), result, walk.macs)

    sizes = ("height", "width", "channels", "filters", "rows", "inputs", "outputs", "size")
    return draw.Drawing(settings, build, tuple(name for name in sizes if name in settings))


def _is_drawable(pattern: tvm_api.DFPattern) -> bool:
    names = _operators(pattern)
    return bool(names) and all(
        name in OPERATORS or (count == 1 and not _missing(name)) for name, count in names
    )


def _missing(name: str) -> bool:
    try:
        _function(name)
    except draw.NotDrawable:
        return True
    return False


def _operators(pattern: tvm_api.DFPattern) -> list[tuple[str, int]]:
    call = tvm_api.call_of_pattern(pattern)
    if call is None:
        return []
    name, operands = call
    inner = [each for operand in operands for each in _operators(operand)]
    return [(name, len(operands)), *inner]
