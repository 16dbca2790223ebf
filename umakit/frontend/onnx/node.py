# SPDX-License-Identifier: Apache-2.0
"""One operator of an ONNX graph, as a converter sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
import onnx

from umakit import tvm_api
from umakit.errors import ModelError


def attribute_of(proto: onnx.NodeProto, name: str, default: Any) -> Any:
    """The value of an attribute, strings as bytes, or `default` where the node has none."""
    for attribute in proto.attribute:
        if attribute.name == name:
            return onnx.helper.get_attribute_value(attribute)
    return default


def opset_of(proto: onnx.ModelProto) -> int:
    """The version of the standard operators that a model was written for."""
    return max((o.version for o in proto.opset_import if o.domain in ("", "ai.onnx")), default=1)


@dataclass(frozen=True)
class Node:
    """An operator whose inputs are imported already.

    Attributes:
        proto: the operator as the file has it.
        inputs: Relax expressions in order, None for an optional input that is left out.
        opset: version of the standard operators that the file was written for.
        builder: block builder of the function that the operator becomes part of.
        file: path of the model, for messages.
        dequantized: names of the tensors that a DequantizeLinear yields.
    """

    proto: onnx.NodeProto
    inputs: tuple[Any, ...]
    opset: int
    builder: tvm_api.BlockBuilder
    file: str
    dequantized: frozenset[str] = frozenset()

    def attribute(self, name: str, default: Any = None) -> Any:
        """The value of an attribute, strings as str, or `default` where the node has none."""
        value = attribute_of(self.proto, name, default)
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else value

    def input(self, position: int) -> Any | None:
        """The Relax expression of an input, None where it is left out."""
        return self.inputs[position] if position < len(self.inputs) else None

    def constant(self, position: int) -> npt.NDArray[Any] | None:
        """The values of a constant input, None where it is left out or computed at run time."""
        expression = self.input(position)
        return None if expression is None else tvm_api.constant_array(expression)

    def constant_input(self, position: int, what: str) -> npt.NDArray[Any] | None:
        """The values of an input that must be constant, None where it is left out.

        Args:
            position: position of the input.
            what: its name in the specification.

        Raises:
            ModelError: it is computed at run time.
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
        """The shape of an input, None where it is left out or not known."""
        expression = self.input(position)
        return None if expression is None else tvm_api.static_shape(expression)

    def shape(self, position: int) -> tuple[int, ...]:
        """The shape of an input.

        Raises:
            ModelError: it is left out, or not known before the network runs.
        """
        shape = self.static_shape(position)
        if shape is None:
            raise self.refuse(
                f"has an input {position} of unknown shape", "export the model with fixed shapes"
            )
        return shape

    def dtype(self, position: int) -> str:
        """The element type of an input, for example `float32`; empty where it is left out."""
        expression = self.input(position)
        return "" if expression is None else tvm_api.dtype_of(expression)

    def emit(self, expression: tvm_api.Expr) -> tvm_api.Var:
        """Bind an expression to a variable, so that it is computed once."""
        return self.builder.emit(self.builder.normalize(expression))

    def refuse(self, what: str, fix: str = "") -> ModelError:
        """The error that refuses this node.

        Args:
            what: the rest of a sentence that begins with the operator and the node's name, for
                example `has the attribute antialias, which is not supported`.
            fix: what the user can do about it.
        """
        return ModelError(
            f"operator {self.proto.op_type} of node {self.proto.name!r} {what}",
            where=self.file,
            fix=fix,
        )
