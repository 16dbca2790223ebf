# SPDX-License-Identifier: Apache-2.0
"""Quantized programs of PyTorch (PT2E): integers beside torch's own and NumPy's, and refusals."""

from __future__ import annotations

import importlib
import math
import os
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from umakit.cli.main import run_command

import umakit
from umakit import tvm_api
from umakit.errors import ModelError
from umakit.frontend.model import Quantization
from umakit.quantized import quantize_to_integers

torch = pytest.importorskip("torch", reason="needs torch: pip install 'umakit[torch]'")
nn, F = torch.nn, torch.nn.functional
importlib.import_module("torch.ao.quantization.fx._decomposed")  # registers the operators

from umakit.frontend.torch.quantization import refusal  # noqa: E402  needs torch

decomposed = torch.ops.quantized_decomposed

Array = npt.NDArray[Any]
EXAMPLES = settings(
    max_examples=int(os.environ.get("UMAKIT_EXAMPLES", "4")),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
FLOATS = re.compile(r"\b(?:float|double)\b")


def q(x: Any, scale: float, zero: int = 0, low: int = -128, high: int = 127,
      dtype: Any = torch.int8) -> Any:  # fmt: skip
    return decomposed.quantize_per_tensor(x, scale, zero, low, high, dtype)


def dq(x: Any, scale: float, zero: int = 0, dtype: Any = torch.int8) -> Any:
    limits = torch.iinfo(dtype)
    return decomposed.dequantize_per_tensor(x, scale, zero, limits.min, limits.max, dtype)


def through(x: Any, scale: float, zero: int = 0, low: int = -128, high: int = 127) -> Any:
    """Real numbers as integers and back."""
    return dq(q(x, scale, zero, low, high), scale, zero)


class Layer(nn.Module):  # type: ignore[misc]
    """A convolution or linear layer with int8 weights and a float bias, as PT2E leaves it."""

    def __init__(self, function: Callable[..., Any], shape: Sequence[int], seed: int = 0,
                 per_channel: bool = True) -> None:  # fmt: skip
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self._function, count = function, shape[0] if per_channel else 1
        integers = torch.randint(-127, 128, tuple(shape), generator=generator, dtype=torch.int8)
        scales = torch.rand(count, generator=generator) * 0.01 + 0.001
        self.register_buffer("integers", integers)
        self.register_buffer("scales", scales)
        self.register_buffer("zeros", torch.zeros(count, dtype=torch.int64))
        self.bias = nn.Parameter(torch.randn(shape[0], generator=generator))
        self._per_channel = per_channel

    def forward(self, x: Any) -> Any:
        if self._per_channel:
            weights = decomposed.dequantize_per_channel(
                self.integers, self.scales, self.zeros, 0, -127, 127, torch.int8
            )
        else:
            weights = decomposed.dequantize_per_tensor(
                self.integers, self.scales, self.zeros, -127, 127, torch.int8
            )
        return self._function(x, weights, self.bias)


class Program(nn.Module):  # type: ignore[misc]
    def __init__(self, function: Callable[..., Any], **layers: Any) -> None:
        super().__init__()
        self._function = function
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, *inputs: Any) -> Any:
        return self._function(self, *inputs)


def export(model: Any, *inputs: Any) -> Any:
    return torch.export.export(model.eval(), inputs)


def integers(*shape: int, seed: int = 1, dtype: Any = torch.int8) -> Any:
    limits, generator = torch.iinfo(dtype), torch.Generator().manual_seed(seed)
    return torch.randint(limits.min, limits.max + 1, shape, generator=generator, dtype=dtype)


def notices(program: Any, rounding: str | None = None) -> str:
    return "\n".join(quantize_to_integers(umakit.import_model(program, rounding=rounding)).notices)


def sources(library: Any) -> str:
    """The C of the network itself."""
    folder = Path(library.path) / "codegen" / "host" / "src"
    return "\n".join(path.read_text() for path in sorted(folder.glob("tvmgen_*.c")))


def run(program: Any, arrays: Mapping[str, Array], **options: Any) -> tuple[dict[str, Array], str]:
    """(results of the C library by name, its sources)."""
    with tempfile.TemporaryDirectory() as folder:
        library = umakit.compile_model(program, [], Path(folder) / "library", **options)
        result = umakit.run_library(library.path, dict(arrays))
        return dict(result.outputs), sources(library)


# --- one operator ---------------------------------------------------------------------------------

