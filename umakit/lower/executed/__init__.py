# SPDX-License-Identifier: Apache-2.0
"""What a lowered kernel of the CPU executes, counted over its TIR without running it."""

from umakit.lower.executed.counter import executed_operations as executed_operations
