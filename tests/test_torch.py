# SPDX-License-Identifier: Apache-2.0
"""Exported programs of PyTorch: results beside torch's own, names, and what must be refused."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import io
import json
import math
import re
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from comparisons import examples
from hypothesis import given
from hypothesis import strategies as st
from networks import assert_close
from umakit.cli.main import run_command

import umakit
from umakit import tvm_api
from umakit.errors import ModelError

torch = pytest.importorskip("torch", reason="needs torch: pip install 'umakit[torch]'")
nn, F = torch.nn, torch.nn.functional

from torch_networks import (  # noqa: E402  needs torch
    Function,
    as_dictionary,
    execute,
    export,
    randomize,
    tensor,
)

from umakit.frontend.torch.registry import CONVERTERS, OperatorConverter  # noqa: E402  needs torch
from umakit.frontend.torch.schema import is_arithmetic  # noqa: E402  needs torch

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
    "int_compare": lambda x: ((x * 2).int() > 0.5) | ((x * 2).int() == -1), "not":
    lambda x: ~(x > 0),
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
    lambda x: F.glu(x, 1), "index": lambda x: x.index_select(1, torch.tensor([2, 0])), "advanced":
    lambda x: x[:, torch.tensor([[2, -1], [0, -4]])], "computed":
    lambda x: x[0, 0][x[0, 0, 0].clamp(-3, 3).long()], "reflect":
    lambda x: F.pad(x, (1, 2, 1, 1), mode="reflect"), "matmul":
    lambda x: x @ x.transpose(2, 3), "einsum": lambda x: torch.einsum("bchw,bkhw->bck", x, x),
    "local_norm": lambda x: F.local_response_norm(x, 2), "mask": lambda x: x.tril(), "attention":
    lambda x: F.scaled_dot_product_attention(x, x * 2, x - 1), "causal":
    lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True), "position":
    lambda x: x + torch.arange(8) * 0.5, "addmm": lambda x:
    torch.addmm(x[0, 0], x[0, 1], x[0, 2, :, :6].t() @ x[0, 3], alpha=0.5, beta=2.0)
    if x.shape[2] == 8 else torch.baddbmm(x[0] * 2, x[0] @ x[1].mT, x[1], alpha=0.5, beta=2.0),
    "baddbmm": lambda x: torch.baddbmm(x[0], x[0] @ x[1].mT, x[1]), "baddbmm_scaled":
    lambda x: torch.baddbmm(x[0], x[0] @ x[1].mT, x[1], alpha=0.5, beta=-2.0),
    "baddbmm_of_no_bias": lambda x: torch.baddbmm(x[0] / 0, x[0] @ x[1].mT, x[1], beta=0),
}  # fmt: skip


@pytest.mark.parametrize("table", [ELEMENTWISE, SHAPED], ids=["elementwise", "shaped"])
def test_operators_yield_what_torch_yields(table: Mapping[str, X], tmp_path: Path) -> None:
    execution = execute(as_dictionary(table), tmp_path, tensor(2, 4, 6, 8))
    assert list(execution.result.outputs) == [f"out_{name}" for name in table]


CONVOLUTIONS: Mapping[str, Callable[[], tuple[Any, Any]]] = {
    "plain": lambda: (nn.Conv2d(4, 5, 3, padding=1), tensor(1, 4, 7, 8)),
    "no_bias": lambda: (nn.Conv2d(4, 5, 3, bias=False, padding=1), tensor(1, 4, 7, 8)),
    "grouped": lambda: (nn.Conv2d(4, 6, 3, groups=2), tensor(1, 4, 7, 8)),
    "depthwise": lambda: (nn.Conv2d(4, 8, 3, groups=4, stride=2), tensor(1, 4, 7, 8)),
    "dilated": lambda: (nn.Conv2d(4, 3, 3, dilation=(2, 1), stride=(1, 2)), tensor(2, 4, 7, 8)),
    "same": lambda: (nn.Conv2d(4, 3, (2, 4), padding="same"), tensor(1, 4, 7, 8)),
    "reflected": lambda: (nn.Conv2d(4, 3, 3, padding=1, padding_mode="reflect"),
                          tensor(1, 4, 7, 8)),
    "unbatched": lambda: (nn.Conv2d(4, 3, 3), tensor(4, 7, 8)),
    "transposed": lambda: (nn.ConvTranspose2d(4, 3, 3, 2, 1, output_padding=1),
                           tensor(1, 4, 5, 6)),
    "transposed_grouped": lambda: (nn.ConvTranspose2d(4, 6, 2, groups=2), tensor(1, 4, 5, 6)),
    "transposed_dilated": lambda: (nn.ConvTranspose2d(4, 3, 3, dilation=2), tensor(1, 4, 5, 6)),
    "one_dimension": lambda: (nn.Conv1d(4, 6, 3, 2, padding=1, groups=2), tensor(2, 4, 9)),
    "three_dimensions": lambda: (nn.Conv3d(2, 3, 2, padding=1), tensor(1, 2, 4, 3, 5)),
    "transposed_1d": lambda: (nn.ConvTranspose1d(4, 3, 3, 2), tensor(1, 4, 5)),
    "normalized": lambda: (nn.Sequential(nn.Conv2d(4, 5, 1), nn.BatchNorm2d(5), nn.ReLU()),
                           tensor(1, 4, 7, 8)),
    "normalized_without_weight": lambda: (nn.BatchNorm2d(4, affine=False), tensor(2, 4, 3, 5)),
    "normalized_rows": lambda: (nn.BatchNorm1d(4), tensor(3, 4)),
    "prelu": lambda: (nn.PReLU(4), tensor(1, 4, 3, 5)),
    "linear": lambda: (nn.Linear(8, 3), tensor(2, 4, 8)),
    "bilinear_map": lambda: (nn.Linear(8, 3, bias=False), tensor(8)),
    "scaled_norm": lambda: (nn.LayerNorm(8), tensor(2, 4, 8)),
    "scaled_groups": lambda: (nn.GroupNorm(2, 4), tensor(2, 4, 3, 5)),
    "instances": lambda: (nn.InstanceNorm2d(4, affine=True), tensor(2, 4, 3, 5)),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
def test_layers_yield_what_torch_yields(tmp_path: Path) -> None:
    made = {name: make() for name, make in CONVOLUTIONS.items()}
    modules = {name: module for name, (module, _) in made.items()}
    model = Function(
        lambda self, *xs: {n: getattr(self, n)(x) for n, x in zip(made, xs, strict=True)}, **modules
    )
    execution = execute(randomize(model), tmp_path, *(x for _, x in made.values()))
    assert list(execution.result.outputs) == list(made)
    assert {"plain", "no_bias", "normalized.0"} <= set(execution.offloaded)
    assert "grouped" not in execution.offloaded


def test_grouped_dilated_transposed_convolutions(tmp_path: Path) -> None:
    model = randomize(nn.ConvTranspose2d(4, 6, 3, groups=2, dilation=2, stride=2))
    execute(model, tmp_path, tensor(1, 4, 4, 5))


@st.composite
def drawn_networks(draw: st.DrawFn) -> tuple[Any, tuple[int, ...]]:
    """A network of convolutions, pools, norms, activations and residual connections."""
    channels, size = draw(st.integers(1, 5)), draw(st.integers(6, 11))
    shape = (1, channels, size, size + draw(st.integers(0, 2)))
    layers: list[Any] = []
    for _ in range(draw(st.integers(2, 5))):
        kind = draw(st.sampled_from(["conv", "residual", "pool", "norm", "activation"]))
        if kind == "conv":
            made, groups = draw(st.integers(1, 6)), 1
            if draw(st.booleans()):
                groups, made = channels, channels * draw(st.integers(1, 2))
            kernel = draw(st.sampled_from([1, 3]))
            layers.append(nn.Conv2d(channels, made, kernel, padding=1, groups=groups,
                                    stride=draw(st.integers(1, 2)), bias=draw(st.booleans()),
                                    dilation=draw(st.integers(1, 4 - kernel))))  # fmt: skip
            channels = made
        elif kind == "residual":
            conv = nn.Conv2d(channels, channels, 3, padding=1)
            layers.append(Function(lambda self, x: F.relu(x + self.conv(x)), conv=conv))
        elif kind == "pool":
            pool = draw(st.sampled_from([nn.MaxPool2d, nn.AvgPool2d]))
            layers.append(pool(3, draw(st.integers(1, 2)), padding=1))
        elif kind == "norm":
            layers.append(draw(st.sampled_from([
                nn.BatchNorm2d(channels), nn.GroupNorm(1, channels), nn.InstanceNorm2d(channels),
            ])) if channels > 1 else nn.BatchNorm2d(channels))  # fmt: skip
        else:
            activations = [nn.ReLU(), nn.ReLU6(), nn.SiLU(), nn.GELU(), nn.Hardswish(), nn.ELU()]
            layers.append(draw(st.sampled_from(activations)))
    layers.append(nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * channels, 3)))
    return randomize(nn.Sequential(*layers)), shape


@examples(6)
@given(drawn_networks())
def test_drawn_networks_yield_what_torch_yields(network: tuple[Any, tuple[int, ...]]) -> None:
    model, shape = network
    with tempfile.TemporaryDirectory() as folder:
        execute(model, Path(folder), tensor(*shape))


# --- networks -------------------------------------------------------------------------------------


class BasicBlock(nn.Module):  # type: ignore[misc]
    """The block of ResNet-18: two convolutions beside a projection."""

    def __init__(self, channels: int, filters: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, filters, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(filters)
        self.conv2 = nn.Conv2d(filters, filters, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(filters)
        self.relu = nn.ReLU(inplace=True)
        self.down = None
        if stride > 1:
            self.down = nn.Sequential(nn.Conv2d(channels, filters, 1, stride, bias=False),
                                      nn.BatchNorm2d(filters))  # fmt: skip

    def forward(self, x: Any) -> Any:
        short = x if self.down is None else self.down(x)
        inner = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(inner)) + short)


def resnet() -> Any:
    stem = nn.Sequential(nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
                         nn.MaxPool2d(3, 2, 1))  # fmt: skip
    return nn.Sequential(stem, BasicBlock(8, 8, 1), BasicBlock(8, 16, 2), BasicBlock(16, 16, 1),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(),
                         nn.Linear(16, 10))  # fmt: skip


def mobilenet() -> Any:
    """Inverted residuals with squeeze and excitation, as in MobileNetV3."""

    def excite(self: Any, x: Any) -> Any:
        scale = F.relu(self.squeeze(F.adaptive_avg_pool2d(x, 1)))
        return x * F.hardsigmoid(self.expand(scale))

    def block(channels: int) -> Any:
        wide = channels * 3
        inner = nn.Sequential(
            nn.Conv2d(channels, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.Hardswish(),
            nn.Conv2d(wide, wide, 5, padding=2, groups=wide), nn.BatchNorm2d(wide), nn.Hardswish(),
            Function(excite, squeeze=nn.Conv2d(wide, 4, 1), expand=nn.Conv2d(4, wide, 1)),
            nn.Conv2d(wide, channels, 1), nn.BatchNorm2d(channels),
        )  # fmt: skip
        return Function(lambda self, x: x + self.inner(x), inner=inner)

    return nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU6(), block(8), block(8),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))  # fmt: skip


class Recurrent(nn.Module):  # type: ignore[misc]
    """Embedded tokens through an LSTM; returns the last state."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.lstm = nn.Embedding(11, 6, padding_idx=0), nn.LSTM(6, 5)

    def forward(self, tokens: Any) -> Any:
        return self.lstm(self.table(tokens))[0][-1]


