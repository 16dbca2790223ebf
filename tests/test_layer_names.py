# SPDX-License-Identifier: Apache-2.0
"""Layers, kernels and constants have the names of the user's model, and lead to its values.

The oracles are the nodes and initializers of the ONNX files.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from hostile_names import names
from hypothesis import given
from hypothesis import strategies as st
from networks import Graph, save
from onnx import numpy_helper

from umakit import compile_model
from umakit.codegen.listing import comment
from umakit.partition.report import OffloadReport, OperatorPlacement
from umakit.pipeline import ExportOptions
from umakit.program.symbols import LayerSymbols, room
from umakit.text.names import SIGNIFICANT

Array = npt.NDArray[Any]
EXAMPLES = Path(__file__).parents[1] / "examples" / "digits"
LAYERS = ["conv1", "conv2", "conv3_stride2", "conv4_1x1", "dense"]


def initializers(path: Path) -> dict[str, Array]:
    graph = onnx.load(str(path)).graph
    return {item.name: numpy_helper.to_array(item) for item in graph.initializer}


def constants_in_c(library: Path) -> dict[str, list[float]]:
    """The values of each array of the C file, by name without the model's prefix."""
    (path,) = library.glob("codegen/host/src/*_constants.c")
    prefix = path.name.removesuffix("constants.c")
    found = re.findall(
        rf"^const \w+ {prefix}(\w+)\[\d+\] = \{{\n(.*?)\}};", path.read_text(), re.M | re.S
    )
    return {name: [_number(text) for text in values.split(",")] for name, values in found}


def _number(text: str) -> float:
    text = text.strip().removesuffix("f")
    return float.fromhex(text) if "x" in text else float(text)


