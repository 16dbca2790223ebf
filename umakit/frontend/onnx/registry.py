# SPDX-License-Identifier: Apache-2.0
"""Registry of the converters in `operators`, and of the decisions on their attributes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from umakit.frontend.onnx.node import Node
from umakit.tvm_api import Expr

Converter = Callable[[Node], Expr | list[Expr] | None]
"""From a node to its result: a Relax expression, a list of them for several results, or None to
leave the node to TVM's importer."""

ABSENT = None
"""Among the values of `Decision.only`: the attribute is left out and has no default."""

FLOAT8 = "says how float8 is rounded, which is refused as a type"
STASH = "precision of sums of float16, which is refused as a type; others are at least as precise"


@dataclass(frozen=True)
class Decision:
    """Treatment of the attributes of one operator.

    Attributes:
        honoured: names, separated by spaces. The converter implements every value or refuses it.
        only: supported values by name; other values are refused. `ABSENT` means that the attribute
            must be omitted.
        ignored: by name, the reason why no value affects the result.
    """

    honoured: str = ""
    only: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    ignored: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> frozenset[str]:
        """Return all attributes that this decision covers."""
        return frozenset([*self.honoured.split(), *self.only, *self.ignored])


CONVERTERS: dict[str, Converter] = {}
"""Converters by standard operator."""

CONVERTER_DECISIONS: dict[str, Decision] = {}
"""Decisions on attributes, by standard operator."""


def converts(
    operators: str,
    honoured: str = "",
    *,
    only: Mapping[str, tuple[Any, ...]] | None = None,
    ignored: Mapping[str, str] | None = None,
) -> Callable[[Converter], Converter]:
    """Register a function that imports operators of the standard domain.

    Args:
        operators: operator names, separated by spaces.
        honoured, only, ignored: see `Decision`. They cover all attributes of all schema versions.

    Raises:
        ValueError: an operator is registered already.
    """
    decision = Decision(honoured, only or {}, ignored or {})

    def register(converter: Converter) -> Converter:
        for operator in operators.split():
            if operator in CONVERTERS:
                raise ValueError(f"two functions import {operator}")
            CONVERTERS[operator] = converter
            CONVERTER_DECISIONS[operator] = decision
        return converter

    return register
