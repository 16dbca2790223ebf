# SPDX-License-Identifier: Apache-2.0
"""Operators that umakit imports itself, because TVM's importer gets them wrong or not at all.

A file of this package defines converters of one family of operators; `REGISTRY` has them all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from umakit.frontend.onnx.node import Node
from umakit.frontend.onnx.operators import (
    arithmetic,
    bounds,
    convolution,
    indices,
    layout,
    normalization,
    pad,
    reduce,
    regions,
    resize,
    sequences,
    slopes,
)

Converter = Callable[[Node], Any | None]
"""From a node to its result: a Relax expression, a list of them for several results, or None to
leave the node to TVM's importer."""

FAMILIES = (
    arithmetic,
    bounds,
    convolution,
    indices,
    layout,
    normalization,
    pad,
    reduce,
    regions,
    resize,
    sequences,
    slopes,
)

REGISTRY: dict[str, Converter] = {
    operator: converter for family in FAMILIES for operator, converter in family.CONVERTERS.items()
}
"""By operator of the standard domain."""
