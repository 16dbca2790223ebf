# SPDX-License-Identifier: Apache-2.0
"""LSTM, GRU and RNN.

The products of all inputs with their weights do not depend on the state and become one matrix
product. The time steps become `floats.recurrent`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from umakit import tvm_api
from umakit.floats.recurrent import GATES, Activation, Cell, recurrent
from umakit.frontend.onnx.registry import Node, converts
from umakit.tvm_api import Expr, relax

op = relax.op

USUAL = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}
"""Activations of one direction that names none."""

PARAMETERS: dict[str, tuple[float | None, float | None]] = {
    **dict.fromkeys(("sigmoid", "tanh", "relu", "softsign", "softplus"), (None, None)),
    **dict.fromkeys(("elu", "thresholdedrelu"), (1.0, None)),
    "leakyrelu": (0.01, None),
    "affine": (1.0, 0.0),
    "scaledtanh": (1.0, 1.0),
    "hardsigmoid": (0.2, 0.5),
}
"""Defaults of alpha and beta by activation, None where it has none."""

NO_DEFAULTS = ("affine", "scaledtanh", "thresholdedrelu")
"""Activations whose parameters are 0 by default in ONNX Runtime, unlike in the specification."""

DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
"""Whether each direction starts at the last step, by value of the attribute `direction`."""

COMMON = "activation_alpha activation_beta activations clip direction hidden_size layout"
OUTPUTS = {"output_sequence": "the names of the outputs say which of them are wanted"}

BATCH_FIRST = 1
"""Layout whose first axis is the batch instead of the time step."""


@dataclass(frozen=True)
class _Sizes:
    """Sizes of a layer: steps, sequences, inputs, hidden units, and gates of a cell."""

    steps: int
    batch: int
    inputs: int
    hidden: int
    gates: int


@converts("LSTM", f"{COMMON} input_forget", ignored=OUTPUTS)
@converts("GRU", f"{COMMON} linear_before_reset", ignored=OUTPUTS)
@converts("RNN", COMMON, ignored=OUTPUTS)
def recurrent_layer(node: Node) -> list[Expr]:
    """Return Y, Y_h and (for LSTM) Y_c of one or both directions."""
    kind = node.proto.op_type
    reversals = DIRECTIONS.get(node.attribute("direction", "forward"))
    batch_first = int(node.attribute("layout", 0)) == BATCH_FIRST
    if reversals is None or node.dtype(0) not in ("float32", "float64"):
        raise node.refuse(
            f"has direction={node.attribute('direction')} and inputs of {node.dtype(0)}"
        )
    data = node.inputs[0]
    if batch_first:
        data = node.emit(op.permute_dims(data, [1, 0, 2]))
    sizes = _sizes(node, tvm_api.static_shape(data) or (), len(reversals))
    cells = _cells(node, kind, reversals)
    lengths = _lengths(node, sizes)
    rows = node.emit(op.reshape(data, [sizes.steps * sizes.batch, sizes.inputs]))
    results = [
        _direction(node, number, cell, rows, sizes, lengths) for number, cell in enumerate(cells)
    ]
    return _joined(node, results, batch_first, 3 if kind == "LSTM" else 2)


def _sizes(node: Node, shape: tuple[int, ...], directions: int) -> _Sizes:
    weights, recurrence, gates = node.shape(1), node.shape(2), GATES[node.proto.op_type]
    hidden = int(node.attribute("hidden_size") or recurrence[-1])
    steps, batch, inputs = shape if len(shape) == 3 else (0, 0, 0)
    expected = (directions, gates * hidden, inputs), (directions, gates * hidden, hidden)
    if (weights, recurrence) != expected:
        raise node.refuse(
            f"has hidden_size={hidden} and the inputs X {list(node.shape(0))}, W {list(weights)}, "
            f"R {list(recurrence)}, which do not fit"
        )
    return _Sizes(steps, batch, inputs, hidden, gates)


def _cells(node: Node, kind: str, reversals: Sequence[bool]) -> list[Cell]:
    names = [
        name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)
        for name in node.attribute("activations") or USUAL[kind] * len(reversals)
    ]
    count = len(USUAL[kind])
    if len(names) < count * len(reversals):
        raise node.refuse(f"has {len(names)} activations, not {count * len(reversals)}")
    # RNN's default lists the activations of two directions.
    names = names[: count * len(reversals)]
    alphas, betas = (
        iter(list(node.attribute(f"activation_{name}") or ())) for name in ("alpha", "beta")
    )
    activations = [_activation(node, name, alphas, betas) for name in names]
    clip = node.attribute("clip")
    return [
        Cell(
            kind,
            tuple(activations[number * count : (number + 1) * count]),
            reverse=reverse,
            clip=float(clip) if clip else None,
            couples_gates=bool(node.attribute("input_forget", 0)),
            resets_after=bool(node.attribute("linear_before_reset", 0)),
        )
        for number, reverse in enumerate(reversals)
    ]


def _activation(
    node: Node, name: str, alphas: Iterator[float], betas: Iterator[float]
) -> Activation:
    """Return an activation, with its parameters from the next values of alphas and betas."""
    usual = PARAMETERS.get(name.lower())
    if usual is None:
        raise node.refuse(
            f"has the activation {name!r}, which is not supported",
            f"supported are {', '.join(sorted(PARAMETERS))}",
        )
    values = []
    for usually, given in zip(usual, (alphas, betas), strict=True):
        value = 0.0 if usually is None else next(given, None)
        if value is None and name.lower() in NO_DEFAULTS:
            raise node.refuse(
                f"has the activation {name} without a parameter, which is another one by default "
                "in ONNX Runtime than in the specification",
                "give activation_alpha and activation_beta",
            )
        values.append(float(usually if value is None and usually is not None else value or 0.0))
    return Activation(name.lower(), *values)


def _lengths(node: Node, sizes: _Sizes) -> Any | None:
    """Return the number of steps of each sequence, int32[B]; None if all sequences are full length.

    Lengths computed at run time index a table, so that generated C checks their range.
    """
    if node.input(4) is None:
        return None
    constant = node.constant(4)
    if node.shape(4) != (sizes.batch,):
        raise node.refuse(f"has {list(node.shape(4))} sequence_lens for {sizes.batch} sequences")
    if constant is None:
        table = relax.const(np.arange(sizes.steps + 1, dtype=np.int32), "int32")
        return node.emit(op.take(table, node.inputs[4], 0, "fast"))
    if ((constant < 0) | (constant > sizes.steps)).any():
        raise node.refuse(f"has sequence_lens {constant.tolist()} for {sizes.steps} steps")
    if (constant == sizes.steps).all():
        return None
    return relax.const(constant.astype(np.int32), "int32")


def _direction(
    node: Node, number: int, cell: Cell, rows: Expr, sizes: _Sizes, lengths: Any | None
) -> list[Any]:
    """Return outputs [T, B, H], last state [B, H] and last cell [B, H] of one direction."""
    hidden, emit = sizes.hidden, node.emit
    weights = emit(op.permute_dims(_of_direction(node, 1, number)))
    gates = emit(op.matmul(rows, weights))
    optional: dict[str, Any] = {}
    if node.input(3) is not None:
        bias, hidden_bias = _biases(node, number, cell, sizes)
        gates = emit(op.add(gates, bias))
        if hidden_bias is not None:
            optional["hidden_bias"] = hidden_bias
    gates = emit(op.reshape(gates, [sizes.steps, sizes.batch, sizes.gates * hidden]))
    state = _state(node, 5, number, sizes)
    if cell.kind == "LSTM":
        optional["cell"] = _state(node, 6, number, sizes)
        if node.input(7) is not None:
            optional["peepholes"] = _of_direction(node, 7, number)
    if lengths is not None:
        optional["lengths"] = lengths
    both = emit(recurrent(cell, [gates, _of_direction(node, 2, number), state], optional))
    return [emit(relax.TupleGetItem(both, item)) for item in range(3)]


def _of_direction(node: Node, position: int, number: int) -> Expr:
    """Return one direction's slice of an input whose first axis is the direction."""
    whole = node.inputs[position]
    if node.shape(position)[0] > 1:
        whole = node.emit(op.strided_slice(whole, [0], [number], [number + 1]))
    return node.emit(op.squeeze(whole, [0]))


