# SPDX-License-Identifier: Apache-2.0
"""A sample of the operators with all dtypes, and files whose numbers were wrong in 0.2.0."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import dtype_sweep
import numpy as np
import onnx
import pytest
from dtype_sweep import BASELINE, COLUMNS, FRONTENDS, Case, Network, baseline, check
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from relax_operators import TABLE, module_of
from reproductions import reproduction
from umakit.cli.main import run_command

from umakit import run_library, tvm_api
from umakit.errors import UmakitError
from umakit.pipeline import compile_model

HARNESS = Path(__file__).with_name("dtype_sweep.py")


def run_harness(*options: str) -> str:
    """What the harness prints; in a process of its own, because it forks."""
    done = subprocess.run(
        [sys.executable, str(HARNESS), *options], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_sample_is_still_right() -> None:
    """Another one for each commit; `make soak-dtypes` runs all."""
    revision = subprocess.run(
        ["git", "-C", str(HARNESS.parent), "rev-parse", "HEAD"], capture_output=True, text=True,
        check=False,
    ).stdout  # fmt: skip
    table = run_harness("--sample", "2", "--seed", str(int(revision[:8] or "0", 16)))
    assert all(name in table for name in FRONTENDS)


def test_the_baseline_has_all_frontends() -> None:
    counts = {name: sum(key[0] == name for key in baseline()) for name in FRONTENDS}
    assert min(counts.values()) > 100, f"{BASELINE}: {counts}"


def test_the_sweep_sees_other_values_and_accesses_out_of_bounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    build, _, shapes = TABLE["add"]
    module, _ = module_of(build, "int32", shapes)
    inputs = [np.ones((1, *shape), "int32") for shape in shapes]
    right = [[np.full(shapes[0], 2, "int32")]]
    wrong = [[np.full(shapes[0], 3, "int32")]]
    columns = [
        check(Case("relax", "add", "int32", lambda o=o: Network(module, inputs, [lambda: o])))[0]
        for o in (right, wrong)
    ]
    assert columns == ["right", "wrong"] and set(columns) < set(COLUMNS)
    short = [inputs[0][:, :1], inputs[1]]
    kept = Network(module, short, [lambda: right])
    assert check(Case("relax", "add", "int32", lambda: kept))[0] == "wrong"
    size = "(size_t)atol(arguments[5 + i]);"
    program = dtype_sweep.MAIN.replace(size, size[:-1] + " - (size_t)(i >= inputs);", 1)
    monkeypatch.setattr(dtype_sweep, "MAIN", program)
    monkeypatch.setattr(dtype_sweep, "main_object", dtype_sweep.main_object.__wrapped__)
    faulty = Network(module, inputs, [lambda: right])
    column, message = check(Case("relax", "add", "int32", lambda: faulty))
    assert column == "traceback" and "AddressSanitizer" in message


# --- files whose numbers were wrong --------------------------------------------------------------


def run(path: Path, folder: Path, **inputs: np.ndarray) -> list[np.ndarray]:
    library = compile_model(path, [], folder / "library")
    outputs = run_library(library.path, {n: a[None] for n, a in inputs.items()}).outputs
    return [values[0] for values in outputs.values()]


def test_means_of_integers(tmp_path: Path) -> None:
    path = reproduction("reducemean_int32_overflow/net_mean_i32.onnx")
    x = np.random.default_rng(0).integers(-(2**27), 2**27, (8, 16)).astype(np.int32)
    (wanted,) = ReferenceEvaluator(str(path)).run(None, {"x": x})
    np.testing.assert_array_equal(run(path, tmp_path, x=x)[0], wanted)


def test_the_mean_of_int8_has_wide_sums(tmp_path: Path) -> None:
    path = reproduction("avgpool_int_overflow/r_mean8.json")
    module = tvm_api.load_json(path.read_text())
    parameter = module["main"].params[0]
    shape = tvm_api.static_type_shape(parameter.ty)
    x = np.random.default_rng(0).integers(-128, 128, shape).astype(np.int8)
    (found,) = run(path, tmp_path, **{str(parameter.name): x})
    axes = tuple(n for n, size in enumerate(x.shape) if n >= found.ndim or found.shape[n] != size)
    assert found.dtype == np.int8
    np.testing.assert_array_equal(found, np.trunc(x.mean(axes).reshape(found.shape)))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("avgpool_int_overflow/avgpool_int8.onnx", "operator AveragePool of node 'g'"),
        ("avgpool_int_overflow/r_avgpool32.json", "nn.avg_pool2d is not supported for int32"),
        ("avgpool_int_overflow/r_avgpool8.json", "nn.avg_pool2d is not supported for int8"),
        ("int8_conv_wraps/conv_int8.onnx", "operator Conv of node 'conv' has the input X"),
        ("int8_conv_wraps/matmul_int8.onnx", "operator MatMul of node 'g' has the input A"),
        ("int8_conv_wraps/bad_ReduceSum_i8.onnx", "operator ReduceSum of node 'g'"),
    ],
)  # fmt: skip
def test_types_that_an_operator_does_not_take(name: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UmakitError) as error:
        compile_model(reproduction(name), [], tmp_path / "library")
    assert said in str(error.value) and not (tmp_path / "library").exists()


def test_a_cast_mends_a_type_that_an_operator_does_not_take(tmp_path: Path) -> None:
    """And inputs of several types that have to have one."""
    weights = np.random.default_rng(0).integers(-9, 9, (3, 2)).astype(np.int8)
    for types in ((TensorProto.INT8, TensorProto.INT8), (TensorProto.FLOAT, TensorProto.INT32)):
        nodes = [
            helper.make_node("Cast", ["x"], ["a"], to=types[0]),
            helper.make_node("Cast", ["w"], ["b"], to=types[1]),
            helper.make_node("MatMul", ["a", "b"], ["y"], "product"),
        ]
        for mended in (False, True):
            if mended:
                nodes[0].attribute[0].i = nodes[1].attribute[0].i = TensorProto.FLOAT
            graph = helper.make_graph(
                nodes, "g", [helper.make_tensor_value_info("x", TensorProto.INT8, [2, 3])],
                [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 2])],
                [onnx.numpy_helper.from_array(weights, "w")],
            )  # fmt: skip
            path = tmp_path / "model.onnx"
            opsets = [helper.make_opsetid("", 17)]
            onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
            if not mended:
                with pytest.raises(UmakitError, match="'product' has the input") as e:
                    compile_model(path, [], tmp_path / "library")
                assert "Cast" in e.value.fix
        x = np.arange(6, dtype=np.int8).reshape(2, 3)
        np.testing.assert_array_equal(run(path, tmp_path, x=x)[0], x @ weights.astype("f4"))


@pytest.mark.parametrize(
    ("name", "wanted"), [("sign", [np.inf, np.inf]), ("mean", [-np.inf, np.inf])]
)
def test_the_sign_of_zero(name: str, wanted: list[float], tmp_path: Path) -> None:
    path = reproduction(f"sign_of_zero/{name}.onnx")
    found = run(path, tmp_path, x=np.array([-0.0, 0.0], np.float32))[0]
    np.testing.assert_array_equal(found, wanted)


def test_an_int16_function_is_exact(tmp_path: Path) -> None:
    path = reproduction("int16_hardswish/model.onnx")
    x = np.random.default_rng(0).integers(-(2**15), 2**15, (1, 64)).astype(np.int16)
    (wanted,) = ReferenceEvaluator(str(path)).run(None, {"x": x})
    np.testing.assert_array_equal(run(path, tmp_path, x=x)[0], wanted)


def test_uma_diff_takes_a_file_of_a_relax_module(capsys: pytest.CaptureFixture[str]) -> None:
    path = reproduction("avgpool_int_overflow/r_mean8.json")
    assert run_command(["diff", str(path)]) == 0
    assert "compared with umakit's CPU kernels" in capsys.readouterr().out
