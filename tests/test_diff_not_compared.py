# SPDX-License-Identifier: Apache-2.0
"""Passes of backends that change networks: names that stay, and layers that cannot be compared."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from integer_backend import DRIVERS, Npu, everything
from networks import Graph, save
from tflite_cases import Case, Tensor, file_of, of
from umakit.cli.main import run_command

from umakit import PassPhase, compile_model, tvm_api
from umakit.library.export import Library
from umakit.tools.diff import diff_model

relax = tvm_api.relax
Visit = Callable[[Any], Any]


def rewriting(visit: Visit, names: Callable[[str], str] = lambda name: name) -> Any:
    """A Relax pass that replaces calls; `names` makes new names of variables."""

    @tvm_api.mutator
    class Rewriter(tvm_api.PyExprMutator):
        def visit_call_(self, call: Any) -> Any:
            return visit(self.visit_expr_post_order(call))

        def visit_var_binding_(self, binding: Any) -> None:
            value = self.visit_expr(binding.value)
            new = tvm_api.emit_like(self.builder_, binding.var, value, names(str(binding.var.name)))
            self.set_var_remap(binding.var, new)

    def rewrite(module: Any, context: Any) -> Any:
        rewriter = Rewriter(module)
        for variable, function in tvm_api.relax_functions(module):
            rewriter.builder_.update_func(variable, rewriter.visit_expr(function))
        return rewriter.builder_.get()

    return tvm_api.tvm.ir.transform.module_pass(rewrite, opt_level=0, name="rewrite")


# --- constants that a pass changes ---------------------------------------------------------------


def another_bias(call: Any) -> Any:
    """The call with a bias larger by 4000, without its source span."""
    if tvm_api.operator_name(call) != "quantized.conv2d":
        return call
    data, weights, bias, *factors = call.args
    array = tvm_api.constant_array(bias)
    if array is None:  # an argument of the composite, in the last phase
        return relax.Call(call.op, call.args, call.attrs)
    return relax.Call(call.op, [data, weights, relax.const(array + 4000), *factors], call.attrs)


@pytest.fixture(scope="module")
def convolutions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three convolutions, of which two are alike."""
    random, cases = np.random.default_rng(2), []
    for outputs in (6, 6, 4):
        weights = random.integers(-127, 128, (outputs, 3, 3, 5)).astype(np.int8)
        bias = random.integers(-999, 999, outputs).astype(np.int32)
        operands = [Tensor((1, 6, 5, 5), "int8", 0.05, 3), of(weights, "int8", 0.02)]
        operands.append(of(bias, "int32", 0.001))
        result = Tensor((1, 6, 5, outputs), "int8", 0.1, -7)
        steps = {"StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1}
        cases.append(Case("CONV_2D", operands, [result], "Conv2DOptions", steps))
    path = tmp_path_factory.mktemp("convolutions") / "net.tflite"
    path.write_bytes(file_of(cases)[0])
    return path


def names_of(library: Library) -> tuple[list[str], set[str]]:
    """Names of layers, and of constants in C."""
    text = (library.path / "codegen/host/src/tvmgen_net.c").read_text(encoding="utf-8")
    layers = [layer["name"] for layer in library.metadata["umakit"]["layers"]]
    return layers, set(re.findall(r"\btvmgen_net_\w+_(?:weights|bias)\b", text))


@pytest.mark.parametrize("phase", list(PassPhase)[:3], ids=lambda phase: phase.name)
def test_layers_and_constants_keep_their_names(
    phase: PassPhase, convolutions: Path, tmp_path: Path
) -> None:
    kept = Npu(tmp_path, everything(), DRIVERS, "kept_npu")
    wanted = names_of(compile_model(convolutions, [kept], tmp_path / "kept"))
    npu = Npu(tmp_path, everything(), DRIVERS, "passing_npu")
    npu._register_relax_pass(phase, rewriting(another_bias, lambda name: f"new_{name}"))
    assert names_of(compile_model(convolutions, [npu], tmp_path / "new")) == wanted
    assert wanted[0] == ["y0_0", "y1_0", "y2_0"] and len(wanted[1]) == 6


def test_the_layer_whose_constants_are_wrong_is_blamed(convolutions: Path, tmp_path: Path) -> None:
    npu = Npu(tmp_path, everything(), DRIVERS, "passing_npu")
    npu._register_relax_pass(PassPhase.PRE_PARTITIONING, rewriting(another_bias, lambda n: "v"))
    result = diff_model(convolutions, [npu], most=1)
    assert result.blame is not None and result.blame.layer.name == "y0_0"
    assert all(layer.own is not None for layer in result.layers)


# --- layers that are no operators of the model ---------------------------------------------------


BACKEND = '''
import sys
sys.path.insert(0, {tests!r})
from integer_backend import Npu
from test_diff_not_compared import maxima, rewriting
from umakit import PassPhase


class Changing(Npu):
    """Computes what it likes in the place of relu."""

    def __init__(self):
        from pathlib import Path
        super().__init__(Path(__file__).parent.parent, [], name="changing_npu")
        self._register_relax_pass(PassPhase.PRE_PARTITIONING, rewriting(maxima, lambda name: "v"))
'''


def maxima(call: Any) -> Any:
    """The maximum of a tensor and 0 in the place of relu."""
    if tvm_api.operator_name(call) != "nn.relu":
        return call
    zero = relax.const(np.zeros((), "float32"))
    return relax.op.maximum(call.args[0], zero)


def test_a_comparison_that_did_not_happen_is_no_agreement(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = Graph(seed=3)
    x = graph.node("Relu", graph.input("x", 1, 4, 6, 5), name="first")
    graph.output(graph.node("GlobalAveragePool", x, name="mean"))
    path = save(graph.model(), tmp_path)
    folder = Npu(tmp_path, [], name="changing_npu").folder
    text = BACKEND.format(tests=str(Path(__file__).parent))
    (folder / "backend.py").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    code = run_command(["diff", str(path), "--backend", str(folder), "--most", "1"])
    output = " ".join(capsys.readouterr().out.split())
    assert code == 3
    assert "no difference found, but 1 of 2 layers were not compared: " in output, output
    assert "the model has no operator of its name and type: a pass of a backend" in output
    assert "layers agree" not in output and not (tmp_path / "network_diff").exists()
    code = run_command(["diff", str(path), "--backend", str(folder), "--most", "1", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert (code, found["agrees"], found["compared"], found["not_compared"]) == (3, False, 1, 1)
    assert found["first"] is None and all(item["own"] for item in found["layers"][1:])
    assert [bool(layer["not_compared"]) for layer in found["layers"]] == [True, False]
