# SPDX-License-Identifier: Apache-2.0
"""Arguments of the Python functions that are of another type, or name what does not exist."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import onnx.helper
import pytest

import umakit
from umakit.errors import UmakitError


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"backends": ["vanilla_accelerator"]}, "'vanilla_accelerator', which is not a backend"),
        ({"backends": "vanilla_accelerator"}, "backends is not a list of backends"),
        ({"backends": None}, "backends is not a list of backends"),
        ({"output": None}, "output is not a path"),
        ({"output": 3}, "output is not a path"),
        ({"options": {"weights": "blob"}}, "options are not ExportOptions"),
    ],
)
def test_compile_model_says_which_argument_is_wrong(
    arguments: dict[str, Any], message: str, tmp_path: Path
) -> None:
    given = {"source": "none.onnx", "backends": [], "output": tmp_path / "out", **arguments}
    with pytest.raises(UmakitError) as caught:
        umakit.compile_model(**given)
    assert message in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_one_backend_without_a_list_is_refused(tmp_path: Path) -> None:
    backend = umakit.find_backend("vanilla_accelerator")
    with pytest.raises(UmakitError, match="backends is not a list of backends"):
        umakit.compile_model("none.onnx", backend, tmp_path / "out")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: umakit.ExportOptions(weights="zip"), "weights cannot be written as 'zip'"),  # type: ignore[arg-type]
        (lambda: umakit.ExportOptions(overlap="zip"), "there is no overlap 'zip'"),  # type: ignore[arg-type]
        (lambda: umakit.ExportOptions(planner="zip"), "there is no memory planner 'zip'"),
        (lambda: umakit.ExportOptions(pools=("sram=64K",)), "'sram=64K', which is not a"),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_options_that_do_not_exist_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(UmakitError) as caught:
        make()
    assert message in str(caught.value)


def test_inputs_of_a_run_are_arrays_by_name(tmp_path: Path) -> None:
    tensor = onnx.helper.make_tensor_value_info
    relu = onnx.helper.make_node("Relu", ["x"], ["y"])
    ends = [tensor(name, onnx.TensorProto.FLOAT, [4]) for name in "xy"]
    network = onnx.helper.make_model(onnx.helper.make_graph([relu], "relu", ends[:1], ends[1:]))
    onnx.save(network, tmp_path / "relu.onnx")
    library = umakit.compile_model(tmp_path / "relu.onnx", [], tmp_path / "library")
    with pytest.raises(UmakitError, match="inputs are not arrays by name"):
        umakit.run_library(library.path, "held_out.npz")  # type: ignore[arg-type]
    assert library.notices == library.metadata["umakit"]["notices"]
