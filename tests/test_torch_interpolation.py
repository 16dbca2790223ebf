# SPDX-License-Identifier: Apache-2.0
"""Upsample and `interpolate` of PyTorch, in all modes, next to torch's own results."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from comparisons import examples
from hypothesis import given
from hypothesis import strategies as st

import umakit
from umakit.errors import ModelError

torch = pytest.importorskip("torch", reason="needs torch: pip install 'umakit[torch]'")
nn, F = torch.nn, torch.nn.functional

from torch_networks import Function, execute, export, functions_of, tensor  # noqa: E402

RANKS = {"linear": (1,), "bilinear": (2,), "bicubic": (2,), "trilinear": (3,),
         "nearest": (1, 2, 3), "nearest-exact": (1, 2, 3)}  # fmt: skip
Drawn = tuple[Callable[[Any], Any], Any]


@st.composite
def drawn_interpolations(draw: st.DrawFn) -> Drawn:
    """A call of `interpolate`, and its input."""
    mode = draw(st.sampled_from(sorted(RANKS)))
    rank = draw(st.sampled_from(RANKS[mode]))
    largest = 12 if rank < 3 else 5
    shape = [draw(st.integers(1, 2)), draw(st.integers(1, 3)),
             *draw(st.lists(st.integers(1, largest), min_size=rank, max_size=rank))]  # fmt: skip
    options: dict[str, Any] = {"mode": mode}
    if draw(st.booleans()):
        sizes = st.lists(st.integers(1, largest + 3), min_size=rank, max_size=rank)
        options["size"] = draw(sizes)
    else:
        scales = st.sampled_from([0.5, 0.7, 1.0, 1.04, 1.3, 1.7, 2.0, 3.0, 1 / 3])
        options["scale_factor"] = [max(draw(scales), 1 / size) for size in shape[2:]]
        options["recompute_scale_factor"] = draw(st.booleans())
    if not mode.startswith("nearest"):
        options["align_corners"] = draw(st.booleans())
    if mode in ("bilinear", "bicubic") and shape[-1] > 3:
        options["antialias"] = draw(st.booleans())
    return lambda x: F.interpolate(x, **options), tensor(*shape, seed=draw(st.integers(0, 99)))


@given(st.lists(drawn_interpolations(), min_size=30, max_size=30))
@examples(1)
def test_interpolation(tmp_path_factory: Any, drawn: list[Drawn]) -> None:
    functions, inputs = zip(*drawn, strict=True)
    execute(functions_of(*functions), tmp_path_factory.mktemp("drawn"), *inputs, backends=False)


def test_files_modules_and_long_axes(tmp_path: Path) -> None:
    functions = (
        nn.Upsample(scale_factor=2), nn.UpsamplingNearest2d(scale_factor=1.5),
        nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True),
        lambda x: F.interpolate(x, (3, 700), mode="bilinear"),
        lambda x: F.interpolate(x, (1, 333), mode="bicubic", antialias=True),
        lambda x: F.interpolate(x.to(torch.uint8), scale_factor=2.6),
        lambda x: F.interpolate(x.double(), (3, 5), mode="bicubic"),
        lambda x: F.interpolate(x, (3, 3), mode="area"),
    )  # fmt: skip
    inputs = [tensor(1, 2, 4, 6).abs() * 9] * 3 + [tensor(1, 2, 3, 500)] * 2
    inputs += [tensor(1, 2, 4, 6).abs() * 9] * 3
    model = functions_of(*functions)
    execute(model, tmp_path, *inputs, path=tmp_path / "m.pt2", backends=False)


def test_decomposed_programs(tmp_path: Path) -> None:
    model = functions_of(
        lambda x: F.interpolate(x, (8, 9), mode="nearest-exact"),
        lambda x: F.interpolate(x, 11, mode="linear"),
        lambda x: F.interpolate(x, (6, 6, 7), mode="trilinear"),
    )
    inputs = tensor(1, 3, 5, 7), tensor(1, 3, 5), tensor(1, 2, 3, 4, 5)
    program = export(model, *inputs).run_decompositions(torch.export.default_decompositions())
    names = {node.target.__name__ for node in program.graph.nodes if node.op == "call_function"}
    assert "index.Tensor" in names and not any("upsample" in name for name in names)
    library = umakit.compile_model(program, [], tmp_path / "library")
    arrays = {name: x.numpy() for name, x in
              zip(program.graph_signature.user_inputs, inputs, strict=True)}  # fmt: skip
    outputs = umakit.run_library(library.path, arrays).outputs.values()
    for got, wanted in zip(outputs, model(*inputs), strict=True):
        assert abs(got - wanted.numpy()).max() <= 1e-5 * wanted.abs().max()


def test_nearest_places_of_quantized_networks_are_integers(tmp_path: Path) -> None:
    importlib.import_module("torch.ao.quantization.fx._decomposed")  # registers the operators
    parts = torch.ops.quantized_decomposed
    grid = 0.05, 3, -128, 127, torch.int8

    def forward(_: Any, x: Any) -> Any:
        real = parts.dequantize_per_tensor(x, *grid)
        return parts.quantize_per_tensor(F.relu(F.interpolate(real, scale_factor=1.7)), *grid)

    x = (tensor(1, 3, 5, 6) * 50).to(torch.int8)
    execution = execute(Function(forward), tmp_path, x, tolerance=0, backends=False)
    folder = Path(execution.library.path) / "codegen" / "host" / "src"
    text = "".join(path.read_text() for path in folder.glob("tvmgen_*.c"))
    assert "int8_t" in text and not re.search(r"\bfloat\b", text)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"size": (3, 1), "antialias": True}, "_upsample_bilinear2d_aa.* has a result of width 1"),
        ({"size": (3, 3), "mode": "lanczos", "antialias": True}, "lanczos.* is not supported"),
    ],
)
def test_refusals(options: dict[str, Any], what: str) -> None:
    chosen = {"mode": "bilinear", **options}
    model = Function(lambda _, x: F.interpolate(x, **chosen))
    with pytest.raises(ModelError, match=what):
        umakit.import_model(export(model, tensor(1, 2, 5, 6)))
    integers = Function(lambda _, x: F.interpolate(x.to(torch.uint8), (9, 9), mode="bilinear"))
    with pytest.raises(ModelError, match=r"upsample_bilinear2d.* interpolates uint8"):
        umakit.import_model(export(integers, tensor(1, 2, 5, 6)))
