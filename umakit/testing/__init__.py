# SPDX-License-Identifier: Apache-2.0
"""Compiling, running and comparing whole networks, and small networks to try a backend on."""

from umakit.testing.example_networks import QuantizedNetwork
from umakit.testing.harness import (
    AOTModel,
    AOTReport,
    compile_and_run,
    conv2d_model,
    llvm_runner,
)

__all__ = [
    "AOTModel",
    "AOTReport",
    "QuantizedNetwork",
    "compile_and_run",
    "conv2d_model",
    "llvm_runner",
]
