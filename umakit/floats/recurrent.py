# SPDX-License-Identifier: Apache-2.0
"""One direction of a recurrent layer: LSTM, GRU, or the plain recurrence, over all steps.

recurrent  (gates [T, B, G * H], weights [G * H, H], state [B, H], then, if used,
            cell [B, H], peepholes [3 * H], hidden_bias [H], lengths int32[B])
           -> (outputs [T, B, H], state [B, H], cell or scratch [B, H])

`gates` are the products of inputs and weights, plus all biases that do not depend on the state.
Gates come in the order of the ONNX operators: input, output, forget, cell; update, reset, hidden.
Their number G is 4, 3 or 1. From a sequence's length on, outputs are 0 and states stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from umakit import tvm_api
from umakit.tvm_api import Call

OPERATOR = "recurrent"

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
"""Number of gates by kind of cell."""


@dataclass(frozen=True)
class Activation:
    """Activation function of the ONNX operator specification of LSTM.

    Attributes:
        name: name in lower case.
    """

    name: str
    alpha: float = 0.0
    beta: float = 0.0

    @property
    def text(self) -> str:
        """Return the activation as text for a call attribute."""
        return f"{self.name} {self.alpha!r} {self.beta!r}"

    @staticmethod
    def of(text: str) -> Activation:
        """Parse an activation from `text`."""
        name, alpha, beta = text.split()
        return Activation(name, float(alpha), float(beta))


@dataclass(frozen=True)
class Cell:
    """One time step of a recurrent layer.

    Attributes:
        kind: a key of `GATES`.
        activations: f, g and h, as many as the kind uses.
        clip: limit of activation inputs; None for no limit.
        cell_clip: LSTM only: limit of the cell's new state; None for no limit.
        couples_gates: LSTM only: whether the forget gate is 1 minus the input gate.
        resets_after: GRU only: whether the reset gate applies to the product of the state.
    """

    kind: str
    activations: tuple[Activation, ...]
    reverse: bool = False
    clip: float | None = None
    cell_clip: float | None = None
    couples_gates: bool = False
    resets_after: bool = False


OPTIONAL = ("cell", "peepholes", "hidden_bias", "lengths")
"""Operands that a call may have, after the first three, in this order."""


def recurrent(cell: Cell, operands: Sequence[Any], optional: dict[str, Any]) -> Call:
    """Return a call of the operator `recurrent`.

    Args:
        operands: gates, weights, state.
        optional: optional operands by name in `OPTIONAL`.
    """
    present = [name for name in OPTIONAL if name in optional]
    attributes = {
        "kind": cell.kind,
        "activations": ";".join(activation.text for activation in cell.activations),
        "reverse": int(cell.reverse),
        "clip": "" if cell.clip is None else repr(cell.clip),
        "cell_clip": "" if cell.cell_clip is None else repr(cell.cell_clip),
        "couples_gates": int(cell.couples_gates),
        "resets_after": int(cell.resets_after),
        "optional": " ".join(present),
    }
    given = [*operands, *(optional[name] for name in present)]
    return tvm_api.operator_call(OPERATOR, given, attributes)


def cell_of(call: Call) -> tuple[Cell, list[str]]:
    """Return the cell of a call and the names of its optional operands."""
    attributes, clip = call.attrs, str(call.attrs["clip"])
    cell_clip = str(attributes["cell_clip"])
    activations = str(attributes["activations"]).split(";")
    cell = Cell(
        str(attributes["kind"]),
        tuple(Activation.of(text) for text in activations),
        reverse=bool(int(attributes["reverse"])),
        clip=float(clip) if clip else None,
        cell_clip=float(cell_clip) if cell_clip else None,
        couples_gates=bool(int(attributes["couples_gates"])),
        resets_after=bool(int(attributes["resets_after"])),
    )
    return cell, str(attributes["optional"]).split()


def _infer(call: Call, builder: tvm_api.BlockBuilder) -> tvm_api.Type:
    steps, _, _ = tvm_api.static_shape(call.args[0]) or (0, 0, 0)
    batch, hidden = tvm_api.static_shape(call.args[2]) or (0, 0)
    dtype = tvm_api.dtype_of(call.args[0])
    state = tvm_api.tensor_type((batch, hidden), dtype)
    outputs = tvm_api.tensor_type((steps, batch, hidden), dtype)
    return tvm_api.relax.TupleType([outputs, state, state])


tvm_api.register_operator(OPERATOR, str(__doc__), _infer)
