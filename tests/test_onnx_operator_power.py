# SPDX-License-Identifier: Apache-2.0
"""ONNX Pow of pairs of dtypes: drawn networks compared with ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx_node_tests import run_model
from onnx_sweep import assert_right


def test_drawn_networks_are_right() -> None:
    assert_right("Pow", 4)


KINDS = {"float": "float32", "double": "float64", "int32": "int32", "int64": "int64"}


@pytest.mark.parametrize("base", KINDS)
def test_dtypes(base: str, tmp_path: Path) -> None:
    given = ", ".join(f"{kind}[6] e_{kind}" for kind in KINDS)
    results = ", ".join(f"{base}[2, 6] y_{kind}, {base}[2, 6] z_{kind}" for kind in KINDS)
    twos = ", ".join(f"{kind} two_{kind} = {{2}}" for kind in KINDS)
    nodes = " ".join(f"y_{k} = Pow(x, e_{k}) z_{k} = Pow(x, two_{k})" for k in KINDS)
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 15]>
    network ({base}[2, 6] x, {given}) => ({results}) <{twos}> {{ {nodes} }}""")
    x = np.array([[1, 2, 3, 7, 10, 5], [-1, -2, -3, 4, 8, 0]]).astype(KINDS[base])
    exponents = [np.array([0, 1, 2, 3, 9, 5]).astype(dtype) for dtype in KINDS.values()]
    inputs = {"x": x} | {f"e_{k}": e for k, e in zip(KINDS, exponents, strict=True)}
    session = onnxruntime.InferenceSession(model.SerializeToString())
    got = run_model(model, list(inputs.values()), tmp_path)
    for values, expected in zip(got, session.run(None, inputs), strict=True):
        assert not isinstance(values, str)
        np.testing.assert_allclose(values, expected, rtol=1e-6 if x.dtype.kind == "f" else 0)
