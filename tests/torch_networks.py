# SPDX-License-Identifier: Apache-2.0
"""Modules of PyTorch for tests, and how their exports are compared with torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from execution import Execution, vanilla
from networks import assert_close
from torch import nn
from torch._export import utils as export_utils

import umakit

_find_composites = export_utils._materialize_cpp_cia_ops
_registered: list[Any] = []


def _find_new_composites() -> None:
    """Let torch make Python objects of its composite operators when libraries bring new ones.

    It makes those that it has again for each namespace, twice for each program that it decomposes:
    most of the time for a small one.
    """
    composites = torch._C._dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd")
    if _registered != composites:
        _find_composites()
        _registered[:] = composites


export_utils._materialize_cpp_cia_ops = _find_new_composites


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


def as_dictionary(functions: Mapping[str, Callable[[Any], Any]]) -> Any:
    """One module that returns the result of each function by name."""
    return Function(lambda _, x: {f"out_{name}": f(x) for name, f in functions.items()})


def functions_of(*applied: Callable[..., Any]) -> Any:
    """One module that returns the result of each function of one of its inputs, in order."""
    return Function(lambda _, *xs: tuple(f(x) for f, x in zip(applied, xs, strict=True)))
