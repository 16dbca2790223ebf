# SPDX-License-Identifier: Apache-2.0
"""Drawn networks of one ONNX operator: what `onnx_sweep` compares with ONNX Runtime.

A function that draws networks of an operator stands in the operator's test, a file
`test_onnx_operator_*.py`, or in `onnx_sweep`, and is registered by `makes`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

Array = np.ndarray[Any, Any]

DTYPES = (
    "float32", "float64", "bool", "int8", "int16", "int32", "int64",
    "uint8", "uint16", "uint32", "uint64",
)  # fmt: skip

NEWEST = 22
"""Opset that the installed ONNX Runtime knows in full."""


class Draw:
    """Random choices for one network, the same for a seed.

    Args:
        operator: with its domain.
        seed: of the choices.
        wide: factor of the last size of each shape, for rows that fill vectors.

    Attributes:
        domain: of the operator, empty for the standard one.
        operator: its name.
        opset: of the model.
        schema: of the operator in that opset, None in other domains.
    """

    def __init__(self, operator: str, seed: int, wide: int = 1) -> None:
        self.wide = wide
        self.domain, _, self.operator = operator.rpartition(".")
        self.random = np.random.default_rng([zlib.crc32(operator.encode()), seed])
        self.schema: Any = None
        if self.domain:  # the package onnx has no schemas of other domains
            self.opset = self.integer(13, NEWEST)
            return
        versions = [
            schema.since_version
            for schema in onnx.defs.get_all_schemas_with_history()
            if schema.name == operator and schema.domain == ""
        ]
        versions = [v for v in versions if v <= NEWEST] or [min(versions)]
        since = self.of(sorted(versions))
        later = [version for version in versions if version > since]
        self.opset = self.integer(since, min([*later, max(NEWEST, since) + 1]) - 1)
        self.schema = onnx.defs.get_schema(operator, self.opset, "")

    def of(self, values: Sequence[Any]) -> Any:
        """One of some values."""
        return values[int(self.random.integers(len(values)))]

    def integer(self, low: int, high: int) -> int:
        """From `low` to `high`, both included."""
        return int(self.random.integers(low, high + 1))

    def flag(self) -> bool:
        """One of two."""
        return bool(self.random.integers(2))

    def shape(self, rank: int | None = None, low: int = 1, high: int = 4) -> tuple[int, ...]:
        """Sizes; a rank of 0 to 4 unless it is given."""
        rank = self.integer(0, 4) if rank is None else rank
        sizes = [self.integer(low, high) for _ in range(rank)]
        return tuple(sizes[:-1] + [size * self.wide for size in sizes[-1:]])

    def dtype(self, position: int = 0, among: Sequence[str] = DTYPES) -> str:
        """An element type that the schema allows for an input; float32 as often as the rest."""
        name = self.schema.inputs[position].type_str
        allowed = {name}
        for constraint in self.schema.type_constraints:
            if constraint.type_param_str == name:
                allowed = set(constraint.allowed_type_strs)
        named = {"float32": "float", "float64": "double"}
        found = [d for d in among if f"tensor({named.get(d, d)})" in allowed]
        return "float32" if "float32" in found and self.flag() else self.of(found)

    def array(self, shape: Sequence[int], dtype: str = "float32", limit: float = 5) -> Array:
        """Values up to a limit, a third of them whole numbers; unsigned ones are not negative."""
        if dtype == "bool":
            return self.random.integers(0, 2, shape).astype(bool)
        if "int" in dtype:
            low = 0 if dtype[0] == "u" else -int(limit)
            return self.random.integers(low, int(limit) + 1, shape).astype(dtype)
        values = self.random.uniform(-limit, limit, shape)
        return np.asarray(
            np.where(self.random.random(shape) < 0.3, np.round(values), values), dtype
        )

    def broadcast(self, shape: Sequence[int]) -> tuple[int, ...]:
        """A shape that broadcasts to another one."""
        kept = shape[self.integer(0, len(shape)) :]
        return tuple(1 if self.integer(0, 3) == 0 else size for size in kept)

    def attributes(self, **pools: Sequence[Any]) -> dict[str, Any]:
        """Some of the attributes that the opset knows, each with one of its values."""
        known = self.schema.attributes if self.schema else dict.fromkeys(pools)
        return {
            name: self.of(values)
            for name, values in pools.items()
            if name in known and (getattr(known[name], "required", False) or self.flag())
        }


@dataclass
class Network:
    """An operator with its inputs.

    Attributes:
        attributes: by name.
        inputs: None for one that is left out.
        constants: numbers of the inputs that are part of the model.
        outputs: how many there are, or the numbers of those that have names.
    """

    attributes: dict[str, Any]
    inputs: list[Array | None]
    constants: tuple[int, ...] = ()
    outputs: int | tuple[int, ...] = 1


Maker = Callable[[Draw], Network]
MAKERS: dict[str, Maker] = {}
"""By operator."""


def makes(operators: str) -> Callable[[Maker], Maker]:
    """Registers a function that draws networks of some operators."""

    def register(maker: Maker) -> Maker:
        MAKERS.update(dict.fromkeys(operators.split(), maker))
        return maker

    return register