@pytest.fixture(scope="module")
def quantized(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return compile_model(EXAMPLES / "digits_int8.onnx", [], tmp_path_factory.mktemp("q") / "l")


def test_layers_have_the_names_of_nodes(quantized: Any) -> None:
    nodes = {node.name for node in onnx.load(str(EXAMPLES / "digits_int8.onnx")).graph.node}
    layers = quantized.metadata["umakit"]["layers"]
    named = [layer["name"] for layer in layers]
    assert [name for name in named if name in LAYERS] == LAYERS and "pool1" in named
    assert set(named) <= nodes
    for layer in layers:
        assert layer["function"] == f"tvmgen_digits_int8_{layer['name']}_kernel"
    operators = {row["name"] for row in quantized.metadata["umakit"]["operators"]}
    assert operators >= {*LAYERS, "pool1", "flatten"} and operators <= nodes


def test_constants_of_integers_lead_to_the_values_of_the_file(quantized: Any) -> None:
    """Weights and biases are the file's; multipliers and shifts are those of its scales."""
    wanted = initializers(EXAMPLES / "digits_int8.onnx")
    ends = {"conv1": ("image", "relu1_out"), "conv2": ("relu1_out", "relu2_out")}
    ends["dense"] = ("relu4_out", "logits")
    with np.load(quantized.path / "parameters/digits_int8.npz") as archive:
        arrays = dict(archive)
    assert arrays.keys() == constants_in_c(quantized.path).keys()
    for name, values in constants_in_c(quantized.path).items():
        np.testing.assert_array_equal(arrays[name].ravel(), values)
    for layer, (before, after) in ends.items():
        weights = wanted[f"{layer}.weight_quantized"]
        taken = arrays[f"{layer}_weights"]
        assert sorted(taken.ravel()) == sorted(weights.ravel())
        if taken.shape == weights.shape:
            np.testing.assert_array_equal(taken, weights)
        channels = weights if layer != "dense" or len(weights) == 10 else weights.T
        sums = channels.reshape(len(channels), -1).astype(np.int64).sum(axis=1)
        bias = wanted[f"{layer}.bias_quantized"].astype(np.int64)
        zero = int(wanted[f"{before}_zero_point"])
        forms = (bias, bias - zero * sums)
        assert any((arrays[f"{layer}_bias"] == form).all() for form in forms)
        scales = wanted[f"{before}_scale"] * wanted[f"{layer}.weight_scale"].astype(np.float64)
        factors = arrays[f"{layer}_multipliers"] * 2.0 ** (arrays[f"{layer}_shifts"] - 31.0)
        np.testing.assert_allclose(factors, scales / wanted[f"{after}_scale"], rtol=1e-6)


def test_constants_of_a_float_network_have_roles(tmp_path: Path) -> None:
    graph = Graph(seed=3)
    x = graph.node("Conv", graph.input("x", 1, 2, 6, 6), graph.random(4, 2, 3, 3), name="first")
    x = graph.node("Relu", x, name="active")
    x = graph.node("Conv", x, graph.random(4, 4, 3, 3), graph.random(4), name="a/second")
    graph.output(x)
    path = save(graph.model(), tmp_path)
    library = compile_model(path, [], tmp_path / "library", name="net")
    values = list(initializers(path).values())
    found = constants_in_c(library.path)
    assert {"first_weights", "a_second_weights", "a_second_bias"} <= found.keys()
    source = (library.path / "codegen/host/src/tvmgen_net.c").read_text(encoding="utf-8")
    (parameters,) = re.findall(r"static void \w+_a_second_kernel\((.*?)\)\n", source, re.S)
    assert [line.rpartition(" ")[2] for line in parameters.split(",\n")] == [
        "data", "weights", "bias", "output", "sums",
    ]  # fmt: skip
    source = (library.path / "codegen/host/src/tvmgen_net_constants.c").read_text(encoding="utf-8")
    assert "/* weights of first + active: float32[4, 2, 3, 3], layout OIHW, 288 bytes */" in source
    for name, role in (("first_weights", 0), ("a_second_weights", 1), ("a_second_bias", 2)):
        np.testing.assert_allclose(sorted(found[name]), sorted(values[role].ravel()), rtol=1e-6)


def test_equal_constants_are_named_after_the_first_layer(tmp_path: Path) -> None:
    graph = Graph(seed=4)
    weights = graph.random(2, 2, 3, 3)
    x = graph.node("Conv", graph.input("x", 1, 2, 9, 9), weights, name="one")
    graph.output(graph.node("Conv", graph.node("Relu", x, name="r"), weights, name="two"))
    for form in ("c", "blob"):
        options = ExportOptions(weights=form)  # type: ignore[arg-type]
        path = save(graph.model(), tmp_path)
        library = compile_model(path, [], tmp_path / form, name="net", options=options)
        assert [*library.program.constants] == ["one_weights"]  # type: ignore[union-attr]
        file = "tvmgen_net_constants.c" if form == "c" else "tvmgen_net.c"
        text = (library.path / "codegen/host/src" / file).read_text(encoding="utf-8")
        assert "/* weights of one" in text and "also two */" in text


def test_a_library_is_the_same_every_time(quantized: Any, tmp_path: Path) -> None:
    again = compile_model(EXAMPLES / "digits_int8.onnx", [], tmp_path / "again")
    for path in sorted(quantized.path.rglob("*.[ch]")):
        other = again.path / path.relative_to(quantized.path)
        assert path.read_bytes() == other.read_bytes(), path


@given(st.lists(names(), min_size=1, max_size=12), st.integers(1, 56))
def test_symbols_are_unique_identifiers_of_bounded_length(layers: list[str], length: int) -> None:
    model = "m" * length
    symbols, taken = LayerSymbols(model), {"run", "a_weights_offset", "x_output"}
    reserved = set(taken)
    parts = ("weights", "multipliers", "kernel", "output", "parameters_local" * 5)
    for layer in [*layers, *layers]:
        symbol = symbols.layer(layer)
        for part in parts:
            name = symbols.symbol(symbol, part, taken, reserved)
            assert re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name), name
            assert name.lower() not in taken and len(name) <= room(model)
            taken.add(name.lower())
        tensor = symbols.tensor(symbol, "output", taken)
        assert tensor.lower() not in taken and len(f"{tensor}_offset") <= SIGNIFICANT
    if length <= 22:
        assert len(f"tvmgen_{model}_") + room(model) <= SIGNIFICANT


