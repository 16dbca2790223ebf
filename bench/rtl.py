# SPDX-License-Identifier: Apache-2.0
"""Whole networks on the RTL of Strawberry and of a small Chocolate, beside their C models.

make bench-rtl

Each network runs once, with model and RTL side by side (`uma cosim`), and every layer that the
accelerator takes is compared. Times are those of one inference on this machine, without importing
and compiling the network and with designs that Verilator has compiled before; the rival is the same
library on the C simulator alone.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import image_networks

from umakit import compile_model, find_backend, run_library
from umakit.pipeline import import_network
from umakit.tools.cosim import CosimLayer, CosimResult, cosim_model
from umakit.tools.inputs import random_inference

OUTPUT = Path("build/bench/rtl.md")
BACKENDS = ("strawberry_accelerator", "small_chocolate_accelerator")
DIGITS = Path(__file__).parents[1] / "examples" / "digits" / "digits_int8.onnx"

SHORT = 2500
"""Cycles of a layer below which what a START takes is more than 2 % of it."""


@dataclass(frozen=True)
class Row:
    """A network on a design.

    Attributes:
        network, backend: names.
        result: what the co-simulation found.
        command_seconds: duration with import, compilation and linking.
        model_seconds: duration of the inference on the C simulator alone.
    """

    network: str
    backend: str
    result: CosimResult
    command_seconds: float
    model_seconds: float


def networks(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield names and files of networks; those of MLPerf Tiny lie in $UMAKIT_MODELS."""
    yield "digits", DIGITS
    models = Path(os.environ.get("UMAKIT_MODELS", ""))
    for name, file in (
        ("ResNet-8", "pretrainedResnet_quant.tflite"),
        ("DS-CNN", "kws_ref_model.tflite"),
    ):
        if (models / file).is_file():
            yield name, models / file
    path = folder / "mobilenet.tflite"
    path.write_bytes(image_networks.mobilenet())
    yield "MobileNetV1-0.25, 96 x 96", path


def measured(name: str, path: Path, backend_name: str, folder: Path) -> Row:
    """Run a network on a design and on its model alone."""
    backend = find_backend(backend_name)
    library = compile_model(path, [backend], folder / f"{backend_name}_{path.stem}")
    inputs = random_inference(import_network(path).model, 0)
    run_library(library.path, inputs)  # builds it
    began = time.perf_counter()
    run_library(library.path, inputs)
    model_seconds = time.perf_counter() - began
    cosim_model(path, [backend])  # the design is compiled
    began = time.perf_counter()
    result = cosim_model(path, [backend])
    return Row(name, backend_name, result, time.perf_counter() - began, model_seconds)


def _worst(layers: list[CosimLayer]) -> str:
    off = [layer.difference_percent or 0.0 for layer in layers]
    return f"{max(off, key=abs):+.2f} %" if off else "-"


def cells(row: Row) -> list[str]:
    """Return the cells of a network's row."""
    layers = list(row.result.layers)
    long = [layer for layer in layers if (layer.rtl_cycles or 0) >= SHORT]
    short = [layer for layer in layers if layer not in long]
    rate = row.result.cycles_per_second
    return [
        row.network,
        row.backend.removesuffix("_accelerator"),
        str(len(layers)),
        "none" if row.result.difference is None else row.result.difference.sentence,
        f"{row.result.rtl_cycles:,}",
        _worst(long),
        _worst(short),
        f"{row.result.seconds:.1f}",
        "-" if rate is None else f"{rate / 1e6:.2f}",
        f"{row.result.seconds / row.model_seconds:.1f}",
        f"{row.command_seconds:.1f}",
    ]


HEADINGS = (
    "network", "design", "layers", "difference", "cycles of the RTL",
    f"worst layer of {SHORT} cycles and more", "worst shorter layer", "seconds",
    "million cycles/s", "x the C simulator alone", "seconds of the command",
)  # fmt: skip


def main() -> int:
    """Write the table; exit code 1 if a network differs."""
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"| {' | '.join(HEADINGS)} |", "|---" * len(HEADINGS) + "|"]
    differs = False
    with tempfile.TemporaryDirectory() as temporary:
        for name, path in networks(Path(temporary)):
            for backend in BACKENDS:
                row = measured(name, path, backend, Path(temporary))
                differs |= row.result.difference is not None
                lines.append(f"| {' | '.join(cells(row))} |")
                print(lines[-1], file=sys.stderr, flush=True)
    OUTPUT.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))
    return int(differs)


if __name__ == "__main__":
    sys.exit(main())