class Transformer(nn.Module):  # type: ignore[misc]
    """Embedded tokens and positions through an encoder layer."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 8)
        self.positions = nn.Parameter(torch.zeros(1, 5, 8))
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, activation="gelu", batch_first=True)
        self.norm = nn.LayerNorm(8)

    def forward(self, tokens: Any) -> Any:
        return self.norm(self.layer(self.table(tokens) + self.positions)).mean(1)


TOKENS = torch.tensor([[1, 4, 10, 0, 3]])


# A layer of recurrent cells keeps a list of its weights, which torch.export takes for new ones.
@pytest.mark.filterwarnings("ignore:The tensor attributes self.lstm._flat_weights")
@pytest.mark.parametrize(
    ("make", "given"),
    [(resnet, tensor(1, 3, 32, 40)), (mobilenet, tensor(1, 3, 20, 24)), (Recurrent, TOKENS.T),
     (Transformer, TOKENS)],
    ids=["resnet", "mobilenet", "lstm", "transformer"],
)  # fmt: skip
def test_networks_yield_what_torch_yields(
    make: Callable[[], Any], given: Any, tmp_path: Path
) -> None:
    execution = execute(randomize(make()), tmp_path, given, path=tmp_path / "network.pt2")
    if make is resnet:
        assert execution.offloaded == ["1.conv1", "1.conv2", "2.conv2", "3.conv1", "3.conv2"]
        names = [row.name for row in execution.placements if row.operator == "nn.conv2d"]
        assert names == ["0.0", "1.conv1", "1.conv2", "2.down.0", "2.conv1", "2.conv2", "3.conv1",
                         "3.conv2"]  # fmt: skip
        assert "1.add" in {row.name for row in execution.placements}


# --- names, inputs, outputs -----------------------------------------------------------------------


def test_operators_are_called_after_their_modules(tmp_path: Path) -> None:
    twice = Function(lambda self, x: torch.tanh(torch.exp(x)) + self.conv(x) * self.conv(-x),
                     conv=nn.Conv2d(2, 2, 1))  # fmt: skip
    model = nn.Sequential(twice, nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Sigmoid())
    report = umakit.import_model(export(randomize(model), tensor(1, 2, 5, 6)))
    bindings = tvm_api.bindings_of(report.module["main"])
    names = [tvm_api.name_of(binding.value) for binding in bindings]
    assert names == ["0.exp", "0.tanh", *["0.conv.conv2d"] * 2, "0.neg", *["0.conv.conv2d_1"] * 2,
                     "0.mul", "0.add", *["1"] * 2, *["2"] * 2, "3"]  # fmt: skip


def test_inputs_and_outputs_are_called_as_in_the_program(tmp_path: Path) -> None:
    def forward(_: Any, image: Any, more: Any) -> Any:
        total = image + more["left"] * more["right"]
        return {"sum": total, "parts": (torch.relu(total), {"x": -total}), "again": total}

    class Named(nn.Module):  # type: ignore[misc]
        def forward(self, image: Any, more: Any) -> Any:
            return forward(self, image, more)

    more = {"left": tensor(3, seed=2), "right": tensor(2, 3, seed=3)}
    program = torch.export.export(Named(), (tensor(2, 3), more))
    model = umakit.import_model(program)
    assert [(i.name, i.shape) for i in model.inputs] == [
        ("image", (2, 3)), ("more_left", (3,)), ("more_right", (2, 3))
    ]  # fmt: skip
    assert [o.name for o in model.outputs] == ["sum", "parts_0", "parts_1_x", "again"]
    library = umakit.compile_model(program, [], tmp_path / "library")
    arrays = {"image": tensor(2, 3).numpy(), "more_left": more["left"].numpy(),
              "more_right": more["right"].numpy()}  # fmt: skip
    got = umakit.run_library(library.path, arrays).outputs
    total = arrays["image"] + arrays["more_left"] * arrays["more_right"]
    for name, wanted in {"sum": total, "parts_0": total.clip(0), "parts_1_x": -total,
                         "again": total}.items():  # fmt: skip
        assert_close(got[name], wanted)


def test_outputs_of_a_tuple_have_the_names_of_their_nodes() -> None:
    program = export(Function(lambda _, x: (torch.relu(x), torch.relu(x), x)), tensor(2, 3))
    names = [output.name for output in umakit.import_model(program).outputs]
    assert names == list(program.graph_signature.user_outputs)
    shared = export(Function(lambda _, x: [torch.relu(x)] * 2), tensor(2, 3))
    assert [o.name for o in umakit.import_model(shared).outputs] == ["relu", "relu_1"]


def test_buffers_constants_and_shared_parameters(tmp_path: Path) -> None:
    class Tied(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(40, 40), nn.Linear(40, 40)
            self.second.weight = self.first.weight
            self.register_buffer("offset", torch.ones(40))
            self.register_buffer("hidden", torch.ones(40), persistent=False)

        def forward(self, x: Any) -> Any:
            x = self.second(torch.relu(self.first(x))) + self.offset * self.hidden
            return x * torch.tensor([0.5] * 39 + [2.0])

    execution = execute(randomize(Tied()), tmp_path, tensor(3, 40), path=tmp_path / "tied.pt2")
    constants = execution.library.metadata["umakit"]["memory"]["constants_bytes"]
    assert 40 * 40 * 4 < constants < 2 * 40 * 40 * 4


def test_symbolic_dimensions_are_bound(tmp_path: Path) -> None:
    batch = torch.export.Dim("batch", max=8)
    model = randomize(nn.Sequential(nn.Conv2d(2, 3, 3), nn.Flatten(), nn.Linear(36, 2)))
    shapes = ({0: batch},)
    program = export(model, tensor(4, 2, 5, 6), dynamic_shapes=shapes)
    bound = umakit.import_model(program)
    assert bound.inputs[0].shape == (1, 2, 5, 6)
    assert re.search(r"'input': symbolic dimension '\w+' is bound to 1", bound.notices[0])
    assert umakit.import_model(program, input_shapes={"input": [3, 2, 5, 6]}).notices == ()
    execute(model, tmp_path, tensor(5, 2, 5, 6), path=tmp_path / "m.pt2", dynamic_shapes=shapes)
    for wrong, said in (
        ([9, 2, 5, 6], "the program needs"), ([1, 2, 5, 7], "cannot be"), 
        ([1, 2, 5], "4 dimensions"),
    ):  # fmt: skip
        with pytest.raises(ModelError, match=said):
            umakit.import_model(program, input_shapes={"input": wrong})
    with pytest.raises(ModelError, match="there is no input 'x'; inputs are input"):
        umakit.import_model(program, input_shapes={"x": [1]})


def test_sizes_that_depend_on_each_other(tmp_path: Path) -> None:
    half = torch.export.Dim("half")
    model = Function(lambda _, x, y: torch.cat([x[: y.shape[0]] + y, x.new_ones(x.shape[0], 3)]))
    program = torch.export.export(model, (tensor(8, 3), tensor(4, 3)),
                                  dynamic_shapes=(({0: 2 * half}, {0: half}),))  # fmt: skip
    names = program.graph_signature.user_inputs
    model_ = umakit.import_model(program, input_shapes={names[0]: [6, 3]})
    assert [i.shape for i in model_.inputs] == [(6, 3), (3, 3)]
    assert model_.outputs[0].shape == (9, 3)


# --- what would not be the network's result -------------------------------------------------------


class Training(nn.Module):  # type: ignore[misc]
    """A module that is exported as it is trained."""

    def __init__(self, *modules: Any) -> None:
        super().__init__()
        self.inner = nn.Sequential(*modules)

    def forward(self, x: Any) -> Any:
        return self.inner(x)


@pytest.mark.parametrize(
    ("module", "said"),
    [
        (nn.BatchNorm2d(3), r"aten\.batch_norm\.default of node 'inner\.0\.batch_norm' "
         r"\(\w+\.py:\d+\) normalizes with the "
         "statistics of the batch; call"),
        (nn.InstanceNorm2d(3, track_running_stats=True), "statistics of the batch"),
        (nn.Dropout(), r"aten\.dropout\.default of node 'inner\.0' \(\w+\.py:\d+\) is active"),
        (nn.Dropout2d(), "is active"),
        (nn.AlphaDropout(), "is active"),
        (nn.RReLU(), "is active"),
        (Function(lambda _, x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.5)),
         "drops random values"),
        (Function(lambda _, x: x + torch.rand_like(x)), r"rand_like\.default .*draws random numb"),
        (Function(lambda _, x: torch.bernoulli(x.sigmoid())), "draws random numbers"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("decomposed", [False, True])
def test_training_mode_is_refused(module: Any, said: str, decomposed: bool) -> None:
    program = torch.export.export(Training(module).train(), (tensor(2, 3, 4, 4),))
    if decomposed:
        program, said = program.run_decompositions(), "model.eval"
    with pytest.raises(ModelError, match=said) as caught:
        umakit.import_model(program)
    assert caught.value.fix.startswith("call model.eval() before torch.export.export")


def test_modules_that_training_mode_does_not_change_are_imported(tmp_path: Path) -> None:
    program = torch.export.export(
        Training(nn.Dropout(0.0), nn.BatchNorm2d(3, track_running_stats=False)).train(),
        (tensor(2, 3, 4, 4),),
    )
    library = umakit.compile_model(program, [], tmp_path / "library")
    (got,) = umakit.run_library(library.path, {"x": tensor(2, 3, 4, 4).numpy()}).outputs.values()
    assert_close(got, F.batch_norm(tensor(2, 3, 4, 4), None, None, training=True).numpy())


def test_state_that_is_written_is_refused() -> None:
    class Counter(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x: Any) -> Any:
            self.count += 1
            return x + self.count

    with pytest.raises(ModelError, match="writes 'count', which a library without state cannot"):
        umakit.import_model(export(Counter(), tensor(3)))


def relax_modules() -> dict[str, Any]:
    from tvm.relax.frontend.torch import from_exported_program, from_fx

    model = randomize(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)))
    program = export(model, tensor(2, 3, 5, 5))
    return {
        "from_fx": from_fx(torch.fx.symbolic_trace(model), [((2, 3, 5, 5), "float32")]),
        "without_decomposition": from_exported_program(program, run_ep_decomposition=False),
        "right": from_exported_program(program),
    }


def test_relax_modules_with_batch_norms_in_training_mode_are_refused() -> None:
    modules = relax_modules()
    umakit.import_model(modules.pop("right"))
    refused = []
    for name, module in modules.items():
        if "training=True" not in module.script():
            continue  # this way into TVM is right for once
        refused.append(name)
        with pytest.raises(ModelError, match=r"nn\.batch_norm is in training mode"):
            umakit.import_model(module)
    assert "from_fx" in refused


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda x: x.logcumsumexp(1), r"operator aten\.logcumsumexp\.default of node "
         r"'logcumsumexp' \(torch_networks\.py:\d+\) is not supported"),
        (lambda x: F.max_pool2d(x, 2, return_indices=True)[1], "indices that are not supported"),
        (lambda x: F.avg_pool2d(x, 2, divisor_override=3), "has divisor_override=3"),
        (lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), "has ceil_mode with padding"),
        (lambda x: x[x > 0], "not supported|static type"),
        (lambda x: x.norm(3), "has ord=3"),
        (lambda x: torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (x,)), "control flow"),
        (lambda x: x.bfloat16() + 1, "bfloat16|float32"),
        (lambda x: torch.fft.fft(x).real, "not supported|complex"),
        (lambda x: (x, None, 3), "is not a tensor"),
    ],
)  # fmt: skip
def test_operators_that_would_be_wrong_are_refused(function: X, said: str) -> None:
    program = export(Function(lambda _, x: function(x)), tensor(1, 2, 6, 6))
    with pytest.raises(ModelError, match=said):
        umakit.import_model(program)


def test_operators_of_other_libraries_are_refused_whatever_they_are_called() -> None:
    with torch.library._scoped_library("umakit_test", "FRAGMENT") as library:
        library.define("relu(Tensor self) -> Tensor")
        library.impl("relu", lambda x: x * 2, "CompositeExplicitAutograd")
        program = export(Function(lambda _, x: torch.ops.umakit_test.relu(x)), tensor(3))
        with pytest.raises(ModelError, match=r"umakit_test\.relu\.default .* is not supported"):
            umakit.import_model(program)


def test_a_conversion_to_another_type_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    total = tvm_api.relax.op.sum
    wrong = OperatorConverter(
        frozenset({"self"}), lambda c, _, given: total(c.value(given["self"]))
    )
    monkeypatch.setitem(CONVERTERS, "neg.default", wrong)
    with pytest.raises(ModelError, match=r"yields float32\[3\] by torch, but float32\[\] here"):
        umakit.import_model(export(Function(lambda _, x: -x), tensor(3)))


@pytest.mark.filterwarnings("ignore:.torch.jit.* is deprecated:DeprecationWarning")
def test_objects_that_are_no_programs_say_how_to_export() -> None:
    model = nn.Linear(2, 3)
    for thing, said in (
        (model, "Linear is a module"),
        (torch.jit.script(model), "is a module"),
        (model.state_dict(), "holds weights"),
        (tensor(3), "cannot import"),
    ):
        with pytest.raises(ModelError, match=said) as caught:
            umakit.import_model(thing)
        assert "export" in caught.value.fix.lower()


# --- files ----------------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A program with a symbolic size, a constant, and example inputs."""
    model = Function(lambda self, x: self.fc(x) + torch.tensor([1.0, 2.0]), fc=nn.Linear(3, 2))
    shapes = (({0: torch.export.Dim("batch")},),)
    program = export(randomize(model), tensor(4, 3), dynamic_shapes=shapes)
    torch.export.save(program, tmp_path / "saved.pt2")
    return tmp_path / "saved.pt2"


