# SPDX-License-Identifier: Apache-2.0
"""Parameters of an offloaded integer operator: one dataclass per pattern.

A class adds shapes and dtypes to the parameters of `umakit.operators`, and the order of the
driver's arguments.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import ClassVar

from umakit import tvm_api
from umakit.operators.numeric.fixed_point import OWN, Arithmetic
from umakit.operators.parameters import BIAS_DTYPES, Parameters, Pool2d, WindowParameters
from umakit.operators.requantize import Requantize

Shape = tuple[int, ...]

ROUNDINGS = tuple(mode.value for mode in Arithmetic)
"""The driver's argument `rounding` is the position in this list: 0 `tflm`, 1 `ort`,
2 `even` (`enum umakit_rounding` of `umakit/requantize.h`)."""

OWN_ROUNDING = len(ROUNDINGS)
"""Value of the driver's argument `rounding` for a rounding function of the backend."""


def rounding_number(name: str) -> int:
    """Return the driver's argument `rounding` for the name of a rounding."""
    return OWN_ROUNDING if name.startswith(OWN) else ROUNDINGS.index(name)


@dataclass(frozen=True, kw_only=True)
class Composite:
    """Parameters common to all patterns.

    Attributes:
        data_shape: shape of the (left) operand.
        data_dtype: dtype of the operands, for example `int8`.
        then: a second requantization after the operator, in the same call; None if the backend does
            not support a second one.
    """

    data_shape: Shape
    data_dtype: str
    then: Requantize | None = None

    operator: ClassVar[str]
    """Name of the integer operator, from its class of parameters, the other base of each kind."""

    POINTERS: ClassVar[tuple[str, ...]] = ("data", "result")
    RESULTS: ClassVar[tuple[str, ...]] = ("result",)
    """The pointers that the driver writes to, the last ones."""

    PARTS: ClassVar[dict[str, type[Parameters]]] = {"then": Requantize}
    """Fields with the parameters of another operator in the same call."""

    @classmethod
    def attribute_names(cls) -> list[str]:
        """The attributes of the integer operator itself."""
        operator = next(
            base
            for base in cls.__mro__
            if issubclass(base, Parameters) and not issubclass(base, Composite)
        )
        return [item.name for item in fields(operator)]

    def described_parts(self) -> dict[str, str]:
        """Text for comments on parameters of a second operator in the call; replaces equal keys."""
        return {}

    @property
    def _parameters(self) -> Parameters:
        assert isinstance(self, Parameters)
        return self

    @property
    def scalars(self) -> dict[str, int]:
        """The driver's arguments after the pointers, by name and in order."""
        raise NotImplementedError

    @property
    def wide_scalars(self) -> tuple[str, ...]:
        """Names of the int64 scalars; the others are int32."""
        return ()

    @property
    def pointer_types(self) -> dict[str, str]:
        """The dtypes of the driver's pointers, by name and in order."""
        bias = BIAS_DTYPES.get(self.data_dtype, "int32")
        special = {"bias": bias, "multipliers": "int32", "shifts": "int8", "weights": "int8"}
        result = {name: special.get(name, self.data_dtype) for name in self.POINTERS}
        return result | {"result": self._parameters.output_dtype}

    @property
    def operand_shapes(self) -> dict[str, Shape]:
        """Shapes of the arrays of the driver's pointers, by name and in order."""
        return {"data": self.data_shape, "result": self._parameters.output_shape}

    @property
    def operand_bytes(self) -> dict[str, int]:
        """Sizes in bytes of the arrays of the driver's pointers, by name and in order."""
        return {
            name: math.prod(shape) * tvm_api.element_bytes(self.pointer_types[name])
            for name, shape in self.operand_shapes.items()
        }

    def ending(self) -> dict[str, int]:
        """The last arguments of every driver, for the rounding of results to integers."""
        return {**self._result_arguments(), **self._then_arguments()}

    def _result_arguments(self) -> dict[str, int]:
        layer = self._parameters
        low, high = layer.clip
        return {
            "output_zero_point": layer.output_zero_point,
            "lowest": low,
            "highest": high,
            "rounding": rounding_number(layer.rounding),
        }

    def _then_arguments(self) -> dict[str, int]:
        if self.then is None:
            return {}
        return {
            "then_multiplier": self.then.multiplier,
            "then_shift": self.then.shift,
            "then_input_zero_point": self.then.input_zero_point,
            "then_output_zero_point": self.then.output_zero_point,
            "then_lowest": self.then.clip[0],
            "then_highest": self.then.clip[1],
        }


