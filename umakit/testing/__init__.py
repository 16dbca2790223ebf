# SPDX-License-Identifier: Apache-2.0
"""Testing of backends: compile networks, run them, and compare with a reference.

`compile_and_run` tests an `AOTModel`; `conv2d_model` and `QuantizedNetwork` make small models.
`check_backend` draws layers of all operators that a backend claims. Names are imported on first
use: Python simulators import `umakit.testing.simulator_program` and need no TVM.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from umakit.imports import imported_on_use

if TYPE_CHECKING:
    from umakit.testing.check import CheckReport, check_backend, check_layer
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
    "CheckReport",
    "QuantizedNetwork",
    "check_backend",
    "check_layer",
    "compile_and_run",
    "conv2d_model",
    "llvm_runner",
]

__getattr__ = imported_on_use(
    __name__,
    {
        **dict.fromkeys(("CheckReport", "check_backend", "check_layer"), "umakit.testing.check"),
        **dict.fromkeys(
            ("AOTModel", "AOTReport", "compile_and_run", "conv2d_model", "llvm_runner"),
            "umakit.testing.harness",
        ),
        "QuantizedNetwork": "umakit.testing.example_networks",
    },
)
