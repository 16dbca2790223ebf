# SPDX-License-Identifier: Apache-2.0
"""TensorFlow Lite files for the tests, and TensorFlow Lite Micro as the oracle for them.

Nothing here uses umakit: the oracle is the real runtime, the files are written by flatbuffers.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import numpy.typing as npt
import pytest
import tflite
from tflite_micro.python.tflite_micro import runtime

Array = npt.NDArray[Any]

TYPES = {
    "float32": tflite.TensorType.FLOAT32,
    "int8": tflite.TensorType.INT8,
    "int16": tflite.TensorType.INT16,
    "uint8": tflite.TensorType.UINT8,
    "int32": tflite.TensorType.INT32,
    "int64": tflite.TensorType.INT64,
    "bool": tflite.TensorType.BOOL,
    "int4": tflite.TensorType.INT4,
}
MODELS_VARIABLE = "UMAKIT_MODELS"

ORACLE_ARENA = 4 * 1024 * 1024
"""Bytes, more than any test needs."""


def trained_model(name: str) -> Path:
    """A trained model of `shared/models`; skips the test where there is none, but not on CI."""
    folder = Path(os.environ.get(MODELS_VARIABLE) or Path(__file__).parents[2] / "shared/models")
    path = folder / name
    if not path.is_file():
        assert not os.environ.get("UMAKIT_CI"), f"CI lacks {path}: set {MODELS_VARIABLE}"
        pytest.skip(f"there is no {path}; {MODELS_VARIABLE} names the folder")
    return path


def micro_interpreter(file: bytes) -> Any:
    """TensorFlow Lite Micro, ready for `set_input`, `invoke` and `get_output`."""
    return runtime.Interpreter.from_bytes(file, arena_size=ORACLE_ARENA)


def tflite_micro(file: bytes, inputs: Sequence[Array]) -> Array:
    """Output 0 of a model with one input, for each of several inferences."""
    interpreter = micro_interpreter(file)
    outputs = []
    for values in inputs:
        interpreter.set_input(values, 0)
        interpreter.invoke()
        outputs.append(interpreter.get_output(0))
    return np.stack(outputs)


@dataclass
class TfliteFile:
    """A TensorFlow Lite file under construction; methods return tensor numbers."""

    version: int = 3
    _builder: Any = field(default_factory=lambda: flatbuffers.Builder(1024))
    _tensors: list[int] = field(default_factory=list)
    _buffers: list[int] = field(default_factory=list)
    _codes: list[int] = field(default_factory=list)
    _operators: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._buffers.append(self._table("Buffer"))

    def tensor(
        self,
        shape: Sequence[int],
        dtype: str = "int8",
        *,
        scale: float | Sequence[float] = (),
        zero_point: int | Sequence[int] = 0,
        axis: int = 0,
        data: Array | None = None,
        name: str = "",
        signature: Sequence[int] = (),
        sparse: bool = False,
        variable: bool = False,
        offset: int = 0,
    ) -> int:
        """A tensor; constant if it has data, quantized if it has a scale.

        Args:
            shape: of it.
            dtype: of it.
            scale, zero_point: one, or one for each place along `axis`.
            axis: of scales.
            data: its values.
            name: of it.
            signature: its shape, -1 where the size may be another.
            sparse: whether it has parameters of sparsity.
            variable: whether it outlives an inference.
            offset: of its values behind the flatbuffer.
        """
        buffer = 0
        if offset:
            self._buffers.append(self._table("Buffer", Offset=offset, Size=4))
            buffer = len(self._buffers) - 1
        if data is not None:
            self._builder.StartVector(1, data.nbytes, 16)
            self._builder.head -= data.nbytes
            start = self._builder.head
            raw = np.ascontiguousarray(data).tobytes()
            self._builder.Bytes[start : start + len(raw)] = raw
            self._buffers.append(self._table("Buffer", Data=self._builder.EndVector()))
            buffer = len(self._buffers) - 1
        fields = {
            "Name": self._builder.CreateString(name or f"tensor{len(self._tensors)}"),
            "Shape": self._vector(shape, np.int32),
            "Type": TYPES[dtype],
            "Buffer": buffer,
        }
        if sparse:
            fields["Sparsity"] = self._table("SparsityParameters")
        if variable:
            fields["IsVariable"] = True
        if signature:
            fields["ShapeSignature"] = self._vector(signature, np.int32)
        scales = np.atleast_1d(np.asarray(scale, np.float32))
        if scales.size:
            zero_points = np.broadcast_to(np.asarray(zero_point, np.int64), scales.shape)
            fields["Quantization"] = self._table(
                "QuantizationParameters",
                Scale=self._vector(scales, np.float32),
                ZeroPoint=self._vector(zero_points, np.int64),
                QuantizedDimension=axis,
            )
        self._tensors.append(self._table("Tensor", **fields))
        return len(self._tensors) - 1

    def operator(
        self,
        code: str,
        inputs: Sequence[int],
        outputs: Sequence[int],
        options: str = "",
        *,
        custom: str = "",
        index: int | None = None,
        **values: Any,
    ) -> None:
        """An operator with builtin options, for example `Conv2DOptions`.

        `custom` names a custom operator, `index` is another number than that of its code.
        """
        fields: dict[str, Any] = {
            "OpcodeIndex": len(self._codes) if index is None else index,
            "Inputs": self._vector(inputs, np.int32),
            "Outputs": self._vector(outputs, np.int32),
        }
        number = getattr(tflite.BuiltinOperator, code)
        codes = {"DeprecatedBuiltinCode": min(number, 127), "BuiltinCode": number, "Version": 1}
        if custom:
            codes["CustomCode"] = self._builder.CreateString(custom)
        self._codes.append(self._table("OperatorCode", **codes))
        if options:
            fields["BuiltinOptions"] = self._table(options, **values)
            fields["BuiltinOptionsType"] = getattr(tflite.BuiltinOptions, options)
        self._operators.append(self._table("Operator", **fields))

    def finish(self, inputs: Sequence[int], outputs: Sequence[int], subgraphs: int = 1) -> bytes:
        """The file, whose only subgraph may be there several times."""
        subgraph = self._table(
            "SubGraph",
            Tensors=self._offsets(self._tensors),
            Inputs=self._vector(inputs, np.int32),
            Outputs=self._vector(outputs, np.int32),
            Operators=self._offsets(self._operators),
        )
        model = self._table(
            "Model",
            Version=self.version,
            OperatorCodes=self._offsets(self._codes),
            Subgraphs=self._offsets([subgraph] * subgraphs),
            Buffers=self._offsets(self._buffers),
        )
        self._builder.Finish(model, b"TFL3")
        return bytes(self._builder.Output())

    def _table(self, kind: str, **values: Any) -> int:
        getattr(tflite, f"{kind}Start")(self._builder)
        for name, value in values.items():
            getattr(tflite, f"{kind}Add{name}")(self._builder, value)
        return int(getattr(tflite, f"{kind}End")(self._builder))

    def _vector(self, values: Any, dtype: Any) -> int:
        return int(self._builder.CreateNumpyVector(np.asarray(values, dtype)))

    def _offsets(self, offsets: Sequence[int]) -> int:
        self._builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            self._builder.PrependUOffsetTRelative(offset)
        return int(self._builder.EndVector())
