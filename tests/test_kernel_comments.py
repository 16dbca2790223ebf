# SPDX-License-Identifier: Apache-2.0
"""The comment in front of a kernel says what the model says of its layers."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
import tflite
from onnx import numpy_helper
from tflite_networks import trained_model

from umakit import compile_model
from umakit.backend.registry import find_backend
from umakit.codegen.interface_comments import kernel_comment
from umakit.codegen.kernel_source import KernelSource
from umakit.codegen.listing import WIDTH
from umakit.pipeline import ExportOptions
from umakit.program.descriptions import KernelDescription, TensorDescription
from umakit.program.program import Role
from umakit.testing.example_networks import QuantizedNetwork
from umakit.text.escaping import shortened_apart

MODEL = Path(__file__).parents[1] / "examples" / "digits" / "digits_int8.onnx"
COMMENT = re.compile(
    r"^/\*\n( \* Layer.*?)^ \*/\nKERNEL static \w+ (\w+)\(", re.DOTALL | re.MULTILINE
)


def comments_of(backends: list[str], folder: Path) -> dict[str, str]:
    """Comments in front of kernels by name of the C function, each as one line of text."""
    library = compile_model(MODEL, [find_backend(name) for name in backends], folder)
    source = library.path / "codegen/host/src/tvmgen_digits_int8.c"
    text = source.read_text(encoding="utf-8")
    found = COMMENT.findall(text)
    assert len(found) == text.count("KERNEL static")
    _, code = text.split("*/\n#include", 1)  # behind the table of layers
    assert all(len(line) <= WIDTH for line in code.splitlines())
    return {name: " ".join(re.sub(r"^ \*", "", c, flags=re.M).split()) for c, name in found}


@pytest.mark.parametrize(
    "backends", [[], ["chocolate_accelerator"], ["strawberry_accelerator"]], ids=str
)
def test_comments_say_what_the_model_says(backends: list[str], tmp_path: Path) -> None:
    text = " ".join(comments_of(backends, tmp_path / "library").values())
    # The oracle is the file: scale and zero point of each quantized result.
    graph = onnx.load(MODEL).graph
    arrays = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
    producers = {name: node.name for node in graph.node for name in node.output}
    seen = 0
    for node in graph.node:
        if node.op_type != "QuantizeLinear":
            continue
        scale, zero_point = (arrays[name] for name in node.input[1:])
        layer = producers.get(node.input[0], node.name)
        pattern = rf"{re.escape(layer)}, scale ([-+.e\d]+), zero point {int(zero_point)}\b"
        scales = re.findall(pattern, text)
        seen += bool(scales)
        assert all(np.float32(each) == np.float32(scale) for each in scales)
    assert seen >= 6
    numbers = [int(number) for number in re.findall(r"Layer (\d+):", text)]
    assert sorted(numbers) == list(range(len(numbers)))
    assert "(quantized.conv2d), 147,456 multiply-accumulates" in text


def test_layers_in_a_scratchpad_have_shapes_and_scales(tmp_path: Path) -> None:
    """As those have whose operands and results are all in shared memory."""
    backend = find_backend("strawberry_accelerator")
    texts = []
    for keep in (True, False):
        options = ExportOptions(keep_in_scratchpads=keep)
        library = compile_model(MODEL, [backend], tmp_path / f"library_{keep}", options=options)
        source = library.path / "codegen/host/src/tvmgen_digits_int8.c"
        texts.append(source.read_text(encoding="utf-8"))
    kept, alone = texts
    row = re.compile(r"^ \* +\d+  \S+  +\S+  +\S.*?  +(\S* -> \S+)  ", re.MULTILINE)
    assert row.findall(kept) == row.findall(alone) and len(row.findall(kept)) > 6
    quantized = re.compile(r"^ \*     \w+: .*, scale .*, zero point .*", re.MULTILINE)
    assert sorted(quantized.findall(kept)) == sorted(quantized.findall(alone))
    assert ", in the scratchpad at " in kept and ", in the scratchpad at " not in alone
    graph = onnx.load(MODEL).graph
    shapes = {
        each.name: [size.dim_value or 1 for size in each.type.tensor_type.shape.dim]
        for each in onnx.shape_inference.infer_shapes(onnx.load(MODEL)).graph.value_info
    }
    (conv2,) = [node for node in graph.node if node.name == "conv2"]
    wanted = ["x".join(map(str, shapes[name])) for name in (conv2.input[0], conv2.output[0])]
    assert re.search(rf"^ \* +\d+  conv2.*  {wanted[0]} -> {wanted[1]}  ", kept, re.MULTILINE)


def test_a_sum_behind_a_convolution_keeps_the_scale_in_between(tmp_path: Path) -> None:
    path = trained_model("pretrainedResnet_quant.tflite")
    library = compile_model(path, [find_backend("chocolate_accelerator")], tmp_path / "library")
    source = library.path / "codegen/host/src/tvmgen_pretrainedResnet_quant.c"
    (text,) = [" ".join(re.sub(r"^ \*", "", source.read_text(), flags=re.MULTILINE).split())]
    found = re.findall(r"result of (\S+): scale (\S+), zero point (-?\d+), not stored", text)
    graph = tflite.Model.GetRootAs(path.read_bytes()).Subgraphs(0)
    tensors = [graph.Tensors(number) for number in range(graph.TensorsLength())]
    wanted = {
        re.split("[;:]", each.Name().decode())[0]: each.Quantization()
        for each in tensors
        if each.Quantization() and each.Quantization().ScaleLength() == 1
    }
    assert len(found) == 3
    for name, scale, zero_point in found:
        assert np.float32(scale) == wanted[name].Scale(0)
        assert int(zero_point) == wanted[name].ZeroPoint(0)


def test_a_function_of_several_layers_is_not_named_after_one(tmp_path: Path) -> None:
    network = QuantizedNetwork(8, 8, 4).conv2d(4).conv2d(4).conv2d(4)
    library = compile_model(network.model().module, [], tmp_path / "library", name="net")
    layers = library.metadata["umakit"]["layers"]
    assert [layer["function"] for layer in layers] == [
        f"tvmgen_net_{name}_kernel" for name in ("conv1", "conv2d_8x8x4", "conv2d_8x8x4")
    ]


def test_comments_on_the_cpu_have_the_attributes_of_operators(tmp_path: Path) -> None:
    comments = comments_of([], tmp_path / "library")
    (layer,) = [text for text in comments.values() if "18,432" in text]
    (node,) = [node for node in onnx.load(MODEL).graph.node if node.name == "conv3_stride2"]
    attributes = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
    down, across = attributes["strides"]
    top, left, bottom, right = attributes["pads"]
    assert f"strides {down} x {across}; " in layer
    assert f"padding {top} above, {left} left, {bottom} below, {right} right" in layer
    assert "layout NCHW (channels, rows, columns)" in layer
    assert "dilation 1 x 1; groups 1; input zero point -128; weights in memory OIHW." in layer


def test_a_depthwise_convolution_is_called_so(tmp_path: Path) -> None:
    network = QuantizedNetwork(8, 8, 4).conv2d(4, depthwise=True).conv2d(4)
    library = compile_model(network.model().module, [], tmp_path / "library")
    name = library.metadata["umakit"]["name"]
    text = (library.path / f"codegen/host/src/tvmgen_{name}.c").read_text(encoding="utf-8")
    assert re.findall(r"Layer (\d+): .*\(quantized\.(\w*conv2d)\)", text) == [
        ("0", "depthwise_conv2d"),
        ("1", "conv2d"),
    ]
    assert re.findall(r"^ \* +\d+  .*  cpu +(\w*conv2d)  ", text, re.MULTILINE) == [
        "depthwise_conv2d",
        "conv2d",
    ]
    rows = [row["operator"] for row in library.metadata["umakit"]["operators"]]
    assert rows == ["quantized.depthwise_conv2d", "quantized.conv2d"]


def test_long_names_of_layers_stay_distinct() -> None:
    names = [f"model/batch_normalization_{number}/FusedBatchNormV3" for number in (2, 4, 61)]
    names += ["short", "x" * 40 + "a" + "y" * 40, "x" * 40 + "b" + "y" * 40, names[0]]
    found = shortened_apart(names, 32)
    assert max(map(len, found)) <= 32 and found[3] == "short"
    assert len(set(found)) == len(set(names)) and found[0] == found[-1]
    assert [each.rpartition("_")[2] for each in found[:3]] == [
        f"{number}/FusedBatchNormV3" for number in (2, 4, 61)
    ]


def test_tilings_are_told_in_words(tmp_path: Path) -> None:
    comments = comments_of(["chocolate_accelerator"], tmp_path / "library")
    (layer,) = [text for text in comments.values() if "147,456" in text]
    assert "padding 1 above, 1 left, 1 below, 1 right" in layer
    assert "layout NCHW (channels, rows, columns)" in layer
    assert re.search(r"A tile of the result has \d+ of 8 rows, \d+ of 8 columns, \d+ of 16", layer)
    assert "Dataflow of the array: output stationary." in layer


def test_comments_of_constants_say_what_was_folded(tmp_path: Path) -> None:
    library = compile_model(MODEL, [], tmp_path / "library")
    text = (library.path / "codegen/host/src/tvmgen_digits_int8_constants.c").read_text()
    comments = [
        " ".join(c.replace("\n *", "").split()) for c in re.findall(r"/\*.*?\*/", text, re.S)
    ]
    folded = {c.split(":")[0] for c in comments if "sum of the weights folded in" in c}
    graph = onnx.load(MODEL).graph
    arrays = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
    for comment in (c for c in comments if c.startswith("/* bias of ")):
        layer = comment.split(":")[0].removeprefix("/* bias of ")
        stored = text.split(f"tvmgen_digits_int8_{layer}_bias[")[1]
        values = [int(n) for n in re.findall(r"-?\d+", stored.split("{")[1].split("}")[0])]
        originals = [a.tolist() for a in arrays.values() if a.dtype == np.int32]
        assert (comment.split(":")[0] in folded) == (values not in originals)
    assert "/* bias of dense" in folded


def test_names_of_a_model_cannot_leave_the_comment() -> None:
    label = "a*/ b ??/ \\ int x; /* \n" + "long " * 40 + "x" * 150
    tensor = TensorDescription("t", label, (1, 4), "int8", Role.INTERMEDIATE, None)
    layer = KernelDescription(3, label, ("nn.relu",), "cpu", 0, (tensor,), (tensor,), {}, ())
    names = ("const int8_t *restrict input", "int8_t *restrict output")
    source = KernelSource(names, "", False, frozenset(), frozenset())
    text = kernel_comment(source, [(layer, None), (layer, None)])
    assert text.startswith("/*\n") and text.endswith("\n */")
    assert text.count("*/") == text.count("/*") == 1 and "??/" not in text
    assert all(len(line) <= WIDTH for line in text.splitlines())
    assert text.count("Layer 3: ") == 2


def test_an_overwritten_input_has_no_parameter() -> None:
    tensors = [
        TensorDescription(name, name, (4,), dtype, Role.INTERMEDIATE, None)
        for name, dtype in (("left", "int8"), ("right", "int16"), ("sum", "int8"))
    ]
    layer = KernelDescription(
        0, "add", (), "cpu", 0, tuple(tensors[:2]), tuple(tensors[2:]), {"clip": "-1 to 1"}, ()
    )
    names = ("const int16_t *restrict input", "int8_t *restrict output")
    source = KernelSource(names, "", False, frozenset(), frozenset())
    text = kernel_comment(source, [(layer, 0)])
    assert " *     input   int16[4]\n *     output  int8[4]\n" in text
    assert "    output on entry: left\n" in text and "    left" not in text
    assert "clip -1 to 1." in text