S, Z = 0.0213, -5
"""Scale and zero point of the operators' input."""

X = Callable[[Any], Any]

OPERATORS: Mapping[str, X] = {
    "rescale": lambda x: q(x, 0.0317, 7),
    "same": lambda x: q(x, S, Z),
    "relu": lambda x: q(F.relu(x), 0.0107, -128),
    "relu_same": lambda x: q(F.relu(x), S, Z),
    "hardtanh": lambda x: q(F.hardtanh(x, -0.5, 1.2), S, Z),
    "relu6_narrow": lambda x: q(F.relu6(x), S, -127, -127, 127),
    "positive_range": lambda x: q(x, S, 0, 0, 127),
    "clamp": lambda x: q(x.clamp(min=0.1), 0.0153, -30),
    "sigmoid": lambda x: q(torch.sigmoid(x), 1 / 256, -128),
    "sigmoid_other": lambda x: q(torch.sigmoid(x), 0.0053, -100),
    "tanh": lambda x: q(torch.tanh(x), 1 / 128),
    "hardswish": lambda x: q(F.hardswish(x), 0.0163, -100),
    "silu": lambda x: q(F.silu(x), 0.0163, -100),
    "leaky_relu": lambda x: q(F.leaky_relu(x, 0.1), 0.0163, -100),
    "add": lambda x: q(x + through(F.relu(x), 0.0107, -128), 0.0413, 3),
    "add_relu": lambda x: q(F.relu(x + through(-x, 0.0259, 4)), 0.0213, -128),
    "add_row": lambda x: q(x + through(x[:, :1], 0.0317, 1), 0.0531, 3),
    "sub": lambda x: q(x - through(F.relu(x), 0.0107, -128), 0.0259, 3),
    "mul": lambda x: q(x * through(torch.sigmoid(x), 1 / 256, -128), 0.0213, 3),
    "mul_channel": lambda x: q(x * through(x.mean((2, 3), keepdim=True), 0.0107), 0.0417, 3),
    "cat": lambda x: q(torch.cat([x, through(F.relu(x), 0.0107, -128)], 1), S, Z),
    "cat_same": lambda x: q(torch.cat([x, through(F.relu(x), S, Z)], 1), S, Z),
    "max_pool": lambda x: q(F.max_pool2d(x, 3, 2, 1), S, Z),
    "max_pool_relu": lambda x: q(F.max_pool2d(F.relu(x), 2), 0.0107, -128),
    "avg_pool": lambda x: q(F.avg_pool2d(x, 2), S, Z),
    "avg_pool_inside": lambda x: q(F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), S, Z),
    "adaptive_pool": lambda x: q(F.adaptive_avg_pool2d(x, (4, 2)), S, Z),
    "global_pool": lambda x: q(F.adaptive_avg_pool2d(x, 1), 0.0107, 2),
    "global_pool_flat": lambda x: q(F.adaptive_avg_pool2d(x, 1).flatten(1), 0.0107, 2),
    "mean": lambda x: q(x.mean((2, 3)), 0.0107, 2),
    "mean_of_channels": lambda x: q(x.mean(1), 0.0107, 2),
    "softmax": lambda x: q(x.softmax(-1), 1 / 256, -128),
    "reshape": lambda x: q(x.reshape(2, -1), S, Z),
    "permute": lambda x: q(x.permute(0, 2, 3, 1), 0.0317, 1),
    "slice": lambda x: q(x[:, 1:3, ::2], S, Z),
    "split": lambda x: q(torch.cat(x.split([1, 3], 1)[::-1], 1), S, Z),
    "chunk": lambda x: q(F.relu(x.chunk(2, 1)[1]), S, Z),
    "pad": lambda x: q(F.pad(x, (1, 2, 0, 3)), S, Z),
    "flip": lambda x: q(x.flip(1).squeeze(0), S, Z),
}  # fmt: skip


TIES = {"avg_pool", "avg_pool_inside", "adaptive_pool", "mean_of_channels", "leaky_relu"}
"""Operators whose results are often next to a tie, or rounded twice."""


