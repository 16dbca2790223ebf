# SPDX-License-Identifier: Apache-2.0
"""Time of networks whose layers two threads compute in parts, by their time with one.

Usage: python bench/parallel.py [NETWORK ...]. The table goes to build/bench/parallel.md.
"""

from __future__ import annotations

import ctypes
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import cpu as cpu_bench
import networks
import numpy as np
import onnx
import rounds
import tools

import umakit
from umakit.cpu.description import find_cpu

ROOT = Path(__file__).parents[1]
POOL = ROOT / "tests" / "parallel_pool.c"
OUTPUT = ROOT / "build" / "bench" / "parallel.md"
THREADS = 2
ROUNDS = 41
SECONDS = 0.02
NETWORKS = ("resnet18", "mobilenet", "resnet8", "u_net")
POOL_BYTES = 4096
"""Room for a `struct pool`."""


def runners(model: onnx.ModelProto, folder: Path) -> tuple[dict[str, Callable[[], None]], int]:
    """Functions that run a network as it is exported by default, in parts one after the other, and
    in parts with threads; and the number of its layers in parts.

    Raises:
        SystemExit: outputs differ.
    """
    native = find_cpu("native")
    path = folder / "net.onnx"
    onnx.save(model, str(path))
    ((_, values),) = networks.random_inputs(model).items()
    plain = umakit.compile_model(
        path, [], folder / "plain", name="net", options=umakit.ExportOptions(cpu=native.name)
    )
    options = umakit.ExportOptions(cpu=native.name, parallel=THREADS)
    split = umakit.compile_model(path, [], folder / "split", name="net", options=options)
    flags = ["-O3", *native.flags]
    size = split.metadata["umakit"]["outputs"][0]["size_bytes"] // 4
    run = tools.runner(tools.generated_of(plain), folder / "plain", flags)
    wanted = run(values, size)
    generated = tools.generated_of(split)
    built = folder / "split.so"
    command = tools.shared_library_command(generated, built, flags)
    subprocess.run([*command, str(POOL), "-pthread"], check=True)
    library = ctypes.CDLL(str(built))
    pool, arena = ctypes.create_string_buffer(POOL_BYTES), np.zeros(generated.arena + 64, "uint8")
    aligned = arena[-arena.ctypes.data % 64 :]
    result = np.zeros(size, "float32")
    library.start_pool(pool, THREADS, 0)
    callback = ctypes.cast(library.parallel_for, ctypes.c_void_p).value
    threads = (ctypes.c_void_p * 2)(callback, ctypes.addressof(pool))
    inputs, outputs = (ctypes.c_void_p * 1)(values.ctypes.data), (ctypes.c_void_p * 1)(
        result.ctypes.data
    )  # fmt: skip
    pools = (ctypes.c_size_t * 2)(aligned.ctypes.data, generated.arena)

    memory = (pool, arena, result)  # which nothing else holds

    def with_parallel(parallel: object) -> Callable[[], None]:
        def call() -> None:
            assert memory
            if library.tvmgen_net_run_parallel(inputs, outputs, pools, parallel) != 0:
                raise SystemExit("a run failed")

        return call

    calls: dict[str, Callable[[], None]] = {
        "plain": lambda: (run(values, size), None)[1],
        "one": with_parallel(None),
        "two": with_parallel(threads),
    }
    for name in ("one", "two"):
        result[:] = np.nan
        calls[name]()
        if result.tobytes() != wanted.tobytes():
            raise SystemExit(f"outputs of {name} differ")
    return calls, sum("parts" in each for each in split.metadata["umakit"]["layers"])


def take_turns(calls: Mapping[str, Callable[[], None]]) -> rounds.Rounds:
    """Return seconds on the clock of a call in each round, by name; one thread's time says nothing
    of two."""
    found: rounds.Rounds = {name: [] for name in calls}
    repeats = {}
    for name, call in calls.items():
        call()
        started = time.perf_counter()
        call()
        repeats[name] = math.ceil(SECONDS / (time.perf_counter() - started))
    for _ in range(ROUNDS):
        for name, call in calls.items():
            started = time.perf_counter()
            for _ in range(repeats[name]):
                call()
            found[name].append((time.perf_counter() - started) / repeats[name])
    return found


def main() -> int:
    """Write the table."""
    rows = []
    for name in sys.argv[1:] or NETWORKS:
        with tempfile.TemporaryDirectory() as temporary:
            calls, layers = runners(cpu_bench.NETWORKS[name](), Path(temporary))
            found = take_turns(calls)
            cells = []
            for each, base in (("two", "one"), ("one", "plain")):
                spread = rounds.ratio(found, each, base)
                cells.append(f"{spread.median:.2f} ({spread.low:.2f} to {spread.high:.2f})")
            least = min(found["two"]) / min(found["one"])
            microseconds = 1e6 * float(np.median(found["one"]))
            rows.append(
                f"| {name} | {layers} | {microseconds:,.0f} | {' | '.join(cells)} | {least:.2f} |"
            )
            print(rows[-1], file=sys.stderr, flush=True)
    lines = [
        "| network | layers in parts | one thread, us | two threads by one | parts one after the "
        "other by no parts | shortest by shortest |",
        "|---|--:|--:|--:|--:|--:|",
        *rows,
        "",
        "Ratios of times in the same rounds: medians, and quartiles in brackets; last, the shortest"
        f" time with two threads by that with one. {os.cpu_count()} cores; load of the machine "
        f"{os.getloadavg()[0]:.1f}.",
    ]
    tools.publish(lines, OUTPUT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
