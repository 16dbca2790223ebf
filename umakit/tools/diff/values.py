# SPDX-License-Identifier: Apache-2.0
"""A network with the value of every operator as an output, for computing a reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from umakit import tvm_api
from umakit.backend.base import UMABackend
from umakit.codegen.constants import CONSTANT_ALIGNMENT
from umakit.frontend.model import Model, TensorSpecification
from umakit.operators.offload.rounding import call_rounded_by
from umakit.operators.registry import operator_of
from umakit.partition.partitioner import partition
from umakit.partition.report import OperatorPlacement

Value = tuple[int, int]
"""A value of a network: row of the offload report, and index of the operator's result."""


@dataclass(frozen=True)
class EveryValue:
    """A network without accelerators whose outputs are the values of all its operators.

    Attributes:
        model: the network; its outputs have the names `value_ROW_RESULT`, and no input is a state.
        operators: operators of its offload report, by row.
        names: names of the outputs of `model` by value; missing for packed tuples.
        results: values by name of the original network's outputs, except outputs that no operator
            computes.
        states: inputs of the original network that are states.
        changed: rows with an accelerator's own rounding, and rows computed from them.
    """

    model: Model
    operators: tuple[OperatorPlacement, ...]
    names: Mapping[Value, str]
    reads: Mapping[int, frozenset[int]]
    results: Mapping[str, Value]
    states: tuple[TensorSpecification, ...] = ()
    changed: frozenset[int] = frozenset()


def every_value(model: Model, roundings: Mapping[str, str] | None = None) -> EveryValue:
    """Make every operator's value an output; `roundings` of accelerators are by operator."""
    partitioned = partition(model.module, [])
    placements = partitioned.report.placements
    named = {row: (roundings or {}).get(item.name, "") for row, item in enumerate(placements)}
    rounded = {row: rounding for row, rounding in named.items() if rounding}
    exposer = _Exposer(partitioned.module, rounded)
    main = exposer.expose()
    names = {value: f"value_{value[0]}_{value[1]}" for value in exposer.values}
    outputs = tuple(
        TensorSpecification(
            names[value], tvm_api.static_shape(variable) or (), tvm_api.dtype_of(variable)
        )
        for value, variable in exposer.values.items()
    )
    inputs = tuple(replace(item, next_state="") for item in model.inputs)
    module = tvm_api.IRModule(
        {
            variable: main if variable.name_hint == "main" else function
            for variable, function in partitioned.module.functions.items()
        }
    )
    exposed = replace(model, module=module, inputs=inputs, outputs=outputs)
    specified = zip(model.outputs, exposer.results, strict=True)
    results = {item.name: value for item, value in specified if value is not None}
    states = tuple(item for item in model.inputs if item.next_state)
    changed = computed_from(set(rounded), exposer.reads)
    return EveryValue(
        exposed, placements, names, exposer.reads, results, states, frozenset(changed)
    )


def computed_from(rows: set[int], reads: Mapping[int, frozenset[int]]) -> set[int]:
    """Return rows, and all rows that are computed from them."""
    found = set(rows)
    for row in sorted(reads):
        if reads[row] & found:
            found.add(row)
    return found


@tvm_api.mutator
class _Exposer(tvm_api.PyExprMutator):
    """Binds every value to a variable that is visible outside its dataflow block.

    Attributes:
        values: variables of the new function by value.
        results: value of each output of the function, None for inputs and constants.
    """

    def __init__(self, module: Any, rounded: Mapping[int, str]) -> None:
        super().__init__(module)
        self._rounded = rounded
        self._main = module["main"]
        self._origins: dict[Any, Value] = {}
        self._tuples: dict[Any, Any] = {}
        self.values: dict[Value, Any] = {}
        self.reads: dict[int, frozenset[int]] = {}
        self.results: list[Value | None] = []

    def expose(self) -> Any:
        body = self._main.body.body
        visited = self.visit_expr(self._main)
        whole = self._tuples.get(body, body)
        fields = whole.fields if isinstance(whole, tvm_api.RelaxTuple) else [whole]
        self.results = [self._origins.get(field) for field in fields]
        relax = tvm_api.relax
        everything = relax.Tuple(list(self.values.values()))
        sequence = relax.BlockBuilder().normalize(relax.SeqExpr(visited.body.blocks, everything))
        function = relax.Function(visited.params, sequence, sequence.ty, attrs=visited.attrs)
        return function.with_attr("global_symbol", "main")

    def visit_var_binding_(self, binding: Any) -> None:
        value = self._with_own_rounding(self.visit_expr(binding.value))
        dataflow = self.builder_.current_block_is_dataflow()
        emit = self.builder_.emit_output if dataflow else self.builder_.emit
        variable = emit(value, str(binding.var.name))
        self.set_var_remap(binding.var, variable)
        if isinstance(binding.value, tvm_api.RelaxTuple):
            self._tuples[binding.var] = binding.value
        origin = self._origin(binding.value)
        if origin is not None:
            self._origins[binding.var] = origin
            if tvm_api.static_shape(variable) is not None:
                self.values.setdefault(origin, variable)

    def _with_own_rounding(self, value: Any) -> Any:
        rows = tvm_api.rows_of(value)
        rounding = self._rounded.get(rows[0], "") if rows else ""
        operator = operator_of(value) if rounding and isinstance(value, tvm_api.Call) else None
        if operator is None or operator.parameters is None:
            return value
        return self.builder_.normalize(call_rounded_by(value, operator.parameters, rounding))

    def _origin(self, expression: Any) -> Value | None:
        rows = tvm_api.rows_of(expression)
        if rows:
            read = [self._origins.get(v) for v in tvm_api.collect(expression, tvm_api.Var)]
            self.reads[rows[0]] = frozenset(origin[0] for origin in read if origin is not None)
            return rows[0], 0
        if isinstance(expression, tvm_api.TupleGetItem):
            inside = self._tuples.get(expression.tuple_value)
            if inside is not None:
                return self._origin(inside.fields[expression.index])
            whole = self._origins.get(expression.tuple_value)
            return None if whole is None else (whole[0], int(expression.index))
        return self._origins.get(expression) if isinstance(expression, tvm_api.Var) else None


MOST_CONSTANTS_IN_C = 4 * 1024 * 1024
"""Maximum size in bytes of constants in C; more would take too long to compile."""


def form_of_weights(module: Any, backends: Sequence[UMABackend] = ()) -> Literal["c", "blob"]:
    """Return the default form of constants: a blob if they are large and fit a blob."""
    if any(each.configuration.dma.alignment > CONSTANT_ALIGNMENT for each in backends):
        return "c"
    constants = tvm_api.collect(module["main"], tvm_api.GenericConst)
    arrays = [tvm_api.constant_array(constant) for constant in constants]
    size = sum(array.nbytes for array in arrays if array is not None)
    return "blob" if size > MOST_CONSTANTS_IN_C else "c"
