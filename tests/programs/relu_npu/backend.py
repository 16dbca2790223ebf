# SPDX-License-Identifier: Apache-2.0
"""An accelerator for ReLU whose simulator is a program."""

import math
from typing import Any

from umakit import PassPhase, UMABackend, patterns, tir


def call_driver(function: Any) -> Any:
    """A TIR pass: the loops of an operator become a call of the driver."""
    data, result = map(tir.pointer, function.params)
    size = math.prod(tir.buffer_shape(function.params[0]))
    return tir.with_body(function, tir.driver_call("relu_npu_relu", [data, result, size]))


class ReluNpuBackend(UMABackend):
    """Takes ReLU of float32."""

    def __init__(self) -> None:
        super().__init__()
        relu = patterns.is_op("relax.nn.relu")(patterns.wildcard())
        self._register_pattern("relu", relu)
        self._register_tir_pass(PassPhase.TIR_PHASE_0, tir.prim_func_pass("ReluNpu", call_driver))
        self._register_codegen(includes=lambda: '#include "relu_npu.h"')
        self._register_driver(sources=["relu_npu.c"], headers=["relu_npu.h"])

    @property
    def target_name(self) -> str:
        """The name that users give to --backend."""
        return "relu_npu"
