# SPDX-License-Identifier: Apache-2.0
"""int8 networks to measure: trained TensorFlow Lite files and what onnxruntime.quantization writes.

Nothing here uses umakit.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import models
import numpy as np
import numpy.typing as npt
import onnx
from networks import fold_batch_norms
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

DIGITS = Path(__file__).parents[1] / "examples/digits"
CALIBRATION_INPUTS = 8


@dataclass(frozen=True)
class Case:
    """An int8 network in the forms that the programs take.

    Attributes:
        name: of the network.
        int8: the file that umakit compiles.
        onnx_int8: with the same shapes, for ONNX Runtime.
        float32: with the same shapes, for umakit.
        shapes: an ONNX file of float weights of the same shapes.
    """

    name: str
    int8: Path
    onnx_int8: Path
    float32: Path
    shapes: Path

    @property
    def tflite(self) -> bytes | None:
        """The file, if it is one of TensorFlow Lite."""
        return self.int8.read_bytes() if self.int8.suffix == ".tflite" else None


class _Inputs(CalibrationDataReader):  # type: ignore[misc]
    """Random inputs of a network with one input."""

    def __init__(self, model: onnx.ModelProto) -> None:
        value = model.graph.input[0]
        shape = [dimension.dim_value for dimension in value.type.tensor_type.shape.dim]
        random = np.random.default_rng(3)
        self._items: Iterator[dict[str, npt.NDArray[np.float32]]] = iter(
            [
                {value.name: random.standard_normal(shape).astype("float32")}
                for _ in range(CALIBRATION_INPUTS)
            ]
        )

    def get_next(self) -> dict[str, npt.NDArray[np.float32]] | None:
        return next(self._items, None)


def quantize(source: Path, target: Path) -> None:
    """QDQ with int8 activations and weights, a scale for each output channel."""
    quantize_static(
        source, target, _Inputs(onnx.load(source)), quant_format=QuantFormat.QDQ,
        per_channel=True, activation_type=QuantType.QInt8, weight_type=QuantType.QInt8,
    )  # fmt: skip


def cases(folder: Path) -> list[Case]:
    """All networks; the trained ones where $UMAKIT_MODELS names their folder.

    Args:
        folder: where to write the files that are made here.
    """
    folder.mkdir(parents=True, exist_ok=True)
    made = {}
    for name, build in models.MODELS.items():
        source, target = folder / f"{name}.onnx", folder / f"{name}_int8.onnx"
        onnx.save(fold_batch_norms(build()), source)
        quantize(source, target)
        made[name] = Case(name, target, target, source, source)
    found = []
    trained = Path(os.environ.get("UMAKIT_MODELS", ""))
    for name, file, float32 in (
        ("resnet8", "pretrainedResnet_quant.tflite", "pretrainedResnet.tflite"),
        ("ds_cnn", "kws_ref_model.tflite", ""),
        ("autoencoder", "ad01_int8.tflite", ""),
    ):
        if (trained / file).is_file():
            same = made[name]
            source = trained / float32 if float32 else same.float32
            found.append(
                Case(f"{name}, trained", trained / file, same.onnx_int8, source, same.shapes)
            )
    int8, float32 = DIGITS / "digits_int8.onnx", DIGITS / "digits.onnx"
    digits = Case("digits", int8, int8, float32, float32)
    return [*found, *made.values(), digits]
