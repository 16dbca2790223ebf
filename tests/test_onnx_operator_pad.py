# SPDX-License-Identifier: Apache-2.0
"""ONNX Pad that crops, repeats and reflects, compared with ONNX Runtime."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import onnx
from comparisons import examples
from hypothesis import given
from hypothesis import strategies as st
from networks import onnx_runtime
from onnx import numpy_helper
from onnx_node_tests import run_model

from umakit.errors import ModelError

PADS = st.lists(st.integers(-3, 5), min_size=4, max_size=4)


@given(st.sampled_from(("reflect", "edge", "wrap")), PADS, st.booleans())
@examples(10)
def test_results_are_those_of_onnx_runtime_or_both_refuse(
    mode: str, pads: list[int], has_axes: bool
) -> None:
    """Of edges that are cropped whole, ONNX Runtime yields other elements: these are refused."""
    model = onnx.parser.parse_model(f"""<ir_version: 9, opset_import: ["": 19]>
        network (float[4, 5] x) => (float[n, m] y) {{ y = Pad<mode = "{mode}">(x, pads
        {", , axes" if has_axes else ""}) }}""")
    arrays = {"pads": np.array(pads)} | ({"axes": np.array([1, -2])} if has_axes else {})
    model.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in arrays.items())
    x = np.arange(20, dtype=np.float32).reshape(4, 5)
    try:
        wanted = onnx_runtime(model, {"x": x})["y"]
    except Exception:  # each of its reasons has a class
        wanted = None
    with tempfile.TemporaryDirectory() as folder:
        try:
            (result,) = run_model(model, [x], Path(folder))
        except ModelError as error:
            assert "cannot fill" in str(error)
            assert wanted is None or mode != "reflect"
            return
    assert wanted is not None
    np.testing.assert_array_equal(result, wanted)
