# SPDX-License-Identifier: Apache-2.0
"""All formats by name."""

from __future__ import annotations

from mutators.base import Format
from mutators.onnx_files import OnnxFiles
from mutators.other_files import (
    AcceleratorFiles,
    MetadataFiles,
    NpzFiles,
    RelaxFiles,
    TorchFiles,
)
from mutators.tflite_files import TfliteFiles

FORMATS: dict[str, type[Format]] = {
    form.name: form
    for form in (
        OnnxFiles, TfliteFiles, TorchFiles, RelaxFiles, NpzFiles, AcceleratorFiles, MetadataFiles,
    )
}  # fmt: skip
