# SPDX-License-Identifier: Apache-2.0
"""Minimal ONNX files, each refused for one reason: the message says which, where and what to do.

What other tests of the importer refuse is not here: `tests/refused_by.txt` has the test of every
refusal.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from refusal_sites import faults_of
from test_tflite_bad_files import single

from umakit.errors import ModelError
from umakit.frontend import import_model
from umakit.quantized import quantize_to_integers


def model(body: str, opset: int = 17, ir: int = 8, domain: str = "") -> onnx.ModelProto:
    """A model in ONNX's own syntax, the header of which is added."""
    opsets = f'"" : {opset}' + (f', "{domain}" : 1' if domain else "")
    return onnx.parser.parse_model(f"<ir_version: {ir}, opset_import: [{opsets}]>\n{body}")


def node(call: str, x: str = "float[2, 6]", constants: str = "", opset: int = 17,
         domain: str = "", results: str = "y", more: str = "") -> onnx.ModelProto:  # fmt: skip
    """One node named `n` that reads `x`, constants and further inputs, and computes `y`."""
    outputs = ", ".join(f"float {name}" for name in results.split())
    body = (
        f"g ({x} x{more}) => ({outputs}) <{constants}> {{ {results.replace(' ', ', ')} = {call} }}"
    )
    made = model(body, opset, domain=domain)
    made.graph.node[0].name = "n"
    for value in made.graph.output:
        value.type.tensor_type.ClearField("shape")
    return made


RECURRENT = "float[1, 2, 3] w, float[1, 2, 2] r"
SPLIT = "int64[2] s = {1, 2}"