def _biases(node: Node, number: int, cell: Cell, sizes: _Sizes) -> tuple[Any, Any | None]:
    """Return Wb + Rb [G * H]; separately Rbh [H] if the reset gate applies to Rbh."""
    size, hidden, emit = sizes.gates * sizes.hidden, sizes.hidden, node.emit
    if node.shape(3)[1:] != (2 * size,):
        raise node.refuse(f"has a bias of shape {list(node.shape(3))}")
    bias = _of_direction(node, 3, number)
    first, second = (
        emit(op.strided_slice(bias, [0], [begin], [begin + size])) for begin in (0, size)
    )
    if not (cell.kind == "GRU" and cell.resets_after):
        return emit(op.add(first, second)), None
    last = emit(op.strided_slice(second, [0], [size - hidden], [size]))
    others = emit(op.strided_slice(second, [0], [0], [size - hidden]))
    zeros = relax.const(np.zeros(hidden, node.dtype(0)), node.dtype(0))
    return emit(op.add(first, emit(op.concat([others, zeros], 0)))), last


def _state(node: Node, position: int, number: int, sizes: _Sizes) -> Expr:
    """Return the initial state of a direction [B, H]; zeros by default."""
    if node.input(position) is None:
        shape, dtype = (sizes.batch, sizes.hidden), node.dtype(0)
        return relax.const(np.zeros(shape, dtype), dtype)
    axis = 1 if int(node.attribute("layout", 0)) == BATCH_FIRST else 0
    state = node.inputs[position]
    if node.shape(position)[axis] > 1:
        state = node.emit(op.strided_slice(state, [axis], [number], [number + 1]))
    return node.emit(op.reshape(state, [sizes.batch, sizes.hidden]))


def _joined(node: Node, results: list[list[Any]], batch_first: bool, count: int) -> list[Any]:
    """Join the results of all directions: Y [T, D, B, H], then states [D, B, H]."""
    outputs = []
    for item in range(count):
        axis = 1 if item == 0 else 0
        parts = [node.emit(op.expand_dims(result[item], axis)) for result in results]
        joined = parts[0] if len(parts) == 1 else node.emit(op.concat(parts, axis))
        if batch_first:
            joined = node.emit(op.permute_dims(joined, [2, 0, 1, 3] if item == 0 else [1, 0, 2]))
        outputs.append(joined)
    return outputs
