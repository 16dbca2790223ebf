# SPDX-License-Identifier: Apache-2.0
"""Exported programs of PyTorch: results beside torch's own, names, and what must be refused."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from execution import VANILLA, Execution, vanilla
from networks import assert_close

import umakit
from umakit.errors import ModelError

torch = pytest.importorskip("torch", reason="needs torch: pip install 'umakit[torch]'")
nn, F = torch.nn, torch.nn.functional


class Function(nn.Module):  # type: ignore[misc]
    """A function as a module."""

    def __init__(self, function: Callable[..., Any], **modules: Any) -> None:
        super().__init__()
        self._function = function
        for name, module in modules.items():
            setattr(self, name, module)

    def forward(self, *inputs: Any) -> Any:
        return self._function(self, *inputs)


def randomize(model: Any, seed: int = 0) -> Any:
    """Give every parameter and statistic values that show: none is 0 or 1."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            if tensor.is_floating_point():
                tensor.normal_(0, 0.5, generator=generator)
                if name.endswith("running_var"):
                    tensor.abs_().add_(0.5)
    return model.eval()


def tensor(*shape: int, seed: int = 1) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def export(model: Any, *inputs: Any, **options: Any) -> Any:
    return torch.export.export(model.eval(), inputs, **options)


def leaves(outputs: Any) -> list[Any]:
    flat, _ = torch.utils._pytree.tree_flatten(outputs)
    return list(flat)


def execute(
    model: Any, folder: Path, *inputs: Any, path: Path | None = None, tolerance: float = 1e-5,
    backends: bool = True, **options: Any,
) -> Execution:  # fmt: skip
    """Export, compile for Vanilla, run, and compare with what torch computes."""
    model = model.eval()
    program = export(model, *inputs, **options)
    shapes = {}
    for name, value in zip(program.graph_signature.user_inputs, inputs, strict=True):
        shapes[name] = list(value.shape)
    source = program if path is None else path
    if path is not None:
        torch.export.save(program, path)
    library = umakit.compile_model(
        source, [vanilla()] if backends else [], folder / "library", input_shapes=shapes
    )
    arrays = {n: v.numpy() for n, v in zip(shapes, inputs, strict=True)}
    result = umakit.run_library(library.path, arrays, profile=True)
    with torch.no_grad():
        expected = leaves(model(*inputs))
    assert len(result.outputs) == len(expected)
    for (name, got), wanted in zip(result.outputs.items(), expected, strict=True):
        try:
            assert_close(got, wanted.numpy(), tolerance)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from None
    return Execution(library, result)


# --- operators ------------------------------------------------------------------------------------

X = Callable[[Any], Any]

