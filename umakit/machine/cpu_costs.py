# SPDX-License-Identifier: Apache-2.0
"""What kernels cost on a CPU: a number for each kind of operation, in the CPU's description."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

OPERATIONS: Mapping[str, str] = {
    "call": "a call of a kernel",
    "loop": "a loop that is entered, of those that compilers do not unroll whole",
    "turn": "a turn of such a loop",
    "condition": "a condition that is evaluated",
    "load": "a load of a number that is not in a register",
    "store": "a store of a number",
    "address": "a pointer that advances, for each loop that it depends on",
    "parallel_turn": "a turn of a loop in float32 that compilers may turn into vectors",
    "parallel_load": "a load in such a loop",
    "parallel_store": "a store in such a loop",
    "parallel_operation": "an operation in such a loop",
    "integer": "an addition or a bitwise operation of integers",
    "integer_product": "a multiplication of integers",
    "integer_division": "a division of integers",
    "choice": "a comparison, minimum, maximum or selection of integers",
    "wide": "an operation of 64-bit integers",
    "float_addition": "an addition in float32",
    "float_product": "a multiplication in float32",
    "float_division": "a division in float32",
    "float_choice": "a comparison, minimum or maximum in float32",
    "double": "an operation in float64",
    "conversion": "a conversion between kinds of numbers",
    "broadcast": "a number that is copied to all places of a vector",
    "vector_load": "a load of a vector",
    "vector_store": "a store of a vector",
    "vector_operation": "an operation of a vector",
    "products_call": "a call that multiplies windows with blocks of weights",
    "products_block": "a block of weights for all windows at once",
    "products_group": "a group of elements of such a block",
    "products_single_block": "a block of weights for one window",
    "products_single_group": "a group of elements of such a block",
    "results_call": "a call that rescales a row of sums by instructions for it",
    "results_tflm": "a group of results that round as TensorFlow Lite Micro",
    "results_ort": "a group of results that round as ONNX Runtime",
    "plain_results_call": "a call that rescales a row of sums in plain C",
    "plain_results_tflm": "a result that rounds as TensorFlow Lite Micro",
    "plain_results_ort": "a result that rounds as ONNX Runtime",
    "copy_call": "a copy of a part of a window by instructions for it",
    "copied_group": "a group of elements of such a copy",
    "copied_rest": "an element behind the last whole group",
    "plain_copy_call": "a copy of a part of a window in plain C",
    "plain_copied": "an element of such a copy",
    "fill_call": "a window that is filled with the zero point",
    "filled": "an element of 8 bits that is filled",
    "filled_wide": "an element of 16 bits that is filled",
    "depthwise_call": "a call that sums a depthwise window",
    "depthwise_group": "a group of channels of it",
    "depthwise_row": "a row of a group of channels",
    "depthwise_product": "an element of a group of channels",
    "depthwise_rest": "a channel, or a small group, behind the last whole group",
    "depthwise_rest_product": "an element of those",
    "addition_call": "a call that adds two tensors by instructions for it",
    "addition": "a group of elements of them",
}
"""The operations of kernels that have a cost. Widths of groups are those of the instructions, see
`umakit.lower.executed.called`."""

FUNCTION = "function."
"""Prefix of the name of an operation that is a call of a C function."""

Factor = Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)]
Cost = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
FunctionName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=60)]


class CpuCosts(BaseModel):
    """What operations of kernels cost on a CPU.

    Attributes:
        unit: what costs count.
        cycles_per_instruction: cycles of an instruction on the average, a prediction; None if it is
            not known, so that costs in instructions say nothing of cycles.
        clock_mhz: clock of the CPU; None if it is not known.
        operations: cost of each of `OPERATIONS`; a kernel with another one has no known cost.
        functions: the same of calls of functions of C, without `umakit_`, such as `exp` or
            `requantize_tflm`; `requantize_tflm_constant` is one by a constant.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    unit: Literal["instructions", "cycles"] = "instructions"
    cycles_per_instruction: Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)] | None = (
        None
    )
    clock_mhz: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] | None = None
    operations: dict[str, Cost] = {}
    functions: dict[FunctionName, Cost] = {}

    @field_validator("operations")
    @classmethod
    def _have_a_meaning(cls, operations: dict[str, float]) -> dict[str, float]:
        other = [name for name in operations if name not in OPERATIONS]
        if other:
            raise ValueError(f"{other[0]!r} is no operation; docs/cpus.md lists them")
        return operations

    def of(self, executed: Mapping[str, float] | None) -> CpuPrediction:
        """Return the predicted cost of what a kernel executes.

        Args:
            executed: how often each operation is executed, as
                `umakit.lower.executed.executed_operations` returns it; None if that is not known.
        """
        costs = {**self.operations, **{FUNCTION + name: c for name, c in self.functions.items()}}
        if executed is None or any(name not in costs for name in executed):
            return UNPREDICTED
        total = sum(costs[name] * count for name, count in executed.items())
        if self.unit == "cycles":
            return CpuPrediction(None, round(total))
        return CpuPrediction(round(total), self.cycles(total))

    def cycles(self, instructions: float) -> int | None:
        """Return the predicted cycles of a number of instructions; None if they are not known."""
        factor = self.cycles_per_instruction
        return None if factor is None or self.unit == "cycles" else round(instructions * factor)


@dataclass(frozen=True)
class CpuPrediction:
    """The predicted cost of a kernel on a CPU.

    Attributes:
        instructions: that it executes; None if they are not known.
        cycles: of the CPU's clock; None if they are not known.
    """

    instructions: int | None
    cycles: int | None


UNPREDICTED = CpuPrediction(None, None)
