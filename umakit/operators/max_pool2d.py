# SPDX-License-Identifier: Apache-2.0
"""`quantized.max_pool2d` (data): max pools, also of integers without a quantize afterwards.

`quantized.dilated_max_pool2d` (data) is the max pool of ONNX with dilated windows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from umakit import tvm_api
from umakit.operators.derivation.windows import (
    Window,
    plain_pool,
    pool_fields,
    pool_of_images,
    tflm_pool,
)
from umakit.operators.drawings import spread, windows
from umakit.operators.interface import Interface, image
from umakit.operators.islands import TFLITE_INTEGERS, Island, Network, Result
from umakit.operators.kernels.pooling import largest, pool_of_operands
from umakit.operators.numeric.fixed_point import Arithmetic
from umakit.operators.offload.composite import QPool2d
from umakit.operators.offload.pattern_families import PoolPattern
from umakit.operators.parameters import Pair, Pool2d
from umakit.operators.registry import IntegerCall, Order, Recognition, register
from umakit.operators.tensors import NoIntegerForm, Scale
from umakit.operators.tflite import QUANTIZED, TfliteNode, check_steps, converts
from umakit.tvm_api import Expr


@dataclass(frozen=True)
class MaxPool2d(Pool2d):
    """The largest element of each window."""

    operator: ClassVar[str] = "max_pool2d"


def _derive_for_ort(island: Island) -> Expr:
    def parameters(result: Result, data: Expr) -> Pool2d:
        fields = pool_fields(Window.of(result.call.attrs), result, data)
        return MaxPool2d(**result.common(Arithmetic.ORT), **fields)

    return pool_of_images(island, parameters)


def _derive_global(island: Island) -> Expr:
    """Return the maximum over whole images as a pool with one window."""
    result = island.result
    shape = tvm_api.static_shape(result.call.args[0]) or ()
    axes = sorted(int(axis) % len(shape) for axis in result.call.attrs.axis or ())
    if len(shape) < 3 or axes != list(range(2, len(shape))) or len(result.shape) < len(shape):
        raise NoIntegerForm("the maximum is not over all positions of a channel")

    def parameters(result: Result, data: Expr) -> Pool2d:
        _, _, rows, columns = tvm_api.static_shape(data) or (0, 0, 0, 0)
        return MaxPool2d(
            **result.common(Arithmetic.ORT),
            strides=(1, 1),
            padding=(0, 0, 0, 0),
            window=(rows, columns),
            layout="NCHW",
        )

    return pool_of_images(island, parameters)


def _of_integers(call: tvm_api.Call, network: Network) -> Expr:
    dtype = tvm_api.dtype_of(call.args[0])
    if dtype not in TFLITE_INTEGERS:
        return call
    result = Result.of(call, Scale(np.float32(1), 0, dtype))
    try:
        parameters = plain_pool(MaxPool2d, result, call, network.arithmetic)
    except NoIntegerForm:
        return call
    return parameters.call([call.args[0]], call.span)


# --- offered to backends -------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class QMaxPool2d(MaxPool2d, QPool2d):
    """The largest element of each window."""


@dataclass(frozen=True, eq=False)
class qmax_pool2d(PoolPattern):
    """An integer max pool."""

    KIND = QMaxPool2d
    OPERATOR = MaxPool2d

    name: str = "qmax_pool2d"


register(
    parameters=MaxPool2d,
    kernel_of_operands=pool_of_operands(largest),
    recognitions=(
        Recognition(("nn.max_pool2d",), partial(tflm_pool, MaxPool2d), (Arithmetic.TFLM,)),
        Recognition(("nn.max_pool1d", "nn.max_pool2d"), _derive_for_ort, (Arithmetic.ORT,)),
        Recognition(("max",), _derive_global, (Arithmetic.ORT,)),
    ),
    takes_clip=True,
    integer_calls=(IntegerCall("nn.max_pool2d", _of_integers),),
    patterns=(qmax_pool2d,),
    drawing=windows.pool(MaxPool2d),
)


@converts("MAX_POOL_2D", "float32", *QUANTIZED, same_scale=True)
def convert(node: TfliteNode) -> Expr:
    """MAX_POOL_2D."""
    options = node.options("Pool2DOptions")
    check_steps(options, "StrideH", "StrideW", "FilterHeight", "FilterWidth")
    return node.imported()


@dataclass(frozen=True)
class DilatedMaxPool2d(Pool2d):
    """The largest element of each dilated window.

    Attributes:
        dilation: rows, columns.
    """

    operator: ClassVar[str] = "dilated_max_pool2d"

    dilation: Pair


def _derive(island: Island) -> tvm_api.Expr | None:
    window = Window.of(island.call.attrs)
    if window.dilation == (1, 1):
        return None

    def parameters(result: Result, data: tvm_api.Expr) -> Pool2d:
        fields = pool_fields(window, result, data)
        return DilatedMaxPool2d(**result.common(Arithmetic.ORT), **fields, dilation=window.dilation)

    return pool_of_images(island, parameters)


register(
    parameters=DilatedMaxPool2d,
    kernel_of_operands=pool_of_operands(largest),
    recognitions=(
        Recognition(("nn.max_pool1d", "nn.max_pool2d"), _derive, (Arithmetic.ORT,), Order.SPECIAL),
    ),
    drawing=spread.dilated_pool(DilatedMaxPool2d),
    interface=Interface(sizes=image),
)
