# SPDX-License-Identifier: Apache-2.0
"""Quantize and dequantize of PT2E, see `umakit.frontend.torch.quantization`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from umakit.frontend.torch.quantization import Grid, grid_of, moved_behind, number_of
from umakit.frontend.torch.registry import Arguments, Expr, Graph, Node, converts
from umakit.tvm_api import relax

ARGUMENTS = "input scale zero_point scales zero_points axis quant_min quant_max dtype out_dtype"
OVERLOADS = ("per_tensor.default", "per_tensor.tensor", "per_tensor.tensor2", "per_channel.default")


def _names(kind: str) -> str:
    return " ".join(f"quantized_decomposed.{kind}_{overload}" for overload in OVERLOADS)


@converts(_names("quantize"), ARGUMENTS)
def _quantize(graph: Graph, node: Node, given: Arguments) -> Expr:
    grid = grid_of(graph, node, given)
    limits = np.iinfo(grid.dtype)
    bounds = [number_of(graph, node, given[f"quant_{end}"], end) for end in ("min", "max")]
    low, high = (int(bound.reshape(())) for bound in bounds)
    if not limits.min <= low <= high <= limits.max:
        raise graph.refuse(node, f"has the range {low} to {high}, which is not of {grid.dtype}")
    narrow = (low, high) != (limits.min, limits.max)

    def integers(value: Expr) -> Expr:
        result = graph.block_builder.emit(grid.quantize(value))
        return relax.op.clip(result, float(low), float(high)) if narrow else result

    if grid.axis >= 0:
        return integers(graph.value(given["input"]))
    return moved_behind(graph, graph.value(given["input"]), integers)


@converts(_names("dequantize"), ARGUMENTS)
def _dequantize(graph: Graph, node: Node, given: Arguments) -> Expr:
    """Dequantize. Like torch, it ignores the range of the integers."""
    grid, integers = grid_of(graph, node, given), given["input"]
    if graph.type_of(integers)[1] != grid.dtype:
        raise graph.refuse(node, f"is of integers that are not {grid.dtype}")
    if grid.axis >= 0 and not graph.depends_on_inputs(integers):
        grid = _with_scales_of_zeros(grid, graph.fake(integers).detach().cpu().numpy())
    return grid.dequantize(graph.value(integers), graph.type_of(node)[1])


def _with_scales_of_zeros(grid: Grid, integers: npt.NDArray[Any]) -> Grid:
    """Give all-zero channels the largest scale, which changes no number.

    An observer yields the least scale for such channels, and a bias in steps that small would not
    fit into 32 bits.
    """
    rows = np.moveaxis(integers, grid.axis, 0).reshape(len(grid.scale), -1)
    zeros = (rows == np.asarray(grid.zero_point)[:, None]).all(axis=1)
    scale = np.where(zeros, grid.scale.max(), grid.scale).astype(np.float32)
    return Grid(scale, grid.zero_point, grid.axis, grid.dtype)
