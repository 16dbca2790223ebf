# SPDX-License-Identifier: Apache-2.0
"""Attributes of ONNX operators: each one of each schema is decided about, and checked."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from networks import IR_VERSION
from onnx import TensorProto, helper, numpy_helper
from onnx.backend.test.case.test_case import TestCase
from onnx_node_tests import collected

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.frontend import import_model
from umakit.frontend.onnx.attributes import DECISIONS, EVERYWHERE, NOT_TAKEN
from umakit.frontend.onnx.operators import CONVERTERS


def schema_attributes() -> dict[str, set[str]]:
    """Names of the attributes of every version of every standard operator."""
    found: dict[str, set[str]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "":
            found.setdefault(schema.name, set()).update(schema.attributes)
    return found


def test_every_operator_of_the_importer_is_decided_about() -> None:
    known = {*tvm_api.onnx_frontend()._get_convert_map(), *CONVERTERS, "If", "Constant"}
    assert known <= {*DECISIONS, *NOT_TAKEN}
    assert not set(DECISIONS) & set(NOT_TAKEN)
    assert set(DECISIONS) <= {*known, *schema_attributes()}


def test_every_attribute_of_every_schema_is_decided_about() -> None:
    schemas = schema_attributes()
    undecided = {
        operator: sorted(missing)
        for operator, decision in DECISIONS.items()
        if (missing := schemas[operator] - decision.names - set(EVERYWHERE))
    }
    assert not undecided, "attributes without a decision"


def test_no_attribute_is_decided_about_that_no_schema_has() -> None:
    schemas = schema_attributes()
    unknown = {
        operator: sorted(extra)
        for operator, decision in DECISIONS.items()
        if (extra := decision.names - schemas[operator])
    }
    assert not unknown


def test_no_attribute_is_decided_about_twice() -> None:
    for operator, decision in DECISIONS.items():
        names = [*decision.honoured.split(), *decision.only, *decision.ignored]
        assert len(names) == len(set(names)), operator


def single(operator: str, opset: int, *inputs: np.ndarray[Any, Any], **attributes: Any) -> Any:
    """A model of one node; all inputs but the first are constants."""
    names = [f"x{number}" for number in range(len(inputs))]
    node = helper.make_node(operator, names, ["y"], "layer", **attributes)
    elements = helper.np_dtype_to_tensor_dtype(inputs[0].dtype)
    graph = helper.make_graph(
        [node],
        "network",
        [helper.make_tensor_value_info("x0", elements, inputs[0].shape)],
        [helper.make_tensor_value_info("y", elements, [1])],
        [numpy_helper.from_array(a, n) for a, n in zip(inputs[1:], names[1:], strict=True)],
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=IR_VERSION
    )


IMAGE = np.zeros((1, 2, 4, 4), np.float32)


def test_a_second_operand_that_does_not_fit_at_its_axis_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "network.onnx"
    onnx.save(single("Add", 6, IMAGE, np.zeros((4, 4), np.float32), broadcast=1, axis=3), path)
    with pytest.raises(ModelError, match=r"Add.* has axis=3, where the second input does not fit"):
        import_model(path)


@pytest.mark.parametrize(
    ("model", "named"),
    [
        (single("Dropout", 6, IMAGE), "is_test=0"),
        (single("QuantizeLinear", 21, IMAGE, np.ones((1, 1, 4, 4), np.float32), block_size=2,
                output_dtype=TensorProto.INT8), "block_size=2"),
        (single("Pad", 1, IMAGE, paddings=[0] * 8), "paddings"),
        (single("Reshape", 1, IMAGE, shape=[32]), "shape"),
    ],
    ids=["a default of the opset", "a value", "an attribute that must be absent", "in opset 1"],
)  # fmt: skip
def test_refused_attributes_are_named(model: Any, named: str, tmp_path: Path) -> None:
    path = tmp_path / "network.onnx"
    onnx.save(model, path)
    with pytest.raises(ModelError) as refusal:
        import_model(path)
    operator = model.graph.node[0].op_type
    expected = f"operator {operator} of node 'layer' has the attribute {named}, which is not"
    assert expected in str(refusal.value)
    assert str(path) in str(refusal.value)


EXCEPT = {"QuantizeLinear", "DequantizeLinear"}
"""Operators whose axis does not matter if there is one scale."""


def along_axis_9(case: TestCase) -> onnx.ModelProto | None:
    """A node test with axis 9 and constants as inputs but the first one; None without an axis."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    if len(model.graph.node) != 1 or case.data_sets is None or not model.graph.input:
        return None
    (node,) = model.graph.node
    constants = dict(zip(filter(None, node.input[1:]), case.data_sets[0][0][1:], strict=False))
    if not all(isinstance(value, np.ndarray) for value in constants.values()):
        return None  # of a type that NumPy lacks
    schema = onnx.defs.get_schema(node.op_type, model.opset_import[0].version, "")
    given = {formal.name: name for formal, name in zip(schema.inputs, node.input, strict=False)}
    attributes = [each for each in node.attribute if each.name in ("axis", "axes", "perm")]
    inputs = [given[name] for name in ("axis", "axes") if given.get(name)]
    for attribute in attributes:
        attribute.CopyFrom(
            helper.make_attribute(attribute.name, 9 if attribute.HasField("i") else [9])
        )
    constants |= {name: np.full_like(constants[name], 9) for name in inputs}
    model.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()
    )
    del model.graph.input[1:]
    node.name = "layer"
    return model if attributes or inputs else None


def test_an_axis_that_the_input_lacks_is_refused(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    path, found = tmp_path / "network.onnx", set()
    for case in collected():
        kind = case.model.graph.node[0].op_type
        if kind in found or kind not in DECISIONS or (model := along_axis_9(case)) is None:
            continue
        if model.graph.output[0].type.WhichOneof("value") != "tensor_type":
            continue  # as a sequence, which no output is
        onnx.save(model, path)
        with pytest.raises(ModelError) as caught:
            import_model(path)
        found.add(kind)
        assert kind in EXCEPT or re.search(
            rf"operator {kind} of node 'layer' has \w+=9, but its (input|result) has \d dimensions",
            str(caught.value),
        ), str(caught.value)
    assert len(found - EXCEPT) >= 30
    record_property("covered", f"an axis out of range of {len(found)} operators")
