# SPDX-License-Identifier: Apache-2.0
"""Tuning records of kernels for a CPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from umakit.cpu.kernel_choices import Choice, KernelKey

Ratio = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Instructions = Annotated[int, Field(gt=0)]


@dataclass(frozen=True)
class Times:
    """Processor times of a kernel, divided by the times of the rule's own choice in the same
    rounds.

    Attributes:
        low, median, high: quartiles of all rounds.
    """

    low: Ratio
    median: Ratio
    high: Ratio


@dataclass(frozen=True)
class KernelRecord:
    """The result of the search for one kernel.

    Attributes:
        operators: names of the model's operators, for each occurrence of the kernel.
        own: the rule's own choice.
        trials: number of other choices that were tried.
        times: times of the best choice; None for the rule's own choice, or if instructions are
            counted.
        instructions: instructions of all occurrences in an inference with the best choice; None if
            times are measured.
        own_instructions: `instructions` with the rule's own choice.
    """

    kernel: KernelKey
    operators: tuple[str, ...]
    choice: Choice
    own: Choice
    trials: Annotated[int, Field(ge=0)]
    times: Times | None = None
    instructions: Instructions | None = None
    own_instructions: Instructions | None = None

    @property
    def ratio(self) -> float | None:
        """The ratio of the figures of the best choice and the rule's own; None if they are the same
        choice."""
        if self.choice == self.own:
            return None
        if self.instructions is not None and self.own_instructions is not None:
            return self.instructions / self.own_instructions
        return None if self.times is None else self.times.median


@dataclass(frozen=True)
class Origin:
    """The origin of the figures of kernels.

    Attributes:
        machine: the processor of the host, or the emulator; empty if unknown.
    """

    figures: Literal["times", "instructions"]
    device: str
    machine: str
    compiler: str
