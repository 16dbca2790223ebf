# SPDX-License-Identifier: Apache-2.0
"""Lowering of composites of `umakit.patterns` to prim funcs over the driver's arrays.

An integer operator is its own specification, so no operator strategy is needed: a composite becomes
a prim func over the driver's arrays, with reference loops as its body and its parameters as an
attribute. A TIR pass then replaces the loops by the driver call.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from umakit import tvm_api
from umakit.errors import LoweringError
from umakit.lower.kernels import Kernel
from umakit.operators.kernels.loops import KEEPS_NAMES
from umakit.operators.offload.composite import Composite
from umakit.operators.offload.matching import NotReadable
from umakit.operators.offload.pattern import OperatorPattern
from umakit.operators.offload.reference import with_change_of_scale
from umakit.operators.offload.rounding import function_of
from umakit.operators.offload.weighted import ARRAYS, Weighted
from umakit.operators.parameters import PREFIX, Parameters
from umakit.operators.registry import Rule, legalizations, operators
from umakit.patterns.driver import ARRAYS_ATTRIBUTE, ATTRIBUTE, as_text
from umakit.registration.backend import Backend
from umakit.tvm_api import BlockBuilder, Call, Expr, Function, PrimFunc


@dataclass(frozen=True)
class Offloaded:
    """A call of a composite, prepared for lowering.

    Attributes:
        function: a Relax composite function of one operator; parameters are the operands in the
            order of the driver's pointers.
    """

    layer: Any
    function: Any
    operands: tuple[Any, ...]

    def with_parameters(self, function: PrimFunc) -> PrimFunc:
        """Attach the composite's parameters and arrays to a prim func, for TIR passes."""
        function = function.with_attrs({ATTRIBUTE: as_text(self.layer), KEEPS_NAMES: True})
        if not isinstance(self.layer, Weighted):
            return function
        arrays = {name: tvm_api.to_device(getattr(self.layer, name)) for name in ARRAYS}
        return function.with_attr(ARRAYS_ATTRIBUTE, arrays)

    def reference(self) -> dict[str, Any]:
        """Return the rule for `LegalizeOps` that makes loops over the driver's arrays."""
        name = f"relax.{PREFIX}{self.layer.operator}"

        def rule(builder: BlockBuilder, call: Call) -> Expr:
            if isinstance(self.layer, Weighted):
                variable = builder.add_func(self.layer.reference_kernel(), name.replace(".", "_"))
                operands = tvm_api.relax.Tuple(list(call.args))
                lowered = tvm_api.relax.call_tir(variable, operands, call.ty)
            else:
                lowered = legalizations()[name](builder, call)
            if self.layer.then is not None:
                variable = lowered.args[0]
                function = with_change_of_scale(builder.get()[variable], self.layer.then)
                builder.update_func(variable, function)
            return lowered

        return {name: rule}


def pattern_of(composite: str, backend: Backend) -> OperatorPattern | None:
    """Return the registered pattern of a composite `<target>.<pattern>`; None if there is none."""
    name = composite.partition(".")[2]
    for registered in backend.patterns:
        if registered.name == name and isinstance(registered.predicate, OperatorPattern):
            return registered.predicate
    return None


def calls_rounding(kernels: Iterable[Kernel], backend: Backend) -> bool:
    """Whether kernels call a C function with a backend's own rounding."""
    predicates = [registered.predicate for registered in backend.patterns]
    roundings = [p.own_rounding for p in predicates if isinstance(p, OperatorPattern)]
    functions = {function_of(each) for each in roundings} - {""}
    # Few backends round in their own way, and finding the calls walks through all kernels.
    return bool(functions) and any(
        not functions.isdisjoint(kernel.called_functions()) for kernel in kernels
    )