NODES: dict[str, tuple[str, onnx.ModelProto]] = {
    "Celu of alpha 0": ("has alpha=0.0", node("Celu <alpha = 0.0> (x)")),
    "CumSum along no axis": (
        "has axis=3, but its input has 2", node("CumSum (x, a)", constants="int64 a = {3}")
    ),
    "a computed axis of CumSum": (
        "has an input axis that is computed", node("CumSum (x, a)", more=", int64 a")
    ),
    "Gelu of another form": (
        "has approximate=erf", node('Gelu <approximate = "erf"> (x)', opset=20)
    ),
    "LayerNormalization along no axis": (
        "has axis=4, but its input has 2",
        node("LayerNormalization <axis = 4> (x, s)", constants="float[6] s = {1,1,1,1,1,1}",
             results="y m d"),
    ),
    "LayerNormalization of float16": (
        "has an input float16",
        node("LayerNormalization (x, s)", "float16[2, 6]", results="y m d",
             constants="float16[6] s = {1,1,1,1,1,1}"),
    ),
    "SpaceToDepth of an odd image": (
        "has an image of 3 x 4, no multiple of 2",
        node("SpaceToDepth <blocksize = 2> (x)", "float[1, 1, 3, 4]"),
    ),
    "DepthToSpace of an odd channel": (
        "has 3 channels, no multiple of 4",
        node("DepthToSpace <blocksize = 2> (x)", "float[1, 3, 2, 2]"),
    ),
    "DepthToSpace of no image": (
        "has blocksize=2, mode=DCR and an input", node("DepthToSpace <blocksize = 2> (x)")
    ),
    "Split along no axis": (
        "has axis=2, but its input has 2", node("Split <axis = 2> (x)", results="y z")
    ),
    "Split into other sizes": (
        "splits 2 elements into 2 results of the sizes",
        node("Split (x, s)", constants=SPLIT, results="y z"),
    ),
    "Split into uneven parts": (
        "splits 2 elements into 3 parts with 3", node("Split (x)", results="y z w", opset=13)
    ),
    "GroupNormalization of odd groups": (
        "has num_groups=4 and an input",
        node("GroupNormalization <num_groups = 4> (x, s, s)", "float[1, 6, 2]", opset=21,
             constants="float[6] s = {1,1,1,1,1,1}"),
    ),
    "GroupNormalization of few values": (
        "values in its input 1, not 6",
        node("GroupNormalization <num_groups = 2> (x, s, s)", "float[1, 6, 2]", opset=21,
             constants="float[2] s = {1,1}"),
    ),
    "a reduction along computed axes": (
        "has axes that are computed", node("ReduceSum (x, a)", more=", int64[1] a")
    ),
    "a reduction along no axis": (
        "has axes=5, but its input has 2", node("ReduceMean <axes = [5]> (x)")
    ),
    "RoiAlign of no image": (
        "has mode=avg, coordinate_transformation_mode=half_pixel and inputs",
        node("RoiAlign (x, r, b)", "float[2, 6]", more=", float[1, 4] r, int64[1] b"),
    ),
    "a computed region": (
        "region of interest .roi. that is computed at run time",
        node('Resize <coordinate_transformation_mode = "tf_crop_and_resize"> (x, r, s)',
             more=", float[4] r", constants="float[2] s = {1, 2}"),
    ),
    "a region of other numbers": (
        "has a region of interest of 3 numbers",
        node('Resize <coordinate_transformation_mode = "tf_crop_and_resize"> (x, r, s)',
             constants="float[3] r = {0, 0, 1}, float[2] s = {1, 2}"),
    ),
    "Resize of other axes": (
        "has axes=7, but its input has 2",
        node("Resize <axes = [7]> (x, , s)", constants="float[1] s = {2}", opset=18),
    ),
    "Resize to more than float32 counts": (
        "float32 tells 16777216 places", node("Resize (x, , s)", "float[1, 6]",
                                              constants="float[2] s = {1, 4e6}"),
    ),
    "Resize by another policy": (
        "has the keep_aspect_ratio_policy 'fit'",
        node('Resize <keep_aspect_ratio_policy = "fit"> (x, , , s)',
             constants="int64[2] s = {2, 12}", opset=18),
    ),
    "Resize of integers between": (
        "interpolates int32 with weights whose rounding is not defined",
        node('Resize <mode = "linear"> (x, , s)', "int32[1, 6]",
             constants="float[2] s = {1, 1.7}"),
    ),
    "LSTM of other sizes": (
        "has hidden_size=2 and the inputs X", node("RNN <hidden_size = 2> (x, w, r)",
        "float[4, 1, 5]", more=f", {RECURRENT}"),
    ),
    "RNN of few activations": (
        "has 1 activations, not 2",
        node('GRU <hidden_size = 2, activations = ["Tanh"]> (x, w, r)', "float[4, 1, 3]",
             more=", float[1, 6, 3] w, float[1, 6, 2] r"),
    ),
    "RNN of other sequences": (
        "has .3. sequence_lens for 1", node("RNN <hidden_size = 2> (x, w, r, , l)",
        "float[4, 1, 3]", more=f", {RECURRENT}", constants="int32[3] l = {1, 1, 1}"),
    ),
    "RNN of long sequences": (
        "has sequence_lens .9. for 4 steps", node("RNN <hidden_size = 2> (x, w, r, , l)",
        "float[4, 1, 3]", more=f", {RECURRENT}", constants="int32[1] l = {9}"),
    ),
    "RNN of another bias": (
        "has a bias of shape .1, 3.", node("RNN <hidden_size = 2> (x, w, r, b)",
        "float[4, 1, 3]", more=f", {RECURRENT}", constants="float[1, 3] b = {0, 0, 0}"),
    ),
    "Slice of several lengths": (
        "has starts=.0., ends=.1, 2.",
        node("Slice (x, s, e)", constants="int64[1] s = {0}, int64[2] e = {1, 2}"),
    ),
    "Slice of nothing": (
        "takes no elements of an input",
        node("Slice (x, s, s)", constants="int64[1] s = {1}"),
    ),
    "PRelu of many slopes": (
        "has slopes of shape .5., which cannot",
        node("PRelu (x, s)", constants="float[5] s = {1, 1, 1, 1, 1}"),
    ),
    "TopK along no axis": (
        "has axis=4, but its input has 2",
        node("TopK <axis = 4> (x, k)", constants="int64[1] k = {1}", results="y z"),
    ),
    "TopK of many": (
        "takes 9 of 6 elements",
        node("TopK (x, k)", constants="int64[1] k = {9}", results="y z"),
    ),
    "ConvTranspose to three sizes": (
        "has output_shape=.3, 3, 3. for 2 spatial",
        node("ConvTranspose <output_shape = [3, 3, 3]> (x, w)", "float[1, 1, 2, 2]",
             constants="float[1, 1, 2, 2] w = {1, 1, 1, 1}"),
    ),
    "ConvTranspose to a large size": (
        "has output_shape=.9, 9., which is larger",
        node("ConvTranspose <output_shape = [9, 9]> (x, w)", "float[1, 1, 2, 2]",
             constants="float[1, 1, 2, 2] w = {1, 1, 1, 1}"),
    ),
    "Conv of another kernel_shape": (
        "has kernel_shape=.2, 2., but weights of",
        node('Conv <auto_pad = "SAME_UPPER", kernel_shape = [2, 2]> (x, w)', "float[1, 1, 3, 3]",
             constants="float[1, 1, 1, 1] w = {1}"),
    ),
    "Conv of another bias": (
        "has an input 2 of shape .1., where it needs 2",
        node("Conv (x, w, b)", "float[1, 1, 3, 3]",
             constants="float[2, 1, 1, 1] w = {1, 1}, float[1] b = {1}"),
    ),
    "InstanceNormalization of one scale": (
        "has an input 1 of shape .1., where it needs 3",
        node("InstanceNormalization (x, s, s)", "float[1, 3, 2]", constants="float[1] s = {1}"),
    ),
    "DequantizeLinear along no axis": (
        "has 2 scales along axis 4, but its input has the shape .2, 6.",
        node("DequantizeLinear <axis = 4> (x, s)", "int8[2, 6]", constants="float[2] s = {1, 1}"),
    ),
    "DequantizeLinear of few zero points": (
        "has 2 scales, but zero points .1.",
        node("DequantizeLinear <axis = 0> (x, s, z)", "int8[2, 6]",
             constants="float[2] s = {1, 1}, int8[1] z = {0}"),
    ),
    "a result of another type": (
        "yields float32.2, 6. by its specification|yields float32 by", node("Cast <to = 10> (x)")
    ),
    "a computed shape": (
        "is not supported where its input shape is computed at run time; make shape a constant",
        node("Reshape (x, r)", more=", int64[2] r"),
    ),
    "a computed scale": (
        "has a scale 's' that is not a constant",
        node("DequantizeLinear (x, s)", "int8[2, 6]", more=", float s"),
    ),
    "a scale of 0": (
        "has the scale 0.0, which is not",
        node("DequantizeLinear (x, s)", "int8[2, 6]", constants="float s = {0}"),
    ),
    "an operator of another domain": (
        "is of the custom domain 'acme'", node("acme.Magic (x)", domain="acme")
    ),
    "an operator of the QOperator format": (
        "is of the QOperator format",
        node("com.microsoft.QLinearSoftmax (x, s, z, s, z)", "int8[2, 6]", domain="com.microsoft",
             constants="float s = {1}, int8 z = {0}"),
    ),
    "a rewritten operator without its inputs": (
        "is put together in a way that is not supported",
        node("com.microsoft.QuickGelu <alpha = [1]> (x)", domain="com.microsoft"),
    ),
    "an operator that is not supported": (
        "is not supported", node("Det (x)", "float[2, 2]")
    ),
    "a result of a size that is computed": (
        "yields as many elements as its input says", node("NonZero (x)")
    ),
    "attributes that contradict shapes": (
        "contradicts the specification of ONNX: Attribute strides has incorrect size",
        node("MaxPool <kernel_shape = [1, 1], strides = [1]> (x)", "float[1, 1, 3, 3]"),
    ),
    "a reflection of more than there is": (
        "has the pads 0 and 6 at axis 1 of size 6, which mode reflect cannot fill",
        node('Pad <mode = "reflect"> (x, p)', constants="int64[4] p = {0, 0, 0, 6}"),
    ),
    "a crop of everything": (
        "has the pads -2 and 1 at axis 0 of size 2, which mode edge cannot fill",
        node('Pad <mode = "edge"> (x, p)', constants="int64[4] p = {-2, 0, 1, 0}"),
    ),
    "weights of other channels": (
        "has an input of 5 channels, weights of .4, 2, 1, 1. and group=2, which do not fit",
        node("Conv <group = 2> (x, w)", "float[1, 5, 3, 3]",
             constants="float[4, 2, 1, 1] w = {1, 1, 1, 1, 1, 1, 1, 1}"),
    ),
    "LayerNormalization of other scales": (
        "has an input 1 of shape .5., which does not fit its input of shape .2, 6.",
        node("LayerNormalization (x, s)", constants="float[5] s = {1, 1, 1, 1, 1}"),
    ),
    "a zero point of another type": (
        "has a zero point of type uint8, but an input of type int8",
        node("DequantizeLinear (x, s, z)", "int8[2, 6]",
             constants="float s = {1}, uint8 z = {200}"),
    ),
    "shapes that do not fit": (
        "operator MatMul of node 'n' contradicts the specification of ONNX with the inputs "
        "float32.2, 6., float32.2, 2.: Incompatible",
        node("MatMul (x, w)", constants="float[2, 2] w = {1, 1, 1, 1}"),
    ),
    "an axis without a dimension": (
        "with the inputs float32.2, 6., int64..; replace it in the model",
        node("Unsqueeze (x, a)", constants="int64 a = {0}"),
    ),
    "a step of 62 bits": (
        "has the step 4611686018427387904, for which no tensor is large enough",
        node("Slice (x, s, e, a, t)", constants="int64[1] s = {-2}, int64[1] e = {6}, "
             "int64[1] a = {0}, int64[1] t = {4611686018427387904}"),
    ),
    "a constant of text": (
        "holds no tensor of numbers", node('Constant <value_string = "a"> ()')
    ),
    "an index out of range": (
        "has the index 7, which is out of range", node("Gather (x, i)",
                                                      constants="int64[1] i = {7}")
    ),
    "Conv of int8": (
        "has the input X of type int8, but opset 17 of ONNX allows double, float",
        node("Conv (x, w)", "int8[1, 1, 3, 3]", constants="int8[1, 1, 1, 1] w = {1}"),
    ),
    "a sum of two types": (
        "has the input B of type int32, but the input A of type float32, which must be the same",
        node("Add (x, w)", constants="int32[6] w = {1, 1, 1, 1, 1, 1}"),
    ),
    "an axis of 64 bits": (
        "has the attribute axis=4294967296, for which",
        node("Concat <axis = 4294967296> (x, x)"),
    ),
    "an element type of 4 bits": (
        "'w', read by DequantizeLinear of node 'n', is of the element type int4",
        node("DequantizeLinear (w, s)", constants="float s = {1}, int4[2] w = {1, 2}", opset=21),
    ),
}  # fmt: skip


