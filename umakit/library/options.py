# SPDX-License-Identifier: Apache-2.0
"""Options of a compilation."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, cast, get_args

from umakit.cpu.description import GENERIC, Cpu
from umakit.cpu.kernel_choices import Choice, KernelKey
from umakit.cpu.several import cpu_texts, find_cpus
from umakit.errors import LibraryError, MemoryPlanError
from umakit.machine import Layer, Tiling
from umakit.memory.planners import DEFAULT_PLANNER, DEFAULT_SCRATCH_LIMIT, check_scratch_limit
from umakit.memory.planning import check_planner
from umakit.memory.pools import MemoryPool
from umakit.program.overlap import Overlap
from umakit.text.escaping import shown

Weights = Literal["c", "blob"]
Rule = Literal["order", "cycles"]

MOST_PARTS = 64
"""Maximum number of parts of a kernel. Each part has its own scratch."""

NAMES_OF_PARALLEL = ("parallel", "run_parallel", "run_parts", "run_layers", "run_locked")
"""Names of C in a library whose layers are computed in parts."""


@dataclass(frozen=True)
class ExportOptions:
    """Options of a compilation.

    Attributes:
        planner: memory planner, a name of `umakit.memory.planners.PLANNERS`.
        pools: memory pools of the board in order of preference, after those of the backends.
        weights: `c` puts constants into C; `blob` into one binary file that a loader checks.
        keep_in_scratchpads: whether a result stays in a scratchpad for the next layer if possible;
            else every layer loads and stores its tensors.
        overlap: condition for the CPU to run in parallel with accelerators, see
            `umakit.program.overlap`.
        index_checks: whether the library checks indices computed at run time; without checks, an
            index out of range reads or writes outside of its tensor.
        records: a file of `uma tune` with tilings or choices for kernels on the CPU; None for the
            defaults.
        tilings: tilings by target and layer that take precedence over records and defaults.
        choices: choices for kernels on the CPU; they take precedence over the rules' own choices,
            and records over them.
        force: whether to replace also changed files of the output folder, or a tar file of other
            origin; inputs are never replaced.
        keep_layout: whether all tensors keep the model's layout; else regions get the layout of the
            accelerators' patterns if the change pays, see `umakit.partition.layouts.choose`.
        choose: rule for a layer that several accelerators could take: `order`, by the order of
            backends; `cycles`, by runs of the network, see `umakit.pipeline.choose`.
        cpu: target CPU of kernel schedules, a name of `umakit.cpu` or a TOML file; several
            CPUs with commas between them, for the C compiler to choose from.
        scratch_limit: limit of the arena in a library for a CPU, in percent above the live-set
            bound of a library for any CPU; 0 limits the arena to that of the library for any CPU.
        require_offload: whether to refuse a network without layers on one of the accelerators.
        parallel: maximum number of parts of a kernel that a caller's callback may compute at the
            same time; 0 for a library without parts.
    """

    planner: str = DEFAULT_PLANNER
    pools: tuple[MemoryPool, ...] = ()
    weights: Weights = "c"
    keep_in_scratchpads: bool = True
    overlap: Overlap = "free"
    records: str | os.PathLike[str] | None = None
    tilings: Mapping[str, Mapping[Layer, Tiling]] = field(default_factory=dict)
    choices: Mapping[KernelKey, Choice] = field(default_factory=dict)
    force: bool = False
    require_offload: bool = False
    index_checks: bool = True
    keep_layout: bool = False
    choose: Rule = "order"
    cpu: str = GENERIC
    scratch_limit: int = DEFAULT_SCRATCH_LIMIT
    parallel: int = 0

    def __post_init__(self) -> None:
        """Refuse unknown values.

        Raises:
            LibraryError: the form of the weights, the overlap, the rule of choice, or the number of
                parts is unknown.
            MemoryPlanError: the planner is unknown, a pool is not a `MemoryPool`, or the limit is
                no percentage.
            InputError: the CPU is unknown.
        """
        parse_weights(self.weights)
        parse_overlap(self.overlap)
        parse_choose(self.choose)
        check_planner(self.planner)
        if len(find_cpus(self.cpu)) > 1 and self.weights == "blob":
            raise LibraryError(
                "a weights blob holds the constants of one CPU",
                where="--cpu",
                fix="name one CPU, or write --weights c",
            )
        check_scratch_limit(self.scratch_limit)
        if self.parallel != 0 and not 2 <= self.parallel <= MOST_PARTS:
            raise LibraryError(
                f"{self.parallel} parts of a kernel cannot run at the same time",
                where="--parallel-for",
                fix=f"choose 2 to {MOST_PARTS}, or 0 for a library without parts",
            )
        for pool in self.pools:
            if not isinstance(pool, MemoryPool):
                raise MemoryPlanError(
                    f"pools hold {shown(str(pool), 60)!r}, which is not a MemoryPool",
                    fix="write it as umakit.MemoryPool, or use --pool of uma compile",
                )

    @property
    def cpus(self) -> dict[str, Cpu]:
        """The CPUs of the export, by the text of `cpu` for each, in the order of `cpu`."""
        return dict(zip(cpu_texts(self.cpu), find_cpus(self.cpu), strict=True))

    def reserved_names(self, pools: Sequence[MemoryPool]) -> list[str]:
        """Return the names of the C interface that no tensor may have."""
        if self.weights == "blob" and any(pool.name == "weights" for pool in pools):
            raise MemoryPlanError(
                "a memory pool cannot be called 'weights' where the weights are a blob",
                fix="choose another name for it, or --weights c",
            )
        if self.parallel and any(pool.name in NAMES_OF_PARALLEL for pool in pools):
            raise MemoryPlanError(
                f"a memory pool cannot be called {' or '.join(map(repr, NAMES_OF_PARALLEL))} in a "
                "library with --parallel-for",
                fix="choose another name for it",
            )
        names = [name for pool in pools for name in (pool.name, f"{pool.name}_size")]
        names += NAMES_OF_PARALLEL if self.parallel else []
        return [*names, "weights"] if self.weights == "blob" else names


def parse_weights(form: str) -> Weights:
    if form not in get_args(Weights):
        raise LibraryError(f"weights cannot be written as {form!r}", fix="choose c or blob")
    return cast(Weights, form)


def parse_overlap(when: str) -> Overlap:
    if when not in get_args(Overlap):
        fix = f"choose {', '.join(get_args(Overlap))}"
        raise LibraryError(f"there is no overlap {when!r}", fix=fix)
    return cast(Overlap, when)


def parse_choose(rule: str) -> Rule:
    if rule not in get_args(Rule):
        what = f"accelerators cannot be chosen by {shown(rule, 60)!r}"
        raise LibraryError(what, fix="choose order or cycles")
    return cast(Rule, rule)
