# SPDX-License-Identifier: Apache-2.0
"""Resize and Upsample against ONNX Runtime, and ONNX's reference where the former has no kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from comparisons import examples
from hypothesis import given
from hypothesis import strategies as st
from networks import Array, assert_close, onnx_runtime
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from qdq import Qdq

import umakit
from umakit.errors import ModelError

COMMON_MODES = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]
ROUNDINGS = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
SCALES = [0.33, 0.5, 0.7, 0.8, 1.0, 1.05, 1.3, 1.7, 2.0, 2.6]


class Resizes:
    """A model with several resizes of one input.

    Args:
        shape: of the input.
        opset: of the model.
        dtype: of the input.
    """

    def __init__(self, shape: list[int], opset: int, dtype: str = "float32") -> None:
        self.shape, self.opset, self.dtype = shape, opset, dtype
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, values: Any, dtype: str) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def add(
        self, *, scales: Any = None, sizes: Any = None, roi: Any = None, **attributes: Any
    ) -> None:
        # Opset 11 wants tensors without elements for what is left out.
        missing = self.constant([], "float32") if self.opset == 11 else ""
        inputs = ["x"]
        if self.opset >= 11:
            inputs += [missing if roi is None else self.constant(roi, "float32")]
        inputs += [missing if scales is None else self.constant(scales, "float32")]
        if sizes is not None:
            inputs += [self.constant(sizes, "int64")]
        self.nodes.append(helper.make_node("Resize", inputs, [f"y{len(self.nodes)}"], **attributes))

    def model(self) -> onnx.ModelProto:
        dtype = helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype))
        x = helper.make_tensor_value_info("x", dtype, self.shape)
        outputs = [
            helper.make_tensor_value_info(node.output[0], dtype, [f"{node.output[0]}_{axis}"
                                          for axis in range(len(self.shape))])
            for node in self.nodes
        ]  # fmt: skip
        graph = helper.make_graph(self.nodes, "g", [x], outputs, self.constants)
        opsets = [helper.make_opsetid("", self.opset)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def run(model: onnx.ModelProto, x: Array, folder: Path) -> dict[str, Array]:
    path = folder / "model.onnx"
    onnx.save(model, str(path))
    library = umakit.compile_model(path, [], folder / "library")
    return umakit.run_library(library.path, {"x": x}).outputs


def check(model: onnx.ModelProto, folder: Path, *, reference: bool = False) -> None:
    tensor = model.graph.input[0].type.tensor_type
    shape = [d.dim_value for d in tensor.shape.dim]
    dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    x = (np.random.default_rng(0).standard_normal(shape) * 50).astype(dtype)
    if reference:
        names = [value.name for value in model.graph.output]
        wanted = dict(zip(names, ReferenceEvaluator(model).run(None, {"x": x}), strict=True))
    else:
        wanted = onnx_runtime(model, {"x": x})
    got = run(model, x, folder)
    for name, array in wanted.items():
        assert_close(got[name], array)


def whole(size: int, scale: float) -> int:
    """The size that ONNX's shape inference and ONNX Runtime both find, or 0."""
    sizes = (
        np.floor(size * float(np.float32(scale))),
        np.floor(np.float32(size) * np.float32(scale)),
    )
    return int(sizes[0]) if sizes[0] == sizes[1] else 0


