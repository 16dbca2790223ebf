# SPDX-License-Identifier: Apache-2.0
"""`quantized.lstm`: all steps of an LSTM, with a cell state of 16 bits.

lstm  (data [B, T, I], input weights int8[4 * H, I], bias [4 * H], recurrent weights
      int8[4 * H, H], bias [4 * H], multipliers int32[8], shifts int8[8], table uint16[256],
      hidden state [B, H], cell state int16[B, H])
      -> (outputs [B, T, H], hidden state [B, H], cell state int16[B, H])

Gates come in the order input, forget, output, cell; the first four multipliers are for products of
the data, the others for products of the hidden state. If `time_major`, data and outputs are [T, B,
I] and [T, B, H]. Data, outputs and hidden state are int8 with int32 biases, or int16 with int64
biases.

The source is `lstm_eval.h` of TensorFlow Lite Micro. Gates have 12 fractional bits before their
activation function and 15 after.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from umakit import tvm_api
from umakit.operators.drawings import layers
from umakit.operators.interface import BIAS, Interface, Shape
from umakit.operators.kernels import loops as ir
from umakit.operators.kernels.convolution import shifted
from umakit.operators.numeric.requantize import add_and_clamp, requantize
from umakit.operators.parameters import Pair, Parameters
from umakit.operators.registry import Shapes, register
from umakit.operators.sigmoid_lookup import between
from umakit.tvm_api import PrimExpr, Stmt, int32

relax, tirx = tvm_api.relax, tvm_api.tirx

Element = Callable[[PrimExpr], PrimExpr]

GATES = 4
GATE_SCALE, FUNCTION_SCALE = 2.0**-12, 2.0**-15
CELL_LIMITS = np.iinfo(np.int16)


@dataclass(frozen=True)
class Lstm(Parameters):
    """All steps of an LSTM; see the docstring of the module.

    Attributes:
        time_major: whether the first axis of data and outputs is time.
        cell_argument: multiplier and shift from the cell state to the argument of tanh.
        cell_clip: least and largest cell state.
        forget, update, result: multiplier and shift of the products of forget gate and cell state,
            of input and cell gate, and of output gate and cell.
    """

    operator: ClassVar[str] = "lstm"

    time_major: int
    cell_argument: Pair
    cell_clip: Pair
    forget: Pair
    update: Pair
    result: Pair

    @classmethod
    def result_type(cls, call: tvm_api.Call, builder: tvm_api.BlockBuilder) -> tvm_api.Type:
        states = [
            tvm_api.tensor_type(tvm_api.static_shape(state) or (), tvm_api.dtype_of(state))
            for state in call.args[-2:]
        ]
        return relax.TupleType([Parameters.result_type(call, builder), *states])


NAMES = (
    "data", "input_weights", "input_bias", "recurrent_weights", "recurrent_bias", "multipliers",
    "shifts", "table", "hidden", "cell",
)  # fmt: skip


def _kernel(parameters: Lstm, shapes: Shapes, dtypes: list[str]) -> tvm_api.PrimFunc:
    layer = _Kernel(parameters, shapes, dtypes)
    # Gates and cell have 16 bits: arguments of their functions are inside the table.
    return ir.kernel([*layer.inputs.values(), *layer.results], layer.body(), inside=True)


class _Kernel:
    """Builder of the kernel's buffers and statements."""

    def __init__(self, parameters: Lstm, shapes: Shapes, dtypes: list[str]) -> None:
        self._parameters = parameters
        self.inputs = dict(zip(NAMES, ir.buffers(NAMES, shapes, dtypes), strict=True))
        (self._batch, self._hidden), self._columns = shapes[-1], shapes[0][2]
        self._steps = shapes[0][0] if parameters.time_major else shapes[0][1]
        self.results = [
            ir.buffer("outputs", parameters.output_shape, parameters.output_dtype),
            ir.buffer("last_hidden", shapes[-2], dtypes[-2]),
            ir.buffer("last_cell", shapes[-1], dtypes[-1]),
        ]
        bits = 64 if parameters.output_dtype == "int16" else 32
        self._sums = ir.accumulators(GATES, bits)
        self._gates = tirx.decl_buffer([GATES], "int32", "gates", scope="local")

    def body(self) -> Stmt:
        _, hidden, cell = self.results

        def start(b: PrimExpr, j: PrimExpr) -> Stmt:
            return ir.sequence(
                tirx.BufferStore(hidden, self.inputs["hidden"][b, j], [b, j]),
                tirx.BufferStore(cell, self.inputs["cell"][b, j], [b, j]),
            )

        return ir.sequence(
            ir.loops([("b", self._batch), ("j", self._hidden)], start),
            tirx.AllocBuffer(self._sums),
            tirx.AllocBuffer(self._gates),
            ir.loops([("b", self._batch), ("t", self._steps)], self._step),
        )

    def _place(self, b: PrimExpr, t: PrimExpr, column: PrimExpr) -> list[PrimExpr]:
        return [t, b, column] if self._parameters.time_major else [b, t, column]

    def _step(self, b: PrimExpr, t: PrimExpr) -> Stmt:
        outputs, hidden, _ = self.results

        def keep(j: PrimExpr) -> Stmt:
            return tirx.BufferStore(hidden, outputs[tuple(self._place(b, t, j))], [b, j])

        return ir.sequence(
            ir.loop("j", self._hidden, lambda j: self._unit(b, t, j)),
            ir.loop("j", self._hidden, keep),
        )

    def _unit(self, b: PrimExpr, t: PrimExpr, j: PrimExpr) -> Stmt:
        data, hidden = self.inputs["data"], self.results[1]
        return ir.sequence(
            *self._products(
                "input", j, self._columns, lambda i: data[tuple(self._place(b, t, i))]
            ),
            ir.loop("gate", GATES, lambda gate: self._store_gate(gate, self._factored(gate, 0))),
            *self._products("recurrent", j, self._hidden, lambda i: hidden[b, i]),
            ir.loop("gate", GATES, lambda gate: self._store_gate(
                gate, _limited(self._gates[gate] + self._factored(gate, GATES))
            )),
            ir.loop("gate", GATES - 1, lambda gate: self._function(gate, tanh=False)),
            self._function(int32(GATES - 1), tanh=True),
            *self._states(b, t, j),
        )  # fmt: skip

    def _products(self, kind: str, j: PrimExpr, length: int, element: Element) -> list[Stmt]:
        weights, bias = self.inputs[f"{kind}_weights"], self.inputs[f"{kind}_bias"]

        def row(gate: PrimExpr) -> PrimExpr:
            return gate * int32(self._hidden) + j

        return [
            ir.loop("gate", GATES, lambda gate: ir.set_to(self._sums, gate, bias[row(gate)])),
            ir.loop("i", length, lambda i: ir.add_products(
                self._sums, [shifted(element(i), 0)],
                [weights[row(int32(gate)), i] for gate in range(GATES)],
            )),
        ]  # fmt: skip

    def _factored(self, gate: PrimExpr, first: int) -> PrimExpr:
        """Return a gate's sum with 12 fractional bits, limited to 16 bits."""
        place = gate + int32(first)
        factor = (self.inputs["multipliers"][place], self.inputs["shifts"][place])
        return _limited(
            requantize(ir.total_of(self._sums, gate), *factor, self._parameters.arithmetic)
        )

    def _store_gate(self, gate: PrimExpr, value: PrimExpr) -> Stmt:
        return tirx.BufferStore(self._gates, value, [gate])

    def _function(self, gate: PrimExpr, *, tanh: bool) -> Stmt:
        """Return the activation function of a gate, with 15 fractional bits."""
        steps = ir.Statements()
        value = steps.bind("gate_value", self._gates[gate])
        result = between(steps, self.inputs["table"], value, (3, 0), tanh=tanh)
        return ir.sequence(*steps.list, self._store_gate(gate, result))

    def _states(self, b: PrimExpr, t: PrimExpr, j: PrimExpr) -> list[Stmt]:
        parameters, gates = self._parameters, self._gates
        outputs, _, cell = self.results
        inputs, forget, output, candidate = (gates[int32(gate)] for gate in range(GATES))
        kept = self._scaled(forget * int32(cell[b, j]), parameters.forget)
        added = self._scaled(inputs * candidate, parameters.update)
        total = add_and_clamp(kept + added, 0, *parameters.cell_clip)
        steps = ir.Statements()
        after = steps.bind("after", int32(cell[b, j]))
        argument = parameters.cell_argument
        activated = between(steps, self.inputs["table"], after, argument, tanh=True)
        factor = (int32(parameters.result[0]), int32(parameters.result[1]))
        statements, scaled = ir.bound(
            "scaled", requantize(activated * output, *factor, parameters.arithmetic)
        )
        result = add_and_clamp(scaled, parameters.output_zero_point, *parameters.clip)
        return [
            tirx.BufferStore(cell, total.astype("int16"), [b, j]),
            *steps.list,
            *statements,
            tirx.BufferStore(outputs, result.astype(parameters.output_dtype), self._place(b, t, j)),
        ]

    def _scaled(self, product: PrimExpr, factor: Pair) -> PrimExpr:
        value = requantize(product, int32(factor[0]), int32(factor[1]), self._parameters.arithmetic)
        return _limited(value)