@pytest.mark.parametrize("rounding", ["ort", "tflm"])
def test_operators_are_integers_and_next_to_what_torch_computes(rounding: str) -> None:
    """Integers in, integers out, nothing of C's float between."""
    model = Program(lambda _, x: {n: f(dq(x, S, Z)) for n, f in OPERATORS.items()})
    x = integers(2, 4, 8, 6)
    program = export(model, x)
    assert "floating point" not in notices(program, rounding)
    got, source = run(program, {"x": x.numpy()}, rounding=rounding)
    assert not FLOATS.search(source)
    for name, wanted in model(x).items():
        difference = np.abs(got[name].astype(int) - wanted.numpy().astype(int))
        assert difference.max() <= 1, name
        if rounding == "ort" and name not in TIES:
            assert (difference > 0).mean() <= 0.02, f"{name}: {(difference > 0).mean()}"


SUMS = [
    (8758681 * 2**-29, -128, 5010559 * 2**-29, 2, 2**-6, -128),
    (0.0213, -5, 0.0317, 7, 0.0413, 3),
    (0.02, 0, 0.01, 0, 0.0095, -128),
    (0.0107, 127, 0.5, -128, 0.25, 3),
    (0.3, -128, 0.2, -128, 0.1, -128),
]
"""Scales and zero points of left, right and result; some saturate far beyond 8 bits."""


@pytest.mark.parametrize("rounding", ["ort", "tflm"])
def test_all_pairs_of_integers_are_added_and_multiplied(rounding: str) -> None:
    """GCC 12 once vectorized a saturating sum to -128 where 127 is right."""
    left, right = (a.ravel().astype(np.int8) for a in np.mgrid[-128:128, -128:128])

    def forward(_: Any, a: Any, b: Any) -> list[Any]:
        pairs = [(dq(a, *s[:2]), dq(b, *s[2:4]), s[4:]) for s in SUMS]
        return [q(x + y, *out) for x, y, out in pairs] + [q(x * y, *out) for x, y, out in pairs]

    program = export(Program(forward), torch.tensor(left), torch.tensor(right))
    names = program.graph_signature.user_inputs
    got, source = run(program, dict(zip(names, (left, right), strict=True)), rounding=rounding)
    assert not FLOATS.search(source)
    wanted = forward(None, torch.tensor(left), torch.tensor(right))
    for (name, result), torch_says in zip(got.items(), wanted, strict=True):
        difference = np.abs(result.astype(int) - torch_says.numpy().astype(int))
        assert difference.max() <= 1, f"{name}: {difference.max()}"


LAYERS: Mapping[str, tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...]]] = {
    "conv": (lambda x, w, b: F.conv2d(x, w, b, padding=1), (8, 6, 3, 3), (1, 6, 9, 7)),
    "strided": (lambda x, w, b: F.conv2d(x, w, b, (2, 1), (0, 1)), (5, 6, 3, 2), (2, 6, 9, 7)),
    "dilated": (lambda x, w, b: F.conv2d(x, w, b, dilation=2), (5, 6, 3, 3), (1, 6, 9, 7)),
    "depthwise": (lambda x, w, b: F.conv2d(x, w, b, 2, 1, groups=6), (6, 1, 3, 3), (1, 6, 9, 7)),
    "grouped": (lambda x, w, b: F.conv2d(x, w, b, groups=2), (8, 3, 1, 1), (1, 6, 9, 7)),
    "relu": (lambda x, w, b: F.relu(F.conv2d(x, w, b)), (8, 6, 1, 1), (1, 6, 9, 7)),
    "no_bias": (lambda x, w, b: F.conv2d(x, w), (8, 6, 3, 3), (1, 6, 9, 7)),
    "padded": (lambda x, w, b: F.conv2d(F.pad(x, (0, 1, 2, 0)), w, b), (8, 6, 3, 3), (1, 6, 9, 7)),
    "unbatched": (lambda x, w, b: F.conv2d(x, w, b), (8, 6, 3, 3), (6, 9, 7)),
    "linear": (F.linear, (7, 11), (4, 11)),
    "rows": (lambda x, w, b: F.relu(F.linear(x, w, b)), (7, 11), (2, 3, 11)),
    "vector": (F.linear, (7, 11), (11,)),
    "columns": (lambda x, w, b: F.linear(x.transpose(1, 2), w, b), (7, 11), (2, 11, 3)),
}  # fmt: skip