@st.composite
def resizes(draw: st.DrawFn) -> onnx.ModelProto:
    """Six resizes of the last two axes of a tensor, by scales or sizes, in all modes."""
    opset = draw(st.sampled_from([11, 13, 18, 19]))
    shape = [1, 2, draw(st.integers(1, 9)), draw(st.integers(1, 9))]
    model = Resizes(shape, opset)
    for _ in range(6):
        mode = draw(st.sampled_from(["nearest", "linear", "cubic"]))
        coordinates = draw(st.sampled_from(COMMON_MODES + ["half_pixel_symmetric"] * (opset >= 19)))
        attributes: dict[str, Any] = {
            "mode": mode, "coordinate_transformation_mode": coordinates,
        }  # fmt: skip
        if mode == "nearest":
            attributes["nearest_mode"] = draw(st.sampled_from(ROUNDINGS))
        elif opset >= 18 and draw(st.booleans()):
            attributes["antialias"] = 1
        if mode == "cubic":
            attributes["cubic_coeff_a"] = draw(st.sampled_from([-0.75, -0.5]))
        if mode == "cubic" or "antialias" in attributes:
            attributes["exclude_outside"] = draw(st.integers(0, 1))
        scales = [draw(st.sampled_from(SCALES)) for _ in range(2)]
        by_size = not all(map(whole, shape[2:], scales)) or draw(st.booleans())
        # From opset 18 on corners are aligned as ONNX's tests do it, which is tested below.
        by_size |= opset >= 18 and coordinates == "align_corners"
        sizes = [draw(st.integers(1, 12)) for _ in range(2)]
        if opset >= 18 and draw(st.booleans()):
            attributes["axes"] = [3, 2]
        else:
            scales, sizes = [1, 1, *scales], [*shape[:2], *sizes]
        model.add(**attributes, **({"sizes": sizes} if by_size else {"scales": scales}))
    return model.model()


@examples(6)
@given(resizes())
def test_resize_is_that_of_onnx_runtime(tmp_path_factory: Any, model: onnx.ModelProto) -> None:
    check(model, tmp_path_factory.mktemp("resize"))


def test_crop_aspect_ratio_and_corners(tmp_path: Path) -> None:
    model = Resizes([1, 2, 6, 7], 19)
    roi = [0.1, -0.2, 0.8, 1.1]
    for mode in ("nearest", "linear", "cubic"):
        model.add(
            mode=mode, coordinate_transformation_mode="tf_crop_and_resize", roi=roi,
            sizes=[4, 9], axes=[2, 3], extrapolation_value=-3.5,
        )  # fmt: skip
    for policy in ("stretch", "not_larger", "not_smaller"):
        model.add(mode="linear", sizes=[5, 9], axes=[3, 2], keep_aspect_ratio_policy=policy)
    model.add(mode="linear", sizes=[1, 2, 1, 1])
    model.add(mode="linear", scales=[1, 1, 1.05, 1.05])
    check(model.model(), tmp_path)


def test_corners_aligned_with_sizes_that_are_not_whole(tmp_path: Path) -> None:
    """ONNX's own tests align them with `size * scale`, ONNX Runtime with the whole size."""
    corners = {"coordinate_transformation_mode": "align_corners"}
    new, old = Resizes([1, 1, 5, 7], 19), Resizes([1, 1, 5, 7], 13)
    for mode in ("linear", "cubic"):
        new.add(mode=mode, scales=[1, 1, 0.7, 1.3], **corners)
        old.add(mode=mode, scales=[1, 1, 0.7, 1.3], **corners)
    check(new.model(), tmp_path, reference=True)
    check(old.model(), tmp_path)


@pytest.mark.parametrize("rank", [1, 2, 3, 5])
def test_ranks(rank: int, tmp_path: Path) -> None:
    """Interpolation along any axes; ONNX Runtime has kernels for few of them."""
    shape = [3, 4, 2, 5, 3][:rank]
    model = Resizes(shape, 18)
    scales = [1.7, 0.6, 1.6, 1.0, 2.3][:rank]
    model.add(mode="nearest", coordinate_transformation_mode="asymmetric", scales=scales)
    model.add(mode="linear", scales=scales)
    model.add(mode="cubic", scales=scales)
    model.add(mode="linear", antialias=1, scales=scales)
    check(model.model(), tmp_path, reference=True)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32"])
