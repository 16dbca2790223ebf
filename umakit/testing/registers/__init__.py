# SPDX-License-Identifier: Apache-2.0
"""Checks that a device follows its register map: reset values, writable bits, holes.

`comparison.compare` finds the differences of any `Registers`. `register_check` builds and
drives the device of a backend.
"""

from umakit.testing.registers.accesses import Access, RegisterReport, Registers
from umakit.testing.registers.comparison import compare
from umakit.testing.registers.register_check import check_registers, map_of

__all__ = [
    "Access",
    "RegisterReport",
    "Registers",
    "check_registers",
    "compare",
    "map_of",
]
