# SPDX-License-Identifier: Apache-2.0
"""What `uma tune --cpu native` gains on this machine, in float32 and int8.

make bench-cpu-tuning

Each network of `bench/cpu.py` is tuned, then compiled with its records and without, and both run in
turns, which is not the measurement that chose. Networks in int8 are quantized by ONNX Runtime's own
tool. Names on the command line choose networks; `NAME_int8` is one in int8.
"""

from __future__ import annotations

import platform
import sys
import tempfile
from pathlib import Path

import cpu as float32
import numpy as np
import onnx
import quantized_models
import rounds
import tools
from networks import fold_batch_norms, random_inputs

from umakit.cpu.description import Cpu, find_cpu
from umakit.devices import HOST
from umakit.devices.unpacked import TimedLibrary, take_turns
from umakit.pipeline import ExportOptions, compile_model, import_network
from umakit.tools.cpu_tuning import CpuEffort, meter_for, tune_cpu

OUTPUT = Path("build/bench/cpu_tuning.md")
NETWORKS = ("resnet8", "ds_cnn", "mobilenet", "resnet18", "u_net", "keywords", "fire", "inverted")
INTEGERS = tuple(
    f"{name}_int8" for name in ("resnet8", "ds_cnn", "mobilenet", "keywords", "u_net", "inverted")
)
ROUNDS = 21
EFFORT = CpuEffort(trials=12, seconds=900)


def model_of(name: str, folder: Path) -> Path:
    """Write a network's file."""
    path = folder / f"{name}.onnx"
    plain = float32.NETWORKS[name.removesuffix("_int8")]()
    if name.endswith("_int8"):
        source = folder / "source.onnx"
        onnx.save(fold_batch_norms(plain), str(source))
        quantized_models.quantize(source, path)
    else:
        onnx.save(plain, str(path))
    return path


def opened(model: Path, cpu: Cpu, records: Path | None, folder: Path) -> TimedLibrary:
    """Compile a network and load it."""
    options = ExportOptions(cpu=cpu.name, records=records, weights="blob")
    library = compile_model(model, [], folder / "library", options=options)
    inputs = random_inputs(onnx.load(str(model)))
    (folder / "program").mkdir()
    return TimedLibrary(library.path, inputs, folder / "program")


def bench_network(name: str, cpu: Cpu, folder: Path) -> str:
    """A row of the table."""
    folder.mkdir()
    model, records = model_of(name, folder), folder / "records.json"
    tuned = tune_cpu(import_network(model), cpu.name, records, meter_for(cpu, HOST), effort=EFFORT)
    libraries = {}
    for each, given in (("tuned", records), ("rules", None)):
        (folder / each).mkdir()
        libraries[each] = opened(model, cpu, given, folder / each)
    for output, values in libraries["rules"].outputs.items():
        np.testing.assert_allclose(libraries["tuned"].outputs[output], values, 1e-3, 1e-3)
    times = take_turns(list(libraries.values()), ROUNDS).sum(axis=2)
    found: rounds.Rounds = dict(zip(libraries, times.tolist(), strict=True))
    spread = rounds.ratio(found, "tuned", "rules")
    changed = sum(each.record.choice != each.record.own for each in tuned.kernels)
    return (
        f"| {name} | {len(tuned.kernels)} | {changed} | {tuned.trials} | "
        f"{spread.median:.3f} ({spread.low:.3f} to {spread.high:.3f}) |"
    )


def main() -> int:
    """Write the table."""
    cpu, rows = find_cpu("native"), []
    with tempfile.TemporaryDirectory() as temporary:
        for name in sys.argv[1:] or (*NETWORKS, *INTEGERS):
            rows.append(bench_network(name, cpu, Path(temporary) / name))
            print(rows[-1], file=sys.stderr, flush=True)
    meter = meter_for(cpu, HOST)
    lines = [
        "| network | kernels | other choices | trials | processor time over that by the rules |",
        "|---|--:|--:|--:|--:|",
        *rows,
        "",
        f"Medians of {ROUNDS} rounds after tuning, quartiles in brackets. {meter.origin.compiler}; "
        f"{cpu.name}; {meter.origin.machine}; {platform.system()}.",
    ]
    tools.publish(lines, OUTPUT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
