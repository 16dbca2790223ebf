# SPDX-License-Identifier: Apache-2.0
"""`uma check`: draws layers at and around what a backend accepts, and checks what it computes.

`backend_check.check_backend` compares the registers of the device with their map
(`umakit.testing.registers`), draws cases (`drawing`, from the settings that an operator's own file
names, see `umakit.operators.drawing`), builds many of them as branches of one network into one
library (`batch`), and runs it layer by layer next to the reference. Further checks plug in here:

- `checks.BATCH_CHECKS` is the list of functions that get each batch after its run, with its
  library, traces, members and their results, and return failures;
- a check that builds or runs something of its own takes `batch.module`, `batch.library`,
  `batch.inputs` and `batch.folder`, which exist until all checks of the batch are done.
"""

from umakit.testing.check.backend_check import (
    check_backend,
    check_layer,
    check_only_program,
    check_only_registers,
)
from umakit.testing.check.report import CheckReport, Counts, Failure

__all__ = [
    "CheckReport",
    "Counts",
    "Failure",
    "check_backend",
    "check_layer",
    "check_only_program",
    "check_only_registers",
]
