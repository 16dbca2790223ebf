# SPDX-License-Identifier: Apache-2.0
"""ONNX nodes that contradict their inputs: what ONNX Runtime refuses is not taken.

Each of ONNX's node tests gets an axis out of range, a kernel_shape that is not that of the weights,
parameters of another size, and no outputs. The files that others found are read where they are.
"""

from __future__ import annotations

import os
import re
import resource
import signal
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from mutators.onnx_files import OnnxFiles
from mutators.runner import alone
from mutators.tflite_files import TfliteFiles
from onnx import helper, numpy_helper
from onnx_node_tests import collected, with_constants
from reproductions import reproduction

from umakit.errors import ModelError, UmakitError
from umakit.frontend import import_model
from umakit.quantized import quantize_to_integers

MOST_MUTANTS = 200
"""Of each operator."""

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


def models(every: int) -> Iterator[tuple[str, onnx.ModelProto, dict[str, object], int]]:
    """Node tests of one node, as they are and with constants; those of one of `every` modules."""
    for case in collected(every):
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


TAKEN = {(pool, "kernel_shape") for pool in ("AveragePool", "LpPool", "MaxPool")}
"""Operators and changes that are taken although ONNX Runtime refuses them: it wants padding smaller
than the window, the specification does not."""


def is_taken(model: onnx.ModelProto, path: Path) -> bool:
    path.write_bytes(model.SerializeToString())
    try:
        import_model(path)
    except UmakitError:
        return False
    return True


@pytest.mark.soak
def test_what_onnx_runtime_refuses_is_not_taken(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    path, counts, wrong = tmp_path / "model.onnx", Counter[str](), []
    warnings.simplefilter("ignore")
    for name, model, given, rank in models(1 if "UMAKIT_EXAMPLES" in os.environ else 5):
        kind = model.graph.node[0].op_type
        if not is_taken(model, path) or refused_by_runtime(model, given) is not False:
            continue
        for what, mutant in mutants(model, rank):
            if counts[kind] == MOST_MUTANTS:
                break
            counts[kind] += 1
            taken = is_taken(mutant, path)
            refused = taken and refused_by_runtime(mutant, given)  # some end ONNX Runtime's process
            counts["taken" if taken else "refused"] += 1
            if taken and refused and (kind, what) not in TAKEN:
                wrong.append(f"{name}: {what}")
    assert not wrong, "\n".join(wrong)
    assert counts["taken"] and counts["refused"] > 10
    record_property(
        "covered", f"invalid nodes: {counts['refused']} refused, {counts['taken']} taken"
    )


# --- files that others found ---------------------------------------------------------------------

FILES: dict[str, str] = {
    "invalid_accepted/conv_kernel_shape.onnx": r"Conv of node .* has kernel_shape=\[3, -1\]",
    "invalid_accepted/dequantize_axis1_of_1d.onnx": "has 4 scales along axis 1",
    "invalid_accepted/instancenorm_scale1.onnx": r"has an input 1 of shape \[1\]",
    "invalid_accepted/no_outputs.onnx": "has no outputs",
    "onnx_memory/model.onnx": r"operator Resize of node .* its result of shape \[16777216, 4",
    "onnx_opset_2e40/model.onnx": "is written for opset 1099511627776 of ONNX; known are 1 to",
    "relax_var_group/model.json": "is not well-formed: Expression of type",
    "int4_message/model.onnx": "'w', read by DequantizeLinear of node 'dq', is of the element type",
    "int4_messages/q_int4w.onnx": "is of the element type int4",
    "int4_messages/int4_conv.tflite": "tensor 'w' has the unsupported type INT4",
    "tflite_fp16_weights/fp16_weights.tflite": "tensor 'wh' has the unsupported type FLOAT16",
    "tflite_reason_missing/bias_noscale.tflite": "FULLY_CONNECTED .*'y': its bias 'b' has no scale",
    "tflite_reason_missing/conv_wzp.tflite": "CONV_2D .*: its weights 'w' have the zero point -9",
    "tflite_reason_missing/dw_wzp.tflite": "DEPTHWISE_CONV_2D .*'w' have the zero point -9",
    "tflite_transpose_conv_float/tconv_float.tflite": "",
    "tflite_zero_scale_channel/zero_scale_channel.tflite": "tensor 'w' has the scale 0 at 1",
    "qop_int8_add/q_qop_pc.onnx": "QLinearAdd of node 'add_quant' has a result of int8, where",
    "qdq_float_bias/q_floatbias.onnx": "the bias: float32 where",
    "tflite_dequantized_constant/weightonly_int8_fc.tflite": "",
    "tflite_reshape_to_scalar/reshape_scalar.tflite": "",
    "tflite_reshape_to_scalar/rs_both.tflite": "",
    "maxpool_unused_indices/mp_k2_idx_unused.onnx": "",
    "onnx_unsorted/unsorted.onnx": "",
}
"""What is said of a file; nothing where it is taken."""


@pytest.mark.parametrize("name", FILES)
def test_files_that_others_found(name: str, tmp_path: Path) -> None:
    """Each in less than 2 GB and 20 seconds of processor time; what is taken is right."""
    path = reproduction(name)
    form = OnnxFiles() if path.suffix == ".onnx" else TfliteFiles()
    outcome = limited(lambda: said_of(path), memory=2 << 30, seconds=20)
    assert re.search(FILES[name], outcome), outcome
    if not FILES[name]:
        assert outcome == "" and form.compare(path) == ""


def said_of(path: Path) -> str:
    """The refusal of a file, or the reasons why some of it stays in floating point."""
    try:
        model = quantize_to_integers(import_model(path))
        return "; ".join(each for each in model.notices if ": the" in each)
    except ModelError as error:
        return str(error)


def limited(work: Callable[[], str], *, memory: int, seconds: float) -> str:
    """What a function returns, in a process with limits of address space and processor time."""

    def run() -> str:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + memory, resource.RLIM_INFINITY))
        signal.setitimer(signal.ITIMER_PROF, seconds)
        return work()

    return str(alone(run))
