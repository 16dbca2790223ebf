# SPDX-License-Identifier: Apache-2.0
"""Counts of the operations that a lowered kernel of the CPU executes, from its TIR."""

from umakit.lower.executed.counter import executed_operations as executed_operations