ELEMENTWISE: Mapping[str, X] = {
    "relu": F.relu, "relu6": F.relu6, "silu": F.silu, "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid, "gelu": F.gelu, "mish": F.mish, "softplus": F.softplus,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "elu": F.elu, "selu": F.selu,
    "elu_2": lambda x: F.elu(x, 2.5), "celu": lambda x: F.celu(x, 2.0),
    "hardtanh": lambda x: F.hardtanh(x, -0.3, 0.7), "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
    "logsigmoid": F.logsigmoid, "softsign": F.softsign, "softshrink": F.softshrink,
    "hardshrink": F.hardshrink, "tanhshrink": F.tanhshrink, "tanh": torch.tanh,
    "sigmoid": torch.sigmoid, "sin": torch.sin, "cos": torch.cos, "tan": torch.tan,
    "sinh": torch.sinh, "cosh": torch.cosh, "asin": lambda x: torch.asin(torch.tanh(x)),
    "acos": lambda x: torch.acos(torch.tanh(x)), "atan": torch.atan, "erf": torch.erf,
    "exp": torch.exp, "expm1": lambda x: torch.expm1(x * 1e-3), "expm1_large": torch.expm1,
    "log": lambda x: torch.log(x.abs()), "log1p": lambda x: torch.log1p(x.abs() * 1e-4),
    "sqrt": lambda x: x.abs().sqrt(), "rsqrt": lambda x: (x.abs() + 0.1).rsqrt(),
    "reciprocal": lambda x: (x.abs() + 0.1).reciprocal(), "neg": torch.neg, "abs": torch.abs,
    "sign": torch.sign, "floor": torch.floor, "ceil": torch.ceil, "trunc": torch.trunc,
    "round": lambda x: torch.round(x * 4), "square": torch.square, "cube": lambda x: x**3,
    "power": lambda x: x.abs() ** 1.7, "base": lambda x: 2.0**x, "powers": lambda x: x.abs() ** x,
    "clamp": lambda x: x.clamp(-0.2, 0.5), "clamp_min": lambda x: x.clamp(min=0.1),
    "clamp_max": lambda x: x.clamp(max=0.1), "relu_clamp": lambda x: x.clamp(min=0),
    "add_alpha": lambda x: torch.add(x, x.abs(), alpha=2), "rsub": lambda x: 1 - x,
    "rsub_alpha": lambda x: torch.rsub(x, 2, alpha=3), "sub_alpha":
    lambda x: torch.sub(x, x * x, alpha=0.5), "div": lambda x: x / 3, "true_div":
    lambda x: x / x.round().abs().clamp(min=1).int(), "maximum": lambda x: torch.maximum(x, -x),
    "minimum": lambda x: torch.minimum(x, x * x), "where": lambda x: torch.where(x > 0, x, -2 * x),
    "masked": lambda x: x.masked_fill(x < 0.1, 3.0), "mixed": lambda x: x + (x * 3).int(),
    "int_compare": lambda x: ((x * 2).int() > 0.5) | ((x * 2).int() == -1), "not": lambda x: ~(x > 0),
    "compare": lambda x: (x >= 0.1) & (x <= 1.0) & (x != 0.5), "cast": lambda x: (x * 9).int(),
    "nan": lambda x: torch.isnan(x), "lerp": lambda x: torch.lerp(x, x * 2, 0.3), "addcmul":
    lambda x: torch.addcmul(x, x, x, value=2.0), "full": lambda x: torch.full_like(x, 2.0) * x,
}  # fmt: skip

