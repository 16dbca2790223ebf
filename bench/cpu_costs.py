# SPDX-License-Identifier: Apache-2.0
"""Fits the costs of CPUs to what emulators count, or to measured time, and prints their errors.

make bench-cpu-costs [CPUS="cortex-m4 ..."] [WRITE=1]

Drawn networks are compiled for a CPU and run. What their layers execute, times a cost for each
operation, is fitted to the instructions that the emulator counted, by least squares of relative
deviations with costs that are not negative (C. Lawson and R. Hanson, "Solving Least Squares
Problems", 1974, chapter 23). A quarter of the drawn networks takes no part in it; the errors are
those of its layers and of networks with other weights and shapes. With WRITE=1 the costs replace
those of the description of the CPU, else they are written to build/bench/cpu_costs.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from cost_networks import drawn_networks
from scipy.optimize import nnls

import umakit
from umakit.cpu.description import FOLDER, FUNCTION, CpuCosts, find_cpu
from umakit.devices.run import run_library
from umakit.lower.executed import executed_operations

OUTPUT = Path("build/bench")
DIGITS = Path(__file__).parents[1] / "examples/digits"
DEVICES = {
    "cortex-m3": "qemu-cortex-m3",
    "cortex-m4": "qemu-cortex-m4",
    "cortex-m7": "qemu-cortex-m7",
    "cortex-m55": "qemu-cortex-m55",
    "rv32imac": "qemu-riscv32",
    "x86-64-v3": "host",
}
NETWORKS = {
    "ResNet-8": "pretrainedResnet_quant.tflite",
    "DS-CNN": "kws_ref_model.tflite",
    "autoencoder": "ad01_int8.tflite",
}
INTEGERS, FLOATS, QUANTIZED = 24, 16, 8
"""How many networks are drawn: in int8, in float32, and in int8 of ONNX."""

LARGE, SMALL = 50_000, 2_000
"""Instructions of a layer from which its error is printed, and below which it weighs less."""

PRIOR_WEIGHT = 1e-5
"""How much it weighs that a cost is that of `_usual`, so that costs which the drawn layers hardly
tell apart are likely ones."""

ROUNDS, REPEATS = 5, 20
"""Measurements of time, of which the least counts, and inferences of each."""


@dataclass(frozen=True)
class Layer:
    """A layer that was measured.

    Attributes:
        network: the file without its suffix.
        name: of the layer.
        executed: how often it executes each operation.
        measured: instructions, or cycles of this machine.
    """

    network: str
    name: str
    executed: Mapping[str, float]
    measured: float


def measured_layers(path: Path, cpu: str, folder: Path) -> list[Layer]:
    """Compile a network for a CPU, run it, and return its layers.

    Args:
        path: the network.
        cpu: a name in `DEVICES`.
        folder: an empty folder.
    """
    options = umakit.ExportOptions(cpu=cpu)
    library = umakit.compile_model(path, [], folder / "library", options=options)
    random = np.random.default_rng(3)
    inputs = {
        view["name"]: random.normal(0, 40 if "int" in view["dtype"] else 1, view["shape"])
        .round(0 if "int" in view["dtype"] else 6).astype(view["dtype"])
        for view in library.metadata["umakit"]["inputs"]
    }  # fmt: skip
    program = library.program
    assert program is not None
    found = []
    for call, figure in zip(program.calls, _measured(library.path, cpu, inputs), strict=True):
        executed = executed_operations(program.kernels[call.kernel]) if call.kernel else None
        if executed is not None:
            found.append(Layer(path.stem, call.label, executed, figure))
        elif call.kernel:
            print(f"{path.stem}: {call.label} cannot be counted", file=sys.stderr)
    return found


def _measured(library: Path, cpu: str, inputs: dict[str, np.ndarray]) -> list[float]:
    """Return instructions of each layer; cycles where nothing counts instructions."""
    device = DEVICES[cpu]
    if device != "host":
        layers = run_library(library, inputs, device=device, profile=True).layers
        return [float(layer.instructions or 0) for layer in layers]
    hertz = clock_of_this_machine()
    rounds = [run_library(library, inputs, profile=True, repeat=REPEATS) for _ in range(ROUNDS)]
    times = zip(*([layer.seconds or 0.0 for layer in each.layers] for each in rounds), strict=True)
    return [min(each) * hertz for each in times]


def clock_of_this_machine() -> float:
    """Return the clock of the first processor in Hz, as Linux says it."""
    text = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    found = re.search(r"^cpu MHz\s*: ([0-9.]+)", text, re.MULTILINE)
    if found is None:
        raise SystemExit("/proc/cpuinfo does not say the clock of this machine")
    return float(found[1]) * 1e6


def _usual(operation: str) -> float:
    """Return a likely cost of an operation that few layers have."""
    return 20.0 if operation.startswith(FUNCTION) or operation.endswith("call") else 1.0


def fitted(layers: Sequence[Layer], unit: str) -> CpuCosts:
    """Return the costs that fit layers best.

    Args:
        layers: measured layers.
        unit: what was measured, `instructions` or `cycles`.
    """
    names = sorted({name for each in layers for name in each.executed})
    counts = np.array([[each.executed.get(name, 0.0) for name in names] for each in layers])
    measured = np.array([each.measured for each in layers])
    weights = 1 / np.maximum(measured, SMALL)
    counts, measured = counts * weights[:, None], measured * weights
    usual = np.array([_usual(name) for name in names])
    likely = PRIOR_WEIGHT * np.sqrt(len(layers)) * np.diag(1 / usual)
    system = np.vstack([counts, likely])
    found, _ = nnls(system, np.concatenate([measured, likely @ usual]))
    costs = {name: float(f"{cost:.4g}") for name, cost in zip(names, found, strict=True)}
    return CpuCosts(
        unit=unit,  # type: ignore[arg-type]
        operations={name: c for name, c in costs.items() if not name.startswith(FUNCTION)},
        functions={
            name.removeprefix(FUNCTION): c for name, c in costs.items() if name.startswith(FUNCTION)
        },
    )


def predicted(costs: CpuCosts, executed: Mapping[str, float]) -> float | None:
    """Return the predicted figure of a layer."""
    found = costs.of(executed)
    return found.cycles if costs.unit == "cycles" else found.instructions


def errors(costs: CpuCosts, layers: Iterable[Layer], least: float) -> list[float]:
    """Return predicted by measured less 1, of the layers with at least some instructions."""
    found = ((each, predicted(costs, each.executed)) for each in layers)
    return [
        figure / each.measured - 1
        for each, figure in found
        if figure is not None and each.measured >= least
    ]


def summary(found: Sequence[float]) -> str:
    """Return the median, and the largest, of the sizes of errors."""
    sizes = sorted(map(abs, found))
    if not sizes:
        return "none"
    within = sum(size <= 0.25 for size in sizes)
    return f"{statistics.median(sizes):.1%}, at most {sizes[-1]:.1%}, {within} of {len(sizes)}"


def toml_of(costs: CpuCosts, kept: CpuCosts | None) -> str:
    """Return the tables of a description of a CPU; what is no fit is kept."""
    lines = ["", "[costs]", f'unit = "{costs.unit}"']
    for name in ("cycles_per_instruction", "clock_mhz"):
        value = getattr(kept, name, None)
        lines += [] if value is None else [f"{name} = {value:g}"]
    for title, table in (("operations", costs.operations), ("functions", costs.functions)):
        lines += ["", f"[costs.{title}]", *(f"{name} = {cost:g}" for name, cost in table.items())]
    return "\n".join(lines) + "\n"


def _networks() -> dict[str, Path]:
    folder = Path(os.environ.get("UMAKIT_MODELS") or Path(__file__).parents[2] / "shared/models")
    missing = [file for file in NETWORKS.values() if not (folder / file).is_file()]
    if missing:
        raise SystemExit(f"there is no {folder / missing[0]}: $UMAKIT_MODELS names the folder")
    found = {name: folder / file for name, file in NETWORKS.items()}
    return {**found, **{f.stem: f for f in (DIGITS / "digits.onnx", DIGITS / "digits_int8.onnx")}}


def _layers_of(paths: Iterable[Path], cpu: str) -> list[Layer]:
    found = []
    for path in paths:
        with tempfile.TemporaryDirectory() as folder:
            found += measured_layers(path, cpu, Path(folder))
        print(f"{cpu}: {path.stem}", file=sys.stderr, flush=True)
    return found


def of_cpu(cpu: str, paths: Sequence[Path], *, write: bool) -> str:
    """Fit the costs of a CPU and return the lines of the report.

    Args:
        cpu: a name in `DEVICES`.
        paths: drawn networks.
        write: whether the costs replace those of the description.
    """
    held_out = set(paths[3::4])
    unit = "cycles" if DEVICES[cpu] == "host" else "instructions"
    layers = _layers_of([path for path in paths if path not in held_out], cpu)
    costs = fitted(layers, unit)
    others = _layers_of([path for path in paths if path in held_out], cpu)
    lines = [
        f"## {cpu}, {unit}", "",
        f"- {len(layers)} layers that costs are fitted to: {summary(errors(costs, layers, LARGE))} "
        f"of those from {LARGE:,} within 25 %",
        f"- {len(others)} other layers: {summary(errors(costs, others, LARGE))} within 25 %", "",
        "| network | measured | predicted | error | layers from 50,000: median error, largest |",
        "|---|--:|--:|--:|---|",
    ]  # fmt: skip
    for name, path in _networks().items():
        own = _layers_of([path], cpu)
        figures = [predicted(costs, each.executed) for each in own]
        measured = sum(each.measured for each in own)
        whole = None if None in figures else sum(each or 0 for each in figures)
        cells = ["unknown", ""] if whole is None else [f"{whole:,}", f"{whole / measured - 1:+.1%}"]
        of_layers = summary(errors(costs, own, LARGE))
        lines.append(f"| {name} | {measured:,.0f} | {' | '.join(cells)} | {of_layers} |")
    text = toml_of(costs, find_cpu(cpu).costs)
    folder = OUTPUT / "cpu_costs"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{cpu}.toml").write_text(text.lstrip(), encoding="utf-8")
    if write:
        path = FOLDER / f"{cpu}.toml"
        before = path.read_text(encoding="utf-8").partition("\n[costs]")[0].rstrip()
        path.write_text(f"{before}\n{text}", encoding="utf-8")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Fit the costs of CPUs and print their errors."""
    parser = argparse.ArgumentParser(description="fits the costs of CPUs")
    parser.add_argument("cpus", nargs="*", metavar="CPU", help=", ".join(DEVICES))
    parser.add_argument("--write", action="store_true", help="replace the costs of descriptions")
    chosen = parser.parse_args(arguments)
    unknown = [name for name in chosen.cpus if name not in DEVICES]
    if unknown:
        raise SystemExit(f"no costs are fitted for {unknown[0]}: choose {', '.join(DEVICES)}")
    paths = drawn_networks(OUTPUT / "work/cpu_costs", INTEGERS, FLOATS, QUANTIZED)
    parts = [of_cpu(cpu, paths, write=chosen.write) for cpu in chosen.cpus or DEVICES]
    text = "\n".join(parts)
    (OUTPUT / "cpu_costs.md").write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