@pytest.mark.parametrize("per_channel", [True, False], ids=["per_channel", "per_tensor"])
def test_layers_with_float_biases_are_integers(per_channel: bool) -> None:
    made = {
        name: Layer(function, shape, seed, per_channel)
        for seed, (name, (function, shape, _)) in enumerate(LAYERS.items())
    }
    model = Program(
        lambda self, *xs: {
            n: q(getattr(self, n)(dq(x, 0.0213, -5)), 0.0371, 9)
            for n, x in zip(made, xs, strict=True)
        },
        **made,
    )
    xs = [integers(*shape, seed=seed) for seed, (_, _, shape) in enumerate(LAYERS.values())]
    program = export(model, *xs)
    said = notices(program)
    assert "floating point" not in said and "float biases of 12 quantized layers" in said
    names = program.graph_signature.user_inputs
    got, source = run(program, {n: x.numpy() for n, x in zip(names, xs, strict=True)})
    assert not FLOATS.search(source)
    for name, wanted in model(*xs).items():
        difference = np.abs(got[name].astype(int) - wanted.numpy().astype(int))
        assert difference.max() <= 1, name
        assert (difference > 0).mean() <= 0.01, f"{name}: {(difference > 0).mean()}"


# --- networks compared with NumPy ---------------------------------------------------------------


def windows(x: Array, kernel: tuple[int, int], stride: int) -> Array:
    """[N, C, OH, OW, KH, KW] of [N, C, H, W]."""
    view = np.lib.stride_tricks.sliding_window_view(x, kernel, (2, 3))
    return view[:, :, ::stride, ::stride]


def requantized(total: Array, scales: Array, to: float, zero: int, rounding: str) -> Array:
    """Sums as int8.

    `ort`: float32 sums times float32 factors, ties to even (mlas's `MlasRequantizeOutput`).
    `tflm`: gemmlowp's doubled high product, then its rounding shift (TensorFlow Lite Micro's
    `MultiplyByQuantizedMultiplier`), with Python's integers.
    """
    shape = (1, -1) + (1,) * (total.ndim - 2)
    if rounding == "ort":
        factors = (scales / np.float32(to)).astype(np.float32)
        result = np.rint(total.astype(np.float32) * factors.reshape(shape)).astype(np.int64)
    else:
        factors = scales.astype(np.float64) / np.float64(np.float32(to))
        result = np.empty_like(total)
        for place, value in np.ndenumerate(total):
            fraction, exponent = math.frexp(float(factors[place[1] if factors.size > 1 else 0]))
            multiplier = math.floor(fraction * 2**31 + 0.5)
            high = ((int(value) << max(exponent, 0)) * multiplier + 2**30) >> 31
            right = max(-exponent, 0)
            remainder, mask = high & ((1 << right) - 1), (1 << right) - 1
            result[place] = (high >> right) + (remainder > (mask >> 1) + (high < 0))
    return result + zero


IN, MIDDLE, DEPTH, OUT = (0.0213, -5), (0.0917, -128), (0.0833, 11), (0.2117, 3)
"""Scales and zero points of the network below."""


def small_network() -> Any:
    conv = Layer(lambda x, w, b: F.relu(F.conv2d(x, w, b, padding=1)), (8, 3, 3, 3), 1)
    depthwise = Layer(lambda x, w, b: F.conv2d(x, w, b, 2, groups=8), (8, 1, 3, 3), 2)
    linear = Layer(F.linear, (5, 8 * 2 * 1), 3)

    def forward(self: Any, x: Any) -> Any:
        x = through(self.conv(through(x, *IN)), *MIDDLE)
        x = through(self.depthwise(x), *DEPTH, -127, 127)
        x = through(F.max_pool2d(x, 2), *DEPTH)
        x = through(x.flatten(1), *DEPTH)
        return through(self.linear(x), *OUT)

    return Program(forward, conv=conv, depthwise=depthwise, linear=linear)


