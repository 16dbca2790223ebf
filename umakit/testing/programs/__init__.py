# SPDX-License-Identifier: Apache-2.0
"""Varied programs: a driver's register accesses with changed values, on a model and its RTL.

`recording` holds the driver's accesses for drawn layers, `variation` turns them into programs,
`replay` runs programs on model and RTL, and `program_check` finds and reduces the first difference.
"""

from umakit.testing.programs.report import ProgramReport, ProgramsDifference

__all__ = ["ProgramReport", "ProgramsDifference"]
