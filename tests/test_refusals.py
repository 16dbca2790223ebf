# SPDX-License-Identifier: Apache-2.0
"""Refusals of ONNX models are one sentence each, in the terms of ONNX, with the file."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from comparisons import some
from onnx import numpy_helper
from onnx.backend.test.case.test_case import TestCase
from onnx_node_tests import collected

import umakit
from umakit.codegen.c_types import C_TYPES
from umakit.errors import UmakitError
from umakit.frontend.element_types import ELEMENT_TYPES

INTERNAL = re.compile(
    r"\b(TVM|tvm|TIR|tirx?|T|relax|Relax|te|topi)\b\.?(?!\w)|\bVar\b|BlockBuilder|ShapeExpr"
    r"|PrimFunc|object has no attribute|Traceback|Check failed|lines? skipped|NoneType"
    r"|\w+(Error|Exception)\b|0x[0-9a-f]{6}|InternalError|<class|\.(py|cc|h):\d+"
)
"""Words that only those know who have read TVM's or umakit's code."""

PLAIN = re.compile(r"operator|input|output|tensor|node|network|scale|ONNX|initializer")


def models(case: TestCase) -> list[onnx.ModelProto]:
    """A node test as it is, and with all inputs but the first one as constants."""
    changed = onnx.ModelProto()
    changed.CopyFrom(case.model)
    if len(changed.graph.input) < 2 or not case.data_sets:
        return [case.model]
    values = list(zip(changed.graph.input, case.data_sets[0][0], strict=False))[1:]
    try:
        constants = [numpy_helper.from_array(np.asarray(a), v.name) for v, a in values]
    except (TypeError, NotImplementedError, ValueError):
        return [case.model]
    changed.graph.initializer.extend(constants)
    del changed.graph.input[1:]
    return [case.model, changed]


def cases() -> list[TestCase]:
    """ONNX's node tests: about one of 80, in `make soak` all."""
    return some(collected(1 if "UMAKIT_EXAMPLES" in os.environ else 5), 10)


@pytest.mark.soak
def test_refusals_have_no_internal_words(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    refusals: dict[str, str] = {}
    for case in cases():
        for model in models(case):
            path.write_bytes(model.SerializeToString())
            try:
                umakit.compile_model(path, [], tmp_path / "library")
            except UmakitError as error:
                refusals[str(error)] = case.name
    assert len(refusals) > 10
    for message, name in refusals.items():
        assert not INTERNAL.search(message), f"{name}: {message}"
        assert PLAIN.search(message), f"{name}: {message}"
        assert "\n" not in message, f"{name}: {message}"
        assert path.name in message, f"{name}: {message}"


def test_element_types_are_those_of_generated_c() -> None:
    assert set(C_TYPES) == ELEMENT_TYPES