def edited(path: Path, change: Callable[[dict[str, bytes]], None]) -> Path:
    """A copy of an archive with other members."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    with zipfile.ZipFile(path.with_name("edited.pt2"), "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path.with_name("edited.pt2")


class Exploit:
    """An object whose unpickling writes a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self._path,)


def test_files_are_told_by_their_content(saved: Path) -> None:
    elsewhere = saved.rename(saved.with_name("network.onnx"))
    assert umakit.import_model(elsewhere).inputs[0].shape == (1, 3)


def test_example_inputs_are_not_unpickled(saved: Path) -> None:
    mark = saved.with_name("exploited")

    def change(members: dict[str, bytes]) -> None:
        members["saved/data/sample_inputs/model.pt"] = pickled(Exploit(mark))

    path = edited(saved, change)
    with contextlib.suppress(Exception):
        torch.export.load(path)
    assert mark.exists(), "this file does no harm"
    mark.unlink()
    assert umakit.import_model(path).inputs[0].shape == (1, 3)
    assert not mark.exists()


def pickled(thing: Any) -> bytes:
    stream = io.BytesIO()
    torch.save(thing, stream)
    return stream.getvalue()


@pytest.mark.parametrize("kind", ["weights", "constants"])
def test_pickled_weights_are_refused(kind: str, saved: Path) -> None:
    mark = saved.with_name("exploited")

    def change(members: dict[str, bytes]) -> None:
        table = f"saved/data/{kind}/model_{kind}_config.json"
        config = json.loads(members[table])
        payload = next(iter(config["config"].values()))
        payload["use_pickle"] = True
        members[table] = json.dumps(config).encode()
        members[f"saved/data/{kind}/{payload['path_name']}"] = pickled(Exploit(mark))

    with pytest.raises(ModelError, match="stored as a pickle, which could run any code"):
        umakit.import_model(edited(saved, change))
    assert not mark.exists()