def prepare_offload(
    pattern: OperatorPattern, function: Function, arguments: Sequence[Any]
) -> Offloaded:
    """Prepare one call of a composite."""
    values: dict[Any, Any] = dict(zip(function.params, arguments, strict=True))
    where = f"composite {tvm_api.function_attribute(function, 'Composite')}"
    match = pattern.match_of(function)
    if match is None:
        expected = f"{pattern.operator_name} as {pattern.name} matches it"
        raise LoweringError(f"is not {expected}, alone or with one operator behind it", where=where)
    operands = [values.get(operand, operand) for operand in match.operands]
    constants = [tvm_api.constant_array(operand) for operand in operands[-len(ARRAYS) :]]
    try:
        layer = pattern.composite_of(match, constants)
    except NotReadable as reason:
        raise LoweringError(str(reason), where=where) from None
    if isinstance(layer, Weighted):
        arrays = layer.stored_arrays().values()
        operands[-len(ARRAYS) :] = [
            tvm_api.relax.const(array, str(array.dtype))  # without a dtype int64 becomes int32
            for array in arrays
        ]
    return Offloaded(layer, _as_function(layer, function, operands), tuple(operands))


def _as_function(layer: Composite, function: Function, operands: Sequence[Any]) -> Function:
    """Return the composite as a function of one operator, with the parameters as attributes."""
    types = [tvm_api.tensor_type(_shape(o), tvm_api.dtype_of(o)) for o in operands]
    names = [name for name in layer.POINTERS if name not in layer.RESULTS]
    builder = tvm_api.relax.BlockBuilder()
    parameters = [tvm_api.relax.Var(name, kind) for name, kind in zip(names, types, strict=True)]
    attributes = {item: getattr(layer, item) for item in layer.attribute_names()}
    attributes[ATTRIBUTE] = as_text(layer)
    with builder.function("composite", parameters):
        with builder.dataflow():
            call = tvm_api.operator_call(f"{PREFIX}{layer.operator}", parameters, attributes)
            result = builder.emit_output(call)
        builder.emit_func_output(result)
    made = builder.get()["composite"]
    return made.with_attrs(dict(function.attrs)).without_attr("global_symbol")


def _shape(operand: Expr) -> tuple[int, ...]:
    shape = tvm_api.static_shape(operand)
    if shape is None:
        raise LoweringError("an operand of an integer operator has no static shape")
    return shape


CHANNELS_FIRST = "OIHW"
"""Layout of weights of convolutions whose data are NCHW."""


def plain_rules() -> dict[str, Rule]:
    """Return the rules for `LegalizeOps` of operators in composites of a backend's own patterns.

    Such a composite gets the operator's operands unchanged, and constants as pointers, so the CPU's
    kernel, which prepares weights, cannot compute it. Loops run until a strategy or TIR pass
    replaces them.
    """
    found = legalizations()
    for operator in operators():
        kinds = [kind for kind in operator.composites if issubclass(kind, Weighted)]
        if kinds and operator.parameters is not None:
            found[f"relax.{PREFIX}{operator.name}"] = _rule(operator.parameters, kinds[0])
    return found


def _rule(parameters: type[Parameters], kind: type[Weighted]) -> Rule:
    def rule(builder: tvm_api.BlockBuilder, call: Call) -> Call:
        layer = _layer(parameters.of(call), kind, call)
        variable = builder.add_func(layer.reference_kernel(), tvm_api.operator_name(call)
                                    .replace(".", "_"))  # fmt: skip
        return tvm_api.relax.call_tir(variable, tvm_api.relax.Tuple(list(call.args)), call.ty)

    return rule


def _layer(parameters: Parameters, kind: type[Weighted], call: Call) -> Weighted:
    shapes = [tvm_api.static_shape(operand) for operand in call.args]
    data, weights, _, multipliers, _ = (shape or () for shape in shapes)
    if None in shapes:
        raise LoweringError("an integer operator's operand has no static shape")
    layout = kind.AXES
    if getattr(parameters, "layout", "") == "NCHW":
        outputs, inputs, height, width = weights
        weights, layout = (outputs, height, width, inputs), CHANNELS_FIRST
    dtypes = [tvm_api.dtype_of(operand) for operand in call.args[1:]]
    return kind(
        **asdict(parameters),
        data_shape=data,
        data_dtype=tvm_api.dtype_of(call.args[0]),
        weights_shape=weights,
        stored_layout=layout,
        stored_dtypes=tuple(zip(ARRAYS, dtypes, strict=True)),
        scales=multipliers[0],
        expanded=False,
        fill=0,
        zero_point_in_bias=False,
    )
