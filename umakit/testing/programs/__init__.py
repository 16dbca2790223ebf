# SPDX-License-Identifier: Apache-2.0
"""Varied programs: register accesses of a driver with values changed, on a model and on its RTL.

`recording` has what the driver did for drawn layers, `variation` makes programs of it,
`replay` runs them on the pair, and `program_check` finds and reduces the first difference.
"""

from umakit.testing.programs.report import ProgramReport, ProgramsDifference

__all__ = ["ProgramReport", "ProgramsDifference"]
