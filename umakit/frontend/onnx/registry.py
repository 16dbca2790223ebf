# SPDX-License-Identifier: Apache-2.0
"""Nodes as converters take them, and the registry of converters and of decisions on attributes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt
import onnx

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.tvm_api import Expr


def attribute_of(proto: onnx.NodeProto, name: str, default: Any) -> Any:
    """Return the value of an attribute (strings as bytes), or `default` if the node lacks the
    attribute."""
    for attribute in proto.attribute:
        if attribute.name == name:
            return onnx.helper.get_attribute_value(attribute)
    return default


def opset_of(proto: onnx.ModelProto) -> int:
    """Return the version of the standard operators in a model."""
    return max((o.version for o in proto.opset_import if o.domain in ("", "ai.onnx")), default=1)


@dataclass(frozen=True)
class Node:
    """An operator with imported inputs.

    Attributes:
        proto: ONNX node.
        inputs: Relax expressions in order; None for omitted optional inputs.
        opset: version of the standard operators in the file.
        builder: block builder of the Relax function.
        file: path of the model in error messages.
        dequantized: names of the results of DequantizeLinear nodes.
    """

    proto: onnx.NodeProto
    inputs: tuple[Any, ...]
    opset: int
    builder: tvm_api.BlockBuilder
    file: str
    dequantized: frozenset[str] = frozenset()

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return the value of an attribute (strings as str), or `default` if the node lacks the
        attribute."""
        value = attribute_of(self.proto, name, default)
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else value

    def input(self, position: int) -> Any | None:
        """Return the Relax expression of an input; None for an omitted input."""
        return self.inputs[position] if position < len(self.inputs) else None

    def constant(self, position: int) -> npt.NDArray[Any] | None:
        """Return the values of a constant input; None for an omitted or computed input."""
        expression = self.input(position)
        return None if expression is None else tvm_api.constant_array(expression)

    def constant_input(self, position: int, what: str) -> npt.NDArray[Any] | None:
        """Return the values of an input that must be constant; None for an omitted input.

        Args:
            position: position of the input.
            what: name of the input in the specification.

        Raises:
            ModelError: the input is computed at run time.
        """
        if self.input(position) is None:
            return None
        array = self.constant(position)
        if array is None:
            raise self.refuse(
                f"has an input {what} that is computed at run time, which decides about sizes "
                "in the generated code",
                "make it a constant",
            )
        return array

    def static_shape(self, position: int) -> tuple[int, ...] | None:
        """Return the shape of an input; None for an omitted input or an unknown shape."""
        expression = self.input(position)
        return None if expression is None else tvm_api.static_shape(expression)

    def shape(self, position: int) -> tuple[int, ...]:
        """Return the shape of an input.

        Raises:
            ModelError: the input is omitted, or its shape is unknown before the network runs.
        """
        shape = self.static_shape(position)
        if shape is None:
            raise self.refuse(
                f"has an input {position} of unknown shape", "export the model with fixed shapes"
            )
        return shape

    def dtype(self, position: int) -> str:
        """Return the element type of an input, for example `float32`; empty for an omitted
        input."""
        expression = self.input(position)
        return "" if expression is None else tvm_api.dtype_of(expression)

    def emit(self, expression: tvm_api.Expr) -> tvm_api.Var:
        """Bind an expression to a variable, so that it is computed once."""
        return self.builder.emit(self.builder.normalize(expression))

    def refuse(self, what: str, fix: str = "") -> ModelError:
        """Return the error that refuses this node.

        Args:
            what: predicate of the sentence whose subject is operator and node name, for example
                `has the attribute antialias, which is not supported`.
            fix: advice for the user.
        """
        return ModelError(
            f"operator {self.proto.op_type} of node {self.proto.name!r} {what}",
            where=self.file,
            fix=fix,
        )


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
