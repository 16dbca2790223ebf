# SPDX-License-Identifier: Apache-2.0
"""Relax modules as input: parameters bound, symbolic dimensions fixed, operators named."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.frontend.checks import check_wanted_sizes
from umakit.frontend.model import (
    InputShapes,
    Model,
    Quantization,
    TensorSpecification,
    last_line,
    symbolic_notice,
    type_specification,
)
from umakit.text.escaping import shown
from umakit.text.identities import SourceOperator
from umakit.text.names import symbol_part
from umakit.tvm_api import Call, IRModule, tirx


def import_relax(
    module: IRModule,
    name: str,
    parameters: Mapping[str, Any],
    input_shapes: InputShapes,
    where: str = "",
) -> Model:
    """Import a Relax module; `where` is the file in messages, the name by default."""
    where = where or name
    if "main" not in [variable.name_hint for variable in module.functions]:
        raise ModelError(
            "the Relax module has no function `main`",
            where=where,
            fix="name the network's function main",
        )
    try:
        tvm_api.relax.analysis.well_formed(tvm_api.relax_transform.Normalize()(module))
    except tvm_api.TVM_ERRORS as error:
        raise ModelError(
            f"the Relax module is not well-formed: {shown(last_line(error), 200)}",
            where=where,
            fix="correct the module until tvm.relax.analysis.well_formed accepts it",
        ) from None
    _check_calls(module, where)
    parameter_names = {parameter.name for parameter in module["main"].params}
    for unknown in sorted(set(parameters) - parameter_names):
        raise ModelError(
            f"there is no parameter {unknown!r} in `main`",
            where=where,
            fix=f"parameters are {', '.join(sorted(map(str, parameter_names)))}",
        )
    with_weights = tvm_api.relax_transform.BindParams("main", dict(parameters))(module)
    bound, notices = _bind_symbolic_dimensions(with_weights, where, input_shapes)
    main = bound["main"]
    parameters_left = [(str(parameter.name), None) for parameter in main.params]
    count = len(tvm_api.tuple_fields(main.ret_ty))
    labels = [("output" if count == 1 else f"output_{i}", None) for i in range(count)]
    inputs, outputs = specifications(bound, parameters_left, labels, where)
    named, sources = _name_operators(bound)
    return Model(symbol_part(name), named, inputs, outputs, tuple(notices), sources=sources)


WINDOWED = re.compile(r"nn\.(?:conv|max_pool|avg_pool)([123])d(?:_transpose)?")
SIDES = ("strides", "dilation", "pool_size", "output_padding", "padding")


def _check_calls(module: IRModule, where: str) -> None:
    """Refuse windows with another count of numbers than their dimensions, which TVM's inference of
    types does not count, and batch norms in training mode, which use the statistics of the batch.

    TVM's `from_fx`, and `from_exported_program(..., run_ep_decomposition=False)`, create such calls
    even for models in inference mode.
    """
    for _, function in tvm_api.relax_functions(module):
        for call in tvm_api.collect(function, Call):
            name = tvm_api.operator_name(call)
            windowed = WINDOWED.fullmatch(name)
            count = int(windowed[1]) if windowed else 0
            for side in SIDES if count else ():
                numbers = list(getattr(call.attrs, side, None) or ())
                most = 2 * count if side == "padding" else count
                if numbers and len(numbers) not in (count, most):
                    raise ModelError(
                        f"operator {name} has {side}={numbers}, of {len(numbers)} numbers",
                        where=where,
                        fix=f"give {side} {most} numbers",
                    )
            if name == "nn.batch_norm" and getattr(call.attrs, "training", False):
                raise ModelError(
                    "operator nn.batch_norm is in training mode: it would normalize with the "
                    "statistics of its input",
                    where=where,
                    fix="give umakit torch.export.export(model.eval(), ...) itself; TVM's from_fx "
                    "and run_ep_decomposition=False import all batch norms in training mode",
                )


def _bind_symbolic_dimensions(
    module: IRModule, where: str, input_shapes: InputShapes
) -> tuple[Any, list[str]]:
    """Bind every symbolic dimension of `main`: to the requested size, or to 1 with a notice."""
    shapes: dict[str, Any] = {
        str(p.name): getattr(p.ty, "shape", None) for p in module["main"].params
    }
    ranks = {name: None if shape is None else len(shape) for name, shape in shapes.items()}
    check_wanted_sizes(input_shapes, ranks, where)
    values: dict[Any, int] = {}
    notices: list[str] = []
    for name, shape in shapes.items():
        if shape is None:
            raise ModelError(
                f"input {name!r} has no known rank",
                where=where,
                fix="give its type a shape, which may be symbolic",
            )
        for dimension, size in zip(shape, input_shapes.get(name, ()), strict=False):
            if isinstance(dimension, tirx.Var):
                values.setdefault(dimension, int(size))
    for name, shape in shapes.items():
        for dimension in shape:
            if isinstance(dimension, tirx.Var) and dimension not in values:
                values[dimension] = 1
                notices.append(symbolic_notice(name, str(dimension)))
    if values:
        module = tvm_api.relax_transform.BindSymbolicVars(values, "main")(module)
    for name, parameter in zip(shapes, module["main"].params, strict=True):
        bound = tvm_api.static_type_shape(parameter.ty)
        if name in input_shapes and bound != tuple(input_shapes[name]):
            raise ModelError(
                f"input {name!r} has the shape {list(bound or parameter.ty.shape)}, which cannot "
                f"be {list(input_shapes[name])}",
                where=where,
                fix="give --input-shapes sizes for symbolic dimensions only",
            )
    return module, notices


def _name_operators(module: IRModule) -> tuple[IRModule, dict[str, SourceOperator]]:
    """Name every operator call after its variable; return the operators by name too."""
    names: dict[Any, str] = {}
    sources: dict[str, SourceOperator] = {}
    bindings = list(tvm_api.bindings_of(module["main"]))
    given = {str(binding.var.name) for binding in bindings}
    for binding in bindings:
        kind = tvm_api.operator_name(binding.value)
        if not isinstance(binding.value, Call) or not kind:
            continue
        own = name = str(binding.var.name)
        number = 1
        while name in sources or (name != own and name in given):
            number += 1
            name = f"{own}_{number}"
        names[binding.var] = name
        sources[name] = SourceOperator(name, own, len(sources), kind=kind)
    return with_spans(module, lambda b: _name_of(b, names.get(b.var))), sources


Named = Sequence[tuple[str, Quantization | None]]
"""Names of tensors with what is known of their quantization."""


def specifications(
    module: IRModule, inputs: Named, outputs: Named, where: str
) -> tuple[tuple[TensorSpecification, ...], tuple[TensorSpecification, ...]]:
    """Return the specifications of the parameters and of the results of `main`."""
    main = module["main"]
    types = [parameter.ty for parameter in main.params], tvm_api.tuple_fields(main.ret_ty)
    found, results = (
        tuple(
            replace(type_specification(name, type_, where), quantization=quantization)
            for (name, quantization), type_ in zip(named, of, strict=True)
        )
        for named, of in zip((inputs, outputs), types, strict=True)
    )
    return found, results


def name_calls(module: IRModule, ends: Mapping[str, str]) -> IRModule:
    """Name each operator call after the node whose result is the next one in `ends`.

    `ends` has the nodes by the name of the variable of their last result.
    """
    names: dict[str, str] = {}
    pending: list[str] = []
    for binding in tvm_api.bindings_of(module["main"]):
        variable = str(binding.var.name)
        pending.append(variable)
        if variable in ends:
            names.update(dict.fromkeys(pending, ends[variable]))
            pending = []
    return with_spans(module, lambda b: _name_of(b, names.get(str(b.var.name))))


def _name_of(binding: tvm_api.VarBinding, name: str | None) -> tvm_api.Span | None:
    """Return the span with the name of an operator's call, the variable's by default."""
    is_operator = bool(tvm_api.operator_name(binding.value))
    return tvm_api.name_span(name or str(binding.var.name)) if is_operator else None


def with_spans(
    module: IRModule, span_of: Callable[[tvm_api.VarBinding], tvm_api.Span | None]
) -> IRModule:
    """Give calls other source spans; `span_of` returns None for calls that keep theirs."""

    @tvm_api.mutator
    class Respanned(tvm_api.PyExprMutator):
        def visit_var_binding_(self, binding: tvm_api.VarBinding) -> None:
            value, span = self.visit_expr(binding.value), span_of(binding)
            if isinstance(value, Call) and span is not None:
                value = tvm_api.make_call(value, span=span)
            emitted = tvm_api.emit_like(self.builder_, binding.var, value)
            self.set_var_remap(binding.var, emitted)

    mutator = Respanned(module)
    for variable, function in tvm_api.relax_functions(module):
        mutator.builder_.update_func(variable, mutator.visit_expr(function))
    return mutator.builder_.get()