def test_sizes_are_not_evaluated_as_code(saved: Path) -> None:
    mark = saved.with_name("exploited")

    def change(members: dict[str, bytes]) -> None:
        text = members["saved/models/model.json"].decode()
        size = re.search(r'"expr_str": ?"((?:[^"\\]|\\.)*)"', text)
        assert size is not None
        evil = f"__import__('pathlib').Path({str(mark)!r}).touch() or 1"
        members["saved/models/model.json"] = text.replace(size[1], evil).encode()

    path = edited(saved, change)
    with contextlib.suppress(Exception):
        torch.export.load(path)
    assert mark.exists(), "this file does no harm"
    mark.unlink()
    with pytest.raises(ModelError, match="is not arithmetic"):
        umakit.import_model(path)
    assert not mark.exists()


@pytest.mark.parametrize(
    ("text", "known"),
    [("2*s77 + 1", True), ("Symbol('s0', positive=True, integer=True)", True), ("Max(1, s0)", True),
     ("Mul(Integer(2), Symbol('s0'))", True), ("Rational(1, 2)", True), ("1 +", False),
     ("s0.__class__", False), ("open('x')", False), ("Symbol('s0()')", False), ("[s0]", False),
     ("(lambda: 1)()", False), ("f'{s0}'", False), ("Max(*s0)", False)],
)  # fmt: skip
def test_arithmetic_is_told_from_code(text: str, known: bool) -> None:
    assert is_arithmetic(text) is known