def small_network_in_numpy(model: Any, x: Array, rounding: str) -> Array:
    """The integers of `small_network` before the last dequantize."""

    def constants(layer: Any, scale: float) -> tuple[Array, Array, Array]:
        # TensorFlow Lite multiplies the scales in float64, ONNX Runtime in float32.
        kind = np.float32 if rounding == "ort" else np.float64
        scales = kind(np.float32(scale)) * layer.scales.numpy().astype(kind)
        steps = (np.float32(scale) * layer.scales.numpy()).astype(np.float64)
        bias = np.rint(layer.bias.detach().numpy().astype(np.float64) / steps)
        return layer.integers.numpy().astype(np.int64), bias.astype(np.int64), scales

    data = np.clip(np.rint(x / np.float32(IN[0])) + IN[1], -128, 127).astype(np.int64) - IN[1]
    weights, bias, scales = constants(model.conv, IN[0])
    data = np.pad(data, ((0, 0), (0, 0), (1, 1), (1, 1)))
    total = np.einsum("nchwkl,ockl->nohw", windows(data, (3, 3), 1), weights)
    data = requantized(total + bias.reshape(1, -1, 1, 1), scales, *MIDDLE, rounding)
    data = np.clip(data, -128, 127) - MIDDLE[1]  # the zero point is the least: that is the ReLU
    weights, bias, scales = constants(model.depthwise, MIDDLE[0])
    total = np.einsum("nchwkl,ckl->nchw", windows(data, (3, 3), 2), weights[:, 0])
    data = requantized(total + bias.reshape(1, -1, 1, 1), scales, *DEPTH, rounding)
    data = np.clip(data, -127, 127)
    data = windows(data, (2, 2), 2).max((-1, -2)).reshape(len(x), -1) - DEPTH[1]
    weights, bias, scales = constants(model.linear, DEPTH[0])
    total = data @ weights.T + bias
    return np.clip(requantized(total, scales, *OUT, rounding), -128, 127)


@pytest.mark.parametrize("rounding", ["ort", "tflm"])
def test_a_network_equals_integers_of_numpy_bit_for_bit(rounding: str) -> None:
    model = small_network()
    x = torch.randn(1, 3, 9, 7, generator=torch.Generator().manual_seed(4)) * 2
    xs = torch.randn(20, 1, 3, 9, 7, generator=torch.Generator().manual_seed(5)) * 2
    program = export(model, x)
    (got,) = run(program, {"x": xs.numpy()}, rounding=rounding)[0].values()
    wanted = np.stack([small_network_in_numpy(model, x.numpy(), rounding) for x in xs])
    assert len(np.unique(wanted)) > 20, "the network saturates"
    np.testing.assert_array_equal(
        got, ((wanted - OUT[1]).astype(np.float32) * np.float32(OUT[0])).astype(np.float32)
    )
    with torch.no_grad():
        torch_says = np.stack([model(x).numpy() for x in xs])
    steps = np.rint((got - torch_says) / np.float32(OUT[0]))
    assert np.abs(steps).max() <= 1 and (steps != 0).mean() < 0.05