def _limited(value: PrimExpr) -> PrimExpr:
    return add_and_clamp(value, 0, int(CELL_LIMITS.min), int(CELL_LIMITS.max))


def _macs(call: tvm_api.Call, _: tuple[int, ...]) -> int:
    data, weights, recurrent_weights = (
        tvm_api.static_shape(call.args[place]) or (0, 0, 0) for place in (0, 1, 3)
    )
    return data[0] * data[1] * weights[0] * (weights[1] + recurrent_weights[1])


def _sizes(parameters: Lstm, shapes: Mapping[str, Shape]) -> dict[str, int]:
    (batch, *_, units), (*steps, inputs) = shapes["hidden"], shapes["data"]
    return {
        "batch": batch, "steps": math.prod(steps) // batch, "inputs": inputs, "units": units,
    }  # fmt: skip


DTYPES = ("", "int8", BIAS, "int8", BIAS, "int32", "int8", "uint16", "", "int16")
"""Dtypes of the operands; empty for the dtype of the data."""

register(
    parameters=Lstm,
    kernel_of_operands=_kernel,
    macs=_macs,
    drawing=layers.lstm(Lstm),
    interface=Interface(
        operands=dict(zip(NAMES, DTYPES, strict=True)),
        results={"next_hidden": "hidden", "next_cell": "cell"},
        sizes=_sizes,
        names={
            "cell_clip": ("cell_lowest", "cell_highest"),
            **{
                name: (f"{short}_multiplier", f"{short}_shift")
                for name, short in (
                    ("cell_argument", "cell"),
                    ("forget", "forget"),
                    ("update", "update"),
                    ("result", "result"),
                )
            },
        },
    ),
)