ABS = "g (float[N, 2] x) => (float[N, 2] y) { y = Abs (x) }"
NOT_UTF8 = model(ABS).SerializeToString().replace(b"Abs", b"A\xffs")

FILES: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "more indices than elements": (
        "node 'n' has indices of shape .3, 2., which data of shape .2, 6. lack",
        node("GatherElements <axis = 1> (x, i)", more=", int64[3, 2] i"), {},
    ),
    "batches of indices that data lack": (
        "node 'n' has indices of shape .3, 1., which data of shape .2, 6. lack",
        node("GatherND <batch_dims = 1> (x, i)", more=", int64[3, 1] i"), {},
    ),
    "a newer opset": (
        "is written for opset 1099511627776 of ONNX; known are 1 to", model(ABS, 2**40), {}
    ),
    "an attribute that is missing": (
        "is not a valid ONNX model: Required attribute 'axis' is missing",
        model("g (float[2] x) => (float[4] y) { y = Concat (x, x) }"), {},
    ),
    "an unknown shape": (
        "operator CumSum of node .* has an input 0 of unknown shape",
        model("g (float[1, 6] x, int64[1] r) => (float[6] y) <int64 a = {0}> "
              "{ z = Squeeze (x, r) y = CumSum (z, a) }"), {},
    ),
    "no outputs": ("has no outputs", model("g (float[2] x) => () { y = Abs (x) }"), {}),
    "two outputs of a name": (
        "there are two outputs 'y'",
        model("g (float[2] x) => (float[2] y, float[2] y) { y = Abs (x) }"), {},
    ),
    "nodes in a circle": (
        "nodes .* read each other's results in a circle",
        model("g (float[2] x) => (float[2] y) { z = Add (x, y) y = Abs (z) }"), {},
    ),
    "a name in another encoding": ("is not UTF-8", NOT_UTF8, {}),
    "an unknown input": (
        "there is no input 'z'", model(ABS), {"input_shapes": {"z": [1]}},
    ),
    "too many sizes": (
        "input 'x' has 2 dimensions, not 3", model(ABS), {"input_shapes": {"x": [1, 2, 3]}},
    ),
    "another size": (
        "dimension 1 of input 'x' is 2, not 3", model(ABS), {"input_shapes": {"x": [1, 3]}},
    ),
    "an unknown rounding": ("there is no rounding 'up'", model(ABS), {"rounding": "up"}),
    "an empty result": (
        "tensor 'y' of shape .0. has no elements",
        model("g (float[2] x) => (float[0] y) <int64[1] s = {0}> { y = ConstantOfShape (s) }"), {},
    ),
    "float16": (
        "computes with the element type float16",
        model("g (float[2] x) => (float[2] y) { z = Cast <to = 10> (x) w = Abs (z) "
              "y = Cast <to = 1> (w) }"), {},
    ),
    "float16 inputs": (
        "input 'x' is of the element type float16",
        model("g (float16[2] x) => (float16[2] y) { y = Abs (x) }"), {},
    ),
    "a tensor larger than C counts": (
        "its result of shape .2147483648. has more than",
        model("g (float[1] x) => (float y) <int64[1] s = {2147483648}> "
              "{ z = Expand (x, s) y = ReduceMax <keepdims = 0> (z) }"), {},
    ),
}  # fmt: skip


