# SPDX-License-Identifier: Apache-2.0
"""`uma check`: draws layers at and around the limits of a backend, and checks the results.

`backend_check.check_backend` compares the device's registers with their map
(`umakit.testing.registers`), draws cases (`drawing`, from the settings in an operator's own file,
see `umakit.operators.drawing`), builds many cases as branches of one network into one library
(`batch`), and runs the library layer by layer next to the reference. Further checks plug in here:

- `checks.BATCH_CHECKS` lists functions that take each batch after its run, with its library,
  traces, members and results, and return failures;
- a check that builds or runs more takes `batch.module`, `batch.library`, `batch.inputs` and
  `batch.folder`, which exist until all checks of the batch are done.
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
