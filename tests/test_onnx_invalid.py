# SPDX-License-Identifier: Apache-2.0
"""ONNX nodes that contradict their inputs: what ONNX Runtime refuses is not taken.

Each of ONNX's node tests gets an axis out of range, a kernel_shape that is not that of the weights,
parameters of another size, and no outputs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper
from onnx_node_tests import collected, with_constants

from umakit.errors import UmakitError
from umakit.frontend import import_model

AXES = ("axis", "axes", "batch_axis", "time_axis")
WINDOWS = ("kernel_shape", "perm", "group", "num_groups", "split", "blocksize")


def changed_attribute(model: onnx.ModelProto, name: str, value: object) -> onnx.ModelProto:
    changed = onnx.ModelProto.FromString(model.SerializeToString())
    (node,) = changed.graph.node
    kept = [attribute for attribute in node.attribute if attribute.name != name]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute(name, value)])
    return changed


def resized(model: onnx.ModelProto, number: int, size: int) -> onnx.ModelProto:
    changed = onnx.ModelProto.FromString(model.SerializeToString())
    tensor = changed.graph.initializer[number]
    array = np.resize(numpy_helper.to_array(tensor), (size,))
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return changed


def mutants(model: onnx.ModelProto, rank: int) -> Iterator[tuple[str, onnx.ModelProto]]:
    """Changed models of one node; not all of them are wrong."""
    (node,) = model.graph.node
    schema = onnx.defs.get_schema(node.op_type, model.opset_import[0].version, node.domain)
    given = {each.name: helper.get_attribute_value(each) for each in node.attribute}
    for name, attribute in schema.attributes.items():
        listed = attribute.type == onnx.defs.OpSchema.AttrType.INTS
        if name in AXES:
            for value in (rank, -rank - 1, 2**40):
                yield name, changed_attribute(model, name, [value] if listed else value)
        elif name in WINDOWS and name in given:
            values = given[name] if listed else [given[name]]
            for place in range(len(values)):
                for value in (values[place] + 1, values[place] - 1, -1, 0):
                    new = [*values[:place], value, *values[place + 1 :]]
                    yield name, changed_attribute(model, name, new if listed else value)
            if listed:
                yield name, changed_attribute(model, name, [*values, 1])
                if len(values) > 1:
                    yield name, changed_attribute(model, name, values[:-1])
    for number, tensor in enumerate(model.graph.initializer):
        if len(tensor.dims) == 1 and tensor.dims[0] > 1:
            for size in (1, tensor.dims[0] + 1, tensor.dims[0] - 1):
                yield f"size of {tensor.name}", resized(model, number, size)
    without = onnx.ModelProto.FromString(model.SerializeToString())
    del without.graph.output[:]
    yield "no outputs", without


def refused_by_runtime(model: onnx.ModelProto, inputs: dict[str, object]) -> bool | None:
    """Whether ONNX Runtime finds fault with a model; None where it lacks a kernel."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    try:
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        session.run(None, inputs)
    except Exception as error:
        return None if "NOT_IMPLEMENTED" in str(error) else True
    return False


def models() -> Iterator[tuple[str, onnx.ModelProto, dict[str, object], int]]:
    """Node tests of one node, as they are and with constants, that ONNX Runtime takes."""
    for case in collected(1 if "UMAKIT_EXAMPLES" in os.environ else 5):
        if len(case.model.graph.node) != 1 or not case.data_sets:
            continue
        values = case.data_sets[0][0]
        if not all(isinstance(value, np.ndarray) for value in values):
            continue
        constant = with_constants(case.model, values)
        for model in (case.model, constant):
            if model is None or not values:
                continue
            given = dict(zip((each.name for each in model.graph.input), values, strict=False))
            yield case.name, model, given, np.ndim(values[0])


def is_taken(model: onnx.ModelProto, path: Path) -> bool:
    path.write_bytes(model.SerializeToString())
    try:
        import_model(path)
    except UmakitError:
        return False
    return True
