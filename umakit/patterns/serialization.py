# SPDX-License-Identifier: Apache-2.0
"""Parameters as text, which is how they travel through TVM."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields
from typing import Any

from umakit.patterns.parameters import (
    ROUNDINGS,
    Composite,
    QAdd,
    QAveragePool2d,
    QMaxPool2d,
    QMultiply,
    QSubtract,
)
from umakit.patterns.weighted import ARRAYS, QConv2d, QDense, QDepthwise, Weighted
from umakit.quantization.operators import Requantize

KINDS: tuple[type[Composite], ...] = (
    QConv2d, QDepthwise, QDense, QAdd, QSubtract, QMultiply, QAveragePool2d, QMaxPool2d,
)  # fmt: skip
_ONES, _ZEROS = (1, 1, 1, 1), (0, 0, 0)


def example(kind: type[Composite], dtype: str, requantize: bool, broadcast: bool) -> Composite:
    """Parameters of the smallest operator of a kind, to look at names and their order."""
    common = {
        "output_shape": _ONES, "output_dtype": dtype, "output_zero_point": 0, "clip": (0, 0),
        "rounding": ROUNDINGS[0], "input_zero_point": 0, "multiplier": 0, "shift": 0,
    }  # fmt: skip
    values = common | {
        "data_shape": _ONES, "data_dtype": dtype, "right_shape": _ONES, "broadcasts": broadcast,
        "weights_shape": _ONES, "stored_layout": "", "scales": 1, "expanded": False, "fill": 0,
        "zero_point_in_bias": False,
        "strides": (1, 1), "padding": (0, 0, 0, 0), "dilation": (1, 1), "groups": 1,
        "window": (1, 1), "zero_points": (0, 0), "left_shift": 0, "multipliers": _ZEROS,
        "shifts": _ZEROS, "then": Requantize(**common) if requantize else None,  # type: ignore[arg-type]
    }  # fmt: skip
    needed = {item.name for item in fields(kind) if item.default is MISSING}
    return kind(**{name: values[name] for name in (needed | {"then"})})  # type: ignore[arg-type]


def as_text(known: Composite) -> str:
    """Parameters as JSON, without the values of arrays: how they travel on a prim func."""
    values: dict[str, Any] = {
        item.name: getattr(known, item.name)
        for item in fields(known)
        if not (isinstance(known, Weighted) and item.name in ARRAYS)
    }
    if known.then is not None:
        values["then"] = asdict(known.then)
    return json.dumps({"kind": type(known).__name__, **values}, sort_keys=True)


def from_text(text: str) -> Any:
    """The inverse of `as_text`."""
    values = {name: _tuples(value) for name, value in json.loads(text).items()}
    kind = next(kind for kind in KINDS if kind.__name__ == values["kind"])
    del values["kind"]
    if isinstance(values["then"], Mapping):
        then = {name: _tuples(value) for name, value in values["then"].items()}
        values["then"] = Requantize(**then)
    return kind(**values)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value