SHAPED: Mapping[str, X] = {
    "softmax": lambda x: x.softmax(1), "log_softmax": lambda x: x.log_softmax(-1),
    "layer_norm": lambda x: F.layer_norm(x, (6, 8)), "group_norm": lambda x: F.group_norm(x, 2),
    "instance_norm": F.instance_norm, "rms_norm": lambda x: F.rms_norm(x, (8,)),
    "batch_statistics": lambda x: F.batch_norm(x, None, None, training=True),
    "normalize": lambda x: F.normalize(x, dim=1), "max_pool": lambda x: F.max_pool2d(x, 3, 2, 1),
    "max_pool_ceil": lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True),
    "max_pool_dilated": lambda x: F.max_pool2d(x, 2, 1, dilation=2),
    "max_pool_3d_input": lambda x: F.max_pool2d(x[0], 2), "max_pool1d": lambda x:
    F.max_pool1d(x[0], 2), "avg_pool": lambda x: F.avg_pool2d(x, 3, 2, 1), "avg_pool_inside":
    lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), "avg_pool_ceil":
    lambda x: F.avg_pool2d(x, 3, 2, ceil_mode=True), "avg_pool_wide":
    lambda x: F.avg_pool2d(x, (2, 3), (1, 2)), "avg_pool1d": lambda x: F.avg_pool1d(x[0], 2),
    "avg_pool_3d_input": lambda x: F.avg_pool2d(x[0], 2), "global_pool":
    lambda x: F.adaptive_avg_pool2d(x, 1), "adaptive_pool": lambda x:
    F.adaptive_avg_pool2d(x, (3, 5)), "mean": lambda x: x.mean((2, 3)), "mean_all": torch.mean,
    "sum": lambda x: x.sum(1), "sum_all": torch.sum, "amax": lambda x: x.amax(1), "amin":
    lambda x: x.amin((1, 2), keepdim=True), "std": lambda x: x.std(1), "var": lambda x:
    x.var((2, 3)), "var_biased": lambda x: x.var(1, correction=0, keepdim=True), "norm_1":
    lambda x: x.norm(1, dim=1), "norm_all": lambda x: torch.linalg.vector_norm(x), "norm_inf":
    lambda x: x.norm(math.inf, dim=2), "logsumexp": lambda x: x.logsumexp(1), "any":
    lambda x: (x > 2).any(1), "argmax": lambda x: x.argmax(1), "argmin":
    lambda x: x.argmin(-1, keepdim=True), "argmax_all": torch.argmax, "permute":
    lambda x: x.permute(0, 2, 3, 1) + 1, "transpose": lambda x: x.transpose(1, 2) * 2, "view":
    lambda x: x.view(2, -1), "flatten": lambda x: x.flatten(1), "squeeze": lambda x:
    x[:1].squeeze() + 1, "squeeze_all": lambda x: x.unsqueeze(1).squeeze((0, 1)), "cat":
    lambda x: torch.cat([x, x * 2], 1), "stack": lambda x: torch.stack([x, -x], 1), "chunk":
    lambda x: x.chunk(2, 1)[1] * 1, "split": lambda x: torch.cat(x.split([1, 3], 1)[::-1], 1),
    "uneven_split": lambda x: torch.cat(x.split(3, 1)[::-1], 1), "select": lambda x: x[:, 1],
    "last": lambda x: x[:, -1], "slice": lambda x: x[:, 1:3, ::2], "back": lambda x: x[..., -3:-1],
    "flip": lambda x: x.flip(1, 3), "repeat": lambda x: x.repeat(1, 2, 1, 1), "interleave":
    lambda x: x.repeat_interleave(2, 1), "expand": lambda x: x[:, :1].expand(-1, 3, -1, -1) * 2,
    "roll": lambda x: x.roll(1, 2), "pad": lambda x: F.pad(x, (1, 2, 0, 3), value=2.0), "crop":
    lambda x: F.pad(x, (-1, 0, 0, -2)), "pixel_shuffle": lambda x: F.pixel_shuffle(x, 2), "glu":
    lambda x: F.glu(x, 1), "index": lambda x: x.index_select(1, torch.tensor([2, 0])), "matmul":
    lambda x: x @ x.transpose(2, 3), "einsum": lambda x: torch.einsum("bchw,bkhw->bck", x, x),
    "local_norm": lambda x: F.local_response_norm(x, 2), "mask": lambda x: x.tril(), "attention":
    lambda x: F.scaled_dot_product_attention(x, x * 2, x - 1), "causal":
    lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True), "position":
    lambda x: x + torch.arange(8) * 0.5, "addmm": lambda x:
    torch.addmm(x[0, 0], x[0, 1], x[0, 2, :, :6].t() @ x[0, 3], alpha=0.5, beta=2.0)
    if x.shape[2] == 8 else torch.baddbmm(x[0] * 2, x[0] @ x[1].mT, x[1], alpha=0.5, beta=2.0),
}  # fmt: skip


def as_dictionary(functions: Mapping[str, X]) -> Any:
    """One module that returns the result of each function by name."""
    return Function(lambda _, x: {f"out_{name}": f(x) for name, f in functions.items()})


@pytest.mark.parametrize("table", [ELEMENTWISE, SHAPED], ids=["elementwise", "shaped"])
def test_operators_yield_what_torch_yields(table: Mapping[str, X], tmp_path: Path) -> None:
    execution = execute(as_dictionary(table), tmp_path, tensor(2, 4, 6, 8))
    assert list(execution.result.outputs) == [f"out_{name}" for name in table]