def refused(content: Any, path: Path, **options: Any) -> ModelError:
    """Write a file, and return why it is not taken."""
    data = content if isinstance(content, bytes) else content.SerializeToString()
    path.write_bytes(data)
    with pytest.raises(ModelError) as caught:
        quantize_to_integers(import_model(path, **options))
    return caught.value


@pytest.mark.parametrize("why", NODES)
def test_nodes_are_refused_by_name(why: str, tmp_path: Path) -> None:
    message, content = NODES[why]
    error = refused(content, tmp_path / "model.onnx")
    assert re.search(message, str(error)), error
    assert content.graph.node[0].op_type in str(error) and "of node 'n'" in str(error)
    assert faults_of(error, tmp_path / "model.onnx") == []


@pytest.mark.parametrize("why", FILES)
def test_files_are_refused_with_what_to_do(why: str, tmp_path: Path) -> None:
    message, content, options = FILES[why]
    error = refused(content, tmp_path / "model.onnx", **options)
    assert re.search(message, str(error)), error
    assert faults_of(error, tmp_path / "model.onnx") == []


def test_external_data_is_refused_where_it_is_not(tmp_path: Path) -> None:
    proto = model("g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Add (x, w) }")
    tensor = proto.graph.initializer[0]
    tensor.raw_data = np.ones(2, np.float32).tobytes()
    del tensor.float_data[:]
    onnx.external_data_helper.set_external_data(tensor, "weights.bin")
    (tmp_path / "weights.bin").write_bytes(b"1234")
    for key, value, message in (
        ("length", "8", "which is too short"),
        ("location", "absent.bin", "which does not exist"),
        ("location", "a\0b", "is not a valid ONNX model: embedded null byte"),
        ("offset", "two", "at a place that is not a number"),
        ("location", "../weights.bin", "which is outside the model's folder"),
    ):
        changed = onnx.ModelProto.FromString(proto.SerializeToString())
        (tensor,) = changed.graph.initializer
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.ClearField("raw_data")
        entries = {entry.key: entry.value for entry in tensor.external_data} | {key: value}
        del tensor.external_data[:]
        for name, text in entries.items():
            tensor.external_data.add(key=name, value=text)
        error = refused(changed, tmp_path / "model.onnx")
        assert message in str(error)
        assert faults_of(error, tmp_path / "model.onnx") == []


