# SPDX-License-Identifier: Apache-2.0
"""The CPU kernel of float LSTM, GRU and RNN layers, see `umakit.floats.recurrent`.

Formulas of the ONNX operator specification of LSTM, GRU and RNN.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from umakit import tvm_api
from umakit.floats.recurrent import OPERATOR, Activation, Cell, cell_of
from umakit.operators.kernels.loops import buffer, kernel, loop, loops, sequence
from umakit.tvm_api import int32

relax = tvm_api.relax
tirx = tvm_api.tirx


def rules() -> dict[str, tvm_api.Legalization]:
    """Return the rules for `LegalizeOps` by operator."""
    return {f"relax.{OPERATOR}": _recurrent}


def _recurrent(builder: tvm_api.BlockBuilder, call: tvm_api.Call) -> tvm_api.Expr:
    cell, names = cell_of(call)
    shapes = [tvm_api.static_shape(operand) or () for operand in call.args]
    names = ["gates", "weights", "state", *names]
    inputs = {
        name: buffer(name, shape, tvm_api.dtype_of(operand))
        for name, shape, operand in zip(names, shapes, call.args, strict=True)
    }
    dtype, (steps, batch, _), hidden = tvm_api.dtype_of(call.args[0]), shapes[0], shapes[2][1]
    results = [
        buffer(name, shape, dtype)
        for name, shape in (
            ("outputs", (steps, batch, hidden)),
            ("last_state", (batch, hidden)),
            ("last_cell", (batch, hidden)),
        )
    ]
    layer = _Layer(cell, inputs, results, dtype, (steps, batch, hidden))
    body = kernel([*inputs.values(), *results], layer.body())
    variable = builder.add_func(body, cell.kind.lower())
    return relax.call_tir(variable, relax.Tuple(list(call.args)), list(call.ty.fields))


@dataclass(frozen=True)
class _Layer:
    """Generates the statements of one layer.

    Attributes:
        results: buffers of outputs, hidden state and cell state; scratch instead of a cell state if
            the layer has none.
    """

    cell: Cell
    inputs: Mapping[str, tvm_api.Buffer]
    results: Sequence[tvm_api.Buffer]
    dtype: str
    sizes: tuple[int, int, int]

    def body(self) -> tvm_api.Stmt:
        """Return the loop over all steps."""
        steps, batch, hidden = self.sizes
        _, state, memory = self.results

        def start(b: tvm_api.Expr, j: tvm_api.Expr) -> tvm_api.Stmt:
            first = tirx.BufferStore(state, self.inputs["state"][b, j], [b, j])
            source = self.inputs["cell"][b, j] if "cell" in self.inputs else self._number(0.0)
            return sequence(first, tirx.BufferStore(memory, source, [b, j]))

        def step(number: tvm_api.Expr) -> tvm_api.Stmt:
            t = int32(steps - 1) - number if self.cell.reverse else number
            return loop("b", batch, lambda b: self._in_sequence(t, b))

        return sequence(loops([("b", batch), ("j", hidden)], start), loop("step", steps, step))

    def _in_sequence(self, t: tvm_api.Expr, b: tvm_api.Expr) -> tvm_api.Stmt:
        """Return one step of one sequence, with outputs of zero after the sequence's end."""
        outputs, state, _ = self.results
        hidden = self.sizes[2]

        def keep(j: tvm_api.Expr) -> tvm_api.Stmt:
            return tirx.BufferStore(state, outputs[t, b, j], [b, j])

        compute = sequence(*self._step(t, b), loop("kept", hidden, keep))
        if "lengths" not in self.inputs:
            return compute
        clear = loop("j", hidden, lambda j: tirx.BufferStore(outputs, self._number(0.0), [t, b, j]))
        return tirx.IfThenElse(t < self.inputs["lengths"][b], compute, clear)

    def _step(self, t: tvm_api.Expr, b: tvm_api.Expr) -> list[tvm_api.Stmt]:
        hidden, kind = self.sizes[2], self.cell.kind
        if kind == "GRU" and not self.cell.resets_after:
            return [
                loop("r", hidden, lambda j: self._reset_state(t, b, j)),
                loop("j", hidden, lambda j: self._gru(t, b, j)),
            ]
        element = {"LSTM": self._lstm, "GRU": self._gru_reset_after, "RNN": self._rnn}[kind]
        return [loop("j", hidden, lambda j: element(t, b, j))]

    # --- cells ------------------------------------------------------------------------------------

    def _rnn(self, t: tvm_api.Expr, b: tvm_api.Expr, j: tvm_api.Expr) -> tvm_api.Stmt:
        def compute(products: Sequence[tvm_api.Expr]) -> list[tvm_api.Stmt]:
            value = self._apply(0, self._gate(t, b, 0, j) + products[0])
            return [tirx.BufferStore(self.results[0], value, [t, b, j])]

        return self._with_products(b, j, (0,), compute)

    def _lstm(self, t: tvm_api.Expr, b: tvm_api.Expr, j: tvm_api.Expr) -> tvm_api.Stmt:
        outputs, _, memory = self.results
        names = ("input", "output", "forget", "candidate")

        def compute(products: Sequence[tvm_api.Expr]) -> list[tvm_api.Stmt]:
            bind = _Bindings(self.dtype)
            before = bind("before", memory[b, j])
            gates = [
                bind(f"{name}_sum", self._gate(t, b, number, j) + product)
                for number, (name, product) in enumerate(zip(names, products, strict=True))
            ]
            i = self._apply(0, gates[0] + self._peephole(0, j, before))
            f = self._apply(0, gates[2] + self._peephole(2, j, before))
            candidate = self._apply(1, gates[3])
            # Values with two uses are kept in memory: TVM would compute them twice.
            here, kept = [b, j], []
            if self.cell.couples_gates:
                kept = [tirx.BufferStore(memory, i, here)]
                i = memory[b, j]
                f = self._number(1.0) - i
            after = memory[b, j]
            o = self._apply(0, gates[1] + self._peephole(1, j, after))
            result = o * self._apply(2, after, limited=False)
            limited = []
            if self.cell.cell_clip is not None:
                low, high = (self._number(sign * self.cell.cell_clip) for sign in (-1, 1))
                limited = [tirx.BufferStore(memory, tirx.min(tirx.max(after, low), high), here)]
            return [
                *bind.statements,
                *kept,
                tirx.BufferStore(memory, f * before + i * candidate, here),
                *limited,
                tirx.BufferStore(outputs, result, [t, b, j]),
            ]

        return self._with_products(b, j, (0, 1, 2, 3), compute)

    def _reset_state(self, t: tvm_api.Expr, b: tvm_api.Expr, j: tvm_api.Expr) -> tvm_api.Stmt:
        """Return the statements that store the state times the reset gate in scratch."""
        _, state, scratch = self.results

        def compute(products: Sequence[tvm_api.Expr]) -> list[tvm_api.Stmt]:
            reset = self._apply(0, self._gate(t, b, 1, j) + products[0])
            return [tirx.BufferStore(scratch, reset * state[b, j], [b, j])]

        return self._with_products(b, j, (1,), compute)

    def _gru(self, t: tvm_api.Expr, b: tvm_api.Expr, j: tvm_api.Expr) -> tvm_api.Stmt:
        """Return a GRU step that applies the reset gate before the product with the state."""
        scratch = self.results[2]

        def outer(update: Sequence[tvm_api.Expr]) -> list[tvm_api.Stmt]:
            def inner(hidden: Sequence[tvm_api.Expr]) -> list[tvm_api.Stmt]:
                candidate = self._gate(t, b, 2, j) + hidden[0]
                return self._mixed(t, b, j, update[0], candidate)

            return [self._with_products(b, j, (2,), inner, source=scratch)]

        return self._with_products(b, j, (0,), outer)

    def _gru_reset_after(self, t: tvm_api.Expr, b: tvm_api.Expr, j: tvm_api.Expr) -> tvm_api.Stmt:
        def compute(products: Sequence[tvm_api.Expr]) -> list[tvm_api.Stmt]:
            bind = _Bindings(self.dtype)
            reset = bind("reset", self._apply(0, self._gate(t, b, 1, j) + products[1]))
            hidden = products[2]
            if "hidden_bias" in self.inputs:
                hidden = bind("hidden", hidden + self.inputs["hidden_bias"][j])
            candidate = self._gate(t, b, 2, j) + reset * hidden
            return [*bind.statements, *self._mixed(t, b, j, products[0], candidate)]

        return self._with_products(b, j, (0, 1, 2), compute)

    def _mixed(
        self,
        t: tvm_api.Expr,
        b: tvm_api.Expr,
        j: tvm_api.Expr,
        update: tvm_api.Expr,
        candidate: tvm_api.Expr,
    ) -> list[tvm_api.Stmt]:
        """Return the new state (1 - z) * h + z * state."""
        outputs, state, _ = self.results
        z = self._apply(0, self._gate(t, b, 0, j) + update)
        h, kept = self._apply(1, candidate), outputs[t, b, j]
        mixed = (self._number(1.0) - kept) * h + kept * state[b, j]
        return [tirx.BufferStore(outputs, value, [t, b, j]) for value in (z, mixed)]

    # --- parts ------------------------------------------------------------------------------------

    def _number(self, value: float) -> tvm_api.Expr:
        return tirx.FloatImm(self.dtype, value)

    def _row(self, gate: int, j: tvm_api.Expr) -> tvm_api.Expr:
        return int32(gate * self.sizes[2]) + j

    def _gate(self, t: tvm_api.Expr, b: tvm_api.Expr, gate: int, j: tvm_api.Expr) -> tvm_api.Expr:
        return self.inputs["gates"][t, b, self._row(gate, j)]

    def _peephole(self, number: int, j: tvm_api.Expr, cell: tvm_api.Expr) -> tvm_api.Expr:
        if "peepholes" not in self.inputs:
            return self._number(0.0)
        return self.inputs["peepholes"][self._row(number, j)] * cell

    def _with_products(
        self,
        b: tvm_api.Expr,
        j: tvm_api.Expr,
        gates: Sequence[int],
        compute: Callable[[Sequence[tvm_api.Expr]], list[tvm_api.Stmt]],
        source: tvm_api.Buffer | None = None,
    ) -> tvm_api.Stmt:
        """Return statements that use the products of the state and some gates' weights.

        Args:
            compute: function from the products to statements.
            source: buffer instead of the state.
        """
        source = self.results[1] if source is None else source
        weights = self.inputs["weights"]
        accumulators = tirx.decl_buffer([len(gates)], self.dtype, "sums", scope="local")
        zeros = [
            tirx.BufferStore(accumulators, self._number(0.0), [int32(i)]) for i in range(len(gates))
        ]

        def add(k: tvm_api.Expr) -> tvm_api.Stmt:
            return sequence(
                *(
                    tirx.BufferStore(
                        accumulators,
                        accumulators[int32(i)] + weights[self._row(gate, j), k] * source[b, k],
                        [int32(i)],
                    )
                    for i, gate in enumerate(gates)
                )
            )

        bind = _Bindings(self.dtype)
        products = [bind(f"product_{gate}", accumulators[int32(i)]) for i, gate in enumerate(gates)]
        return sequence(
            tirx.AllocBuffer(accumulators), *zeros, loop("k", self.sizes[2], add),
            *bind.statements, *compute(products),
        )  # fmt: skip

    def _apply(self, number: int, value: tvm_api.Expr, *, limited: bool = True) -> tvm_api.Expr:
        """Clip a value, if `limited`, and apply an activation."""
        clip = self.cell.clip
        if clip is not None and limited:
            low, high = self._number(-clip), self._number(clip)
            value = tirx.min(tirx.max(value, low), high)
        return activated(self.cell.activations[number], value, self.dtype)


