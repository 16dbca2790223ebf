# SPDX-License-Identifier: Apache-2.0
"""Try damaged files of one format.

PYTHONPATH=tests python -m mutators onnx --seed 7 --count 200
PYTHONPATH=tests python -m mutators onnx --seed 7 --number 42     (one of them, on this terminal)
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import secrets
import tempfile
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from mutators import runner
from mutators.base import Format, OneByte
from mutators.formats import FORMATS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m mutators", description=__doc__)
    parser.add_argument("format", choices=FORMATS)
    parser.add_argument("--seed", default="", help="default: a random one")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="number of the first mutant")
    parser.add_argument("--seconds", type=float, help="instead of a count")
    parser.add_argument("--thorough", type=float, default=1.0, help="share that is compiled")
    parser.add_argument("--compared", type=float, default=1.0, help="share that is compared")
    parser.add_argument("--number", type=int, help="read this mutant in this process")
    parser.add_argument("--one-byte", action="store_true", help="change one byte of healthy files")
    parser.add_argument("--memory", type=int, default=4096, help="MB that a mutant may take")
    parser.add_argument("--cpu-seconds", type=float, default=40.0, help="time that it may take")
    parser.add_argument("--kept", type=Path, default=Path(tempfile.gettempdir()) / "umakit-mutants")
    given = parser.parse_args()
    if given.format == "torch" and importlib.util.find_spec("torch") is None:
        print("torch: left out, PyTorch is not installed")
        return 0
    seed = given.seed or str(secrets.randbelow(10**9))
    form: Format = FORMATS[given.format]()
    if given.one_byte:
        form = OneByte(form)
    with tempfile.TemporaryDirectory(prefix="umakit-mutators-") as temporary:
        form.prepare(Path(temporary))
        if given.number is not None:
            path = Path(temporary) / f"mutant{form.suffix}"
            path.write_bytes(runner.file_of(form, seed, given.number))
            form.read(path, True)
            print("accepted:", form.compare(path) or "no difference")
            return 0
        last = given.first + given.count
        numbers = runner.until(given.seconds) if given.seconds else iter(range(given.first, last))
        summary = runner.run(
            form,
            seed,
            numbers,
            given.kept,
            thorough=given.thorough,
            compared=given.compared,
            limits=runner.Limits(given.memory << 20, given.cpu_seconds),
        )
    print(json.dumps({"format": form.name, "seed": seed, "counts": dict(summary.counts)}))
    for number, what, kept in summary.failures:
        print(f"FAILED {form.name} --seed {seed} --number {number}: {what} ({kept})")
    return 1 if summary.failures else 0


raise SystemExit(main())
