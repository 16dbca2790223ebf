# SPDX-License-Identifier: Apache-2.0
"""User time and peak memory of compiling networks, and of the C compiler behind it.

make bench-compile

Each network is compiled for any CPU and for this machine's, in a process of its own that is
measured from after its imports. Networks of ONNX are built and run, and compared with ONNX Runtime.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import networks
import numpy as np
import onnx
import tools

from umakit.cpu.description import find_cpu
from umakit.devices.build import FLAGS
from umakit.library.metadata import load_metadata

BENCH = Path(__file__).parent
OUTPUT = Path("build/bench")
CPUS = ("generic", "native")
TRAINED = ("ad01_int8", "kws_ref_model", "pretrainedResnet", "pretrainedResnet_quant")
"""Networks of MLPerf Tiny as TensorFlow Lite files, in the folder that $UMAKIT_MODELS names."""

TOLERANCE = 1e-4
"""Tolerance relative to the largest output."""

MOST_SECONDS = dict.fromkeys(TRAINED, 3.0)
"""Limits of the user time of a compilation."""

MOST_GROWTH = 12.0
"""Limit of the user time of 100 layers over that of 10."""

LARGE, LARGE_SECONDS = "resnet50", 120.0
"""A network, and the limit of the time in which it is compiled, built and run."""


@dataclass(frozen=True)
class Row:
    """One network for one CPU.

    Attributes:
        compile_seconds: user time of the compilation, without imports.
        compile_bytes: peak memory of its process, Python and TVM included.
        imported_bytes: what of that was in use before the compilation.
        c_seconds: user time of the C compiler.
        c_bytes: peak memory of the C compiler.
        source_bytes: size of the C sources.
        arena_bytes: size of the arena.
        total_seconds: from the start of Python to the end of the first inference.
        difference: largest one from ONNX Runtime, relative to the largest output; None if not run.
    """

    model: str
    cpu: str
    compile_seconds: float
    compile_bytes: int
    imported_bytes: int
    c_seconds: float
    c_bytes: int
    source_bytes: int
    arena_bytes: int
    total_seconds: float
    difference: float | None


def chain(layers: int) -> onnx.ModelProto:
    """Convolutions with batch normalization and ReLU, no two of one size, so of one kernel."""
    graph = networks.Graph(f"layers{layers}", seed=layers)
    x = graph.input("input", 1, 16, 8, 2 * layers + 8)
    for _ in range(layers):
        x = graph.node("Relu", graph.batch_norm(graph.conv(x, 16, 3, pads=[1, 0, 1, 0])))
    graph.output(x)
    return graph.model()


NETWORKS: dict[str, Callable[[], onnx.ModelProto]] = {
    "layers1": lambda: chain(1),
    "layers10": lambda: chain(10),
    "layers100": lambda: chain(100),
    "resnet18": networks.resnet18,
    "resnet50": networks.resnet50,
}


def measured(script: str, *arguments: str) -> dict[str, Any]:
    """What a script of this folder prints about a command that it runs."""
    command = [sys.executable, str(BENCH / script), *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{result.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return found


def bench(name: str, path: Path, cpu: str, folder: Path) -> Row:
    """Compile, build and, if it is one of ONNX, run a network."""
    started = time.perf_counter()
    library = folder / "library"
    compiled = measured("compile_one.py", str(path), cpu, str(library))
    metadata = load_metadata(library)
    generated = tools.generated_in(library, metadata)
    shared = folder / "network.so"
    flags = [*FLAGS[1:], *find_cpu(cpu).flags]
    command = tools.shared_library_command(generated, shared, flags)
    built = measured("usage.py", *command)
    difference, seconds = None, time.perf_counter() - started
    if path.suffix == ".onnx":
        model = onnx.load(path)
        inputs = networks.random_inputs(model)
        ((output, wanted),) = networks.onnx_runtime(model, inputs).items()
        begun = time.perf_counter()
        (values,) = inputs.values()
        found = tools.loaded(generated, shared)(values, wanted.size)
        seconds += time.perf_counter() - begun
        difference = float(np.abs(found - wanted.ravel()).max() / np.abs(wanted).max())
        if not difference <= TOLERANCE:
            raise SystemExit(f"{name}, {cpu}: {output} is off by {difference:.2g} of the largest")
    return Row(
        name,
        cpu,
        compiled["user"],
        compiled["peak_bytes"],
        compiled["imported_bytes"],
        built["user"],
        built["peak_bytes"],
        sum(source.stat().st_size for source in generated.sources),
        generated.arena,
        seconds,
        difference,
    )


def missed(rows: list[Row]) -> list[str]:
    """The limits that were missed, one sentence each."""
    found = []
    seconds = {(row.model, row.cpu): row.compile_seconds for row in rows}
    for row in rows:
        limit = MOST_SECONDS.get(row.model)
        if limit is not None and row.compile_seconds > limit:
            found.append(f"{row.model}, {row.cpu}: compiling took more than {limit} s")
        if row.model == LARGE and row.total_seconds > LARGE_SECONDS:
            found.append(f"{row.model}, {row.cpu}: all took more than {LARGE_SECONDS} s")
    for cpu in CPUS:
        ten, hundred = seconds.get(("layers10", cpu)), seconds.get(("layers100", cpu))
        if ten is not None and hundred is not None and hundred > MOST_GROWTH * ten:
            found.append(f"{cpu}: 100 layers took more than {MOST_GROWTH} times those of 10")
    return found


def markdown(rows: list[Row]) -> str:
    """The table, and what its columns mean."""
    lines = [
        "| network | --cpu | uma compile, s | peak MB | C compiler, s | peak MB | C MB | all, s |",
        "|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        cells = (
            f"{row.compile_seconds:.2f}", f"{row.compile_bytes / 1e6:,.0f}",
            f"{row.c_seconds:.2f}", f"{row.c_bytes / 1e6:,.0f}", f"{row.source_bytes / 1e6:,.1f}",
            f"{row.total_seconds:.0f}",
        )  # fmt: skip
        lines.append(f"| {row.model} | {row.cpu} | {' | '.join(cells)} |")
    compiler = subprocess.run(["gcc", "--version"], capture_output=True, text=True, check=True)
    imported = max(row.imported_bytes for row in rows) / 1e6
    lines += [
        "",
        "Measured: user time of `uma compile` without the start of Python and imports, and of the "
        f"C compiler (`{' '.join(FLAGS[1:])}` and the flags of the CPU); peak memory of each, "
        f"{imported:,.0f} MB of the first Python's and TVM's; size of the C files; elapsed time "
        "from the start of Python to the end of the first inference, all of that included. Outputs "
        "of ONNX networks are those of ONNX Runtime, trained networks are not run. "
        f"{compiler.stdout.splitlines()[0]}; native is {find_cpu('native').name}; "
        f"{platform.machine()}, {os.cpu_count()} cores.",
    ]
    return "\n".join(lines) + "\n"


def files(folder: Path, chosen: list[str]) -> dict[str, Path]:
    """Model files by name: those of `NETWORKS`, written to a folder, and the trained ones."""
    found = {}
    for name in NETWORKS:
        if not chosen or name in chosen:
            found[name] = networks.save(NETWORKS[name](), folder, name)
    for name in TRAINED:
        path = Path(os.environ.get("UMAKIT_MODELS", "")) / f"{name}.tflite"
        if path.is_file() and (not chosen or name in chosen):
            found[name] = path
        elif not path.is_file():
            print(f"{name}: left out, UMAKIT_MODELS names no folder with it", file=sys.stderr)
    return found


def main() -> int:
    """Write the table; return 1 if a limit was missed."""
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        for name, path in files(Path(temporary), sys.argv[1:]).items():
            for cpu in CPUS:
                with tempfile.TemporaryDirectory(dir=temporary) as folder:
                    rows.append(bench(name, path, cpu, Path(folder)))
                print(f"{name}, {cpu}: {rows[-1]}", file=sys.stderr, flush=True)
    OUTPUT.mkdir(parents=True, exist_ok=True)
    text = markdown(rows)
    (OUTPUT / "compile.md").write_text(text, encoding="utf-8")
    values = json.dumps([asdict(row) for row in rows], indent=2)
    (OUTPUT / "compile.json").write_text(values + "\n", encoding="utf-8")
    print(text)
    for sentence in missed(rows):
        print(f"missed: {sentence}")
    return 1 if missed(rows) else 0


if __name__ == "__main__":
    sys.exit(main())
