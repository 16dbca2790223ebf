# SPDX-License-Identifier: Apache-2.0
"""Quantize the digits network to 8 bits and write it as ONNX (QDQ).

The ranges of activations are calibrated with images of the training part; held-out images are
used for nothing but the accuracy printed at the end. What ONNX Runtime computes for them is
written beside the model, so that the demo can compare without ONNX Runtime.

Needs onnx, onnxruntime and scikit-learn. Two runs with the same package versions write the same
bytes.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

HERE = Path(__file__).parent
FLOAT_NETWORK = HERE / "digits.onnx"
NETWORK = HERE / "digits_int8.onnx"
HELD_OUT = HERE / "held_out.npz"
LOGITS = HERE / "held_out_int8.npz"
CALIBRATION_IMAGES = 256
SEED = 0
HELD_OUT_FRACTION = 0.3
MIN_ACCURACY = 0.97

Images = npt.NDArray[np.float32]


class Reader(CalibrationDataReader):  # type: ignore[misc]
    """Hands out one image at a time."""

    def __init__(self, images: Images) -> None:
        self._images = iter(images)

    def get_next(self) -> dict[str, Images] | None:
        """The next input of the network, None after the last one."""
        image = next(self._images, None)
        return None if image is None else {"image": image[np.newaxis]}


def training_images() -> Images:
    """The training part of the split of `train.py`: float32 [1257, 1, 8, 8] from 0 to 1."""
    pixels, label = load_digits(return_X_y=True)
    image = (pixels / 16.0).astype(np.float32).reshape(-1, 1, 8, 8)
    training, held_out, _, _ = train_test_split(
        image, label, test_size=HELD_OUT_FRACTION, stratify=label, random_state=SEED
    )
    if not np.array_equal(held_out, np.load(HELD_OUT)["image"]):
        raise SystemExit("the held-out images are not those of held_out.npz")
    return training


def write_network(images: Images) -> None:
    """int8 activations, int8 weights with a scale for each output channel."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "digits_int8.onnx"
        quantize_static(
            FLOAT_NETWORK, path, Reader(images), quant_format=QuantFormat.QDQ, per_channel=True,
            activation_type=QuantType.QInt8, weight_type=QuantType.QInt8,
        )  # fmt: skip
        model = onnx.load(path)
    onnx.checker.check_model(model)
    NETWORK.write_bytes(model.SerializeToString(deterministic=True))


def main() -> int:
    """Returns the exit code: 0 when the quantized network is accurate enough."""
    write_network(training_images()[:CALIBRATION_IMAGES])
    data = np.load(HELD_OUT)
    session = ort.InferenceSession(NETWORK, providers=["CPUExecutionProvider"])
    logits = np.concatenate(
        [session.run(["logits"], {"image": image[np.newaxis]})[0] for image in data["image"]]
    )
    np.savez_compressed(LOGITS, logits=logits)
    right = int((logits.argmax(axis=1) == data["label"]).sum())
    print(f"{NETWORK.name}: {NETWORK.stat().st_size:,} bytes, {right} of {len(logits)} right")
    return 0 if right >= MIN_ACCURACY * len(logits) else 1


if __name__ == "__main__":
    sys.exit(main())
