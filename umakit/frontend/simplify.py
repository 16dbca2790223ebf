# SPDX-License-Identifier: Apache-2.0
"""Clean-ups of an imported module that every later stage relies on."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.floats import constant_rules
from umakit.floats.rules import Rule
from umakit.frontend.constant_folding import fold_shapes_with_numpy, fold_with_numpy
from umakit.frontend.isolation import failing_call, operand_types

DIVISIONS = ("divide", "floor_divide", "mod", "floor_mod")
"""Operators whose second operand is a divisor."""


READING = frozenset(
    f"relax.{name}"
    for name in (
        "add subtract multiply divide maximum minimum clip exp sigmoid tanh matmul permute_dims "
        "nn.conv1d nn.conv2d nn.relu nn.softmax nn.max_pool2d nn.avg_pool2d"
    ).split()
)
"""Operators that read all their operands: one that is no constant makes the result none."""

SCATTER, TAKE = "relax.scatter_elements", "relax.take"


def simplify(module: tvm_api.IRModule, where: str) -> tvm_api.IRModule:
    """Clean-ups that every later stage relies on; none of them changes a result's meaning.

    Raises:
        ModelError: an operator has no meaning for inference, or TVM cannot simplify the network.
    """
    _refuse_zero_divisors(module, where)
    transform = tvm_api.relax_transform
    decomposing = [
        transform.CanonicalizeBindings(),
        transform.DecomposeOpsForInference(),
        transform.CanonicalizeBindings(),
    ]
    # Folding dequantize(weight) would destroy the islands that quantization looks for.
    is_folded = not any(
        "quantize" in tvm_api.operator_name(b.value) for b in _main_bindings(module)
    )
    folding = [transform.FoldConstant()] if is_folded else []
    folding.append(transform.DeadCodeElimination())
    scatter = _unless_narrow(tvm_api.legalization(SCATTER))
    rules = {**constant_rules(), SCATTER: scatter, TAKE: _take_of_constants}
    used = {f"relax.{tvm_api.operator_name(b.value)}" for b in _main_bindings(module)}
    for name in used & READING:
        rules[name] = _of_constants(rules.get(name) or tvm_api.legalization(name))
    with quiet(), tvm_api.c_target(), tvm_api.legalizing_by(rules):
        try:
            module = transform.ConvertToDataflow(min_size=1)(module)
            folded = fold_with_numpy(module, where)
            decomposed = tvm_api.Sequential(decomposing)(folded)
            if is_folded:
                decomposed = fold_shapes_with_numpy(decomposed, where)
            simplified = tvm_api.Sequential(folding)(decomposed)
        except tvm_api.TVM_ERRORS as error:
            raise _not_supported(module, [*decomposing, *folding], where) from error
    _refuse_zero_divisors(simplified, where)
    return simplified


def _of_constants(rule: Rule) -> Rule:
    """A rule for calls whose operands are all constants; others are left as they are.

    Constant folding legalizes every call before it looks whether it can compute it, which takes a
    third of the time of a deep network's compilation.
    """

    def apply(builder: tvm_api.BlockBuilder, call: tvm_api.Call) -> tvm_api.Expr | None:
        if all(isinstance(operand, tvm_api.GenericConst) for operand in call.args):
            return rule(builder, call)
        return call

    return apply


def _unless_narrow(rule: Rule) -> Rule:
    """TVM's rule for ScatterElements, where the dtype of the indices holds the size of the axis.

    TVM makes the size a number of that dtype, and constant folding applies the rule to every call.
    Others are left for the rule of the CPU.
    """

    def apply(builder: tvm_api.BlockBuilder, call: tvm_api.Call) -> tvm_api.Expr | None:
        shape, dtype = tvm_api.static_shape(call.args[0]), tvm_api.dtype_of(call.args[1])
        narrow = shape is not None and shape[int(call.attrs.axis)] > np.iinfo(dtype).max
        return call if narrow else rule(builder, call)

    return apply


def _take_of_constants(builder: tvm_api.BlockBuilder, call: tvm_api.Call) -> tvm_api.Expr:
    """A rule for `take` of constants, whose indices are in range; others are left as they are.

    TVM's own says on the terminal that it may crash, for every call.
    """
    if any(tvm_api.constant_array(operand) is None for operand in call.args):
        return call
    mode = "clip" if str(call.attrs.mode) == "fast" else str(call.attrs.mode)
    return builder.call_te(tvm_api.topi.take, *call.args, call.attrs.axis, mode=mode)


def _refuse_zero_divisors(module: tvm_api.IRModule, where: str) -> None:
    """Refuse integers that are divided by a constant 0."""
    for binding in _main_bindings(module):
        operator = tvm_api.operator_name(binding.value)
        if operator not in DIVISIONS:
            continue
        divisor = tvm_api.constant_array(binding.value.args[1])
        if divisor is not None and divisor.dtype.kind in "iu" and not divisor.all():
            name = tvm_api.name_of(binding.value) or str(binding.var.name)
            raise ModelError(
                f"operator {operator} of node {name!r} divides an integer by a constant 0",
                where=where,
                fix="change the divisor in the model",
            )


def _not_supported(module: tvm_api.IRModule, passes: list[Any], where: str) -> ModelError:
    """The error for a network that a pass fails for: names the operator if one alone does it."""
    to_dataflow = tvm_api.relax_transform.ConvertToDataflow(min_size=1)
    every = tvm_api.Sequential([to_dataflow, *passes, tvm_api.relax_transform.LegalizeOps()])
    found = failing_call(module, every)
    fix = "replace it in the model"
    if found is None:
        return ModelError("holds operators that cannot be simplified together", where=where)
    call, variable = found
    name = tvm_api.name_of(call) or variable.name
    return ModelError(
        f"operator {tvm_api.operator_name(call)} of node {str(name)!r} is not supported for "
        f"{', '.join(operand_types(call))}",
        where=where,
        fix=fix,
    )


def _main_bindings(module: tvm_api.IRModule) -> list[Any]:
    return list(tvm_api.bindings_of(module["main"]))


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep TVM's warnings and stray prints away from the user's terminal."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield
