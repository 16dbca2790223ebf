# SPDX-License-Identifier: Apache-2.0
"""The work of a compilation grows with the number of layers, not faster.

Work is counted, not timed: calls of each function of Python, and functions and bindings of the
modules that TVM's passes get.
"""

from __future__ import annotations

import cProfile
import pstats
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from networks import Graph, save

import umakit
from umakit import tvm_api

LAYERS = (3, 6, 12)
MOST_GROWTH = 1.4
"""Limit of the calls for the last six layers over twice those for the three before. It is 2 for
what is done once for each pair of layers."""

FEW = 12
"""Number of calls beyond the limit that longer names and numbers may take."""

PASSES = "functions and bindings that TVM's passes get"


def chain(layers: int, *, alike: bool) -> Graph:
    """Convolutions of one kernel, or each of another height: rows of any width have other tiles."""
    graph = Graph("chain")
    x = graph.input("x", 1, 4, 3 if alike else 2 * layers + 3, 8)
    for _ in range(layers):
        pads = [1, 1, 1, 1] if alike else [0, 1, 0, 1]
        x = graph.node("Relu", graph.batch_norm(graph.conv(x, 4, 3, pads=pads)))
    graph.output(x)
    return graph


def work_of(model: Path, folder: Path, cpu: str, backends: list[umakit.Backend]) -> Counter[str]:
    """Calls of each function in a compilation, and the work of TVM's passes."""
    work: Counter[str] = Counter()
    usual = tvm_api.Pass.__call__

    def counting(this: Any, module: tvm_api.IRModule) -> tvm_api.IRModule:
        for function in module.functions.values():
            is_relax = isinstance(function, tvm_api.Function)
            work[PASSES] += 1 + (len(list(tvm_api.bindings_of(function))) if is_relax else 0)
        result: tvm_api.IRModule = usual(this, module)
        return result

    profile = cProfile.Profile()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tvm_api.Pass, "__call__", counting)
        options = umakit.ExportOptions(cpu=cpu)
        profile.runcall(umakit.compile_model, model, backends, folder, name="net", options=options)
    for (file, line, name), counted in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        work[f"{name} in {file}:{line}"] += counted[1]
    return work


@pytest.mark.parametrize(
    ("cpu", "accelerator", "alike"),
    [
        ("generic", "", False),
        ("x86-64-v3", "", True),
        ("generic", "vanilla_accelerator", True),
    ],
    ids=["generic", "vectors", "accelerator"],
)
def test_work_grows_with_the_number_of_layers(
    cpu: str, accelerator: str, alike: bool, tmp_path: Path
) -> None:
    backends = [umakit.find_backend(accelerator)] if accelerator else []
    work = []
    for number, layers in enumerate((1, *LAYERS)):  # the first compilation imports modules
        model = save(chain(layers, alike=alike).model(), tmp_path, f"chain{layers}")
        work.append(work_of(model, tmp_path / f"library{number}", cpu, backends))
    _, few, some, many = work
    assert 0 < few[PASSES] < some[PASSES] < many[PASSES]
    growing = {
        name: (few[name], some[name], many[name])
        for name in many
        if many[name] - some[name] > MOST_GROWTH * 2 * (some[name] - few[name]) + FEW
    }
    assert growing == {}
