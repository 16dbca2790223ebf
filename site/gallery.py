# SPDX-License-Identifier: Apache-2.0
"""Measures what each backend of the gallery takes of networks, and the cycles of its simulator.

python site/gallery.py [BACKEND ...]

Writes `gallery.json` beside this file; with names, only their rows are measured again.
$UMAKIT_MODELS names the folder of the trained networks of MLPerf Tiny, without which their rows
stay as they are.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

FIGURES = ROOT / "site" / "gallery.json"

BACKENDS = {
    "vanilla_accelerator": "vanilla_accelerator",
    "strawberry_accelerator": "strawberry_accelerator",
    "chocolate_accelerator": "chocolate_accelerator",
    "small_chocolate_accelerator": "small_chocolate_accelerator",
    "lane_npu": "examples/lane_npu",
    "nova_nn": "examples/nova_nn",
}
"""What `--backend` is given, by name."""

NETWORKS = {
    "digits": "examples/digits/digits.onnx",
    "digits_int8": "examples/digits/digits_int8.onnx",
    "resnet8_int8": "pretrainedResnet_quant.tflite",
    "ds_cnn_int8": "kws_ref_model.tflite",
    "autoencoder_int8": "ad01_int8.tflite",
}
"""Files by name: of this repository, or of the folder of trained networks."""

ROUNDING = {("nova_nn", "digits_int8"): "tflm"}
"""`--rounding` of those that are compiled for another arithmetic than their file's."""


def model_file(network: str) -> Path | None:
    """Return the file of a network; None for a trained one that is not there."""
    name = NETWORKS[network]
    if "/" in name:
        return ROOT / name
    models = os.environ.get("UMAKIT_MODELS")
    path = Path(models, name) if models else None
    return path if path is not None and path.is_file() else None


def measured(backend: str, network: str, model: Path) -> dict[str, Any]:
    """Return what a backend takes of a network, and its cycles, as `uma report` says."""
    rounding = ROUNDING.get((backend, network), "")
    with tempfile.TemporaryDirectory() as folder:
        line = [
            *(sys.executable, "-m", "umakit.cli.start", "report", str(model)),
            *("--backend", BACKENDS[backend], "--json", "--output", f"{folder}/report.html"),
            *(["--rounding", rounding] if rounding else []),
        ]
        ended = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        raise SystemExit(f"{backend}, {network}: {ended.stderr}")
    report = json.loads(ended.stdout)
    totals = report["cycle_totals"]
    known = totals["layers"] > 0 and totals["measured_layers"] == totals["layers"]
    return {
        "backend": backend,
        "network": network,
        "rounding": rounding,
        "offloaded_macs": report["offloaded_macs"],
        "total_macs": report["total_macs"],
        "cycles": totals["clock_cycles"] if known else None,
    }


def main(arguments: list[str]) -> int:
    """Measure backends, and write down the figures."""
    rows = {}
    if FIGURES.is_file():
        old = json.loads(FIGURES.read_text(encoding="utf-8"))
        rows = {(row["backend"], row["network"]): row for row in old}
    for backend in arguments or BACKENDS:
        for network in NETWORKS:
            model = model_file(network)
            if model is not None:
                rows[backend, network] = measured(backend, network, model)
                print(rows[backend, network])
    ordered = [rows[key] for key in ((b, n) for b in BACKENDS for n in NETWORKS) if key in rows]
    FIGURES.write_text(
        "[\n" + ",\n".join(f"  {json.dumps(row)}" for row in ordered) + "\n]\n", encoding="utf-8"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
