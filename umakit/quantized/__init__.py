# SPDX-License-Identifier: Apache-2.0
"""Conversion of the quantized operators of a network to integer-only operators.

The conversion runs before partitioning, so that a backend's patterns match an integer operator as
one operator (`is_op("relax.quantized.conv2d")`), with all its parameters as attributes.
"""

from __future__ import annotations

from dataclasses import replace

from umakit import tvm_api
from umakit.errors import ModelError
from umakit.frontend.model import Model, QuantizedSemantics, on_page
from umakit.operators.numeric.fixed_point import Arithmetic
from umakit.operators.registry import roots_without_quantize
from umakit.quantized.recognizer import LeftInFloat, recognize_islands

__all__ = ["quantize_to_integers"]


def quantize_to_integers(model: Model) -> Model:
    """Replace quantized operators by integer operators. Other networks stay unchanged.

    Args:
        model: an imported network; its `arithmetic` names the runtime whose results are matched.

    Returns:
        The model; its notices name the operators that still compute in floating point.

    Raises:
        ModelError: the file defines integer results of an operator that has no integer form here.
    """
    operators = {tvm_api.operator_name(b.value) for b in tvm_api.bindings_of(model.module["main"])}
    if not operators & ({"quantize", "dequantize"} | roots_without_quantize()):
        return model
    arithmetic = Arithmetic(model.arithmetic)
    exact = model.semantics is QuantizedSemantics.INTEGERS
    module, recognizer = recognize_islands(model.module, arithmetic, model.semantics)
    left, rounded = recognizer.left, recognizer.rounded_biases
    for operator in left:
        if exact and not operator.float_in_model:
            source = model.sources.get(operator.name)
            kind = source.kind if source is not None and source.kind else operator.operator
            error = ModelError(
                f"operator {kind} of node {operator.name!r} has no integer form: {operator.reason}",
                where=model.path or model.name,
                fix="quantize the model otherwise, or leave the operator in float",
            )
            raise on_page(error, __name__)
    notices = [*model.notices, *_notices(module, left)]
    if rounded:
        notices.append(
            f"float biases of {len(rounded)} quantized layers are rounded to integers at the scale "
            "of input times weight"
        )
    return replace(
        model,
        module=module,
        notices=tuple(notices),
        quantizations=recognizer.quantizations,
        weights=recognizer.weights,
        origin=model,
    )


def _notices(module: tvm_api.IRModule, left: list[LeftInFloat]) -> list[str]:
    reasons = {operator.name: operator.reason for operator in left}
    floats: dict[str, str] = {}
    for binding in tvm_api.bindings_of(module["main"]):
        operator = tvm_api.operator_name(binding.value)
        involved = (
            [tvm_api.dtype_of(binding.var), *map(tvm_api.dtype_of, binding.value.args)]
            if (operator)
            else []
        )
        if any(dtype.startswith("float") for dtype in involved):
            name = tvm_api.name_of(binding.value) or str(binding.var.name)
            floats.setdefault(name, operator)
    return [
        f"{name!r} ({operator}) computes in floating point"
        + (f": {reasons[name]}" if name in reasons else "")
        for name, operator in floats.items()
    ]
