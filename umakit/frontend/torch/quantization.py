# SPDX-License-Identifier: Apache-2.0
"""Quantized programs of PyTorch (PT2E): quantize and dequantize in Relax.

`torchao.quantization.pt2e` writes a quantized network as real arithmetic between the operators
`torch.ops.quantized_decomposed.{quantize,dequantize}_per_{tensor,channel}`
(`torch/ao/quantization/fx/_decomposed.py`), as Relax does. Data movement between a dequantize and
its operator, or an operator and its quantize, is applied to the integers, which changes no number.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from umakit import tvm_api
from umakit.floats import resampling
from umakit.frontend.model import Quantization
from umakit.frontend.torch.registry import Arguments, Graph, Node, arguments_of
from umakit.tvm_api import Call, Expr, relax

DTYPES = ("int8", "uint8", "int16", "uint16", "int32")
EVERYWHERE = "quantize activations and weights to 8 bits (static, per tensor or per channel)"

DATA_MOVEMENT_OPERATORS = frozenset(
    "reshape permute_dims squeeze expand_dims concat strided_slice flip repeat tile broadcast_to "
    "take nn.max_pool2d".split()
)
"""Operators that yield some of their operands' elements: on integers they do the same."""

ACTIVATIONS = ("nn.relu", "clip")
"""Operators of single elements that become part of a quantized layer."""

REFUSED: tuple[tuple[str, str, str], ...] = (
    (r"fake_quant|_fused_moving_avg", "simulates quantization (it is prepared, not converted)",
     "call convert_pt2e before torch.export.export"),
    (r"choose_qparams|per_token|dynamic", "chooses scales for each input (dynamic quantization)",
     "quantize statically: is_dynamic=False, and calibrate with data"),
    (r"float8|_scaled_mm|mx_fp", "computes with float8", EVERYWHERE),
    (r"int4|uint4|nf4|gptq|awq|pack_?(mm|linear)|intx", "has packed weights of less than 8 bits, "
     "or of a library's own format", EVERYWHERE),
    (r"per_channel_group|affine|block", "has scales for groups of elements",
     "quantize per tensor or per channel"),
    (r"^(onednn|_?quantized|xnnpack|mkldnn|fbgemm)\.", "is an operator of a runtime's own kernels",
     "export the program of convert_pt2e before it is lowered to a runtime"),
)  # fmt: skip
"""Pattern of the operator's name, its behaviour, and the fix."""


def refusal(operator: str) -> tuple[str, str] | None:
    """Return the reason and the fix for an unsupported quantized operator; None for others.

    The operator has namespace and overload, such as `torchao.dequantize_affine.default`.
    """
    for pattern, what, fix in REFUSED:
        if re.search(pattern, operator):
            return f"{what}, which is not supported", fix
    return None


def is_quantized_operator(node: Node, kind: str) -> bool:
    target = node.target
    space = getattr(target, "namespace", "")
    return space == "quantized_decomposed" and str(target.__name__).startswith(f"{kind}_per_")


@dataclass(frozen=True)
class Grid:
    """Scale, zero point, axis and dtype of quantized integers.

    Attributes:
        scale: float32, scalar or vector.
        zero_point: integers that represent 0, scalar or vector.
        axis: axis of the channels; -1 for a single scale.
    """

    scale: Any
    zero_point: Any
    axis: int
    dtype: str

    def quantize(self, value: Expr) -> Expr:
        return relax.op.quantize(value, *self._constants(), axis=self.axis, out_dtype=self.dtype)

    def dequantize(self, value: Expr, dtype: str) -> Expr:
        return relax.op.dequantize(value, *self._constants(), axis=self.axis, out_dtype=dtype)

    def _constants(self) -> tuple[Any, Any]:
        return relax.const(self.scale, "float32"), relax.const(self.zero_point, self.dtype)


def number_of(graph: Graph, node: Node, given: Any, what: str) -> npt.NDArray[Any]:
    """Return a number or constant tensor among a node's arguments as a NumPy array."""
    if not isinstance(given, torch.fx.Node):
        return np.asarray(given)
    if graph.depends_on_inputs(given):
        raise graph.refuse(
            node,
            f"has a {what} that is computed from the inputs (dynamic quantization), which is not "
            "supported",
            "quantize statically: is_dynamic=False, and calibrate with data",
        )
    array: npt.NDArray[Any] = graph.fake(given).detach().cpu().numpy()
    return array


