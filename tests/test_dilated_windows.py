# SPDX-License-Identifier: Apache-2.0
"""Windows of convolutions that lie outside the image on both sides, against ONNX Runtime.

TVM simplifies `truncdiv(a - p, d) - truncdiv(b - p, d)` wrongly where remainders become negative,
so that the last position of a dilated window lost an element.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from umakit.devices.run import run_library
from umakit.frontend import import_model
from umakit.pipeline import compile_model

WINDOWS = (
    # size, kernel, dilation, stride, padding
    (1, 2, 3, 1, 3),
    (7, 3, 6, 1, 6),
    (5, 3, 4, 1, 4),
    (9, 3, 6, 2, 6),
    (6, 3, 1, 2, 2),
    (4, 4, 2, 3, 6),
)


def network(folder: Path, *, groups: int) -> Path:
    """QLinearConv with each of the windows, vertically and horizontally."""
    random = np.random.default_rng(4)
    constants: dict[str, Any] = {
        "scale": np.float32(0.05), "zero": np.int8(3), "wide": np.float32(0.5), "none": np.int8(0),
    }  # fmt: skip
    nodes, inputs, outputs = [], [], []
    for number, (size, kernel, dilation, stride, padding) in enumerate(WINDOWS):
        for is_row in (False, True):
            name = f"{'row' if is_row else 'column'}{number}"
            shape = (4, 4 // groups, 1, kernel) if is_row else (4, 4 // groups, kernel, 1)
            constants[f"w_{name}"] = random.integers(-127, 128, shape).astype(np.int8)

            def axes(value: int, other: int, is_row: bool = is_row) -> list[int]:
                return [other, value] if is_row else [value, other]

            operands = [f"x_{name}", "scale", "zero", f"w_{name}", "scale", "none", "wide", "zero"]
            attributes = {
                "group": groups, "kernel_shape": axes(kernel, 1), "dilations": axes(dilation, 1),
                "strides": axes(stride, 1), "pads": axes(padding, 0) * 2,
            }  # fmt: skip
            nodes.append(
                helper.make_node("QLinearConv", operands, [f"y_{name}"], name=name, **attributes)
            )
            extents = [1, 4, *axes(size, 2)]
            inputs.append(helper.make_tensor_value_info(f"x_{name}", TensorProto.INT8, extents))
            outputs.append(helper.make_tensor_value_info(f"y_{name}", TensorProto.INT8, None))
    weights = [numpy_helper.from_array(np.asarray(a), name) for name, a in constants.items()]
    graph = helper.make_graph(nodes, "windows", inputs, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    path = folder / "windows.onnx"
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("groups", [1, 4])
def test_windows_outside_the_image_on_both_sides(groups: int, tmp_path: Path) -> None:
    path = network(tmp_path, groups=groups)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    random = np.random.default_rng(7)
    inputs = {
        each.name: random.integers(-128, 128, each.shape).astype(np.int8)
        for each in session.get_inputs()
    }
    wanted = session.run(None, inputs)
    library = compile_model(import_model(path).module, [], tmp_path / "library", name="windows")
    found = run_library(library.path, inputs).outputs.values()
    pairs = zip(session.get_outputs(), found, wanted, strict=True)
    assert [output.name for output, got, right in pairs if not np.array_equal(got, right)] == []
