# SPDX-License-Identifier: Apache-2.0
"""Arithmetic on the sizes of tensors in ONNX networks, compared with ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx_node_tests import run_model

from umakit.errors import ModelError

NETWORKS = {
    "arithmetic on a whole shape": """
        s = Shape(x)
        doubled = Mul(s, two)
        half = Div(doubled, two)
        more = Add(half, one)
        less = Sub(more, one)
        y = Reshape(x, less)""",
    "gathered, multiplied, joined": """
        s = Shape(x)
        first = Gather<axis = 0>(s, zero)
        row = Unsqueeze(first, at)
        rest = Constant<value = int64[1] {-1}>()
        joined = Concat<axis = 0>(row, rest)
        y = Reshape(x, joined)""",
    "a slice in reverse": """
        s = Shape<start = 0, end = 3>(x)
        end = Constant<value = int64[1] {-9}>()
        begin = Constant<value = int64[1] {-1}>()
        step = Constant<value = int64[1] {-1}>()
        reversed = Slice(s, begin, end, at, step)
        y = Reshape(x, reversed)""",
    "scales in floating point": """
        s = Shape<start = 1>(x)
        real = Cast<to = 1>(s)
        factor = Constant<value = float {1.5}>()
        larger = Mul(real, factor)
        whole = Floor(larger)
        sizes = Cast<to = 7>(whole)
        first = Shape<end = 1>(x)
        all = Concat<axis = 0>(first, sizes)
        y = Resize<mode = "nearest">(x, , , all)""",
    "a product of sizes, and an index of it": """
        s = Shape(x)
        count = ReduceProd<keepdims = 1>(s)
        y = Expand(count, s)""",
    "a condition": """
        s = Shape(x)
        first = Gather<axis = 0>(s, zero)
        large = Greater(first, zero)
        y = If (large) <
            then_branch = yes () => (float[2, 3, 4] a) { a = Relu(x) },
            else_branch = no () => (float[2, 3, 4] b) { b = Neg(x) }>""",
    "places that are not zeros": """
        s = Shape(x)
        odd = Mod(s, two)
        places = NonZero(odd)
        flat = Flatten<axis = 0>(x)
        column = Gather<axis = 1>(flat, places)
        y = Identity(column)""",
}
"""Nodes that compute y from x, float[2, 3, 4], by name."""


def model_of(nodes: str, result: str = "float") -> onnx.ModelProto:
    """A model of nodes with an input x, an output y and some constants."""
    return onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 17]>
    network (float[2, 3, 4] x) => ({result} y)
    <int64 zero = {{0}}, int64[1] at = {{0}}, int64[1] one = {{1}}, int64[1] two = {{2}}>
    {{ {nodes} }}""")


@pytest.mark.parametrize("name", NETWORKS)
def test_sizes_are_constants(name: str, tmp_path: Path) -> None:
    model = model_of(NETWORKS[name], "int64" if "product" in name else "float")
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4) - 9
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    got = run_model(model, [x], tmp_path)
    assert not isinstance(got, str)
    assert got[0].dtype == expected[0].dtype
    np.testing.assert_array_equal(got[0], expected[0])


def test_a_size_divided_by_zero_is_refused(tmp_path: Path) -> None:
    model = model_of("s = Shape(x) none = Div(s, at) y = Reshape(x, none)")
    with pytest.raises(ModelError, match="divide"):
        run_model(model, [], tmp_path)


def test_a_large_tensor_of_a_known_size_is_not_computed(tmp_path: Path) -> None:
    nodes = """
        s = Shape(x)
        large = Constant<value = int64[2] {1000000, 1000000}>()
        zeros = ConstantOfShape(large)
        y = Reshape(zeros, s)"""
    with pytest.raises(ModelError):
        run_model(model_of(nodes), [], tmp_path)
