# SPDX-License-Identifier: Apache-2.0
"""Relax modules: quantized ones beside the same network as ONNX, and modules in JSON files."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tvm.script import tirx as T
from umakit.cli.main import run_command

import umakit
from umakit import tvm_api
from umakit.devices.run import run_library
from umakit.errors import ModelError
from umakit.frontend import model_files

relax = tvm_api.relax
op = relax.op

SCALES = {"x": (0.0213, -5), "y": (0.0917, 3)}
RANDOM = np.random.default_rng(3)
WEIGHTS = RANDOM.integers(-127, 128, (4, 3, 3, 3)).astype(np.int8)
WEIGHT_SCALES = RANDOM.uniform(0.002, 0.01, 4).astype(np.float32)
BIAS = RANDOM.integers(-2000, 2000, 4).astype(np.int32)
DATA = RANDOM.normal(size=(6, 1, 3, 8, 8)).astype(np.float32)


def constant(value: Any, dtype: str) -> Any:
    return relax.const(np.asarray(value, dtype), dtype)


def quantized_module(bias_in_float: bool = False) -> Any:
    """A quantized convolution with ReLU, as islands of Relax."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", tvm_api.tensor_type((1, 3, 8, 8), "float32"))
    steps = np.float32(SCALES["x"][0]) * WEIGHT_SCALES
    with builder.function("main", [x]):
        with builder.dataflow():
            emit = builder.emit

            def through(value: Any, name: str) -> Any:
                scale, zero = SCALES[name]
                grid = constant(scale, "float32"), constant(zero, "int8")
                return emit(op.dequantize(emit(op.quantize(value, *grid)), *grid))

            zeros = constant(np.zeros(4), "int8")
            weights = op.dequantize(
                constant(WEIGHTS, "int8"), constant(WEIGHT_SCALES, "float32"), zeros, axis=0
            )
            if bias_in_float:
                bias = constant((BIAS * steps.astype(np.float64)).reshape(1, 4, 1, 1), "float32")
            else:
                zeros = constant(np.zeros(4), "int32")
                bias = emit(op.dequantize(constant(BIAS, "int32"), constant(steps, "float32"),
                                          zeros, axis=0))  # fmt: skip
                bias = emit(op.reshape(bias, (1, 4, 1, 1)))
            result = emit(op.nn.conv2d(through(x, "x"), emit(weights), padding=1))
            result = emit(op.nn.relu(emit(op.add(result, bias))))
            result = builder.emit_output(through(result, "y"))
        builder.emit_func_output(result)
    return builder.get()


def quantized_onnx(path: Path) -> Path:
    """The same network as ONNX."""
    steps = np.float32(SCALES["x"][0]) * WEIGHT_SCALES
    arrays = {"w": WEIGHTS, "ws": WEIGHT_SCALES, "wz": np.zeros(4, np.int8)}
    arrays |= {"b": BIAS, "bs": steps, "bz": np.zeros(4, np.int32)}
    for name, (scale, zero) in SCALES.items():
        arrays |= {f"{name}s": np.float32(scale), f"{name}z": np.int8(zero)}
    node = helper.make_node
    nodes = [
        node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]),
        node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"]),
        node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], axis=0),
        node("DequantizeLinear", ["b", "bs", "bz"], ["bd"], axis=0),
        node("Conv", ["xd", "wd", "bd"], ["c"], pads=[1, 1, 1, 1]),
        node("Relu", ["c"], ["r"]),
        node("QuantizeLinear", ["r", "ys", "yz"], ["yq"]),
        node("DequantizeLinear", ["yq", "ys", "yz"], ["y"]),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [value("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [value("y", TensorProto.FLOAT, [1, 4, 8, 8])],
        [numpy_helper.from_array(np.asarray(a), name) for name, a in arrays.items()],
    )  # fmt: skip
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path
    )
    return path