def _size(name: str, what: str) -> property:
    def size(image: Image) -> int:
        return image.size_arguments()[name]

    return property(size, doc=what)


@dataclass(frozen=True, kw_only=True)
class Image:
    """Access to heights, widths and channels in shapes."""

    @property
    def data_layout(self) -> str:
        """`NHWC` or `NCHW`, the layout of data and result."""
        return str(getattr(self, "layout", "NHWC"))

    def _sizes(self, shape: Shape) -> dict[str, int]:
        return dict(zip(self.data_layout, shape, strict=True))

    def size_arguments(self) -> dict[str, int]:
        """The driver's arguments about data and result."""
        assert isinstance(self, Composite)
        data = self._sizes(self.data_shape)
        result = self._sizes(self._parameters.output_shape)
        return {
            "batch": data["N"],
            "height": data["H"],
            "width": data["W"],
            "input_channels": data["C"],
            "output_height": result["H"],
            "output_width": result["W"],
            "output_channels": result["C"],
        }

    batch = _size("batch", "Number of images.")
    height = _size("height", "Rows of the data.")
    width = _size("width", "Columns of the data.")
    input_channels = _size("input_channels", "Channels of the data.")
    output_height = _size("output_height", "Rows of the result.")
    output_width = _size("output_width", "Columns of the result.")
    output_channels = _size("output_channels", "Channels of the result.")


def window_arguments(layer: WindowParameters) -> dict[str, int]:
    """Return the driver's arguments for strides and padding of a window."""
    top, left, bottom, right = layer.padding
    return {
        "stride_y": layer.strides[0],
        "stride_x": layer.strides[1],
        "pad_top": top,
        "pad_left": left,
        "pad_bottom": bottom,
        "pad_right": right,
    }


@dataclass(frozen=True, kw_only=True)
class Binary(Composite):
    """Parameters common to additions, differences and products.

    Attributes:
        right_shape: shape of the right operand.
        broadcasts: whether the driver gets the shapes of both operands, because they may differ;
            else the driver gets only the number of elements.
    """

    POINTERS: ClassVar[tuple[str, ...]] = ("left", "right", "result")

    right_shape: Shape
    broadcasts: bool

    @property
    def operand_shapes(self) -> dict[str, Shape]:
        return {
            "left": self.data_shape,
            "right": self.right_shape,
            "result": self._parameters.output_shape,
        }

    def _shape_arguments(self) -> dict[str, int]:
        if not self.broadcasts:
            return {"elements": math.prod(self.data_shape)}
        arguments: dict[str, int] = {}
        for side, shape in (("left", self.data_shape), ("right", self.right_shape)):
            four = (1,) * (4 - len(shape)) + shape
            arguments |= {f"{side}_{axis}": n for axis, n in enumerate(four)}
        return arguments


@dataclass(frozen=True, kw_only=True)
class QPool2d(Pool2d, Composite, Image):
    """A pool with the same scale for data and result; padding is left out."""

    @property
    def scalars(self) -> dict[str, int]:
        sizes = self.size_arguments()
        del sizes["output_channels"]
        return {
            **{name.replace("input_", ""): size for name, size in sizes.items()},
            "window_height": self.window[0],
            "window_width": self.window[1],
            **window_arguments(self),
            **self.ending(),
        }
