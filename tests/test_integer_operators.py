# SPDX-License-Identifier: Apache-2.0
"""The registry of integer operators: a file for each, which nothing outside of its room names."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from import_graph import import_graph

from umakit import patterns
from umakit.operators import registry
from umakit.operators.numeric.fixed_point import Arithmetic
from umakit.operators.registry import Order, Recognition

ROOT = Path(__file__).parents[1]
OPERATORS = ROOT / "umakit" / "operators"
FOLDERS = ("backends", "cli", "sim", "templates")
"""They are in the package too, but beside it in the repository."""


FAMILIES = {
    "umakit.operators.add": 2,
    "umakit.operators.argmax": 2,
    "umakit.operators.avg_pool2d": 3,
    "umakit.operators.float32_pairs": 2,
    "umakit.operators.max_pool2d": 2,
    "umakit.operators.mean": 2,
    "umakit.operators.sigmoid_lookup": 3,
    "umakit.operators.softmax": 2,
    "umakit.operators.svdf": 2,
}
"""Files of several operators, which share their parameters, derivation or kernel."""


def registrations() -> dict[str, int]:
    """How many integer operators each module registers, for those that register any."""
    counts = {
        f"umakit.operators.{path.stem}": len(
            re.findall(r"^register\(", path.read_text(encoding="utf-8"), re.MULTILINE)
        )
        for path in OPERATORS.glob("*.py")
    }
    return {module: count for module, count in counts.items() if count}


def registering_files() -> set[str]:
    """Modules that register an integer operator."""
    return set(registrations())


def test_each_operator_is_registered_by_one_file() -> None:
    counts = registrations()
    assert {module: count for module, count in counts.items() if count != 1} == FAMILIES
    assert sum(counts.values()) == len(registry.operators()) > 30


def test_nothing_outside_names_the_file_of_an_operator() -> None:
    packages = {"umakit": ROOT / "umakit", **{f"umakit.{name}": ROOT / name for name in FOLDERS}}
    registering = registering_files()
    named = {
        (module, other)
        for module, others in import_graph(packages).items()
        for other in others & registering
        if not f"{module}.".startswith("umakit.operators.")
    }
    assert named == set()


SCRIPT = """
import sys
import umakit, umakit.cli.main, umakit.patterns, umakit.pipeline
from umakit import patterns
from umakit.operators import registry
from umakit.testing.example_networks import QuantizedNetwork

assert umakit.__file__.startswith(sys.argv[1])
assert "leaky_relu" not in {operator.name for operator in registry.operators()}
assert not registry.recognitions("nn.leakyrelu", registry.Arithmetic.TFLM)
network = QuantizedNetwork(6, 6, 4).conv2d(4).conv2d(4).residual().pool2d("max").dense(3)
umakit.compile_model(network.model("net").module, [], sys.argv[2], name="net")
"""


def test_without_the_file_of_an_operator_all_else_works(tmp_path: Path) -> None:
    package = tmp_path / "umakit"
    clean = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "umakit", package, ignore=clean)
    for name in FOLDERS:
        shutil.copytree(ROOT / name, package / name, ignore=clean)
    (package / "operators" / "leaky_relu.py").unlink()
    subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path), str(tmp_path / "library")],
        check=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
    )
    assert (tmp_path / "library" / "metadata.json").is_file()


def test_two_operators_cannot_be_the_general_one() -> None:
    recognition = Recognition(("matmul",), lambda island: None, (Arithmetic.TFLM,), Order.GENERAL)
    with pytest.raises(ValueError, match="not the only one recognized in matmul"):
        registry.register("second_product", recognitions=(recognition,))
    with pytest.raises(ValueError, match="registered twice"):
        registry.register("add")
    assert "second_product" not in {operator.name for operator in registry.operators()}


def test_names_that_patterns_do_not_have_are_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'qnothing'"):
        _ = patterns.qnothing
