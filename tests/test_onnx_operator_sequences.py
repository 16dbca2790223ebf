# SPDX-License-Identifier: Apache-2.0
"""Sequences of ONNX: the same tensors as ONNX Runtime, and what is not taken."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx_node_tests import run_model

from umakit.errors import ModelError


def network(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 17]>
    network (float[6, 2] x, int64 given) => (float[n, m] y)
    <int64 two = {{2}}, int64 minus = {{-1}}, int64 none = {{0}}, int64[2] sizes = {{2, 4}},
     int64[2] few = {{2, 3}}> {{ {text} }}""")


@pytest.mark.parametrize(
    "text",
    [
        "s = SplitToSequence(x, two) y = SequenceAt(s, minus)",
        "s = SplitToSequence(x, sizes) t = SequenceInsert(s, x, minus)"
        " y = ConcatFromSequence<axis = -2>(t)",
        "s = SplitToSequence<keepdims = 0>(x) t = SequenceErase(s)"
        " y = ConcatFromSequence<axis = 1, new_axis = 1>(t)",
    ],
)
def test_tensors_are_those_of_onnx_runtime(text: str, tmp_path: Path) -> None:
    model = network(text)
    x = np.random.default_rng(3).normal(0, 1, (6, 2)).astype(np.float32)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    expected = session.run(None, {"x": x, "given": np.array(0)})[0]
    got = run_model(model, [x, np.array(0)], tmp_path)
    assert not isinstance(got, str), got
    np.testing.assert_array_equal(got[0], expected)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("s = SplitToSequence(x, two) y = SequenceAt(s, given)",
         "SequenceAt.* has a position that is computed at run time"),
        ("s = SplitToSequence(x, given) y = SequenceAt(s, none)",
         "SplitToSequence.* has sizes that are computed at run time"),
        ("s = SplitToSequence(x, none) y = SequenceAt(s, none)",
         "SplitToSequence.* splits into parts of 0 elements"),
        ("s = SplitToSequence(x, few) y = SequenceAt(s, none)",
         r"SplitToSequence.* splits 6 elements into \[2, 3\], which does not fit"),
        ("s = SplitToSequence(x, sizes) y = SequenceAt(s, two)",
         "SequenceAt.* has the position 2, but the sequence has 2 elements"),
        ("s = SplitToSequence<axis = 2>(x) y = SequenceAt(s, none)",
         "SplitToSequence.* has axis=2, but its input has 2 dimensions"),
        ("s = SequenceConstruct(x) t = SequenceErase(s) y = ConcatFromSequence<axis = 0>(t)",
         "ConcatFromSequence.* joins a sequence without elements"),
        ("y = SequenceAt(x, none)",
         "SequenceAt.* has a sequence that is not built by the network itself"),
    ],
)  # fmt: skip
def test_what_is_not_taken_is_named(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=words):
        run_model(network(text), [], tmp_path)