def grid_of(graph: Graph, node: Node, given: Arguments) -> Grid:
    dtype = str(given["dtype"]).removeprefix("torch.")
    if dtype not in DTYPES:
        fix = EVERYWHERE if re.search("float8|int4", dtype) else "quantize to 8 bits"
        raise graph.refuse(node, f"has integers of {dtype}, which is not supported", fix)
    per_channel = "scales" in given
    ending = "s" if per_channel else ""
    scale = number_of(graph, node, given[f"scale{ending}"], "scale")
    zero_point = given[f"zero_point{ending}"]
    zero_point = number_of(graph, node, 0 if zero_point is None else zero_point, "zero point")
    scale = np.asarray(scale, np.float32)
    limits = np.iinfo(dtype)
    if not np.isfinite(scale).all() or (scale <= 0).any():
        raise graph.refuse(node, f"has the scale {scale.min()}", "calibrate the model again")
    if (zero_point < limits.min).any() or (zero_point > limits.max).any():
        raise graph.refuse(node, f"has a zero point outside of {dtype}")
    if not per_channel:
        return Grid(scale.reshape(()), zero_point.reshape(()).astype(dtype), -1, dtype)
    rank = len(graph.type_of(given["input"])[0])
    zero_points = np.broadcast_to(zero_point, scale.shape).astype(dtype)
    return Grid(scale, np.ascontiguousarray(zero_points), given["axis"] % rank, dtype)


def single_grid(call: Expr) -> Grid | None:
    """Return the grid of a per-tensor dequantize to float32; None for anything else."""
    if tvm_api.operator_name(call) != "dequantize" or tvm_api.dtype_of(call) != "float32":
        return None
    scale, zero_point = (tvm_api.constant_array(argument) for argument in call.args[1:3])
    if scale is None or zero_point is None or scale.size != 1:
        return None
    dtype = tvm_api.dtype_of(call.args[0])
    return Grid(scale.reshape(()), zero_point.reshape(()), -1, dtype)


def _operands(call: Call) -> list[Any]:
    first = call.args[0]
    return list(first.fields) if isinstance(first, tvm_api.RelaxTuple) else [first]


def _with_operands(call: Call, operands: list[Any]) -> Call:
    several = isinstance(call.args[0], tvm_api.RelaxTuple)
    first = relax.Tuple(operands) if several else operands[0]
    return relax.Call(call.op, [first, *call.args[1:]], call.attrs, None, call.span)


def _is_movement(call: Expr) -> bool:
    operator = tvm_api.operator_name(call)
    if operator == resampling.OPERATOR:
        return isinstance(call, Call) and resampling.moves_only(call)
    return operator in DATA_MOVEMENT_OPERATORS


def in_front_of_dequantize(graph: Graph, value: Expr) -> Expr:
    """Move a data movement in front of its operands' dequantize; keep other values."""
    call = graph.definition(value)
    if isinstance(call, Call) and tvm_api.operator_name(call) == "nn.pad":
        return _padded_integers(graph, call, value)
    if not isinstance(call, Call) or not _is_movement(call):
        return value
    sources = [graph.definition(operand) for operand in _operands(call)]
    grids = [single_grid(source) for source in sources]
    grid = grids[0]
    if grid is None or any(other != grid for other in grids):
        return value
    if tvm_api.constant_array(sources[0].args[0]) is not None:
        return value  # a weight: quantization looks through its movements
    moved = graph.block_builder.emit(_with_operands(call, [s.args[0] for s in sources]))
    return grid.dequantize(moved, "float32")


def _padded_integers(graph: Graph, call: Call, value: Expr) -> Expr:
    """Replace a zero pad of dequantized integers by a pad of the integers with the zero point."""
    source = graph.definition(call.args[0])
    grid, number = single_grid(source), float(call.attrs.pad_value)
    if grid is None or number != 0 or str(call.attrs.pad_mode) != "constant":
        return value
    widths = [int(width) for width in call.attrs.pad_width]
    padded = relax.op.nn.pad(source.args[0], widths, pad_value=int(grid.zero_point))
    return grid.dequantize(graph.block_builder.emit(padded), "float32")


def moved_behind(graph: Graph, value: Expr, function: Callable[[Expr], Expr]) -> Expr:
    """Replace a quantize of moved numbers by the movement of quantized numbers."""
    call = graph.definition(value)
    if not isinstance(call, Call):
        return function(value)
    operator = tvm_api.operator_name(call)
    if operator in ACTIVATIONS and _is_movement(graph.definition(call.args[0])):

        def activated(moved: Expr) -> Expr:
            return function(graph.block_builder.emit(_with_operands(call, [moved])))

        return moved_behind(graph, call.args[0], activated)
    if not _is_movement(call):
        return function(value)
    parts = [moved_behind(graph, operand, function) for operand in _operands(call)]
    parts = [graph.block_builder.emit(part) for part in parts]
    return _with_operands(call, parts)


def edge_quantization(graph: Graph, node: Node, kind: str) -> Quantization | None:
    """Return scale and zero point of an integer input or output, if the program tells them.

    `kind` is `dequantize` for an input, read by the node's users, and `quantize` for an output.
    """
    sources = node.users if kind == "dequantize" else [node]
    found = set()
    for source in sources:
        if source.op != "call_function" or not is_quantized_operator(source, kind):
            continue
        given = arguments_of(source)
        if "scale" in given:
            grid = grid_of(graph, source, given)
            found.add(Quantization(float(grid.scale), int(grid.zero_point)))
    return found.pop() if len(found) == 1 else None
