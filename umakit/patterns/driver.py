# SPDX-License-Identifier: Apache-2.0
"""Conversion of composites to calls of C drivers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields, replace
from typing import Any

from umakit import tir, tvm_api
from umakit.errors import BackendError, LoweringError
from umakit.operators.offload.composite import ROUNDINGS, Composite
from umakit.operators.offload.generated import Generated, member
from umakit.operators.offload.pattern import OperatorPattern
from umakit.operators.offload.weighted import ARRAYS, Weighted

_ONES, _ZEROS = (1, 1, 1, 1), (0, 0, 0)


def example(kind: type[Composite], dtype: str, requantize: bool, broadcast: bool) -> Composite:
    """Return the parameters of the smallest operator of a kind, which show the argument order."""
    if issubclass(kind, Generated):
        return kind.example(dtype, requantize, broadcast)
    common: dict[str, Any] = {
        "output_shape": _ONES, "output_dtype": dtype, "output_zero_point": 0, "clip": (0, 0),
        "rounding": ROUNDINGS[0],
    }  # fmt: skip
    change: dict[str, Any] = {"input_zero_point": 0, "multiplier": 0, "shift": 0}
    added: dict[str, Any] = {
        "zero_points": (0, 0), "left_shift": 0, "multipliers": _ZEROS, "shifts": _ZEROS,
    }  # fmt: skip
    values = common | change | added | {
        "data_shape": _ONES, "data_dtype": dtype, "right_shape": _ONES, "broadcasts": broadcast,
        "weights_shape": _ONES, "stored_layout": "", "scales": 1, "expanded": False, "fill": 0,
        "zero_point_in_bias": False,
        "strides": (1, 1), "padding": (0, 0, 0, 0), "dilation": (1, 1), "groups": 1,
        "window": (1, 1),
    }  # fmt: skip
    for name, part in kind.PARTS.items():
        values[name] = part(**{item.name: values[item.name] for item in fields(part)})
    if not requantize:
        values["then"] = None
    needed = {
        item.name
        for item in fields(kind)
        if item.default is MISSING and item.default_factory is MISSING
    }
    return kind(**{name: values[name] for name in (needed | {"then"})})


def as_text(layer: Composite) -> str:
    """Return parameters as JSON without the values of arrays, for an attribute of a prim func."""
    values: dict[str, Any] = {
        item.name: getattr(layer, item.name)
        for item in fields(layer)
        if not (isinstance(layer, Weighted) and item.name in ARRAYS)
    }
    values |= {name: asdict(values[name]) for name in layer.PARTS if values.get(name) is not None}
    return json.dumps({"kind": type(layer).__name__, **values}, sort_keys=True)


def from_text(text: str) -> Composite:
    """Return parameters from the text of `as_text`."""
    values: dict[str, Any] = {name: _tuples(value) for name, value in json.loads(text).items()}
    kind: type[Composite] = _kind(str(values.pop("kind")))
    for name, part in kind.PARTS.items():
        if isinstance(values.get(name), Mapping):
            of_part: dict[str, Any] = {key: _tuples(item) for key, item in values[name].items()}
            values[name] = part(**of_part)
    return kind(**values)


def _kind(name: str) -> type[Composite]:
    kind = member(name)
    assert kind is not None and issubclass(kind, Composite)
    return kind


def _tuples(value: object) -> object:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


ATTRIBUTE = "umakit_parameters"
"""Attribute of a prim func and of the call that a strategy gets: parameters as JSON."""

ARRAYS_ATTRIBUTE = "umakit_arrays"
"""Attribute of a prim func, until it becomes a kernel: the layer's arrays by name."""

C_TYPES = {"float32": "float"}
"""Types in C of elements that are not integers."""


