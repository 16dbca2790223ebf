# SPDX-License-Identifier: Apache-2.0
"""The operators of a network that can change their layout, and the tensors between them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from umakit import tvm_api
from umakit.partition.layouts import operators
from umakit.partition.layouts.flip import Flip, moves_nothing
from umakit.partition.layouts.rules import Rule, has_layout, is_variable
from umakit.tvm_api import Call

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
    """A network, for one change of layout.

    Args:
        main: a Relax function of one dataflow block.
        flip: the change.

    Attributes:
        flip: the change.
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
