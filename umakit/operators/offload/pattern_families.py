# SPDX-License-Identifier: Apache-2.0
"""Base patterns of layers with weights, of pools and of elementwise operators."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from umakit import tvm_api
from umakit.errors import BackendError
from umakit.operators.numeric.fixed_point import Arithmetic
from umakit.operators.offload import constraints as _c
from umakit.operators.offload.composite import Shape
from umakit.operators.offload.constraints import Constraint, Names, Pairs
from umakit.operators.offload.matching import Match, NotReadable
from umakit.operators.offload.pattern import Arrays, OperatorPattern, WindowPattern
from umakit.operators.offload.rounding import rounding_constraints
from umakit.operators.offload.weighted import ARRAYS, CONVOLUTION, Array, Weighted, weight_layout
from umakit.operators.offload.weighted import weight_layout as read_layout
from umakit.operators.parameters import BIAS_DTYPES, Parameters


@dataclass(frozen=True, eq=False)
class ElementwisePattern(OperatorPattern):
    """Constraints of additions, differences and products.

    Attributes:
        rounding: roundings of products with multipliers, names of `umakit.patterns.ROUNDINGS`; or
            `"own:FUNCTION"`, a C function of the backend.
        broadcast: the driver gets both shapes, of four axes, instead of the number of elements, and
            can repeat axes of one element.
    """

    OPERANDS: ClassVar[int] = 2
    DOES: ClassVar[str]

    rounding: Names = field(default="tflm", kw_only=True)
    broadcast: bool = field(default=False, kw_only=True)

    def _fields(
        self, parameters: Parameters, match: Match, shapes: list[Shape], arrays: Arrays | None
    ) -> dict[str, Any]:
        return {"right_shape": shapes[1], "broadcasts": self.broadcast}

    def _constraints(self) -> list[Constraint]:
        return [*rounding_constraints(self.dtypes, self.rounding, float32=False), self._shapes]

    def _shapes(self, layer: Any) -> str:
        shapes = (layer.data_shape, layer.right_shape)
        left, right = ("x".join(str(n) for n in shape) for shape in shapes)
        if not self.broadcast and shapes[0] != shapes[1]:
            return f"shapes {left} and {right}: the accelerator {self.DOES} equal ones"
        if self.broadcast and max(len(shape) for shape in shapes) > 4:
            return f"shapes {left} and {right}: the driver is told four axes"
        return ""


@dataclass(frozen=True, eq=False)
class WeightedPattern(OperatorPattern):
    """Constraints of convolutions and fully connected layers.

    Attributes:
        rounding: roundings of products with multipliers, names of `umakit.patterns.ROUNDINGS`; or,
            for models of any rounding, `"own:FUNCTION"`, a C function of the backend, or
            `"float32"`, float32 factors and ties to even.
        per_channel: whether the accelerator supports a scale per output channel, or only one scale
            for all.
        expand_scales: the driver gets a multiplier and a shift for each output channel, even if the
            model has one scale for all.
        weight_layout: the driver gets the weights in this layout, for example `HWIO` or `O/8 HWI
            8o`. Bias, multipliers and shifts are padded to whole blocks of O as well.
        fold_zero_point: the driver gets a bias that includes -zero point * sum(weights). The
            accelerator then multiplies the data without subtracting the zero point, and pads with
            the zero point.
        shift_dtype: the driver gets shifts of this dtype, `"int8"`, `"int16"` or `"int32"`.
        multiplier_dtype: the driver gets multipliers of this dtype, `"int32"`, or for int16 data
            with multipliers of 15 bits, `"int16"`.
        wide_multipliers: the driver gets multipliers of 31 bits for int16 data too, times 65536;
            kernels like CMSIS-NN's drop the lower 16 bits.
        weight_sums: the driver gets one more pointer behind the shifts, to the int32 sum of weights
            of each output channel, to subtract times the zero point of the data.
    """

    KIND: ClassVar[type[Weighted]]
    OPERANDS: ClassVar[int] = 5

    rounding: Names = field(default="tflm", kw_only=True)
    per_channel: bool = field(default=True, kw_only=True)
    expand_scales: bool = field(default=False, kw_only=True)
    weight_layout: str = field(default=CONVOLUTION, kw_only=True)
    fold_zero_point: bool = field(default=False, kw_only=True)
    shift_dtype: str = field(default="int8", kw_only=True)
    multiplier_dtype: str = field(default="int32", kw_only=True)
    wide_multipliers: bool = field(default=False, kw_only=True)
    weight_sums: bool = field(default=False, kw_only=True)

    def stored_fields(self, data_dtype: str) -> dict[str, Any]:
        """Return the fields of the parameters with the form of the driver's arrays."""
        dtypes = {"multipliers": self.multiplier_dtype, "shifts": self.shift_dtype}
        changed = {name: dtype for name, dtype in dtypes.items() if dtype != STORED_AS[name][0]}
        return {
            "stored_dtypes": tuple(changed.items()),
            "wide_multipliers": self.wide_multipliers and data_dtype in BIAS_DTYPES,
            "sums": self.weight_sums,
        }

    def _check_stored(self) -> None:
        """Refuse unknown forms of arrays."""
        given = {"multipliers": self.multiplier_dtype, "shifts": self.shift_dtype}
        for name, dtype in given.items():
            if dtype not in STORED_AS[name]:
                raise BackendError(
                    f"{name} of {dtype!r}",
                    where=self.name,
                    fix=f"say {' or '.join(STORED_AS[name])}",
                )
        if self.wide_multipliers and self.multiplier_dtype != "int32":
            raise BackendError(
                "wide_multipliers=True: multipliers of 31 bits do not fit int16",
                where=self.name,
                fix="leave out multiplier_dtype",
            )

    def _fields(
        self, parameters: Parameters, match: Match, shapes: list[Shape], arrays: Arrays | None
    ) -> dict[str, Any]:
        call = match.operator
        if arrays is None:
            arrays = [tvm_api.constant_array(operand) for operand in call.args[1:]]
        values: dict[str, Array] = {}
        for name, array in zip(ARRAYS, arrays, strict=True):
            if array is None:
                raise NotReadable(f"its {name} are computed, not constant: they cannot be prepared")
            values[name] = array
        data = tvm_api.dtype_of(call.args[0])
        for name, dtype in (("weights", "int8"), ("bias", BIAS_DTYPES.get(data, "int32"))):
            if values[name].dtype != dtype:
                raise NotReadable(
                    f"{values[name].dtype} {name}: drivers of {data} data get {dtype}"
                )
        if getattr(parameters, "layout", "NHWC") == "NCHW":  # the model's weights are OIHW then
            values["weights"] = values["weights"].transpose(0, 2, 3, 1)
        outputs = len(values["weights"])
        if self.expand_scales:
            for name in ("multipliers", "shifts"):
                values[name] = np.broadcast_to(values[name], outputs)
        blocks = weight_layout(self.weight_layout, self.KIND.AXES).blocks
        return {
            **values,
            "weights_shape": tuple(values["weights"].shape),
            "stored_layout": self.weight_layout,
            "scales": int(values["multipliers"].size),
            "expanded": self.expand_scales,
            "fill": -outputs % blocks.get("O", 1),
            "zero_point_in_bias": self.fold_zero_point,
            **self.stored_fields(data),
        }

    def _constraints(self) -> list[Constraint]:
        read_layout(self.weight_layout, self.KIND.AXES)
        self._check_stored()
        return [
            _c.refuse_if(
                lambda layer: self.multiplier_dtype == "int16" and not has_short_multipliers(layer),
                lambda layer: (
                    f"multipliers of 31 bits for {layer.data_dtype} data, rounding "
                    f"{layer.rounding}: the accelerator has int16"
                ),
            ),
            _c.refuse_if(
                lambda layer: layer.wide_multipliers and not has_short_multipliers(layer),
                lambda layer: (
                    f"multipliers of 31 bits for sums of 64, rounding {layer.rounding}: the "
                    "accelerator reads the upper 15"
                ),
            ),
            *rounding_constraints(
                self.dtypes, self.rounding, float32="addition" not in self.KIND.PARTS
            ),
            _c.refuse_if(
                lambda layer: layer.per_channel and not self.per_channel,
                lambda layer: (
                    f"{layer.scales} scales, one for each output channel: the accelerator has 1"
                ),
            ),
        ]