def run(source: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        library = umakit.compile_model(source, [], Path(folder) / "library")
        (result,) = umakit.run_library(library.path, {"x": DATA}).outputs.values()
    return result


def test_quantized_relax_modules_compute_what_the_same_onnx_file_does(tmp_path: Path) -> None:
    wanted = run(quantized_onnx(tmp_path / "network.onnx"))
    assert len(np.unique(wanted)) > 20
    np.testing.assert_array_equal(run(quantized_module()), wanted)
    # The bias in float is the integers' real numbers, so that rounding finds them again.
    np.testing.assert_array_equal(run(quantized_module(bias_in_float=True)), wanted)


# --- files ----------------------------------------------------------------------------------------

SAVED = Path(__file__).parent / "relax_modules" / "quantized_convolution.json"
"""`quantized_module` as `tvm.ir.save_json` of TVM 0.27 wrote it."""


@pytest.mark.skipif(
    tvm_api.FFI_VERSION in tvm_api.FFI_WITHOUT_TENSORIZE,
    reason="this apache-tvm-ffi crashes in save_json; pyproject.toml names one that does not",
)
def test_what_save_json_writes_now_is_read(tmp_path: Path) -> None:
    path = tmp_path / "network.json"
    path.write_text(tvm_api.tvm.ir.save_json(quantized_module()))
    np.testing.assert_array_equal(run(path), run(quantized_module()))


def test_relax_modules_in_json_are_told_by_their_content(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "network.onnx"
    path.write_text(SAVED.read_text())
    np.testing.assert_array_equal(run(path), run(quantized_module()))
    assert run_command(["compile", str(SAVED), "-o", str(tmp_path / "library")]) == 0
    assert (tmp_path / "library/codegen/host/src/tvmgen_quantized_convolution.c").is_file()


def damaged(change: str) -> str:
    graph = json.loads(SAVED.read_text())
    if change == "foreign":
        graph["nodes"][-1]["type"] = "ffi.Function"
    elif change == "missing":
        call = next(node for node in graph["nodes"] if node["type"] == "ir.Call")
        call["data"]["args"] = 10**6
    elif change == "null":
        shape = next(n for n in graph["nodes"] if n["type"] == "ffi.Array" and n["data"])
        shape["data"][0] = 0
    elif change == "no_module":
        graph["root_index"] = next(i for i, n in enumerate(graph["nodes"]) if n["type"] == "ir.Op")
    return json.dumps(graph)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not valid JSON"), ("{}", "no Relax module"), ('{"nodes": 3}', "no Relax module"),
        ('{"root_index": 0, "nodes": [{}]}', "no Relax module"),
        ('{"root_index": 7, "nodes": []}', "cannot be loaded"),
        ("foreign", "holds a ffi.Function, which is not part of a network"),
        ("missing", "cannot be loaded"), ("null", "is damaged|cannot be loaded"),
        ("no_module", "holds a Op, not a module"),
    ],
)  # fmt: skip
def test_other_json_is_refused(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "module.json"
    path.write_text(text if text.startswith("{") else damaged(text))
    with pytest.raises(ModelError, match=said) as caught:
        umakit.import_model(path)
    assert "module.json" in str(caught.value) and caught.value.fix


@pytest.mark.parametrize("name", ["a.json", "a.textproto", "a.onnxtxt", "a.onnx"])
@pytest.mark.parametrize("text", ["", "\n", "x"])
@pytest.mark.filterwarnings("ignore:The onnxtxt format")
def test_files_without_a_model_are_refused(name: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert model_files(path) == [path]
    with pytest.raises(ModelError, match="is not an ONNX"):
        umakit.import_model(path)


def test_python_files_are_not_run(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(f"open({str(tmp_path / 'mark')!r}, 'w')")
    with pytest.raises(ModelError, match="is Python code, which is not run") as caught:
        umakit.import_model(path)
    assert "save_json" in caught.value.fix and not (tmp_path / "mark").exists()


def symbolic_module(*shapes: Any) -> Any:
    """The sum of inputs `a`, `b`, ... whose dimensions are numbers or names of symbols."""
    symbols: dict[str, Any] = {}

    def dimension(size: Any) -> Any:
        if isinstance(size, int):
            return size
        if size.startswith("2*"):
            return 2 * dimension(size[2:])
        return symbols.setdefault(size, tvm_api.tirx.Var(size, "int64"))

    inputs = [
        relax.Var(name, tvm_api.tensor_type([dimension(size) for size in shape], "float32"))
        for name, shape in zip("abc", shapes, strict=False)
    ]
    builder = relax.BlockBuilder()
    with builder.function("main", inputs):
        with builder.dataflow():
            result = builder.emit(op.nn.relu(inputs[0]))
            for more in inputs[1:]:
                result = builder.emit(op.concat([result, more], axis=0))
            result = builder.emit_output(result)
        builder.emit_func_output(result)
    return builder.get()


@pytest.mark.parametrize(
    ("shapes", "wanted", "expected"),
    [
        ([("n", 3)], {"a": [5, 3]}, [(5, 3)]),
        ([("n", 3)], {}, [(1, 3)]),
        ([("n", 3)], {"b": [5, 3]}, "there is no input 'b'; inputs are a"),
        ([("n", 3)], {"a": [5]}, "input 'a' has 2 dimensions, not 1"),
        ([("n", 3)], {"a": [5, 4]}, r"input 'a' has the shape \[5, 3\], which cannot be \[5, 4\]"),
        ([("n", 3)], {"a": [0, 3]}, "is not made of positive integers"),
        ([("n", 3)], {"a": [2**40, 3]}, "has more than 2147483647 elements"),
        ([(2, 3)], {"a": [4, 3]}, r"\[2, 3\], which cannot be \[4, 3\]"),
        ([("n", 3), ("n", 3)], {"a": [2, 3], "b": [4, 3]}, r"'b' has the shape \[2, 3\], which"),
        ([("n", 3), ("2*n", 3)], {"a": [2, 3], "b": [4, 3]}, [(2, 3), (4, 3)]),
        ([("n", 3), ("2*n", 3)], {"b": [6, 3]}, r"'b' has the shape \[2, 3\], which cannot be"),
    ],
)
def test_input_shapes_are_met_or_refused(shapes: Any, wanted: Any, expected: Any) -> None:
    module = symbolic_module(*shapes)
    if isinstance(expected, str):
        with pytest.raises(ModelError, match=expected):
            umakit.import_model(module, input_shapes=wanted)
    else:
        model = umakit.import_model(module, input_shapes=wanted)
        assert [item.shape for item in model.inputs] == expected


@T.prim_func(private=True)
def calling_kernel(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):  # type: ignore[no-untyped-def,valid-type]
    for i in range(4):
        y[i] = T.call_extern("float32", "CALLED", x[i])


@pytest.mark.parametrize(
    ("called", "is_refused"),
    [
        ("expf", False), ("system", True), ("x); system(0); (void)(0", True), ("", True),
        ("printf", True),
    ],
)  # fmt: skip
def test_kernels_in_a_file_call_no_other_functions_than_those_of_math_h(
    called: str, is_refused: bool, tmp_path: Path
) -> None:
    """With a name of a kernel that would be C too."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", tvm_api.tensor_type((4,), "float32"))
    kernel = builder.add_func(calling_kernel, "run_in")
    with builder.function("main", [x]):
        with builder.dataflow():
            result = relax.call_tir(kernel, (x,), tvm_api.tensor_type((4,), "float32"))
            out = builder.emit_output(result)
        builder.emit_func_output(out)
    text = tvm_api.tvm.ir.save_json(builder.get()).replace("CALLED", json.dumps(called)[1:-1])
    (tmp_path / "model.json").write_text(text)
    if is_refused:
        with pytest.raises(ModelError, match="calls the C function"):
            umakit.compile_model(tmp_path / "model.json", [], tmp_path / "library")
        assert not (tmp_path / "library").exists()
        return
    umakit.compile_model(tmp_path / "model.json", [], tmp_path / "library")
    data = np.linspace(0, 1, 4, dtype="float32")
    (result,) = run_library(tmp_path / "library", {"x": data}).outputs.values()
    assert np.allclose(result, np.exp(data))


@pytest.mark.parametrize(("side", "count"), [("padding", 5), ("strides", 3), ("dilation", 4)])
def test_windows_with_another_count_of_numbers_are_refused(
    side: str, count: int, tmp_path: Path
) -> None:
    graph = json.loads(SAVED.read_text())
    (places,) = (
        node["data"] for node in graph["nodes"] if node["type"] == "relax.attrs.Conv2DAttrs"
    )
    graph["nodes"][places[side]]["data"] = [graph["nodes"][places[side]]["data"][0]] * count
    path = tmp_path / "network.json"
    path.write_text(json.dumps(graph))
    with pytest.raises(ModelError, match=f"nn.conv2d has {side}=.*, of {count} numbers"):
        umakit.import_model(path)


@pytest.mark.parametrize(
    ("pool", "sizes", "dtype"),
    [("avg_pool2d", (4, 4), "int8"), ("avg_pool2d", (4, 4), "int32"),
     ("adaptive_avg_pool2d", (1, 1), "int8")],
)  # fmt: skip
def test_means_of_integers_are_refused_and_computed_in_float(
    pool: str, sizes: tuple[int, int], dtype: str, tmp_path: Path
) -> None:
    def network(mended: bool) -> Any:
        builder = relax.BlockBuilder()
        x = relax.Var("x", tvm_api.tensor_type((1, 3, 4, 4), dtype))
        with builder.function("main", [x]):
            with builder.dataflow():
                result = op.astype(x, "float32") if mended else x
                result = builder.emit(getattr(op.nn, pool)(result, sizes))
                if mended:
                    result = op.astype(op.round(result), dtype)
                result = builder.emit_output(result)
            builder.emit_func_output(result)
        (tmp_path / "pool.json").write_text(tvm_api.tvm.ir.save_json(builder.get()))
        return umakit.compile_model(tmp_path / "pool.json", [], tmp_path / "library")

    with pytest.raises(ModelError, match="how wide the sum of integers is") as error:
        network(mended=False)
    assert str(tmp_path / "pool.json") in str(error.value)
    assert error.value.page == "docs/refusals.md#lower-cpu"
    assert "convert to float32 before it, and round and convert back" in error.value.fix
    library, data = network(mended=True), RANDOM.integers(-99, 99, (1, 3, 4, 4)).astype(dtype)
    (found,) = run_library(library.path, {"x": data[None]}).outputs.values()
    assert found.dtype == dtype
    np.testing.assert_array_equal(found[0], np.round(data.mean((2, 3), keepdims=True)))


@pytest.mark.parametrize(("width", "size"), [(3, 4), (4, 4), (9, 4), (1, 1)])
def test_reflections_of_more_than_there_is_are_refused(width: int, size: int) -> None:
    """TVM's kernel would read outside of the tensor."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", tvm_api.tensor_type((1, size), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit(op.nn.pad(x, [0, 0, width, 0], pad_mode="reflect"))
            result = builder.emit_output(result)
        builder.emit_func_output(result)
    if width < size:
        umakit.import_model(builder.get())
        return
    with pytest.raises(ModelError, match=f"reflects {width} elements at axis 1 of size {size}"):
        umakit.import_model(builder.get())
