# SPDX-License-Identifier: Apache-2.0
"""Speed of int8 networks on this machine, against ONNX Runtime and LiteRT with one thread.

make bench-cpu-integers

Each network of `bench/cpu.py` is quantized by ONNX Runtime's own tool (int8, QDQ, a scale for each
output channel), exported for this machine's CPU (`--cpu native`) and for any (`generic`), and runs
in turns with ONNX Runtime; the trained TensorFlow Lite files of $UMAKIT_MODELS run with LiteRT.
On processors without VNNI ONNX Runtime's sums saturate at 16 bits unless it is told to be exact
(`session.x64quantprecision`), so that there are two of it; outputs are compared with the exact one.
"""

from __future__ import annotations

import importlib.util
import math
import os
import platform
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cpu as float32
import numpy as np
import onnx
import onnxruntime
import quantized
import quantized_models
import rounds
import tools
from networks import fold_batch_norms

import umakit
from umakit.cpu.description import Cpu, find_cpu
from umakit.library.metadata import load_metadata

OUTPUT = Path("build/bench/cpu_integers.md")
ROUNDS, SECONDS = 9, 0.03
TRAINED = {
    "resnet8": "pretrainedResnet_quant.tflite",
    "ds_cnn": "kws_ref_model.tflite",
    "autoencoder": "ad01_int8.tflite",
}


@dataclass(frozen=True)
class Row:
    """What was measured of one network.

    Attributes:
        microseconds: of the rival.
        ratios: times over those of the first rival in the same rounds, by name.
        outputs: how outputs compare with the rival's.
    """

    name: str
    microseconds: float
    ratios: dict[str, rounds.Spread]
    outputs: str


def session_of(model: Path, exact: bool) -> onnxruntime.InferenceSession:
    """ONNX Runtime with one thread; with exact sums of integers, or as it comes."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_session_config_entry("session.x64quantprecision", str(int(exact)))
    providers = ["CPUExecutionProvider"]
    return onnxruntime.InferenceSession(str(model), options, providers=providers)


def call_of(
    model: Path, cpu: str, folder: Path, flags: list[str], values: Any, is_prepared: bool
) -> rounds.Call:
    """A function that runs a network that is exported for a CPU.

    Args:
        model: the network.
        cpu: the CPU.
        folder: where it is exported and built.
        flags: of the compiler.
        values: the input.
        is_prepared: whether calls do no more than run the network in memory that is there already,
            as those of LiteRT; else they make their outputs, as those of ONNX Runtime.
    """
    options = umakit.ExportOptions(cpu=cpu)
    made = umakit.compile_model(model, [], folder / "library", name="net", options=options)
    output = load_metadata(made.path)["umakit"]["outputs"][0]
    size, generated = math.prod(output["shape"]), tools.generated_of(made)
    if is_prepared:
        call = tools.prepared(generated, folder, flags, values, size, output["dtype"])
        return lambda: call().reshape(output["shape"])
    run = tools.runner(generated, folder, flags, output["dtype"])
    return lambda: run(values, size).reshape(output["shape"])


def calls_of(
    model: Path, cpu: Cpu, folder: Path, values: Any, is_prepared: bool = False
) -> dict[str, rounds.Call]:
    """The network for this machine's CPU, and for any; arguments as for `call_of`."""
    for name in ("native", "generic"):
        (folder / name).mkdir(parents=True)
    native, generic = ["-O3", *cpu.flags], float32.GENERIC_FLAGS
    return {
        "native": call_of(model, cpu.name, folder / "native", native, values, is_prepared),
        "generic": call_of(model, "generic", folder / "generic", generic, values, is_prepared),
    }


def compared(outputs: Any, wanted: Any) -> str:
    """How two results compare, for the table."""
    if np.array_equal(outputs, wanted):
        return "equal"
    share = float((outputs == wanted).mean())
    return f"{share:.1%} equal, off by {np.abs(outputs - wanted).max() / np.abs(wanted).max():.1e}"


