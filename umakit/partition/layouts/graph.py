# SPDX-License-Identifier: Apache-2.0
"""The operators of a network that can change their layout, and the network with some changed."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from umakit import tvm_api
from umakit.partition.layouts import operators
from umakit.partition.layouts.rules import Axes, Flip, Rule, has_layout, is_variable, moves_nothing
from umakit.tvm_api import Call, Expr, IRModule, relax

Var = tvm_api.Var


def rule_of(call: tvm_api.Expr, flip: Flip) -> Rule | None:
    """Return the rule of an operator in the other layout; None if the operator keeps its layout."""
    found = operators.RULES.get(tvm_api.operator_name(call))
    if found is None or not isinstance(call, Call):
        return None
    operands = [each for operand in call.args for each in getattr(operand, "fields", (operand,))]
    if not any(is_variable(each) and has_layout(each) for each in operands):
        return None  # rules know the axes of layouts only
    rule = found(call, flip)
    if rule is None:
        return None
    if not all(is_variable(operand) and has_layout(operand) for operand in rule.operands):
        return None
    return None if rule.follows and not has_layout(call) else rule


@dataclass
class Tensor:
    """A tensor with a layout.

    Attributes:
        elements: elements moved by a transpose; 0 if only axes of size 1 move.
        members: variables of the writing and reading operators that can change their layout.
        kept: whether an operator with a fixed layout writes or reads the tensor.
    """

    elements: int
    members: list[Var] = field(default_factory=list)
    kept: bool = False


class Graph:
    """A network of one dataflow block, for one change of layout.

    Attributes:
        rules: rules of operators that can change their layout, by the variable of their result.
        calls: all calls of operators, by the variable of their result.
        tensors: tensors by variable.
    """

    def __init__(self, main: tvm_api.Function, flip: Flip) -> None:
        self.flip = flip
        self.rules: dict[Var, Rule] = {}
        self.calls: dict[Var, Call] = {}
        self.tensors: dict[Var, Tensor] = {}
        for parameter in main.params:
            self._define(parameter, None)
        for binding in tvm_api.bindings_of(main):
            self._add(binding)
        self._read(tvm_api.collect(main.body.body, Var))

    def _add(self, binding: tvm_api.Binding) -> None:
        variable, value = binding.var, binding.value
        rule = rule_of(value, self.flip)
        is_transpose = tvm_api.operator_name(value) == "permute_dims"
        if rule is not None and is_transpose and isinstance(value, Call):
            rule = self._rule_of_transpose(value) or rule
        if isinstance(value, Call):
            self.calls[variable] = value
        read = tvm_api.collect(value, Var)
        if rule is not None:
            self.rules[variable] = rule
            for operand in dict.fromkeys(rule.operands):
                self.tensors[operand].members.append(variable)
            read = [each for each in read if each not in rule.operands]
        self._read(read)
        self._define(variable, rule)

    def _rule_of_transpose(self, call: Call) -> Rule | None:
        read = self.tensors.get(call.args[0])
        kept = read is not None and not read.members
        return operators.transpose_of_kept(call, self.flip) if kept else None

    def _define(self, variable: Var, rule: Rule | None) -> None:
        shape = tvm_api.static_shape(variable)
        if shape is None or not has_layout(variable):
            return
        free = moves_nothing(shape, self.flip.axes(len(shape)))
        tensor = Tensor(0 if free else math.prod(shape))
        if rule is not None and rule.follows:
            tensor.members.append(variable)
        else:
            tensor.kept = True
        # Values visible outside the block keep the network's layout.
        tensor.kept |= not isinstance(variable, tvm_api.relax.DataflowVar)
        self.tensors[variable] = tensor

    def _read(self, variables: Iterable[Var]) -> None:
        for variable in variables:
            if variable in self.tensors:
                self.tensors[variable].kept = True

    def anchors(self) -> list[Var]:
        """Return the operators with a layout, such as convolutions and pools."""
        return [variable for variable, rule in self.rules.items() if rule.has_layout]

    def connected(self, variables: Iterable[Var]) -> set[Var]:
        """Return the operators of `rules` that are connected to given operators."""
        neighbours: dict[Var, set[Var]] = defaultdict(set)
        for tensor in self.tensors.values():
            for member in tensor.members:
                neighbours[member].update(tensor.members)
        found, waiting = set(), list(variables)
        while waiting:
            variable = waiting.pop()
            if variable not in found:
                found.add(variable)
                waiting += neighbours[variable]
        return found


def rewrite(module: IRModule, graph: Graph, flipped: Collection[Var]) -> Rewritten:
    """Return the network with the other layout of the operators whose results are given."""
    rewritten = Rewritten(module, graph, flipped)
    main = module.get_global_var("main")
    rewritten.builder_.update_func(main, rewritten.visit_expr(module["main"]))
    rewritten.module = rewritten.builder_.get()
    return rewritten


@tvm_api.mutator
class Rewritten(tvm_api.PyExprMutator):
    """A network with other layouts: operators in order, and transposes at their first use.

    Attributes:
        module: the network.
        origins: variable in the old network, by variable of the same operator's result.
        axes: order of the old axes in tensors of another layout, by variable.
        transposed: moved bytes, by the variable of each added transpose; 0 for a reshape that moves
            nothing.
        sources: variable in the old network that each added transpose reads.
    """

    module: IRModule

    def __init__(self, module: IRModule, graph: Graph, flipped: Collection[Var]) -> None:
        super().__init__(module)
        self._graph = graph
        self._chosen = set(flipped)
        self._other: dict[Var, Var] = {}  # tensors in the other layout, by variable before
        self._plain: set[Var] = set(module["main"].params)
        self._values: dict[Var, Expr] = {}
        self.origins: dict[Var, Var] = {}
        self.axes: dict[Var, Axes] = {}
        self.transposed: dict[Var, int] = {}
        self.sources: dict[Var, Var] = {}

    def visit_var_binding_(self, binding: tvm_api.VarBinding) -> None:
        variable, value = binding.var, binding.value
        self._values[variable] = value
        if variable not in self._chosen:
            self._emit_as_it_is(variable, value)
            return
        rule = self._graph.rules[variable]
        made: Any = rule.build(self)
        if not rule.follows:
            self._bind(variable, made, value)
            return
        if isinstance(made, tvm_api.Var):
            self._other[variable] = made
        else:
            name = str(variable.name)
            emitted = self.builder_.emit(tvm_api.make_call(made, span=value.span), name)
            self._other[variable] = emitted
            self.origins[emitted] = variable
            self.axes[emitted] = self._axes(variable)
        if not isinstance(variable, relax.DataflowVar):
            self.plain(variable)

    def flipped(self, operand: Any) -> Expr:
        """Return a variable of the network in the other layout."""
        if operand not in self._other:
            made = self._transposed(self.plain(operand), self._axes(operand), operand)
            emitted = self.builder_.emit(made)
            self._other[operand] = emitted
            self._note(emitted, operand)
            self.axes[emitted] = self._axes(operand)
        return self._other[operand]

    def plain(self, operand: Expr) -> Expr:
        """Return an operand in the network's layout."""
        for variable in tvm_api.collect(operand, tvm_api.Var):
            if variable not in self._plain and variable in self._other:
                self._make_plain(variable)
        return self.visit_expr(operand)

    def _make_plain(self, variable: Var) -> None:
        rule = self._graph.rules[variable]
        if not rule.operands:  # a transpose of the network without a use so far
            self._emit_as_it_is(variable, self._values[variable])
            return
        rank = len(tvm_api.static_shape(variable) or ())
        made = self._transposed(self._other[variable], self._graph.flip.back(rank), variable)
        self._note(self._bind(variable, made, None), variable)

    def _emit_as_it_is(self, variable: Var, value: Expr) -> None:
        visited = self.plain(value)
        if isinstance(visited, tvm_api.Call):
            visited = tvm_api.make_call(visited, span=value.span)
        self._bind(variable, visited, value)

    def _bind(self, variable: Var, made: Expr, value: Expr | None) -> Var:
        if isinstance(made, tvm_api.Var) and isinstance(variable, relax.DataflowVar):
            emitted = made
        else:
            emitted = tvm_api.emit_like(self.builder_, variable, made)
        self.set_var_remap(variable, emitted)
        self._plain.add(variable)
        if value is not None and emitted is not made:
            self.origins[emitted] = variable
        return emitted

    def _axes(self, variable: Var) -> Axes:
        return self._graph.flip.axes(len(tvm_api.static_shape(variable) or ()))

    def _transposed(self, source: Expr, axes: Axes, variable: Var) -> tvm_api.Call:
        shape = tvm_api.static_shape(source) or ()
        if moves_nothing(shape, axes):
            made = relax.op.reshape(source, [shape[axis] for axis in axes])
        else:
            made = relax.op.permute_dims(source, axes)
        span = getattr(self._values.get(variable), "span", None)
        return tvm_api.make_call(made, span=span or tvm_api.name_span(str(variable.name)))

    def _note(self, emitted: Var, variable: Var) -> None:
        tensor = self._graph.tensors[variable]
        self.sources[emitted] = variable
        self.transposed[emitted] = tensor.elements * tvm_api.element_bytes(
            tvm_api.dtype_of(variable)
        )