class _Bindings:
    """Creates variables for values and collects the statements that bind them."""

    def __init__(self, dtype: str) -> None:
        self._dtype = dtype
        self.statements: list[tvm_api.Stmt] = []

    def __call__(self, name: str, value: tvm_api.Expr) -> tvm_api.Var:
        variable = tirx.Var(name, self._dtype)
        self.statements.append(tirx.Bind(variable, value))
        return variable


def activated(activation: Activation, x: tvm_api.Expr, dtype: str) -> tvm_api.Expr:
    """Apply an activation function to an expression.

    Raises:
        ValueError: the name of the function is unknown.
    """

    def number(value: float) -> tvm_api.Expr:
        return tirx.FloatImm(dtype, value)

    zero, one = number(0.0), number(1.0)
    alpha, beta = number(activation.alpha), number(activation.beta)
    functions: dict[str, Callable[[], tvm_api.Expr]] = {
        "sigmoid": lambda: one / (one + tirx.exp(zero - x)),
        "tanh": lambda: tirx.tanh(x),
        "relu": lambda: tirx.max(x, zero),
        "affine": lambda: alpha * x + beta,
        "leakyrelu": lambda: tirx.Select(x < zero, alpha * x, x),
        "thresholdedrelu": lambda: tirx.Select(x > alpha, x, zero),
        "scaledtanh": lambda: alpha * tirx.tanh(beta * x),
        "hardsigmoid": lambda: tirx.min(tirx.max(alpha * x + beta, zero), one),
        "elu": lambda: tirx.Select(x < zero, alpha * (tirx.exp(x) - one), x),
        "softsign": lambda: x / (one + tirx.abs(x)),
        "softplus": lambda: tirx.max(x, zero) + tirx.log(one + tirx.exp(zero - tirx.abs(x))),
    }
    if activation.name not in functions:
        raise ValueError(f"there is no activation {activation.name}")
    return functions[activation.name]()
