# SPDX-License-Identifier: Apache-2.0
"""TensorFlow Lite files run by NumPy: an oracle that shares no code with umakit or TFLM.

The file is read by the PyPI package `tflite`, the operators are those of `numpy_tflite_operators`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tflite
from numpy_fixed_point import Array
from numpy_tflite_operators import KERNELS
from numpy_tflite_tensors import Operator, Tensor

DTYPES = {
    tflite.TensorType.FLOAT32: "float32",
    tflite.TensorType.INT8: "int8",
    tflite.TensorType.UINT8: "uint8",
    tflite.TensorType.INT16: "int16",
    tflite.TensorType.INT32: "int32",
    tflite.TensorType.INT64: "int64",
}


def _names(enumeration: type) -> dict[int, str]:
    return {number: name for name, number in vars(enumeration).items() if name[0] != "_"}


CODES, OPTIONS = _names(tflite.BuiltinOperator), _names(tflite.BuiltinOptions)


@dataclass(frozen=True)
class NumpyTflite:
    """A file's only subgraph, ready to run.

    Attributes:
        operators: in order of execution.
        inputs: tensors that `run` sets.
        outputs: tensors that `run` returns.
    """

    operators: Sequence[Operator]
    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]

    @classmethod
    def read(cls, file: bytes) -> NumpyTflite:
        """The network of a file."""
        model = tflite.Model.GetRootAsModel(file, 0)
        assert model.SubgraphsLength() == 1
        graph = model.Subgraphs(0)
        tensors = [_tensor(model, graph.Tensors(i)) for i in range(graph.TensorsLength())]
        operators = [
            _operator(model, graph.Operators(i), tensors) for i in range(graph.OperatorsLength())
        ]
        return cls(
            operators,
            [tensors[number] for number in graph.InputsAsNumpy()],
            [tensors[number] for number in graph.OutputsAsNumpy()],
        )

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs of one inference by name; inputs by name."""
        for tensor in self.inputs:
            given = inputs[tensor.name]
            assert (given.shape, given.dtype) == (tensor.shape, tensor.dtype), tensor.name
            tensor.value = given
        for operator in self.operators:
            assert operator.code in KERNELS, f"numpy_tflite_operators lacks {operator.code}"
            results = KERNELS[operator.code](operator)
            results = results if isinstance(results, list) else [results]
            for tensor, result in zip(operator.outputs, results, strict=True):
                tensor.value = np.ascontiguousarray(result)
                assert result.shape == tensor.shape and result.dtype == tensor.dtype, operator.code
        return {tensor.name: tensor.value for tensor in self.outputs}


NARROW = ("HARD_SWISH", "LEAKY_RELU", "LOGISTIC", "SOFTMAX", "TANH", "TRANSPOSE_CONV")
"""Operators that are here for data of 8 bits."""


def knows(file: bytes) -> bool:
    """Whether all operators of a model are here."""
    return all(
        operator.code in KERNELS
        and (operator.code not in NARROW or operator.outputs[0].dtype.itemsize == 1)
        for operator in NumpyTflite.read(file).operators
    )


def numpy_tflite(file: bytes, inputs: Array) -> Array:
    """Output 0 of a model with one input, for each of several inferences."""
    network = NumpyTflite.read(file)
    name = network.inputs[0].name
    return np.stack([next(iter(network.run({name: values}).values())) for values in inputs])


def _tensor(model: Any, given: Any) -> Tensor:
    shape = tuple(given.ShapeAsNumpy()) if given.ShapeLength() else ()
    dtype, quantization = np.dtype(DTYPES[given.Type()]), given.Quantization()
    scales, zero_points, axis = np.zeros(0, np.float32), np.zeros(0, np.int64), 0
    if quantization is not None and quantization.ScaleLength():
        scales, zero_points = quantization.ScaleAsNumpy(), quantization.ZeroPointAsNumpy()
        axis = quantization.QuantizedDimension()
    buffer = model.Buffers(given.Buffer())
    data = buffer.DataAsNumpy() if buffer.DataLength() else None
    value = None if data is None else data.view(dtype).reshape(shape)
    return Tensor(given.Name().decode(), shape, dtype, scales, zero_points, axis, value)


def _operator(model: Any, given: Any, tensors: Sequence[Tensor]) -> Operator:
    code = model.OperatorCodes(given.OpcodeIndex())
    options = None
    if given.BuiltinOptionsType():
        table = given.BuiltinOptions()
        options = getattr(tflite, OPTIONS[given.BuiltinOptionsType()])()
        options.Init(table.Bytes, table.Pos)
    return Operator(
        CODES[max(code.BuiltinCode(), code.DeprecatedBuiltinCode())],
        options,
        [tensors[number] if number >= 0 else None for number in given.InputsAsNumpy()],
        [tensors[number] for number in given.OutputsAsNumpy()],
    )