@st.composite
def drawn_networks(draw: st.DrawFn) -> tuple[Any, tuple[int, ...], Any]:
    """Layers, sums and pools in a row, each with a quantize and dequantize behind it."""
    dtype = draw(st.sampled_from([torch.int8, torch.uint8]))
    limits = torch.iinfo(dtype)
    channels, size = draw(st.integers(1, 6)), draw(st.integers(5, 9))
    shape = (draw(st.integers(1, 2)), channels, size, size + draw(st.integers(0, 2)))
    steps: list[Callable[[Any, Any], Any]] = []
    layers: dict[str, Any] = {}
    seed = draw(st.integers(0, 1000))
    for number in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(["conv", "depthwise", "pointwise", "residual", "pool"]))
        scale = draw(st.floats(0.02, 0.3))
        zero = draw(st.integers(limits.min, limits.max))
        low = draw(st.sampled_from([limits.min, limits.min + 1, max(limits.min, 0)]))
        name, relu = f"layer{number}", draw(st.booleans())
        if kind == "pool":
            steps.append(lambda self, x: F.max_pool2d(x, 2, 1))
        else:
            made = channels if kind in ("residual", "depthwise") else draw(st.integers(1, 9))
            groups = channels if kind == "depthwise" else 1
            kernel = 1 if kind == "pointwise" else 3
            layers[name] = Layer(
                lambda x, w, b, g=groups, k=kernel: F.conv2d(x, w, b, padding=k // 2, groups=g),
                (made, channels // groups, kernel, kernel), seed + number, draw(st.booleans()),
            )  # fmt: skip
            channels = made
            if kind == "residual":
                steps.append(lambda self, x, n=name, s=scale, z=zero, t=dtype:
                             x + dq(q(getattr(self, n)(x), s, z, limits.min, limits.max, t), s, z,
                                    t))  # fmt: skip
            else:
                steps.append(lambda self, x, n=name: getattr(self, n)(x))
        inner = steps.pop()
        steps.append(lambda self, x, f=inner, s=scale, z=zero, lo=low, r=relu, t=dtype:
                     dq(q(F.relu(f(self, x)) if r else f(self, x), s, z, lo, limits.max, t), s, z,
                        t))  # fmt: skip

    def forward(self: Any, x: Any) -> list[Any]:
        x, results = dq(x, 0.0213, 3, dtype), []
        for step in steps:
            x = step(self, x)
            results.append(x)
        return results

    return Program(forward, **layers), shape, dtype


@EXAMPLES
@given(drawn_networks(), st.sampled_from(["ort", "tflm"]))
def test_drawn_networks_are_next_to_what_torch_computes(
    drawn: tuple[Any, tuple[int, ...], Any], rounding: str
) -> None:
    """Layer by layer: each gets torch's own integers."""
    model, shape, dtype = drawn
    x = integers(*shape, dtype=dtype)
    program = export(model, x)
    said = [line for line in notices(program, rounding).splitlines() if "floating point" in line]
    assert all("(dequantize)" in line for line in said), said  # of the outputs
    got, _ = run(program, {"x": x.numpy()}, rounding=rounding)
    first = next(iter(got.values()))
    with torch.no_grad():
        wanted = model(x)[0].numpy()
    step = np.diff(np.unique(np.concatenate([wanted.ravel(), first.ravel(), [0.0]])))
    smallest = step[step > 1e-6].min() if (step > 1e-6).any() else 1.0
    assert np.abs(first - wanted).max() <= smallest * 1.01


# --- PT2E -----------------------------------------------------------------------------------------


class Block(nn.Module):  # type: ignore[misc]
    """Convolutions with batch normalization, a residual sum, depthwise, pools, a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.depthwise = nn.Sequential(
            nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False), nn.BatchNorm2d(8), nn.ReLU6()
        )
        self.pointwise = nn.Conv2d(8, 8, 1)
        self.classifier = nn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        x = F.relu(x + self.pointwise(self.depthwise(x)))
        x = F.max_pool2d(x, 2)
        return self.classifier(F.adaptive_avg_pool2d(x, 1).flatten(1))


def pt2e(model: Any, x: Any, quantizer: Any) -> Any:
    """The exported program of a model that is quantized with torchao."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    prepared = prepare_pt2e(torch.export.export(model.eval(), (x,)).module(), quantizer)
    generator = torch.Generator().manual_seed(0)
    for _ in range(4):
        prepared(torch.randn(x.shape, generator=generator))
    return torch.export.export(convert_pt2e(prepared), (x,))


def quantizer_of(name: str, **options: Any) -> Any:
    """A quantizer by name."""
    if name == "xnnpack":
        module = importlib.import_module("torchao.testing.pt2e._xnnpack_quantizer")
        config = module.get_symmetric_quantization_config(**options)
        return module.XNNPACKQuantizer().set_global(config)
    module = importlib.import_module("torchao.quantization.pt2e.quantizer.x86_inductor_quantizer")
    config = module.get_default_x86_inductor_quantization_config(**options)
    return module.X86InductorQuantizer().set_global(config)


def normalized_block() -> Any:
    model, generator = Block(), torch.Generator().manual_seed(6)
    with torch.no_grad():
        for name, value in (*model.named_parameters(), *model.named_buffers()):
            if value.is_floating_point():
                value.normal_(0, 0.3, generator=generator)
                if name.endswith("running_var"):
                    value.abs_().add_(0.3)
    return model


@pytest.mark.parametrize(
    "options",
    [{"is_per_channel": True}, {"is_per_channel": False}],
    ids=["per_channel", "per_tensor"],
)
def test_networks_of_torchao_become_integers(options: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("torchao", reason="needs torchao: pip install --no-deps torchao")
    x = torch.randn(1, 3, 10, 8, generator=torch.Generator().manual_seed(2))
    program = pt2e(normalized_block(), x, quantizer_of("xnnpack", **options))
    path = tmp_path / "block.pt2"
    torch.export.save(program, path)
    model = quantize_to_integers(umakit.import_model(path))
    operators = [tvm_api.operator_name(b.value) for b in tvm_api.bindings_of(model.module["main"])]
    assert operators.count("quantized.conv2d") == 3 and "quantized.dense" in operators
    assert operators[0] == "quantize" and operators[-1] == "dequantize"
    integers = [name for name in operators[1:-1] if name.startswith("quantized.")]
    assert set(operators[1:-1]) - set(integers) <= {"reshape", ""}, operators
    names = {tvm_api.name_of(b.value) for b in tvm_api.bindings_of(model.module["main"])}
    assert {"first.0", "depthwise.0", "pointwise", "classifier"} <= names
    xs = torch.randn(20, *x.shape, generator=torch.Generator().manual_seed(3))
    (got,) = run(path, {"x": xs.numpy()})[0].values()
    module = program.module()
    with torch.no_grad():
        wanted = np.stack([module(x).numpy() for x in xs])
    steps = (got - wanted) / np.diff(np.unique(wanted)).min()
    assert len(np.unique(wanted)) > 10
    assert np.abs(steps).max() < 1.01 and (np.abs(steps) > 0.5).mean() < 0.15


@pytest.mark.filterwarnings("ignore:The input of maxpool2d is not quantized:UserWarning")
def test_what_a_quantizer_leaves_in_float_is_named_and_right() -> None:
    """X86InductorQuantizer gives sums to convolutions in float32, and has uint8 data."""
    pytest.importorskip("torchao", reason="needs torchao: pip install --no-deps torchao")
    x = torch.randn(1, 3, 10, 8, generator=torch.Generator().manual_seed(2))
    program = pt2e(normalized_block(), x, quantizer_of("x86"))
    said = notices(program)
    assert "'x' (quantize) computes in floating point" in said
    assert "'classifier' (dequantize) computes in floating point" in said
    xs = torch.randn(8, *x.shape, generator=torch.Generator().manual_seed(3))
    (got,) = run(program, {"x": xs.numpy()})[0].values()
    with torch.no_grad():
        wanted = np.stack([program.module()(x).numpy() for x in xs])
    assert np.abs(got - wanted).max() < 0.02 * np.abs(wanted).max()


# --- what is said, what is refused ----------------------------------------------------------------


def test_integers_at_the_edges_say_what_they_stand_for() -> None:
    model = umakit.import_model(
        export(Program(lambda _, x: q(F.relu(dq(x, 0.25, 3)), 0.5, -128)), integers(2, 3))
    )
    assert model.inputs[0].quantization == Quantization(0.25, 3)
    assert model.outputs[0].quantization == Quantization(0.5, -128)


def test_channels_of_zeros_keep_their_bias() -> None:
    """Observers give them the least scale there is, in steps of which no bias has 32 bits."""
    layer = Layer(F.conv2d, (3, 2, 1, 1))
    layer.integers[1] = 0
    layer.scales[1] = torch.finfo(torch.float32).eps
    with torch.no_grad():
        layer.bias[1] = 40.0
    model = Program(lambda self, x: q(self.layer(dq(x, 0.001)), 0.5), layer=layer)
    x = integers(1, 2, 3, 3)
    program = export(model, x)
    assert "floating point" not in notices(program)
    (got,) = run(program, {"x": x.numpy()})[0].values()
    assert (got[:, 1] == 80).all()
    np.testing.assert_array_equal(got, model(x).detach().numpy())


def test_biases_too_large_for_32_bits_leave_their_layer_in_float() -> None:
    layer = Layer(F.conv2d, (3, 2, 1, 1))
    with torch.no_grad():
        layer.bias[1] = 1e9
    model = Program(lambda self, x: q(self.layer(dq(x, 0.001)), 1e8), layer=layer)
    x = integers(1, 2, 3, 3)
    program = export(model, x)
    assert "the bias is too large for the scale of the products" in notices(program)
    (got,) = run(program, {"x": x.numpy()})[0].values()
    np.testing.assert_array_equal(got, model(x).detach().numpy())


def test_weights_that_are_quantized_in_the_program_are_folded() -> None:
    weights = torch.randn(3, 2, 1, 1, generator=torch.Generator().manual_seed(1))

    def forward(_: Any, x: Any) -> Any:
        return q(F.conv2d(dq(x, 0.02), through(weights, 0.02, 0, -127, 127)), 0.05)

    program = export(Program(forward), integers(1, 2, 3, 3))
    assert "floating point" not in notices(program)


def dynamic(_: Any, x: Any) -> Any:
    scale, zero = decomposed.choose_qparams.tensor(x, -128, 127, 1e-5, torch.int8)
    x = decomposed.quantize_per_tensor.tensor(x, scale, zero, -128, 127, torch.int8)
    return decomposed.dequantize_per_tensor.tensor(x, scale, zero, -128, 127, torch.int8)


def groups(_: Any, x: Any) -> Any:
    scales, zeros = torch.ones(4, 2), torch.zeros(4, 2)
    return decomposed.dequantize_per_channel_group(
        x.to(torch.int8), scales, zeros, -8, 7, torch.int8, 4, torch.float32
    )


@pytest.mark.parametrize(
    ("function", "said", "fix"),
    [
        (dynamic, r"choose_qparams\.tensor of node 'choose_qparams' "
         r"\(test_torch_quantized\.py:\d+\) chooses scales for each input \(dynamic",
         "is_dynamic=False"),
        (lambda _, x: q(x, x.abs().mean(), torch.tensor(0)),
         r"quantize_per_tensor\.tensor .* has a scale that is computed from the inputs",
         "is_dynamic=False"),
        (groups, "dequantize_per_channel_group.* has scales for groups", "per channel"),
        (lambda _, x: q(x, 0.1, 0, -128, 127, torch.float8_e4m3fn),
         "has integers of float8_e4m3fn", "8 bits"),
        (lambda _, x: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127),
         "fake_quantize.* simulates quantization", "convert_pt2e"),
        (lambda _, x: q(x, 0.1, 200), "has a zero point outside of int8", ""),
        (lambda _, x: q(x, 0.0), "has the scale 0.0", "calibrate"),
        (lambda _, x: q(x, 0.1, 0, 0, 255), "has the range 0 to 255, which is not of int8", ""),
    ],
)  # fmt: skip
def test_quantization_without_a_meaning_in_c_is_refused(
    function: Callable[..., Any], said: str, fix: str
) -> None:
    program = export(Program(function), torch.ones(4, 8))
    with pytest.raises(ModelError, match=said) as caught:
        umakit.import_model(program)
    assert fix in caught.value.fix


@pytest.mark.parametrize(
    ("operator", "said"),
    [
        ("torchao.dequantize_affine.default", "groups"),
        ("torchao.choose_qparams_affine.default", "dynamic"),
        ("torchao.quantize_affine_float8_non_decomposed.default", "float8"),
        ("aten._weight_int4pack_mm.default", "less than 8 bits"),
        ("aten._scaled_mm.default", "float8"),
        ("gptq.gptq_gemm.default", "less than 8 bits"),
        ("onednn.qconv_pointwise.default", "runtime"),
        ("quantized.linear.default", "runtime"),
        ("aten.fake_quantize_per_channel_affine.default", "simulates"),
    ],
)
def test_operators_of_other_quantizations_are_told_by_name(operator: str, said: str) -> None:
    found = refusal(operator)
    assert found is not None and said in found[0] and found[1]
    assert refusal("aten.relu.default") is None


def test_weights_alone_in_8_bits_are_right_in_float() -> None:
    """`torchao.quantize_` without PT2E: torch decomposes its tensors into plain operators."""
    torchao = pytest.importorskip("torchao.quantization", reason="needs torchao")
    model, x = nn.Sequential(nn.Linear(8, 4)).eval(), torch.randn(2, 8)
    torchao.quantize_(model, torchao.Int8WeightOnlyConfig())
    (got,) = run(export(model, x), {"input": x.numpy()})[0].values()
    np.testing.assert_allclose(got, model(x).detach().numpy(), rtol=1e-5, atol=1e-6)


# --- rounding by name -----------------------------------------------------------------------------


def test_commands_take_a_rounding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x, model = torch.randn(1, 3, 9, 7), small_network()
    path = tmp_path / "small.pt2"
    torch.export.save(export(model, x), path)
    written = {}
    for rounding in ("ort", "tflm"):
        output = tmp_path / rounding
        command = ["compile", str(path), "--rounding", rounding, "-o", str(output)]
        assert run_command(command) == 0
        assert run_command(["partition", str(path), "--rounding", rounding]) == 0
        written[rounding] = (output / "codegen/host/src/tvmgen_small.c").read_text()
    assert written["ort"] != written["tflm"]
    for layer in (model.conv, model.depthwise, model.linear):
        least, greatest = (
            f"{float(each):.9g}" for each in (layer.scales.min(), layer.scales.max())
        )
        told = f"weights: scales {least} .. {greatest} ({layer.scales.numel()}, by output channel)"
        assert all(told in text for text in written.values())
    assert run_command(["compile", str(path), "-o", str(tmp_path / "default")]) == 0
    default = (tmp_path / "default/codegen/host/src/tvmgen_small.c").read_text()
    assert default == written["ort"]
    capsys.readouterr()
    bad = ["compile", str(path), "--rounding", "up", "-o", str(tmp_path / "bad")]
    assert run_command(bad) == 2
    assert "there is no rounding 'up'; choose tflm or ort" in capsys.readouterr().err
    assert not (tmp_path / "bad").exists()
