# SPDX-License-Identifier: Apache-2.0
"""Comments of convolutions and pools in floating point have the attributes of the model's nodes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from umakit import compile_model

NODES: dict[str, tuple[str, dict[str, Any]]] = {
    "grouped": ("Conv", {"strides": [2, 1], "pads": [1, 0, 2, 3], "group": 2}),
    "dilated": ("Conv", {"dilations": [1, 2], "pads": [1, 2, 1, 2]}),
    "largest": ("MaxPool", {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1]}),
    "mean": ("AveragePool", {"kernel_shape": [2, 2], "strides": [1, 2]}),
}
"""Operators and attributes by name of the node, in order."""


def test_comments_have_the_attributes_of_nodes(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    nodes, constants, value = [], [], "x"
    for name, (operator, attributes) in NODES.items():
        inputs = [value]
        if operator == "Conv":
            shape = (4, 4 // attributes.get("group", 1), 3, 3)
            weights = random.normal(size=shape).astype(np.float32)
            constants.append(numpy_helper.from_array(weights, f"{name}_weights"))
            inputs.append(f"{name}_weights")
        nodes.append(helper.make_node(operator, inputs, [name], name=name, **attributes))
        value = name
    tensor = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "network",
        [tensor("x", TensorProto.FLOAT, [1, 4, 12, 12])],
        [tensor(value, TensorProto.FLOAT, None)],
        constants,
    )
    path = tmp_path / "float.onnx"
    opset = [helper.make_opsetid("", 13)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)

    library = compile_model(path, [], tmp_path / "library")
    text = (library.path / "codegen/host/src/tvmgen_float.c").read_text(encoding="utf-8")
    found = {}
    for comment in re.findall(r"^/\*\n( \* Layer.*?)^ \*/", text, re.DOTALL | re.MULTILINE):
        line = " ".join(re.sub(r"^ \*", "", comment, flags=re.MULTILINE).split())
        found[line.split()[2]] = line
    for name, (operator, attributes) in NODES.items():
        down, across = attributes.get("strides", [1, 1])
        above, left, below, right = attributes.get("pads", [0] * 4)
        assert f"strides {down} x {across}; " in found[name]
        assert f"padding {above} above, {left} left, {below} below, {right} right" in found[name]
        assert "layout NCHW (channels, rows, columns)" in found[name]
        down, across = attributes.get("dilations", [1, 1])
        assert f"dilation {down} x {across}" in found[name]
        if operator == "Conv":
            assert f"; groups {attributes.get('group', 1)}" in found[name]
            assert "; weights layout OIHW." in found[name]
        else:
            rows, columns = attributes["kernel_shape"]
            assert f"window {rows} x {columns}; " in found[name]
    text = (library.path / "codegen/host/src/tvmgen_float_constants.c").read_text(encoding="utf-8")
    assert re.findall(r"weights of (\w+): (.*), \d+ bytes", text) == [
        ("grouped", "float32[4, 2, 3, 3], layout OIHW"),
        ("dilated", "float32[4, 4, 3, 3], layout OIHW"),
    ]