def bench_onnx(name: str, cpu: Cpu, folder: Path) -> Row:
    """A network of `bench/cpu.py` in int8 beside ONNX Runtime."""
    source, path = folder / f"{name}.onnx", folder / f"{name}_int8.onnx"
    onnx.save(fold_batch_norms(float32.NETWORKS[name]()), source)
    quantized_models.quantize(source, path)
    fast, exact = session_of(path, False), session_of(path, True)
    described = fast.get_inputs()[0]
    values = np.random.default_rng(7).standard_normal(described.shape).astype("float32")
    calls = calls_of(path, cpu, folder / name, values)
    outputs = compared(calls["native"](), exact.run(None, {described.name: values})[0])
    if not np.array_equal(calls["native"](), calls["generic"]()):
        raise SystemExit(f"{name}: the two exports differ")
    calls |= {
        "ort": lambda: fast.run(None, {described.name: values}),
        "ort, exact": lambda: exact.run(None, {described.name: values}),
    }
    found = rounds.take_turns(calls, ROUNDS, SECONDS)
    ratios = {each: rounds.ratio(found, each, "ort") for each in ("native", "generic")}
    ratios["native / exact"] = rounds.ratio(found, "native", "ort, exact")
    return Row(name, 1e6 * sorted(found["ort"])[ROUNDS // 2], ratios, outputs)


def bench_tflite(name: str, model: Path, cpu: Cpu, folder: Path) -> Row:
    """A trained network beside LiteRT; outputs are compared with TensorFlow Lite Micro."""
    file = model.read_bytes()
    described = umakit.compile_model(model, [], folder / name / "described").metadata
    shape = described["umakit"]["inputs"][0]["shape"]
    values = np.random.default_rng(7).integers(-128, 128, shape).astype("int8")
    calls = calls_of(model, cpu, folder / name, values, is_prepared=True)
    oracle = quantized.micro_call(file, values)
    outputs = compared(calls["native"](), oracle())
    calls["litert"] = quantized.litert_call(file, values)
    found = rounds.take_turns(calls, ROUNDS, SECONDS)
    ratios = {each: rounds.ratio(found, each, "litert") for each in ("native", "generic")}
    return Row(name, 1e6 * sorted(found["litert"])[ROUNDS // 2], ratios, outputs)


def table(rows: list[Row], rival: str) -> list[str]:
    """Rows with the geometric means of their medians."""
    names = list(rows[0].ratios)
    lines = [
        f"| network | {rival}, us | {' | '.join(names)} | outputs |",
        f"|---|--:|{'--:|' * len(names)}---|",
    ]
    for row in rows:
        cells = [f"{s.median:.2f} ({s.low:.2f} to {s.high:.2f})" for s in row.ratios.values()]
        lines.append(
            f"| {row.name} | {row.microseconds:,.0f} | {' | '.join(cells)} | {row.outputs} |"
        )
    means = [math.exp(np.mean([math.log(row.ratios[n].median) for row in rows])) for n in names]
    return [*lines, f"| geometric mean | | {' | '.join(f'{mean:.2f}' for mean in means)} | |"]


def main() -> int:
    """Write the tables."""
    cpu = find_cpu("native")
    trained = Path(os.environ.get("UMAKIT_MODELS", ""))
    wanted = sys.argv[1:] or [*float32.NETWORKS]
    lines: list[str] = []
    with tempfile.TemporaryDirectory() as temporary:
        made = []
        for name in wanted:
            made.append(bench_onnx(name, cpu, Path(temporary)))
            print(table(made[-1:], "ONNX Runtime")[2], file=sys.stderr, flush=True)
        lines += table(made, "ONNX Runtime")
        files = {name: trained / file for name, file in TRAINED.items()}
        found = {name: file for name, file in files.items() if file.is_file()}
        if found and importlib.util.find_spec("ai_edge_litert"):
            folder = Path(temporary) / "trained"
            beside = [bench_tflite(name, file, cpu, folder) for name, file in found.items()]
            lines += ["", *table(beside, "LiteRT")]
        else:
            lines += ["", "Not compared with LiteRT: it is not installed, or no $UMAKIT_MODELS."]
    compiler = subprocess.run(["gcc", "--version"], capture_output=True, text=True, check=True)
    lines += [
        "",
        "Times over those of the rival in the same rounds: medians, and quartiles in brackets. "
        f"ONNX Runtime {onnxruntime.__version__}, one thread; {compiler.stdout.splitlines()[0]}; "
        f"native is {cpu.name}; {platform.processor() or platform.machine()}.",
    ]
    tools.publish(lines, OUTPUT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
