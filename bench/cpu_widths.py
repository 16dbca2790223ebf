# SPDX-License-Identifier: Apache-2.0
"""AVX-512 and its dot products beside AVX2, on one machine that has all of them.

make bench-cpu-widths

Networks of `bench/cpu.py` in float32, and in int8 as in `bench/cpu_integers.py`, are exported for
each CPU of x86-64 that this machine has, and run in turns. Outputs have to be those of ONNX
Runtime, in int8 bit by bit.
"""

from __future__ import annotations

import math
import sys
import tempfile
from pathlib import Path

import cpu as float32
import cpu_integers as integers
import numpy as np
import onnx
import quantized_models
import rounds
import tools
from networks import fold_batch_norms

from umakit.cpu.description import Cpu, cpu_names, find_cpu
from umakit.devices.machine_names import processor_name, version_line

OUTPUT = Path("build/bench/cpu_widths.md")
ROUNDS, SECONDS = 9, 0.02
BASE = "x86-64-v3"
SKIPPED = ("resnet18",)
"""Networks that take minutes to compile for each CPU, unless they are named."""


def bench(name: str, dtype: str, cpus: list[Cpu], folder: Path) -> tuple[str, list[float]]:
    """A row of the table, and medians of times over those of AVX2."""
    source, path = folder / f"{name}.onnx", folder / f"{name}_{dtype}.onnx"
    model = float32.NETWORKS[name]()
    onnx.save(fold_batch_norms(model) if dtype == "int8" else model, str(source))
    if dtype == "int8":
        quantized_models.quantize(source, path)
    else:
        path = source
    session = integers.session_of(path, exact=True)
    described = session.get_inputs()[0]
    values = np.random.default_rng(7).standard_normal(described.shape).astype("float32")
    wanted = session.run(None, {described.name: values})[0]
    calls: dict[str, rounds.Call] = {}
    for each in cpus:
        place = folder / f"{name}_{dtype}_{each.name}"
        place.mkdir()
        flags = ["-O3", *each.flags]
        calls[each.name] = integers.call_of(path, each.name, place, flags, values, False)
        found = calls[each.name]().reshape(wanted.shape)
        same = np.array_equal if dtype == "int8" else _close
        if not same(found, wanted):
            raise SystemExit(f"{name}, {dtype}, {each.name}: not what ONNX Runtime yields")
    times = rounds.take_turns(calls, ROUNDS, SECONDS)
    spreads = [rounds.ratio(times, each.name, BASE) for each in cpus[1:]]
    cells = [f"{s.median:.2f} ({s.low:.2f} to {s.high:.2f})" for s in spreads]
    microseconds = 1e6 * sorted(times[BASE])[ROUNDS // 2]
    row = f"| {name}, {dtype} | {microseconds:,.0f} | {' | '.join(cells)} |"
    return row, [spread.median for spread in spreads]


def _close(found: np.ndarray, wanted: np.ndarray) -> bool:
    return float(np.abs(found - wanted).max()) <= float32.TOLERANCE * float(np.abs(wanted).max())


def main() -> int:
    """Write the table."""
    all_cpus = [find_cpu(each) for each in cpu_names() if each.startswith("x86-64")]
    cpus = [each for each in all_cpus if not each.missing_here()]
    if len(cpus) < 2:
        raise SystemExit(f"this machine has only {', '.join(each.name for each in cpus) or 'none'}")
    wanted = sys.argv[1:] or [name for name in float32.NETWORKS if name not in SKIPPED]
    lines = [
        f"| network | {BASE}, us | {' | '.join(each.name for each in cpus[1:])} |",
        f"|---|--:|{'--:|' * len(cpus[1:])}",
    ]
    with tempfile.TemporaryDirectory() as temporary:
        for dtype in ("float32", "int8"):
            medians = []
            for name in wanted:
                row, ratios = bench(name, dtype, cpus, Path(temporary))
                lines.append(row)
                medians.append(ratios)
                print(row, file=sys.stderr, flush=True)
            logarithms = np.log(np.array(medians)).mean(axis=0)
            means = " | ".join(f"{math.exp(each):.2f}" for each in logarithms)
            lines.append(f"| geometric mean, {dtype} | | {means} |")
    compiler = version_line("gcc")
    lines += [
        "",
        f"Processor time over that of {BASE} in the same rounds: medians, and quartiles in "
        f"brackets. One thread; {compiler}; {processor_name()}.",
    ]
    tools.publish(lines, OUTPUT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
