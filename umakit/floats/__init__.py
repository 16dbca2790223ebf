# SPDX-License-Identifier: Apache-2.0
"""Legalization of floating-point operators for which TVM's rules lose NaN or infinities.

`rules` makes generated C agree with NumPy. `in_comparisons` does the same for TVM's own code
generators, which fold constants and build the reference.
"""

from umakit.floats.comparisons import constant_rules, in_comparisons
from umakit.floats.rules import float_rules

__all__ = ["constant_rules", "float_rules", "in_comparisons"]