def test_folders_and_other_files_are_no_models(tmp_path: Path) -> None:
    folder, code = tmp_path / "folder.onnx", tmp_path / "model.py"
    folder.mkdir()
    code.write_text("import tvm\n")
    absent = tmp_path / "absent.onnx"
    for path, message in (
        (folder, "is a folder"), (code, "is Python code"), (absent, "no such file"),
        (Path("/dev/null"), "is not a regular file"),
    ):  # fmt: skip
        with pytest.raises(ModelError, match=message) as caught:
            import_model(path)
        assert faults_of(caught.value, path) == []
    with pytest.raises(ModelError, match="cannot import a dict") as caught:
        import_model({})
    assert caught.value.fix


def test_files_that_the_system_does_not_let_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*given: Any, **named: Any) -> bytes:
        raise PermissionError(13, "Permission denied")

    onnx_file, tflite_file = tmp_path / "model.onnx", tmp_path / "model.tflite"
    onnx_file.write_bytes(model(ABS).SerializeToString())
    tflite_file.write_bytes(b"0000TFL3")
    monkeypatch.setattr(onnx, "load", refuse)
    monkeypatch.setattr(Path, "read_bytes", refuse)
    for path in (onnx_file, tflite_file):
        with pytest.raises(ModelError, match="cannot be read: Permission denied") as caught:
            import_model(path)
        assert faults_of(caught.value, path) == []


def test_reports_and_roundings_are_refused(tmp_path: Path) -> None:
    report, network = tmp_path / "report.json", tmp_path / "net.tflite"
    report.write_text('{"format": "umakit report"}')
    with pytest.raises(ModelError, match="is a report that") as caught:
        import_model(report)
    assert faults_of(caught.value, report) == []
    network.write_bytes(single())
    with pytest.raises(ModelError, match="are defined with the rounding tflm, not ort") as caught:
        import_model(network, rounding="ort")
    assert faults_of(caught.value, network) == []


def test_the_first_of_several_nodes_that_contradict_onnx_is_named(tmp_path: Path) -> None:
    """Those behind it lack its result."""
    path = tmp_path / "network.onnx"
    ones = ", ".join("1" * 20)
    body = f"""g (float[2, 6] x) => (float[2, 4] y) <float[5, 4] w = {{{ones}}}>
        {{ a = MatMul (x, w) b = Relu (a) y = Add (b, b) }}"""
    onnx.save(model(body), path)
    with pytest.raises(ModelError, match=r"operator MatMul of .*float32\[2, 6\], float32\[5, 4\]"):
        import_model(path)