@pytest.mark.parametrize(
    ("name", "symbol"),
    [
        ("conv1", "conv1"),
        ("/layer1/layer1.0/conv1/Conv", "layer1_layer1_0_conv1_Conv"),
        ("1x1", "n1x1"),
        ("tvmgen_run", "ntvmgen_run"),
        ("*/", "unnamed"),
        ("__main__", "main"),
        ("a" * 40 + "/" + "b" * 20, "b" * 20),
    ],
)
def test_symbols_read_like_the_names(name: str, symbol: str) -> None:
    assert LayerSymbols("net").layer(name) == symbol


RESNET = ("conv2d_5/BiasAdd", *(f"batch_normalization_{n}/FusedBatchNormV3" for n in (2, 4, 6)))


def test_long_names_keep_what_tells_them_apart() -> None:
    names = [f"model/{name}" for name in RESNET]
    symbols = LayerSymbols("pretrainedResnet_quant", names)
    assert [symbols.layer(name) for name in names] == [
        "conv2d_5_BiasAdd", "batch_norm_2", "batch_norm_4", "batch_norm_6",
    ]  # fmt: skip
    # The number of an abbreviation and of a layer that is called twice is nobody else's.
    names = ["batch_norm_4", "batch_normalization_4", "conv", "conv_2"]
    symbols = LayerSymbols("pretrainedResnet_quant", names)
    found = [symbols.layer(name) for name in [*names, "conv"]]
    assert found[0] == "batch_norm_4" and re.fullmatch(r"\w+_[0-9a-f]{8}", found[1])
    assert found[2:] == ["conv", "conv_2", "conv_no2"]


WORDS = ("model", "conv2d", "batch_normalization", "FusedBatchNormV", "Relu", "a", "x" * 70)
parts = st.tuples(st.sampled_from(WORDS), st.sampled_from(["", "_", "."]), st.integers(0, 120))
slashed = st.lists(parts, min_size=1, max_size=4).map(
    lambda drawn: "/".join(f"{word}{dot}{number or ''}" for word, dot, number in drawn)
)


@given(st.lists(slashed, min_size=1, max_size=12, unique=True), st.integers(1, 56))
def test_numbers_in_names_are_the_layers_own(layers: list[str], length: int) -> None:
    model = "m" * length
    symbols = LayerSymbols(model, layers)
    found = [symbols.layer(layer) for layer in layers]
    assert len({symbol.lower() for symbol in found}) == len(found)
    for layer, symbol in zip(layers, found, strict=True):
        assert re.fullmatch(r"[A-Za-z]\w*", symbol)
        assert len(f"{symbol}_multipliers") <= room(model)
        told = re.sub(r"_no\d+$|_[0-9a-f]{8}$", "", symbol)
        assert set(re.findall(r"\d+", told)) <= set(re.findall(r"\d+", layer))


def test_labels_leave_out_conversions() -> None:
    def row(operator: str, name: str, macs: int = 0) -> OperatorPlacement:
        return OperatorPlacement(operator, name, "cpu", "", macs, (1,), "float32")

    rows = row("dequantize", "dq"), row("nn.conv2d", "conv", 9), row("nn.relu", "relu")
    report = OffloadReport((*rows, row("quantize", "q")))
    assert report.label([0, 1, 2, 3]) == "conv + relu" and report.main_name(range(4)) == "conv"
    assert report.label([0]) == "dq" and report.label([3, 0]) == "q + dq"
    assert report.main_name([2]) == "relu" and report.label([]) == report.main_name([]) == ""


def test_comments_are_short_lines() -> None:
    lines = comment("word " * 60).splitlines()
    assert len(lines) > 1 and max(map(len, lines)) <= 100
    assert lines[0].startswith("/* ") and lines[-1].endswith(" */")
