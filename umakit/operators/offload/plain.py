# SPDX-License-Identifier: Apache-2.0
"""Loops of integer operators in composites of a backend's own patterns.

Such a pattern is TVM's, with `is_op("relax.quantized.softmax")`. Its composite gets the operator's
operands unchanged, and constants as pointers, so the CPU's kernel, which prepares weights, cannot
compute the composite. Loops run until a strategy or TIR pass replaces them.
"""

from __future__ import annotations

from dataclasses import asdict

from umakit import tvm_api
from umakit.errors import LoweringError
from umakit.operators import registry
from umakit.operators.offload.weighted import ARRAYS, Weighted
from umakit.operators.parameters import PREFIX, Parameters
from umakit.tvm_api import Call, relax

CHANNELS_FIRST = "OIHW"
"""Layout of weights of convolutions whose data are NCHW."""


def rules() -> dict[str, registry.Rule]:
    """Return the rules for `LegalizeOps` by operator."""
    found = registry.legalizations()
    for operator in registry.operators():
        kinds = [kind for kind in operator.composites if issubclass(kind, Weighted)]
        if kinds and operator.parameters is not None:
            found[f"relax.{PREFIX}{operator.name}"] = _rule(operator.parameters, kinds[0])
    return found


def _rule(parameters: type[Parameters], kind: type[Weighted]) -> registry.Rule:
    def rule(builder: tvm_api.BlockBuilder, call: Call) -> Call:
        layer = _layer(parameters.of(call), kind, call)
        variable = builder.add_func(layer.reference_kernel(), tvm_api.operator_name(call)
                                    .replace(".", "_"))  # fmt: skip
        return relax.call_tir(variable, relax.Tuple(list(call.args)), call.ty)

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
