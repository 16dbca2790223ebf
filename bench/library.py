# SPDX-License-Identifier: Apache-2.0
"""Size and speed of the C that umakit writes, against lower bounds and other compilers.

make bench-library

Everything is measured in one run with the same compiler and flags, and only after the outputs were
compared with ONNX Runtime's.
"""

from __future__ import annotations

import json
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import models
import numpy as np
import onnx
import onnxruntime
import tools

OUTPUT = Path("build/bench")
DEVICES = {"host": ["gcc"], "cortex-m3": ["arm-none-eabi-gcc", "-mcpu=cortex-m3", "-mthumb"]}
TOLERANCE = 1e-4
"""Tolerance relative to the largest output."""

SPEED_FLAGS = ["-O3"]
ROUNDS = 7


@dataclass(frozen=True)
class Row:
    """One network, one tool, one device.

    Attributes:
        note: why there are no numbers; empty if there are.
        difference: largest from ONNX Runtime, relative to the largest output.
        slowdown: time of an inference over ONNX Runtime's, one thread each, host only.
    """

    model: str
    tool: str
    device: str
    constants_bound: int
    ram_bound: int
    needs: tools.Needs | None = None
    difference: float | None = None
    slowdown: float | None = None
    note: str = ""


def seconds_of(call: Callable[[], Any]) -> float:
    """Time of a call: the median of rounds of at least 20 ms."""
    started = time.perf_counter()
    call()
    repeats = max(1, int(0.02 / max(1e-7, time.perf_counter() - started)))
    rounds = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        for _ in range(repeats):
            call()
        rounds.append((time.perf_counter() - started) / repeats)
    return statistics.median(rounds)


def reference_session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """ONNX Runtime with one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def bench_model(name: str, devices: dict[str, list[str]]) -> list[Row]:
    """All tools and devices for one network."""
    model = models.MODELS[name]()
    values = models.sample(model)
    session = reference_session(model)
    wanted = session.run(None, {"input": values})[0].ravel()
    baseline = seconds_of(lambda: session.run(None, {"input": values}))
    bounds = models.constants_bound(model), models.arena_bound(model)
    rows = []
    for tool, generate in tools.TOOLS.items():
        folder = (OUTPUT / "work" / name / tool).resolve()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        path = folder / f"{name}.onnx"
        onnx.save(model, str(path))
        try:
            rows += _bench_tool(
                (name, tool), generate(path, folder), devices, bounds, (values, wanted, baseline)
            )
        except tools.NotAvailable as error:
            rows += [Row(name, tool, device, *bounds, note=str(error)) for device in devices]
        print(f"{name}: {tool}", file=sys.stderr, flush=True)
    return rows


def _bench_tool(
    names: tuple[str, str],
    generated: tools.Generated,
    devices: dict[str, list[str]],
    bounds: tuple[int, int],
    reference: tuple[np.ndarray, np.ndarray, float],
) -> list[Row]:
    values, wanted, baseline = reference
    folder = generated.sources[0].parent
    run = tools.runner(generated, folder, SPEED_FLAGS)
    scale = float(np.abs(wanted).max())
    difference = float(np.abs(run(values, wanted.size) - wanted).max()) / scale
    if not difference <= TOLERANCE:
        note = f"wrong outputs: off by {difference:.2g} of the largest"
        return [Row(*names, device, *bounds, note=note) for device in devices]
    slowdown = seconds_of(lambda: run(values, wanted.size)) / baseline
    return [
        Row(
            *names,
            device,
            *bounds,
            tools.measure(generated, compiler, folder / device),
            difference,
            slowdown if device == "host" else None,
        )
        for device, compiler in devices.items()
    ]


def markdown(rows: list[Row]) -> str:
    """The table, and what its columns mean."""
    header = (
        "| network | device | tool | code B | constants B | / bound | RAM B | / bound | stack B "
        "| time / ONNX Runtime | error |\n|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|\n"
    )
    lines = []
    for row in rows:
        start = f"| {row.model} | {row.device} | {row.tool} |"
        if row.needs is None:
            lines.append(f"{start} {row.note} | | | | | | | |")
            continue
        needs = row.needs
        ram = f"{needs.ram:,} | {needs.ram / row.ram_bound:.2f}" if needs.ram else "no bound |"
        stack = "" if needs.stack is None else f"{needs.stack:,}"
        slowdown = "" if row.slowdown is None else f"{row.slowdown:.2f}"
        lines.append(
            f"{start} {needs.code:,} | {needs.constants:,} | "
            f"{needs.constants / row.constants_bound:.2f} | {ram} | {stack} | {slowdown} | "
            f"{row.difference:.1e} |"
        )
    return header + "\n".join(lines) + "\n\n" + _explanation()


def _explanation() -> str:
    versions = [
        subprocess.run(
            [c[0], "--version"], capture_output=True, text=True, check=True
        ).stdout.splitlines()[0]
        for c in available().values()
    ]
    return (
        "Float32, batch 1. Sizes: `-std=c99 -Os -ffunction-sections`, every tool's files compiled "
        "alike; constants are all read-only data. RAM is arena, static variables and worst-case "
        "stack together, without what libc needs on the stack. Bounds: constants are the weights "
        "and one bias a layer after batch-norm folding; RAM is the largest sum of tensors alive "
        "at once in the order of the file, element-wise operators and added layers in place, "
        f"without inputs and outputs. Time: `{' '.join(SPEED_FLAGS)}`, this machine, over ONNX "
        f"Runtime {onnxruntime.__version__} with one thread, medians of {ROUNDS} rounds. error: "
        "largest difference from ONNX Runtime over the largest output.\n\n"
        f"{platform.machine()}; {'; '.join(versions)}\n"
    )


def available() -> dict[str, list[str]]:
    """Devices whose compiler is installed."""
    return {name: command for name, command in DEVICES.items() if shutil.which(command[0])}


def main() -> int:
    """Returns 0 when umakit's outputs were right on every network."""
    rows = [row for name in models.MODELS for row in bench_model(name, available())]
    OUTPUT.mkdir(parents=True, exist_ok=True)
    text = markdown(rows)
    (OUTPUT / "library.md").write_text(text, encoding="utf-8")
    values = [{**asdict(row), "ram": row.needs.ram if row.needs else None} for row in rows]
    (OUTPUT / "library.json").write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
    print(text)
    return 1 if any(row.tool == "umakit" and row.needs is None for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
