# SPDX-License-Identifier: Apache-2.0
"""Legalization, fusion and scheduling of the operators that run on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from umakit import tvm_api
from umakit.cpu import (
    dot_kernels,
    ordering,
    positions,
    recurrent,
    sampling,
    transposed_convolutions,
)
from umakit.cpu.convolution_schedule import schedule_groups
from umakit.cpu.description import Cpu
from umakit.cpu.float_convolutions import depthwise_rule_for, rule_for, signal_rules
from umakit.cpu.plain_schedules import schedule_plain_tiles
from umakit.cpu.schedule import schedule_for_cpu
from umakit.cpu.vector_schedule import schedule_with_vectors
from umakit.cpu.weight_tiles import FACTS
from umakit.errors import LoweringError, ModelError, UmakitError
from umakit.floats import float_rules
from umakit.frontend.model import on_page
from umakit.frontend.simplify import failing_call, operand_types
from umakit.lower.index_checks import check_indices, has_loaded_positions
from umakit.lower.index_ranges import Elements
from umakit.lower.phases import without_blocks
from umakit.operators.registry import legalizations
from umakit.partition.provenance import Provenance, Rows, note_rows
from umakit.partition.report import OffloadReport
from umakit.tir import prim_func_pass
from umakit.tvm_api import Call, Expr, Function, IRModule, PrimExpr, PrimFunc, Var

COMPUTES_SIZES = ("shape_of", "shape_to_tensor", "tensor_to_shape")
"""Operators that convert tensor values to shapes or shapes to tensor values."""


def lower_cpu_operators(
    module: IRModule,
    report: OffloadReport,
    index_checks: bool = True,
    cpu: Cpu | None = None,
    generic_rows: Collection[int] = (),
) -> IRModule:
    """Lower the remaining operators of `main` to fused, scheduled prim funcs.

    Args:
        cpu: target CPU of kernel schedules; None for any.
        generic_rows: rows of the offload report whose kernels are scheduled as for any CPU, even if
            other rows share the kernel.

    Returns:
        The module; the span of each `call_tir` of `main` names the rows of the offload report.
    """
    own: dict[str, Any] = dict(dot_kernels.rules_for(cpu, generic_rows))
    own |= {**transposed_convolutions.rules(), **signal_rules()}
    if cpu is not None and cpu.has_vectors:
        own |= rule_for(cpu)
        own |= depthwise_rule_for(cpu, own)
    module = joined_reshapes(module)  # left behind by changes of layout
    transform, whole = tvm_api.relax_transform, module
    rows = {str(b.var.name): tvm_api.rows_of(b.value) for b in _bindings(module)}
    calls = {str(b.var.name): b.value for b in _bindings(module)}
    try:
        with tvm_api.c_target():
            module = transform.LegalizeOps({**all_legalizations(), **own})(module)
            _refuse_unlowered(module, rows, report)
            _refuse_other_dtypes(module, calls, rows, report)
            module = transform.DeadCodeElimination()(module)
            if index_checks:
                module = keep_checked_apart(module)
            # Legalization keeps the names of variables but drops spans.
            provenance = Provenance(module["main"], lambda b: rows.get(str(b.var.name), ()))
            fuse = [transform.AnnotateTIROpPattern(), transform.FuseOps()]
            module = tvm_api.Sequential(fuse)(module)
            fused = provenance.rows_of_calls(module)
            module = note_rows(transform.FuseTIR()(module), fused)
            clean_up = [
                transform.RewriteDataflowReshape(),
                transform.CanonicalizeBindings(),
                transform.DeadCodeElimination(),
            ]
            module = tvm_api.Sequential(clean_up)(module)
    except tvm_api.TVM_ERRORS as error:
        raise _not_lowered(whole, rows, report) from error
    return _schedule(module, cpu, generic_rows)


def _not_lowered(module: IRModule, rows: dict[str, Rows], report: OffloadReport) -> UmakitError:
    """Return the error of a failed lowering, with the name of an operator that fails alone."""
    found = failing_call(module, tvm_api.relax_transform.LegalizeOps(all_legalizations()))
    if found is None:
        return LoweringError("the network's operators cannot be lowered to C together")
    call, variable = found
    return _no_lowering(call, rows.get(str(variable.name), ()), report)


def _no_lowering(call: Call, rows: Rows, report: OffloadReport) -> UmakitError:
    nodes = [report.placements[row].name for row in rows]
    where = f"node {', '.join(nodes)}" if nodes else ""
    name, operands = tvm_api.operator_name(call), ", ".join(operand_types(call))
    if name in COMPUTES_SIZES:
        return LoweringError(
            "the network computes sizes of tensors at run time, but generated C has fixed ones",
            where=where,
            fix="export the model with fixed shapes",
        )
    if _is_integer_mean(call):
        error = ModelError(
            f"operator {name} is not supported for {operands}: how wide the sum of integers is, "
            "and how their mean is rounded, is not defined",
            where=where,
            fix="convert to float32 before it, and round and convert back behind it",
        )
        return on_page(error, __name__)
    return LoweringError(
        f"operator {name} is not supported for {operands}: it has no lowering to C",
        where=where,
        fix="replace it in the model",
    )


def _is_integer_mean(call: Call) -> bool:
    is_pool = tvm_api.operator_name(call).startswith(("nn.avg_pool", "nn.adaptive_avg_pool"))
    return is_pool and "int" in tvm_api.dtype_of(call.args[0])


def _bindings(module: IRModule) -> list[Any]:
    return list(tvm_api.bindings_of(module["main"]))


def _refuse_unlowered(module: IRModule, rows: dict[str, Rows], report: OffloadReport) -> None:
    for binding in _bindings(module):
        name = tvm_api.operator_name(binding.value)
        if name and name not in ("call_tir", "reshape", "memory.view"):
            raise _no_lowering(binding.value, rows.get(str(binding.var.name), ()), report)


def _refuse_other_dtypes(
    module: IRModule,
    calls: Mapping[str, Expr],
    rows: dict[str, Rows],
    report: OffloadReport,
) -> None:
    """Refuse operators whose lowered results have other dtypes than the network's tensors.

    Args:
        rows, report: as in `_no_lowering`.
    """
    for binding in _bindings(module):
        name = str(binding.var.name)
        before = calls.get(name)
        if isinstance(before, Call) and _dtypes(binding.value) != _dtypes(before):
            raise _no_lowering(before, rows.get(name, ()), report)


def _dtypes(expression: Expr) -> list[str]:
    """Return the dtypes of a value, or of the fields of a tuple; empty for other values."""
    return [str(getattr(field, "dtype", "")) for field in tvm_api.tuple_fields(expression.ty)]


def _schedule(module: IRModule, cpu: Cpu | None, generic_rows: Collection[int]) -> IRModule:
    """Schedule the prim funcs of the CPU; the functions of `generic_rows` as for any CPU."""
    generic = _functions_of(module["main"], generic_rows)
    scheduled = IRModule(dict(module.functions.items()), module.attrs)
    constants = _constants(module["main"])
    for variable, function in tvm_api.prim_functions(module):
        names = ("umakit.target", CHECKED)
        if all(tvm_api.function_attribute(function, name) is None for name in names):
            constant = constants.get(str(variable.name_hint), ())
            is_generic = str(variable.name_hint) in generic
            with_vectors = cpu is not None and cpu.has_vectors and not is_generic
            function = _scheduled(function, cpu, constant, with_vectors)
            scheduled.update_func(variable, function)
    return scheduled


def _scheduled(
    function: PrimFunc, cpu: Cpu | None, constants: Collection[int], with_vectors: bool
) -> PrimFunc:
    """Return a scheduled prim func; as for any CPU if no rule for vectors applies."""
    if cpu is not None and with_vectors:
        grouped = schedule_groups(function, cpu, constants)
        if grouped is not None:
            return grouped
        vectors = schedule_with_vectors(function, cpu, constants)
        if tvm_api.function_attribute(vectors, FACTS) is not None:
            return vectors
    tiled = schedule_plain_tiles(function, constants, cpu.float_registers if cpu else 0)
    return schedule_for_cpu(function) if tiled is None else tiled


def prim_func_calls(main: Function) -> Iterator[tuple[str, Any]]:
    """Return the calls of prim funcs in `main`, with the names of the prim funcs."""
    for binding in tvm_api.bindings_of(main):
        if tvm_api.operator_name(binding.value) == "call_tir":
            yield str(binding.value.args[0].name_hint), binding.value


def _functions_of(main: Function, rows: Collection[int]) -> set[str]:
    """Return the names of the prim funcs that compute some rows of the offload report."""
    calls = prim_func_calls(main)
    return {name for name, call in calls if not set(rows).isdisjoint(tvm_api.rows_of(call))}


def _constants(main: Function) -> dict[str, set[int]]:
    """Return the arguments that are constant in all calls of a prim func, by its name."""
    found: dict[str, set[int]] = {}
    for name, call in prim_func_calls(main):
        arguments = enumerate(call.args[1].fields)
        here = {n for n, each in arguments if tvm_api.constant_array(each) is not None}
        found[name] = found.get(name, here) & here
    return found


@tvm_api.mutator
class _Joiner(tvm_api.PyExprMutator):
    """Makes each reshape of a chain read the operand of the first reshape."""

    def visit_var_binding_(self, binding: tvm_api.VarBinding) -> None:
        emitted = tvm_api.emit_like(self.builder_, binding.var, self.visit_expr(binding.value))
        self.set_var_remap(binding.var, emitted)

    def visit_call_(self, call: Call) -> Expr:
        call = self.visit_expr_post_order(call)
        if tvm_api.operator_name(call) != "reshape" or not isinstance(call.args[0], Var):
            return call
        first = self.lookup_binding(call.args[0])
        if first is None or tvm_api.operator_name(first) != "reshape":
            return call
        joined = tvm_api.relax.op.reshape(first.args[0], call.args[1])
        return tvm_api.make_call(joined, span=call.span)


def joined_reshapes(module: IRModule) -> IRModule:
    """Return a module in which no reshape of `main` reads the result of another reshape.

    TVM would fuse two reshapes to a kernel that copies each element to its own place.
    """
    joiner = _Joiner(module)
    main = joiner.visit_expr(module["main"])
    joiner.builder_.update_func(module.get_global_var("main"), main)
    return joiner.builder_.get()


def all_legalizations() -> dict[str, Callable[..., tvm_api.Expr | None]]:
    """Return all rules for `LegalizeOps` by operator name."""
    return {
        **float_rules(),
        **legalizations(),
        **positions.rules(),
        **sampling.rules(),
        **ordering.rules(),
        **recurrent.rules(),
    }


CHECKED = "umakit.checks_indices"
"""Attribute of a CPU prim func that checks indices and is excluded from fusion."""

ConstantElements = list[Elements | None]
"""Known elements by parameter of a prim func, for parameters that are constants in all calls."""


def constant_elements(main: Function) -> dict[str, ConstantElements]:
    """Return the known elements of constant integer parameters, by the name of the prim func."""
    found: dict[str, ConstantElements] = {}
    for name, call in prim_func_calls(main):
        ranges = [_elements(argument) for argument in call.args[1].fields]
        found[name] = [
            None if one is None or other is None else one.together(other)
            for one, other in zip(found.get(name, ranges), ranges, strict=True)
        ]
    return found


def _elements(argument: PrimExpr) -> Elements | None:
    array = tvm_api.constant_array(argument)
    if array is None or not array.size or not np.issubdtype(array.dtype, np.integer):
        return None
    return Elements.of(array)


def keep_checked_apart(module: IRModule) -> IRModule:
    """Exclude prim funcs that have to check indices from fusion.

    An index is compared with the extents of its tensor. Fusion with a reshape would replace these
    extents.
    """
    constants = constant_elements(module["main"])
    marked = IRModule(dict(module.functions.items()), module.attrs)
    for variable, function in tvm_api.prim_functions(module):
        ours = tvm_api.function_attribute(function, "umakit.target") is None
        if ours and _needs_checks(function, constants.get(variable.name_hint, [])):
            attributes = {"op_pattern": tvm_api.OPAQUE_OPERATOR_PATTERN, CHECKED: True}
            marked.update_func(variable, function.with_attrs(attributes))
    return marked


def _needs_checks(function: PrimFunc, constants: ConstantElements) -> bool:
    if not has_loaded_positions(function.body):
        return False
    module = IRModule({"kernel": function.with_attr("global_symbol", "kernel")})
    module = tvm_api.tirx_transform.BindTarget(tvm_api.c_target())(module)
    with tvm_api.c_target():
        plain = tvm_api.Sequential(without_blocks())(module)["kernel"]
    return check_indices(plain, constants, "") is not plain


def index_checks(constants: Sequence[Elements | None], where: str, insert: bool) -> list[Any]:
    """Return the TIR pass that checks a kernel's indices."""

    def check(function: PrimFunc) -> PrimFunc:
        checked = check_indices(function, constants, where)
        return checked if insert else function

    return [prim_func_pass("umakit.CheckIndices", check)]