def test_integers(dtype: str, tmp_path: Path) -> None:
    model = Resizes([1, 2, 6, 8], 13, dtype)
    for scale in (0.5, 2.0):
        model.add(mode="linear", scales=[1, 1, scale, scale])
    model.add(mode="nearest", scales=[1, 1, 1.7, 0.8])
    x = np.random.default_rng(0).integers(0, 127, (1, 2, 6, 8)).astype(dtype)
    got = run(model.model(), x, tmp_path)
    for name, wanted in onnx_runtime(model.model(), {"x": x}).items():
        np.testing.assert_array_equal(got[name], wanted)
    rounded = Resizes([1, 2, 6, 8], 13, dtype)
    rounded.add(mode="linear", scales=[1, 1, 1.5, 1.5])
    with pytest.raises(ModelError, match="interpolates"):
        run(rounded.model(), x, tmp_path)


@pytest.mark.parametrize("opset", [7, 9, 10])
def test_upsample_and_the_first_resize(opset: int, tmp_path: Path) -> None:
    scales = [1.0, 1.0, 1.7, 2.0]
    attributes: dict[str, Any] = {"scales": scales} if opset < 9 else {}
    operator = "Upsample" if opset < 10 else "Resize"
    inputs = ["x"] if opset < 9 else ["x", "s"]
    nodes = [
        helper.make_node(operator, inputs, [f"y_{mode}"], mode=mode, **attributes)
        for mode in ("nearest", "linear")
    ]
    constants = [] if opset < 9 else [numpy_helper.from_array(np.array(scales, "f4"), "s")]
    if opset == 10:
        constants.append(numpy_helper.from_array(np.array([1, 1, 0.4, 0.7], "f4"), "t"))
        nodes.append(helper.make_node(operator, ["x", "t"], ["y_smaller"], mode="nearest"))
    x = helper.make_tensor_value_info("x", 1, [1, 2, 5, 6])
    outputs = [
        helper.make_tensor_value_info(node.output[0], 1, [1, 2, f"{n}h", f"{n}w"])
        for n, node in enumerate(nodes)
    ]
    graph = helper.make_graph(nodes, "g", [x], outputs, constants)
    opsets = [helper.make_opsetid("", opset)]
    check(helper.make_model(graph, opset_imports=opsets, ir_version=5), tmp_path)


def test_infinity_stays_where_it_is(tmp_path: Path) -> None:
    """A weight of 0 does not spread infinity or NaN."""
    model = Resizes([1, 1, 1, 4], 13)
    model.add(mode="linear", scales=[1, 1, 1, 2])
    got = run(model.model(), np.array([1, np.inf, 2, 3], "f4").reshape(1, 1, 1, 4), tmp_path)
    np.testing.assert_array_equal(np.isfinite(got["y0"]).ravel(), [1, 0, 0, 0, 0, 1, 1, 1])


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("scale", [0.5, 1.6])
def test_quantized_resize_by_scales_that_do_not_divide(mode: str, scale: float) -> None:
    graph, linear = Qdq("uint8", 1, opset=13), mode == "linear"
    x = graph.input([1, 3, 9, 11], 0.03)
    y = graph.node("Resize", x, "", graph.constant([1, 1, scale, scale]), mode=mode)
    output = graph.quantize(y, 0.03)
    graph.check(output, 4.0, step=0.03 if linear else 0, floats=4 if linear else 1)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"scales": [1, 1, 2]}, "needs either a scale or a size"),
        ({"scales": [1, 1, -2, 2]}, "not a positive number"),
        ({"scales": [1, 1, 2, 2], "mode": "area"}, "mode 'area'"),
        ({"scales": [1, 1, 0.1, 1]}, "no elements|scale"),
    ],
)
def test_refusals(attributes: dict[str, Any], message: str, tmp_path: Path) -> None:
    model = Resizes([1, 1, 3, 4], 13)
    model.add(**attributes)
    with pytest.raises(ModelError, match=message):
        run(model.model(), np.zeros((1, 1, 3, 4), "f4"), tmp_path)
