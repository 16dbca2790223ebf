# SPDX-License-Identifier: Apache-2.0
"""`quantized.argmax` and `quantized.argmin` (data): the index of the largest or least element, the
first if there are several.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from umakit import tvm_api
from umakit.operators.drawings import reductions
from umakit.operators.interface import Interface, along_axes
from umakit.operators.islands import Network
from umakit.operators.kernels.loops import buffer, kernel, loop, loops, sequence, set_to, unflatten
from umakit.operators.parameters import PREFIX, Parameters, whole_range
from umakit.operators.registry import IntegerCall, Shapes, register
from umakit.operators.tflite import Convert, TfliteNode, converts, one_axis
from umakit.tvm_api import Call, PrimExpr, int32, relax, tirx


@dataclass(frozen=True)
class ArgMax(Parameters):
    """Index of the largest element along an axis, the first if there are several.

    Attributes:
        axis: axis along which elements are compared.
    """

    operator: ClassVar[str] = "argmax"

    axis: int


def replace_by(kind: type[ArgMax], call: Call, network: Network) -> Call:
    """Return a call of an integer argmax or argmin; for data of other dtypes, the call itself.

    TVM's own operator returns -1 if all elements are the least integer of the dtype.
    """
    data_shape, shape = (tvm_api.static_shape(item) for item in (call.args[0], call))
    integers = tvm_api.dtype_of(call.args[0]) in ("int8", "uint8", "int16")
    if not integers or data_shape is None or shape is None or call.attrs.axis is None:
        return call
    fields, axis = whole_range(shape, "int32", network.arithmetic), int(call.attrs.axis)
    parameters = kind(**fields, axis=axis % len(data_shape))
    return replace(parameters, output_dtype=tvm_api.dtype_of(call)).call([call.args[0]], call.span)


def as_int32(kind: type[ArgMax], cast: Call, network: Network) -> Call:
    """Return a call with an int32 result in place of a cast of its result to int32."""
    call = network.definition(cast.args[0])
    is_one = tvm_api.operator_name(call) == f"{PREFIX}{kind.operator}"
    if not isinstance(call, Call) or not is_one or tvm_api.dtype_of(cast) != "int32":
        return cast
    span = tvm_api.span_with_result(call.span, cast.span)
    return replace(kind.of(call), output_dtype="int32").call(list(call.args), span)


def extreme_kernel(
    parameters: ArgMax, shapes: Shapes, dtypes: list[str], least: bool = False
) -> tvm_api.PrimFunc:
    """Return the kernel (data, output) of the index of the largest or least element along an axis.

    Args:
        least: whether to find the least element instead of the largest one.
    """
    shape, zero = shapes[0], int32(0)
    data = buffer("data", shape, dtypes[0])
    output = buffer("output", parameters.output_shape, parameters.output_dtype)
    outer, extent = shape[: parameters.axis], shape[parameters.axis]
    inner = shape[parameters.axis + 1 :]
    best, place = (
        tirx.decl_buffer([1], "int32", name, scope="local") for name in ("best", "place")
    )

    def one(i: PrimExpr, j: PrimExpr) -> tvm_api.Stmt:
        def element(k: PrimExpr) -> PrimExpr:
            return int32(data[(*unflatten(i, outer), k, *unflatten(j, inner))])

        def compare(k: PrimExpr) -> tvm_api.Stmt:
            value = tirx.Var("value", "int32")
            worse = value < best[zero]
            better = worse if least else value > best[zero]
            return sequence(
                tirx.Bind(value, element(k)),
                tirx.IfThenElse(
                    better, sequence(set_to(best, zero, value), set_to(place, zero, k)), None
                ),
            )

        flat = i * int32(math.prod(inner)) + j
        return sequence(
            tirx.AllocBuffer(best),
            tirx.AllocBuffer(place),
            set_to(best, zero, element(zero)),
            set_to(place, zero, zero),
            loop("k", extent, compare),
            tirx.BufferStore(
                output,
                place[zero].astype(parameters.output_dtype),
                unflatten(flat, parameters.output_shape),
            ),
        )

    extents = [("i", math.prod(outer)), ("j", math.prod(inner))]
    return kernel([data, output], loops(extents, one))


register(
    parameters=ArgMax,
    kernel_of_operands=extreme_kernel,
    takes_clip=True,
    drawing=reductions.extreme(ArgMax),
    integer_calls=(
        IntegerCall("argmax", partial(replace_by, ArgMax), without_quantize=True),
        IntegerCall("astype", partial(as_int32, ArgMax)),
    ),
    interface=Interface(
        sizes=along_axes, names={"axis": ()}, checks=("data",), result="int32", clips=False
    ),
)


def place_of_extreme(function: Callable[..., tvm_api.Expr]) -> Convert:
    """ARG_MAX or ARG_MIN along a constant axis, as int32."""

    def convert(node: TfliteNode) -> tvm_api.Expr:
        rank = len(node.shape(0))
        axis = one_axis(node.integers(1), rank)
        places = function(node.value(0), axis)
        return relax.op.astype(node.emit(places), "int32")

    return convert


TFLITE_DTYPES = tuple((dtype, "int32") for dtype in ("float32", "int8", "uint8"))

converts("ARG_MAX", *TFLITE_DTYPES)(place_of_extreme(relax.op.argmax))


@dataclass(frozen=True)
class ArgMin(ArgMax):
    """Index of the least element along an axis, the first if there are several."""

    operator: ClassVar[str] = "argmin"


register(
    parameters=ArgMin,
    kernel_of_operands=partial(extreme_kernel, least=True),
    takes_clip=True,
    drawing=reductions.extreme(ArgMin),
    integer_calls=(
        IntegerCall("argmin", partial(replace_by, ArgMin), without_quantize=True),
        IntegerCall("astype", partial(as_int32, ArgMin)),
    ),
    interface=Interface(
        sizes=along_axes, names={"axis": ()}, checks=("data",), result="int32", clips=False
    ),
)


converts("ARG_MIN", *TFLITE_DTYPES)(place_of_extreme(relax.op.argmin))
