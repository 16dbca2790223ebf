# SPDX-License-Identifier: Apache-2.0
"""Minimal programs of PyTorch and Relax modules, each refused for one reason."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusal_sites import faults_of

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.frontend import import_model

relax = tvm_api.relax
op = relax.op

# --- Relax ----------------------------------------------------------------------------------------


def module(build: Callable[[Any, Any], Any], dtype: str = "float32", shape: Any = (2,)) -> Any:
    """A module whose `main` computes what a function of (builder, x) returns."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", tvm_api.tensor_type(shape, dtype))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(build(builder, x))
        builder.emit_func_output(result)
    return builder.get()


def without_shape() -> Any:
    """An input whose rank is not known."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(dtype="float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(op.nn.relu(x)))
    return builder.get()


def renamed() -> Any:
    made = module(lambda builder, x: op.nn.relu(x))
    return tvm_api.IRModule({"other": made["main"].with_attr("global_symbol", "other")})


def badly_typed() -> Any:
    """A variable of two elements that is bound to a tensor of three."""
    made = module(lambda builder, x: op.nn.relu(x))
    (block,) = made["main"].body.blocks
    wrong = relax.VarBinding(block.bindings[0].var, relax.const(np.zeros(3, np.float32)))
    body = relax.SeqExpr([relax.DataflowBlock([wrong])], made["main"].body.body)
    main = relax.Function(made["main"].params, body, made["main"].ret_ty)
    return tvm_api.IRModule({"main": main.with_attr("global_symbol", "main")})


def large_constants(builder: Any, x: Any) -> Any:
    """Three tensors of 1 GiB that are computed of a number."""
    for number in range(3):
        zero = relax.const(np.float32(number))
        large = builder.emit(op.full((2**28,), zero, "float32"))
        x = builder.emit(op.add(x, builder.emit(op.max(large, keepdims=True))))
    return x


def trained(builder: Any, x: Any) -> Any:
    """A batch normalization whose statistics are constants, in training mode."""
    ones = relax.const(np.ones(3, np.float32))
    return relax.TupleGetItem(
        builder.emit(op.nn.batch_norm(x, ones, ones, ones, ones, axis=1, training=True)), 0
    )


MODULES: dict[str, tuple[str, Callable[[], Any], dict[str, Any]]] = {
    "another function": ("has no function `main`", renamed, {}),
    "a parameter that is not there": (
        "there is no parameter 'w' in `main`", lambda: module(lambda b, x: op.nn.relu(x)),
        {"parameters": {"w": np.ones(2)}},
    ),
    "an input without a rank": ("input 'x' has no known rank", without_shape, {}),
    "a batch normalization in training": (
        "operator nn.batch_norm is in training mode", lambda: module(trained, shape=(2, 3)), {},
    ),
    "constants that are large together": (
        "what is computed of constants alone has 3,221,225,484 B, of constants of",
        lambda: module(large_constants), {},
    ),
    "a result of a computed size": (
        "the shape of tensor 'output' is not known at compile time",
        lambda: module(lambda b, x: op.nonzero(x)), {},
    ),
    "a variable of another type": (
        "the Relax module is not well-formed: Expression of type", badly_typed, {},
    ),
    "float16": (
        "input 'x' is of the element type float16",
        lambda: module(lambda b, x: op.nn.relu(x), "float16"), {},
    ),
    "float16 inside": (
        "node .* computes with the element type float16",
        lambda: module(lambda b, x: op.astype(b.emit(op.nn.relu(
            b.emit(op.astype(x, "float16")))), "float32")), {},
    ),
    "an integer divided by 0": (
        "operator divide of node .* divides an integer by a constant 0",
        lambda: module(lambda b, x: op.divide(x, relax.const(np.zeros(2, np.int32))), "int32"), {},
    ),
    "an index out of range": (
        "operator take of node .* has the index 7, which is out of range for axis 0 of size 2",
        lambda: module(lambda b, x: op.take(x, relax.const(np.array([7])), 0)), {},
    ),
    "a result without elements": (
        "tensor 'output' of shape .0. has no elements",
        lambda: module(lambda b, x: op.strided_slice(x, [0], [0], [0])), {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("why", MODULES)
def test_relax_modules_are_refused_with_what_to_do(why: str) -> None:
    message, make, options = MODULES[why]
    with pytest.raises(ModelError, match=message) as caught:
        import_model(make(), name="network", **options)
    assert faults_of(caught.value, Path("network")) == []


# --- PyTorch --------------------------------------------------------------------------------------


def exported(function: Callable[..., Any], *given: Any, **options: Any) -> Any:
    import torch

    class Module(torch.nn.Module):  # type: ignore[misc]
        def forward(self, *inputs: Any) -> Any:
            return function(torch, *inputs)

    return torch.export.export(Module(), given, **options)


def dequantized(torch: Any, x: Any, **changed: Any) -> Any:
    values = {
        "scale": 0.1,
        "zero_point": 0,
        "low": -128,
        "high": 127,
        "dtype": torch.int8,
    } | changed
    return torch.ops.quantized_decomposed.dequantize_per_tensor.default(
        torch.ops.quantized_decomposed.quantize_per_tensor.default(x, *values.values()),
        *values.values(),
    )


FUNCTIONS: dict[str, tuple[str, Callable[..., Any], tuple[int, ...], str]] = {
    "indices of a pool": (
        "has indices that are not supported",
        lambda t, x: t.nn.functional.max_pool2d(x, 2, return_indices=True)[1], (1, 1, 4, 4),
        "float32",
    ),
    "an operator that is not supported": (
        "is not supported; write the model with other operators",
        lambda t, x: t.linalg.det(x), (2, 2), "float32",
    ),
    "an argument that is not supported": (
        "has .*=.*, which is not supported",
        lambda t, x: t.nn.functional.avg_pool2d(x, 2, divisor_override=3), (1, 1, 4, 4), "float32",
    ),
    "a third power of integers": (
        "of integers has exponent=5", lambda t, x: x**5, (2,), "int32",
    ),
    "a power of integers by integers": (
        "of integers is not supported", lambda t, x: t.pow(x, x), (2,), "int32",
    ),
    "a scattering into a number": (
        "scatters into a tensor without dimensions",
        lambda t, x: t.scatter(x, 0, t.tensor(0), x), (), "float32",
    ),
    "an index of a bool": (
        "has an index other than tensors of integers",
        lambda t, x: t.ops.aten.index_put(x, [x > 0], t.tensor(1.0)), (2,), "float32",
    ),
    "writing behind a whole dimension": (
        "writes to all of a dimension before one with an index",
        lambda t, x: t.ops.aten.index_put(x, [None, t.tensor([0])], t.ones(2, 1)), (2, 2),
        "float32",
    ),
    "an index out of range": (
        "has the index 9, which is out of range for a size of 2",
        lambda t, x: t.index_select(x, 0, t.tensor([9])), (2,), "float32",
    ),
    "an interpolation to one column": (
        "has a result of width 1, whose values",
        lambda t, x: t.nn.functional.interpolate(x, (2, 1), mode="bilinear", antialias=True),
        (1, 1, 4, 4), "float32",
    ),
    "an interpolation of bytes": (
        "interpolates uint8, whose rounding",
        lambda t, x: t.nn.functional.interpolate(x, (2, 2), mode="bilinear"), (1, 1, 4, 4),
        "uint8",
    ),
    "a batch norm of computed parameters": (
        "has a weight that is computed from the inputs",
        lambda t, x: t.nn.functional.batch_norm(x, t.zeros(2), t.ones(2), x[0]), (2, 2), "float32",
    ),
    "no elements of a top": (
        "takes 0 elements", lambda t, x: t.topk(x, 0)[0].sum(), (4,), "float32",
    ),
    "a variance of one value": (
        "divides by zero: correction=1", lambda t, x: t.var(x, dim=0), (1, 2), "float32",
    ),
    "an extreme of a number": (
        "is of a tensor without dimensions", lambda t, x: t.max(x, 0)[1], (), "float32",
    ),
    "a remainder of floats": (
        "of float32 is not supported; take remainders of integers",
        lambda t, x: t.remainder(x, 2.0), (2,), "float32",
    ),
    "a range that is not of int8": (
        "has the range -300 to 127, which is not of int8",
        lambda t, x: dequantized(t, x, low=-300), (2,), "float32",
    ),
    "a scale of 0": (
        "has the scale 0.0", lambda t, x: dequantized(t, x, scale=0.0), (2,), "float32",
    ),
    "a zero point outside": (
        "has a zero point outside of int8",
        lambda t, x: dequantized(t, x, zero_point=300), (2,), "float32",
    ),
    "integers of float8": (
        "has integers of float8_e4m3fn", lambda t, x: dequantized(t, x, dtype=t.float8_e4m3fn),
        (2,), "float32",
    ),
    "integers of another type": (
        "is of integers that are not int8",
        lambda t, x: t.ops.quantized_decomposed.dequantize_per_tensor.default(
            x, 0.1, 0, -128, 127, t.int8), (2,), "uint8",
    ),
    "a computed scale": (
        "has a scale that is computed from the inputs",
        lambda t, x: t.ops.quantized_decomposed.quantize_per_tensor.tensor(
            x, x.sum(), t.tensor(0), -128, 127, t.int8), (2,), "float32",
    ),
}  # fmt: skip


@pytest.mark.parametrize("why", FUNCTIONS)
def test_programs_are_refused_by_operator_and_node(why: str) -> None:
    torch = pytest.importorskip("torch", reason="needs torch: pip install 'umakit[torch]'")
    importlib.import_module("torch.ao.quantization.fx._decomposed")  # registers operators

    message, function, shape, dtype = FUNCTIONS[why]
    given = torch.ones(shape, dtype=getattr(torch, dtype))
    with pytest.raises(ModelError, match=message) as caught:
        import_model(exported(function, given), name="network")
    assert "operator " in str(caught.value) and "node '" in str(caught.value)
    assert faults_of(caught.value, Path("network")) == []


def test_programs_do_not_take_other_shapes() -> None:
    torch = pytest.importorskip("torch", reason="needs torch: pip install 'umakit[torch]'")
    batch = {0: torch.export.Dim("batch", min=2, max=8)}
    program = exported(lambda t, x: t.relu(x), torch.ones(4, 3), dynamic_shapes=((batch,),))
    for shapes, message in (
        ({"y": [1]}, "there is no input 'y'"),
        ({"inputs_0": [4]}, "has 2 dimensions, not 1"),
        ({"inputs_0": [4, 5]}, "has the shape .*, which cannot be"),
        ({"inputs_0": [99, 3]}, "the program needs"),
    ):
        with pytest.raises(ModelError, match=message) as caught:
            import_model(program, name="network", input_shapes=shapes)
        assert faults_of(caught.value, Path("network")) == []
