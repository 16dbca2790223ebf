# SPDX-License-Identifier: Apache-2.0
"""RoiAlign against ONNX's reference and, where it has the opset, ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from networks import assert_close, onnx_runtime
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import umakit
from umakit.errors import DeviceError, ModelError

ROIS = np.array(
    [[0, 0, 7, 6], [1.5, 2.25, 5.5, 4], [-3, -2, 4, 9], [6, 5, 5, 4], [2, 2, 2.3, 2.2]], "f4"
)
"""Inside, between elements, beyond the image, turned round, and smaller than an element."""
IMAGES = np.array([0, 1, 0, 1, 1], "i8")


def model_of(
    nodes: list[onnx.NodeProto], opset: int, rois: Any = ROIS, images: Any = IMAGES
) -> onnx.ModelProto:
    """RoiAligns of x [2, 3, 8, 9]; regions and images are inputs where they are None."""
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 8, 9])]
    constants = []
    for name, value, dtype in (("rois", rois, 1), ("images", images, 7)):
        if value is None:
            shape = [5, 4] if name == "rois" else [5]
            inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        else:
            constants.append(numpy_helper.from_array(value, name))
    outputs = [
        helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, list("abcd"))
        for node in nodes
    ]
    graph = helper.make_graph(nodes, "g", inputs, outputs, constants)
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def aligns(opset: int, ratios: tuple[int, ...]) -> list[onnx.NodeProto]:
    nodes = []
    for mode in ("avg", "max"):
        for ratio in ratios:
            for transformation in ("half_pixel", "output_half_pixel")[: 2 if opset >= 16 else 1]:
                extra = {"coordinate_transformation_mode": transformation} if opset >= 16 else {}
                nodes.append(
                    helper.make_node(
                        "RoiAlign",
                        ["x", "rois", "images"],
                        [f"y{len(nodes)}"],
                        mode=mode,
                        sampling_ratio=ratio,
                        output_height=2,
                        output_width=3,
                        spatial_scale=0.75,
                        **extra,
                    )
                )
    return nodes


@pytest.mark.parametrize("opset", [10, 16])
@pytest.mark.parametrize("constant", [False, True])
def test_roi_align(opset: int, constant: bool, tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 8, 9)).astype("f4")
    values = (ROIS, IMAGES) if constant else (None, None)
    model = model_of(aligns(opset, (2, 0) if constant else (1, 3)), opset, *values)
    inputs = {"x": x} if constant else {"x": x, "rois": ROIS, "images": IMAGES}
    path = tmp_path / "model.onnx"
    onnx.save(model, str(path))
    library = umakit.compile_model(path, [], tmp_path / "library")
    got = umakit.run_library(library.path, inputs).outputs
    names = [value.name for value in model.graph.output]
    runtime = onnx_runtime(model, inputs)
    reference = dict(zip(names, ReferenceEvaluator(model).run(None, inputs), strict=True))
    for name in names:
        oracle = (
            runtime[name] if opset > 10 or np.isfinite(runtime[name]).all() else reference[name]
        )
        assert_close(got[name], oracle)


def test_images_out_of_range_end_in_a_status(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(model_of(aligns(16, (2,))[:1], 16, images=None), str(path))
    library = umakit.compile_model(path, [], tmp_path / "library")
    x = np.zeros((2, 3, 8, 9), "f4")
    for wrong in (2, -1, 2**32):
        images = IMAGES.copy()
        images[3] = wrong
        with pytest.raises(DeviceError):
            umakit.run_library(library.path, {"x": x, "images": images})


def test_images_and_regions_that_are_not_known_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(model_of(aligns(16, (2,)), 16, images=IMAGES + 1), str(path))
    with pytest.raises(ModelError, match="batch_indices outside of the 2 images"):
        umakit.import_model(path)
    onnx.save(model_of(aligns(16, (0,)), 16, rois=None), str(path))
    with pytest.raises(ModelError, match="number of samples is not known"):
        umakit.import_model(path)
