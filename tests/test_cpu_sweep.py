# SPDX-License-Identifier: Apache-2.0
"""Drawn networks of all operators for every CPU: some in each run, all in `make soak`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import cpu_sweep
import numpy as np
import onnx
import pytest
from comparisons import some
from cpu_programs import run_on_garbage
from networks import Array, onnx_runtime, random_inputs
from reproductions import reproduction

from umakit.cpu.description import cpu_names

SWEEP = Path(cpu_sweep.__file__)
NETWORKS = 20
"""In each run, of which every fourth has several operators side by side."""

Record = Callable[[str, object], None]


def run_sweep(record_property: Record, *options: str) -> None:
    """Run the sweep in a process of its own, because it forks."""
    command = [sys.executable, str(SWEEP), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)
    record_property("covered", f"{done.stdout.splitlines()[-1]} ({' '.join(options)})")


def test_some_networks_that_each_commit_draws_anew(record_property: Record) -> None:
    """UMAKIT_CPU_SEED draws those of another commit again; the summary names the seed."""
    seed = str(cpu_sweep.rotating_seed())
    run_sweep(record_property, "--sample", str(NETWORKS), "--seed", seed)


@pytest.mark.skipif("UMAKIT_EXAMPLES" not in os.environ, reason="hours: make soak")
@pytest.mark.soak
def test_every_operator_for_every_cpu(record_property: Record) -> None:
    run_sweep(record_property, "--seed", str(cpu_sweep.rotating_seed()))


# --- what it sees --------------------------------------------------------------------------------


def test_a_wrong_number_is_seen_and_only_for_its_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(
        content: bytes, suffix: str, inputs: Any, cpu: str, folder: Path
    ) -> Mapping[str, Array]:
        found = run_on_garbage(content, suffix, inputs, "generic", folder)
        if cpu == "cortex-m3":
            found = {name: array + array.dtype.type(1) for name, array in found.items()}
        return found

    monkeypatch.setattr(cpu_sweep, "run_on_garbage", run)
    monkeypatch.setattr(cpu_sweep, "warnings_of", lambda *_: "")
    cpu_sweep.load_tests_of_operators()
    result = cpu_sweep.check([("onnx", "Sum", "any")], 3, ["cortex-m3", "x86-64-v3"])
    assert "not [" in result.by_cpu["cortex-m3"] and result.by_cpu["x86-64-v3"] == ""


def test_c_with_a_warning_is_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    source = tmp_path / "codegen/host/src/net.c"
    source.parent.mkdir(parents=True)
    source.write_text("int f(int n); int f(int n) { int unused; return n; }\n")
    monkeypatch.setattr(cpu_sweep, "library_sources", lambda library: [source])
    said = cpu_sweep.warnings_of(tmp_path, "generic", tmp_path)
    assert said.count("[-Werror=unused-variable]") == said.count("[-Werror,-Wunused-variable]") == 1


def test_an_operator_that_never_ran_fails_the_sweep() -> None:
    keys = cpu_sweep.all_keys()
    coverage = cpu_sweep.Coverage()
    for key in keys[1:]:
        coverage.add([key], cpu_sweep.Result([key], 0, [*cpu_sweep.STEPS], by_cpu={"generic": ""}))
    assert coverage.never_drawn(keys) == [":".join(keys[0][:2])]
    assert len({key[:2] for key in keys}) > 230


# --- networks that were wrong --------------------------------------------------------------------


@pytest.mark.parametrize("cpu", some(cpu_names(), 4))
@pytest.mark.parametrize("name", ["concat_vector_c", "reshape_from_1d"])
def test_networks_that_gcc_or_umakit_refused(name: str, cpu: str, tmp_path: Path) -> None:
    path = reproduction(f"{name}/model.onnx")
    model = onnx.load(str(path))
    inputs = random_inputs(model)
    rows = {key: values[None] for key, values in inputs.items()}
    found = run_on_garbage(path.read_bytes(), ".onnx", rows, cpu, tmp_path)
    for key, wanted in onnx_runtime(model, inputs).items():
        np.testing.assert_allclose(found[key][0], wanted, rtol=1e-5, atol=1e-5)
    assert cpu_sweep.warnings_of(tmp_path / "library", cpu, tmp_path) == ""