@pytest.mark.filterwarnings("ignore:.torch.jit.* is deprecated:DeprecationWarning")
def test_other_files_of_torch_are_told_by_name(saved: Path, tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    torch.jit.save(torch.jit.script(model), tmp_path / "script.pt")
    torch.save(model.state_dict(), tmp_path / "weights.pth")
    torch.save(model.state_dict(), tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    (tmp_path / "text.pt2").write_text("no archive")
    (tmp_path / "cut.pt2").write_bytes(saved.read_bytes()[:3000])
    for name, said in (
        ("script.pt", "is a TorchScript module"), ("weights.pth", "is a checkpoint"),
        ("old.pt", "pickled checkpoint"), ("text.pt2", "not an exported program"),
        ("cut.pt2", "not an exported program|damaged"),
    ):  # fmt: skip
        with pytest.raises(ModelError, match=said) as caught:
            umakit.import_model(tmp_path / name)
        assert name in str(caught.value) and "export" in caught.value.fix


def test_damaged_members_are_refused(saved: Path) -> None:
    for member in ("models/model.json", "data/weights/model_weights_config.json",
                   "data/weights/weight_0", "archive_version"):  # fmt: skip
        for data in (b"", b"{}", b"\xff" * 7):
            path = edited(saved, lambda m, n=f"saved/{member}", d=data: m.update({n: d}))
            with pytest.raises(ModelError):
                umakit.import_model(path)
        path = edited(saved, lambda m, n=f"saved/{member}": m.pop(n))
        with pytest.raises(ModelError):
            umakit.import_model(path)


def test_a_missing_torch_says_what_to_install(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "torch" else find(name, *a)
    )
    with pytest.raises(ModelError, match="needs the package torch") as caught:
        umakit.import_model(saved)
    assert caught.value.fix == "pip install 'umakit[torch]'"


def test_commands_take_programs(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = saved.with_name("library")
    assert run_command(["partition", str(saved), "--json"]) == 0
    printed = capsys.readouterr()
    assert '"fc"' in printed.out and "is bound to 1" in printed.err
    assert run_command(["compile", str(saved), "-o", str(output)]) == 0
    assert output.is_dir()
    assert umakit.import_model(saved).fingerprint == hashlib.sha256(saved.read_bytes()).hexdigest()