STORED_AS = {"multipliers": ("int32", "int16"), "shifts": ("int8", "int16", "int32")}
"""Dtypes of multipliers and shifts for drivers, the model's first."""


def has_short_multipliers(layer: Any) -> bool:
    """Whether multipliers have 15 bits."""
    return layer.data_dtype in BIAS_DTYPES and layer.rounding == Arithmetic.TFLM.value


@dataclass(frozen=True, eq=False)
class ConvolutionPattern(WindowPattern, WeightedPattern):
    """Constraints of regular and depthwise convolutions.

    Attributes:
        kernels: supported rows and columns of the window.
        dilation: supported dilations.
    """

    kernels: Pairs = field(default=None, kw_only=True)
    dilation: Pairs = field(default=1, kw_only=True)

    def _constraints(self) -> list[Constraint]:
        return [
            *self._own_constraints(),
            *self._window_constraints(self.kernels, "kernel", lambda layer: layer.kernel),
            _c.one_of_pairs(
                self.dilation, "dilation", lambda layer: layer.dilation, "the accelerator has"
            ),
            *self._image_constraints(),
            *self._channel_constraints(),
            *super()._constraints(),
        ]

    def _own_constraints(self) -> list[Constraint]:
        raise NotImplementedError

    def _channel_constraints(self) -> list[Constraint]:
        return [outputs_constraint(self.channel_multiple)]


@dataclass(frozen=True, eq=False)
class PoolPattern(WindowPattern):
    """Constraints of pools.

    Attributes:
        windows: supported rows and columns of the window.
    """

    OPERANDS: ClassVar[int] = 1

    windows: Pairs = field(default=None, kw_only=True)

    def _constraints(self) -> list[Constraint]:
        return [*_c.types(self.dtypes), *self._pool_constraints()]

    def _pool_constraints(self) -> list[Constraint]:
        return [
            *self._window_constraints(self.windows, "window", lambda layer: layer.window),
            *self._image_constraints(),
            _c.multiple_of(self.channel_multiple, "channels", lambda layer: layer.input_channels),
        ]


def outputs_constraint(wanted: int | None) -> Constraint:
    """Return the constraint that the output channels are a multiple of a number."""
    return _c.multiple_of(wanted, "output channels", lambda layer: layer.output_channels)
