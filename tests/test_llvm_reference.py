# SPDX-License-Identifier: Apache-2.0
"""TVM's LLVM build, which results are compared with: linked by `cc`, or without it in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from networks import Graph, assert_close, onnx_runtime, random_inputs, save

from umakit import tvm_api
from umakit.frontend import import_model
from umakit.testing import llvm_runner


@pytest.fixture
def network() -> onnx.ModelProto:
    """A convolution, a maximum, and a function of the C library."""
    graph = Graph(seed=3)
    image = graph.input("image", 1, 2, 9, 7)
    filters = graph.random(4, 2, 3, 3, deviation=0.2)
    graph.output(graph.node("Erf", graph.node("Relu", graph.node("Conv", image, filters))))
    return graph.model()


def _linked(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return a list that says of each executable that is built whether it was linked."""
    kinds: list[bool] = []
    link = tvm_api._link

    def watched(executable: Any) -> None:
        link(executable)
        kinds.append([module.kind for module in executable.imports] != ["llvm"])

    monkeypatch.setattr(tvm_api, "_link", watched)
    return kinds


@pytest.mark.parametrize(
    "compiler", ["works", "is missing", "refuses", "writes nonsense", "is no program"]
)
def test_results_are_right_with_any_compiler(
    network: onnx.ModelProto, compiler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = import_model(save(network, tmp_path))
    inputs = random_inputs(network)
    wanted = onnx_runtime(network, inputs)
    if compiler != "works":
        programs = tmp_path / "programs"
        programs.mkdir()
        if compiler != "is missing":
            script = "exit 1" if compiler == "refuses" else 'echo nonsense > "$5"'
            (programs / "cc").write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
            if compiler == "is no program":
                (programs / "cc").write_bytes(b"\x7fELF")
            (programs / "cc").chmod(0o755)
        monkeypatch.setenv("PATH", str(programs))
    linked = _linked(monkeypatch)
    run = llvm_runner(model)
    assert linked == [compiler == "works"]
    for name, value in run(inputs).items():
        assert_close(value, wanted[name])


def test_a_runner_works_as_long_as_it_is_kept(network: onnx.ModelProto, tmp_path: Path) -> None:
    model = import_model(save(network, tmp_path))
    inputs = [random_inputs(network, seed=seed) for seed in (1, 2)]
    runs = [llvm_runner(model) for _ in range(3)]
    for each in inputs:
        results = [next(iter(run(each).values())) for run in runs]
        np.testing.assert_array_equal(results[0], results[1])
        np.testing.assert_array_equal(results[0], results[2])
        assert_close(results[0], next(iter(onnx_runtime(network, each).values())))
