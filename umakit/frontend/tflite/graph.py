# SPDX-License-Identifier: Apache-2.0
"""TensorFlow Lite flatbuffers as plain data, checked before anything else reads them.

Offsets of a damaged flatbuffer may point anywhere. This module reads every field that the import
needs once, with bounds checks, into dataclasses.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tflite

from umakit.errors import ModelError
from umakit.frontend.model import check_element_count
from umakit.operators.tflite import TfliteOperator, TfliteTensor

SCHEMA_VERSION = 3
CUSTOM = "CUSTOM "
"""Begin of the codes of custom operators, before their names."""
NEWER_CODE_FIELD = 10
"""Offset, in the vtable of an OperatorCode, of the entry for the field `builtin_code`."""

DTYPES = {
    tflite.TensorType.FLOAT32: "float32",
    tflite.TensorType.INT8: "int8",
    tflite.TensorType.UINT8: "uint8",
    tflite.TensorType.INT16: "int16",
    tflite.TensorType.INT32: "int32",
    tflite.TensorType.INT64: "int64",
    tflite.TensorType.BOOL: "bool",
}


@dataclass(frozen=True)
class TfliteGraph:
    """The only subgraph of a model.

    Attributes:
        tensors, operators: in the file's order.
        inputs, outputs: tensor numbers.
        states: numbers of variable tensors that operators read.
        model, subgraph: objects of the flatbuffer.
    """

    tensors: tuple[TfliteTensor, ...]
    operators: tuple[TfliteOperator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    states: tuple[int, ...]
    model: Any
    subgraph: Any


def read_graph(data: bytes, where: str) -> TfliteGraph:
    try:
        return _Reader(data, where).graph()
    except ModelError:
        raise
    except Exception as error:  # offsets into nowhere end in whatever the reader stumbles over
        raise _damaged(where) from error


def _damaged(where: str, what: str = "") -> ModelError:
    reason = f": {what}" if what else ""
    return ModelError(f"is truncated or damaged{reason}", where=where)


class _Reader:
    def __init__(self, data: bytes, where: str) -> None:
        self._data = data
        self._where = where
        self._model = tflite.Model.GetRootAsModel(data, 0)
        self._names: set[str] = set()

    def graph(self) -> TfliteGraph:
        if self._model.Version() != SCHEMA_VERSION:
            raise ModelError(
                f"has schema version {self._model.Version()}, not {SCHEMA_VERSION}",
                where=self._where,
                fix="convert the model with a TensorFlow of version 2",
            )
        if self._count(self._model.SubgraphsLength()) != 1:
            raise ModelError(
                f"has {self._model.SubgraphsLength()} subgraphs; only one is supported",
                where=self._where,
                fix="export the model without control flow",
            )
        subgraph = self._model.Subgraphs(0)
        tensors = [
            self._tensor(subgraph.Tensors(number), number)
            for number in range(self._count(subgraph.TensorsLength()))
        ]
        operators = [
            self._operator(subgraph.Operators(number), len(tensors))
            for number in range(self._count(subgraph.OperatorsLength()))
        ]
        inputs = self._numbers(subgraph.InputsLength(), subgraph.Inputs, len(tensors))
        outputs = self._numbers(subgraph.OutputsLength(), subgraph.Outputs, len(tensors))
        if not operators or not outputs:
            raise ModelError("holds no operators or no outputs", where=self._where)
        self._check_custom(tensors, operators)
        states = self._states(tensors, operators, {*inputs, *outputs})
        graph = TfliteGraph(
            tuple(tensors), tuple(operators), inputs, outputs, states, self._model, subgraph
        )
        self._check_order(graph)
        return graph

    def _count(self, count: int) -> int:
        if not 0 <= count <= len(self._data):
            raise _damaged(self._where, f"a list has {count} items")
        return count

    def _numbers(
        self, count: int, item: Any, tensors: int, *, optional: bool = False
    ) -> tuple[int, ...]:
        numbers = tuple(int(item(position)) for position in range(self._count(count)))
        if any(not (-1 if optional else 0) <= number < tensors for number in numbers):
            raise _damaged(self._where, "there is no tensor of some number")
        return numbers

    def _tensor(self, table: Any, number: int) -> TfliteTensor:
        name = (table.Name() or b"").decode("utf-8", "replace") or f"tensor_{number}"
        if name in self._names:
            name = f"{name}#{number}"
        self._names.add(name)
        shape = tuple(int(table.Shape(i)) for i in range(self._count(table.ShapeLength())))
        number = table.Type()
        dtype = DTYPES.get(number, f"type {TYPE_NAMES.get(number, number)}")
        if any(extent < 0 for extent in shape):
            raise ModelError(
                f"tensor {name!r} has the dynamic shape {list(shape)}",
                where=self._where,
                fix="generated C has fixed sizes; export the model with static shapes",
            )
        check_element_count(shape, f"tensor {name!r}", self._where)
        if table.Sparsity() is not None:
            raise ModelError(
                f"tensor {name!r} is sparse", where=self._where, fix="export it densely"
            )
        rank = self._count(table.ShapeSignatureLength())
        dynamic = tuple(axis for axis in range(rank) if table.ShapeSignature(axis) == -1)
        scales, zero_points = self._quantization(table, name)
        constant = self._is_constant(table, name, shape, dtype)
        variable = bool(table.IsVariable())
        if variable and constant:
            raise ModelError(
                f"tensor {name!r} is a variable with values of its own, which are not supported",
                where=self._where,
                fix="a variable starts with what stands for 0",
            )
        return TfliteTensor(name, shape, dtype, constant, dynamic, scales, zero_points, variable)

    def _states(
        self,
        tensors: Sequence[TfliteTensor],
        operators: Sequence[TfliteOperator],
        interface: set[int],
    ) -> tuple[int, ...]:
        used = dict.fromkeys(number for operator in operators for number in operator.inputs)
        for number in interface:
            if tensors[number].variable:
                name = tensors[number].name
                raise _damaged(self._where, f"the variable {name!r} is an input or an output")
        return tuple(number for number in used if number >= 0 and tensors[number].variable)

    def _is_constant(self, table: Any, name: str, shape: tuple[int, ...], dtype: str) -> bool:
        """Return whether the file holds a tensor's values, after a check of their number."""
        number = table.Buffer()
        if not 0 <= number < self._count(self._model.BuffersLength()):
            raise _damaged(self._where, f"tensor {name!r} has no buffer")
        buffer = self._model.Buffers(number)
        if buffer.Offset() > 1 or buffer.Size() > 0:
            raise ModelError(
                f"the values of tensor {name!r} lie behind the flatbuffer, {buffer.Size():,} B at "
                f"{buffer.Offset():,}, as in models of more than 2 GB",
                where=self._where,
                fix="convert the model without use_buffer_offset, or make it smaller",
            )
        size = self._count(buffer.DataLength())
        if size == 0:
            return False
        if dtype.startswith("type"):
            raise ModelError(
                f"tensor {name!r} has the unsupported {dtype}",
                where=self._where,
                fix="convert the model with weights of float32 or int8",
            )
        if size != math.prod(shape) * np.dtype(dtype).itemsize:
            raise _damaged(self._where, f"tensor {name!r} has {size} bytes of values")
        if buffer.DataAsNumpy().size != size:
            raise _damaged(self._where, f"the values of tensor {name!r} end early")
        return True

    def _quantization(self, table: Any, name: str) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        given = table.Quantization()
        if given is None or given.ScaleLength() == 0:
            return np.zeros(0, np.float32), np.zeros(0, np.int64)
        scales = np.array([given.Scale(i) for i in range(self._count(given.ScaleLength()))])
        count = self._count(given.ZeroPointLength())
        zero_points = np.array([given.ZeroPoint(i) for i in range(count)], np.int64)
        if not np.isfinite(scales).all() or (scales < 0).any() or len(scales) != count:
            raise ModelError(
                f"tensor {name!r} has scales that are not positive numbers, or other zero points "
                "than scales",
                where=self._where,
            )
        rank = table.ShapeLength()
        axis = quantized_axis(given, rank)
        if count > 1 and (not 0 <= axis < rank or table.Shape(axis) != count):
            raise ModelError(
                f"tensor {name!r} has {count} scales, which is not its size along axis {axis}",
                where=self._where,
            )
        return scales.astype(np.float32), zero_points

    def _operator(self, table: Any, tensors: int) -> TfliteOperator:
        number = table.OpcodeIndex()
        if not 0 <= number < self._count(self._model.OperatorCodesLength()):
            raise _damaged(self._where, f"there is no operator code {number}")
        code = self._model.OperatorCodes(number)
        builtin = operator_number(code)
        if builtin == tflite.BuiltinOperator.CUSTOM:
            name = f"{CUSTOM}{(code.CustomCode() or b'').decode('utf-8', 'replace')}"
        else:
            name = OPERATOR_NAMES.get(builtin, f"number {builtin}")
        inputs = self._numbers(table.InputsLength(), table.Inputs, tensors, optional=True)
        outputs = self._numbers(table.OutputsLength(), table.Outputs, tensors)
        return TfliteOperator(name, inputs, outputs, table)

    def _check_custom(
        self, tensors: Sequence[TfliteTensor], operators: Sequence[TfliteOperator]
    ) -> None:
        """Refuse custom operators before reading tensors that only their compiler understands."""
        for operator in operators:
            if operator.code.startswith(CUSTOM):
                vela = operator.code == f"{CUSTOM}ethos-u"
                names = ", ".join(repr(tensors[number].name) for number in operator.outputs)
                raise ModelError(
                    f"operator {operator.code} that writes {names or 'nothing'} is not an operator "
                    "of TensorFlow Lite" + (": the file went through Vela" if vela else ""),
                    where=self._where,
                    fix="give umakit the file from before Vela"
                    if vela
                    else "convert the model with builtin operators only",
                )

    def _check_order(self, graph: TfliteGraph) -> None:
        """Refuse a graph that reads a tensor before it is written, or writes a tensor twice."""
        written = {number for number, t in enumerate(graph.tensors) if t.constant}
        if written & set(graph.inputs) or len(set(graph.inputs)) != len(graph.inputs):
            raise _damaged(self._where, "an input is a constant or listed twice")
        written |= {*graph.inputs, *graph.states}
        for operator in graph.operators:
            for number in operator.inputs:
                # A tensor without elements needs no values, such as the shape of a scalar.
                if number >= 0 and number not in written and 0 not in graph.tensors[number].shape:
                    name = graph.tensors[number].name
                    raise _damaged(self._where, f"tensor {name!r} is read before it is written")
            if written & set(operator.outputs):
                raise _damaged(self._where, "a tensor is written twice")
            written |= set(operator.outputs)
        if not set(graph.outputs) <= written:
            raise _damaged(self._where, "an output is never written")


def quantized_axis(quantization: Any, rank: int) -> int:
    """Return the axis of per-channel scales; 0 for vectors and per-tensor scales.

    Older converters gave the bias of a depthwise convolution the axis of its weights.
    """
    single = rank == 1 or quantization is None or quantization.ScaleLength() < 2
    return 0 if single else int(quantization.QuantizedDimension())


def operator_number(code: Any) -> int:
    """Return the number of an operator: the larger of two fields, as in TensorFlow Lite.

    Older files have codes below 127 in the deprecated field (`GetBuiltinCode` in TensorFlow Lite's
    schema_utils.cc). The method `BuiltinCode` of the package tflite reads the deprecated field
    first.
    """
    table = code._tab
    place = table.Offset(NEWER_CODE_FIELD)
    newer = struct.unpack_from("<i", table.Bytes, place + table.Pos)[0] if place else 0
    return max(int(code.DeprecatedBuiltinCode()), int(newer))


def _names(enumeration: type) -> dict[int, str]:
    return {
        value: name
        for name, value in vars(enumeration).items()
        if isinstance(value, int) and not name.startswith("_")
    }


OPERATOR_NAMES, TYPE_NAMES = _names(tflite.BuiltinOperator), _names(tflite.TensorType)