def parameters_of(source: object) -> Composite | None:
    """Return the parameters of an offloaded integer operator.

    Args:
        source: prim func of a TIR pass, or attributes of an operator strategy.

    Returns:
        The parameter class of the pattern, such as `QConv2d` for `qconv2d`. For a prim func, the
        object also holds the values of weights, bias, multipliers and shifts. None for anything
        that does not come from a pattern of `umakit.patterns`.
    """
    if not isinstance(source, tvm_api.PrimFunc):
        text = getattr(source, ATTRIBUTE, None)
        return None if text is None else from_text(str(text))
    text = tvm_api.function_attribute(source, ATTRIBUTE)
    if text is None:
        return None
    arrays = tvm_api.function_attribute(source, ARRAYS_ATTRIBUTE) or {}
    values = {str(name): array.numpy() for name, array in arrays.items()}
    return replace(from_text(str(text)), **values)


def driver_call(function: tvm_api.PrimFunc, name: str) -> tvm_api.PrimFunc:
    """Return the prim func of a composite with a driver call as its body.

    The call has the arguments of `c_declaration`. A status other than 0 stops the run.

    Args:
        function: prim func that a TIR pass received.
        name: name of the C function.

    Raises:
        LoweringError: the prim func is not a composite of `umakit.patterns`.
    """
    layer = parameters_of(function)
    if layer is None:
        raise LoweringError(
            "is not an integer operator of umakit.patterns",
            where=tir.composite_name(function) or "a prim func",
            fix="build its driver call with tir.driver_call",
        )
    pointers = [tir.pointer(parameter) for parameter in function.params]
    scalars = [
        tvm_api.tirx.IntImm("int64", value) if scalar in layer.wide_scalars else value
        for scalar, value in layer.scalars.items()
    ]
    return tir.with_body(function, tir.driver_call(name, [*pointers, *scalars]))


def driver_calls(**drivers: str) -> tvm_api.Pass:
    """Return a TIR pass that turns composites into driver calls.

    Args:
        drivers: name of the C function by name of the pattern, for example
            `qconv2d="my_npu_qconv2d"`. Other composites stay unchanged.
    """

    def replaced(function: tvm_api.PrimFunc) -> tvm_api.PrimFunc:
        pattern = tir.composite_name(function).partition(".")[2]
        if pattern in drivers and parameters_of(function) is not None:
            return driver_call(function, drivers[pattern])
        return function

    return tir.prim_func_pass("driver_calls", replaced)


def declared(pattern: OperatorPattern) -> tuple[dict[str, str], list[str]]:
    """Return the element dtypes by name of the pointers of `c_declaration`, and its numbers."""
    layer = _example(pattern, None)
    return dict(layer.pointer_types), list(layer.scalars)


def _example(pattern: OperatorPattern, dtype: str | None) -> Composite:
    if dtype is None:
        dtype = pattern.dtypes if isinstance(pattern.dtypes, str) else "int8"
    broadcast = bool(getattr(pattern, "broadcast", False))
    layer = example(pattern.KIND, dtype, pattern.requantize, broadcast)
    return replace(layer, **pattern.stored_fields(dtype))


def c_declaration(name: str, pattern: OperatorPattern, dtype: str | None = None) -> str:
    """Return the C declaration of the driver that `driver_call` calls.

    Args:
        name: name of the C function.
        pattern: pattern that the backend registers, for example `patterns.qconv2d()`; its options
            `requantize` and `broadcast` add arguments.
        dtype: dtype of data and result; default: the pattern's only dtype, or int8 if the pattern
            takes several.

    Raises:
        BackendError: the pattern is not one of `umakit.patterns`.
    """
    if not isinstance(pattern, OperatorPattern):
        raise BackendError(
            f"c_declaration got {type(pattern).__name__}, which is no pattern of umakit.patterns",
            where=str(name),
            fix="give the name of the C function first, then the pattern",
        )
    layer = _example(pattern, dtype)
    pointers = [
        f"{'' if pointer in layer.RESULTS else 'const '}{C_TYPES.get(kind, f'{kind}_t')} *{pointer}"
        for pointer, kind in layer.pointer_types.items()
    ]
    scalars = [
        f"int{64 if scalar in layer.wide_scalars else 32}_t {scalar}" for scalar in layer.scalars
    ]
    arguments = [*pointers, *scalars]
    return f"int32_t {name}({', '.join(arguments)});"
