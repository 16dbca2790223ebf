# SPDX-License-Identifier: Apache-2.0
"""Patterns of integer operators, ready to register in a backend.

    from umakit import patterns

    self._register_pattern(*patterns.qconv2d(strides=(1, 2), kernels=(1, 3), channel_multiple=8))
    self._register_tir_pass(PassPhase.TIR_PHASE_0, patterns.driver_calls(qconv2d="my_npu_qconv2d"))

Bias, activation and requantize are part of the operators; patterns also match separate ones behind
an operator. Arguments of a pattern are constraints, except the arguments that choose the driver's
parameters; `help(qconv2d)` describes both kinds. The offload table shows failed constraints with
their values. None accepts anything. Sizes are `3` or `(3, 3)`, or a list like `[1, (3, 5)]` for
several.

The driver gets pointers, then 32-bit integers, in the order that `c_declaration` prints. A TIR pass
that needs another order builds its call from `parameters_of(function)`: shapes, strides, padding,
zero points, clip, and the layer's own weights, bias, multipliers and shifts, plain and in the
driver's form. Without a pass, the operator runs as plain loops over the same arrays; the driver's
results must equal theirs. `docs/patterns.md` has a whole backend as an example.

Patterns of other operators are TVM's own, made of `is_op` and `wildcard`. Their predicates check
shapes and dtypes by `static_shape` and `dtype_of`.

`umakit/requantize.h` has the requantize arithmetic for drivers. An export contains the header if a
driver includes it:

    scaled = umakit_requantize(rounding, accumulator, multipliers[s], shifts[s]);
    result[i] = (int8_t)umakit_add_and_clamp(scaled, output_zero_point, lowest, highest);
"""

from typing import Any

from umakit.operators.drawings.own import drawn
from umakit.operators.offload.composite import ROUNDINGS, Composite, QPool2d
from umakit.operators.offload.generated import member, names
from umakit.operators.offload.pattern import OperatorPattern
from umakit.operators.offload.weighted import QConvolution, Weighted, WeightLayout, weight_layout
from umakit.patterns.driver import c_declaration, driver_call, driver_calls, parameters_of
from umakit.tvm_api import DFPattern, dtype_of, is_op, static_shape, wildcard

__all__ = [
    "ROUNDINGS",
    "Composite",
    "DFPattern",
    "OperatorPattern",
    "QConvolution",
    "QPool2d",
    "WeightLayout",
    "Weighted",
    "c_declaration",
    "drawn",
    "driver_call",
    "driver_calls",
    "dtype_of",
    "is_op",
    "parameters_of",
    "static_shape",
    "weight_layout",
    "wildcard",
]
__all__ += names()


# `Any`, as the names are used as types too: `patterns.QConv2d`.
def __getattr__(name: str) -> Any:
    """Patterns of operators, such as `qconv2d`, and their parameters, such as `QConv2d`."""
    found = member(name)
    if found is None:
        raise AttributeError(f"module 'umakit.patterns' has no attribute {name!r}")
    return found
