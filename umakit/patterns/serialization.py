# SPDX-License-Identifier: Apache-2.0
"""Serialization of operator parameters as text, for attributes in TVM."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields
from typing import Any

from umakit.operators.offload.composite import ROUNDINGS, Composite
from umakit.operators.offload.generated import Generated, member
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
