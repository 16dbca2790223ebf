# SPDX-License-Identifier: Apache-2.0
"""Tensors of gigabytes and more: compiled in little memory, or refused in one sentence."""

from __future__ import annotations

import resource
import shutil
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from integer_backend import network
from onnx import TensorProto, helper
from umakit.cli.main import run_command

import umakit
from umakit import tvm_api
from umakit.devices import check_memory
from umakit.errors import BuildError, DeviceError, ModelError
from umakit.frontend import import_model


def save(path: Path, nodes: list[onnx.NodeProto], x: list[int], y: list[int]) -> Path:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [value("x", TensorProto.FLOAT, x)], [value("y", TensorProto.FLOAT, y)]
    )
    opset = helper.make_opsetid("", 17)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=8), path)
    return path


def shape_constant(name: str, *shape: int) -> onnx.NodeProto:
    tensor = helper.make_tensor(name, TensorProto.INT64, [len(shape)], shape)
    return helper.make_node("Constant", [], [name], value=tensor)


def test_tensors_that_c_cannot_address_are_refused_by_name() -> None:
    relax = tvm_api.relax

    def build(builder: Any, x: Any) -> Any:
        wide = builder.emit(relax.op.broadcast_to(x, (2**31, 2**31)), "wide")
        return relax.op.max(wide)

    with pytest.raises(ModelError, match=r"tensor 'wide' of shape .* more than a C object"):
        import_model(network(build, (1, 1), dtype="float32"))


def test_constants_that_no_memory_holds_are_not_computed() -> None:
    relax = tvm_api.relax

    def build(builder: Any, x: Any) -> Any:
        filled = relax.op.full((2**20, 2**20), relax.const(0.0, "float32"), "float32")
        return relax.op.add(builder.emit(relax.op.max(builder.emit(filled, "filled"))), x)

    with pytest.raises(ModelError, match=r"tensor 'filled' .* too many for a constant"):
        import_model(network(build, (1,), dtype="float32"))


@pytest.mark.skipif(
    not (shutil.which("qemu-system-arm") and shutil.which("arm-none-eabi-gcc")),
    reason="needs qemu-system-arm and arm-none-eabi-gcc",
)
def test_an_arena_of_gigabytes_takes_no_gigabytes_to_compile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = 2**20
    nodes = [
        shape_constant("s", rows, 1024),
        helper.make_node("Expand", ["x", "s"], ["e"]),
        helper.make_node("Softmax", ["e"], ["f"], axis=0),
        helper.make_node("ReduceMax", ["f"], ["y"], axes=[0], keepdims=0),
    ]
    path = save(tmp_path / "wide.onnx", nodes, [1, 1024], [1024])
    tracemalloc.start()
    try:
        library = umakit.compile_model(path, [], tmp_path / "library").path
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 2**28
    memory_map = ["compile", str(path), "-o", str(tmp_path / "drawn")]
    assert run_command([*memory_map, "--memory-map", str(tmp_path / "map.png")]) == 0
    data = {"x": np.zeros((1, 1024), "float32")}
    with pytest.raises(BuildError, match=r"needs \d+ bytes in one piece, which qemu-cortex-m3"):
        umakit.run_library(library, data, device="qemu-cortex-m3")
    # Of a process that may have less, the message says how much.
    monkeypatch.setattr(resource, "getrlimit", lambda _: (2**30, 2**30))
    with pytest.raises(DeviceError, match=r"needs [\d,]{13} B of memory .* have 1,073,741,824 B"):
        umakit.run_library(library, data)


def test_what_the_machine_has_is_not_refused() -> None:
    check_memory(2**20)
    with pytest.raises(DeviceError, match="can have"):
        check_memory(2**60)
