# SPDX-License-Identifier: Apache-2.0
"""Testing of backends: compile networks, run them, and compare with a reference.

`compile_and_run` does all of that for an `AOTModel`; `conv2d_model` and `QuantizedNetwork` make
small ones.
"""

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
