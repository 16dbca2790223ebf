# SPDX-License-Identifier: Apache-2.0
"""The stages from a partitioned network to its program and memory plan, before C is written."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from umakit.codegen.driver_interface import check_driver_calls
from umakit.codegen.driver_names import names_taken_by
from umakit.cpu.description import find_cpu
from umakit.errors import LoweringError, ModelError
from umakit.frontend import Model
from umakit.library.options import ExportOptions
from umakit.lower import Lowered, lower
from umakit.lower.offload import calls_rounding
from umakit.memory.plan import PlannedProgram
from umakit.memory.planning import in_own_scratchpads, plan_memory, scratchpads_hold
from umakit.memory.pools import memory_pools, requested_pools, scratchpad_names
from umakit.memory.validator import validate_plan
from umakit.partition.partitioner import Partitioned
from umakit.program.building import build_program
from umakit.program.overlap import in_parts, overlap_with_cpu
from umakit.program.residency import keep_in_scratchpads
from umakit.records.tilings import check_use, read_tilings
from umakit.registration.backend import Backend

Progress = Callable[[str], None]


def plan_program(
    model: Model,
    partitioned: Partitioned,
    backends: Sequence[Backend],
    options: ExportOptions,
    progress: Progress = lambda stage: None,
    generic_rows: Collection[int] = (),
) -> PlannedProgram:
    """Run the stages `lower`, `program` and `memory`, without a limit of the arena."""
    with naming_file_of(model):
        progress("lowering to kernels")
        lowered = lower_to_kernels(model, partitioned, backends, options, generic_rows)
        used = {kernel.target for kernel in lowered.kernels.values()}
        by_target = {
            backend.target_name: backend
            for backend in backends
            if backend.target_name in used or calls_rounding(lowered.kernels.values(), backend)
        }
        used_backends = list(by_target.values())
        requested = requested_pools(options.pools, backends, used_backends)
        pools = memory_pools(used_backends, requested)
        reserved = [*options.reserved_names(pools), *names_taken_by(by_target)]
        program = build_program(model, lowered, partitioned.report, reserved)
        cpu = find_cpu(options.cpu)
        program = replace(
            program, index_checks=options.index_checks, cpu=cpu if cpu.is_described else None
        )
        program = in_own_scratchpads(program, scratchpad_names(used_backends))
        program = overlap_with_cpu(program, by_target, options.overlap)
        check_driver_calls(program.kernels, by_target)
        progress("planning memory")
        if options.keep_in_scratchpads:
            program = keep_in_scratchpads(
                program, by_target, lambda each: scratchpads_hold(each, pools, options.planner)
            )
        plan = plan_memory(program, pools, options.planner)
        validate_plan(program, plan)
    return PlannedProgram(program, plan, by_target, partitioned)


def with_parts(
    planned: PlannedProgram, backends: Sequence[Backend], options: ExportOptions
) -> PlannedProgram:
    """Return a planned program with kernels in parts, if the options ask for parts.

    Neither the kernels of a program nor the results depend on parts.
    """
    if not options.parallel:
        return planned
    used = list(planned.backends.values())
    pools = memory_pools(used, requested_pools(options.pools, backends, used))
    program = in_parts(planned.program, options.parallel)
    plan = plan_memory(program, pools, options.planner)
    validate_plan(program, plan)
    return replace(planned, program=program, memory=replace(plan, scratch=planned.memory.scratch))


def lower_to_kernels(
    model: Model,
    partitioned: Partitioned,
    backends: Sequence[Backend],
    options: ExportOptions,
    generic_rows: Collection[int] = (),
) -> Lowered:
    """Run the stage `lower` with the tilings, choices and records of the options."""
    records = None if options.records is None else Path(options.records)
    tilings = {} if records is None else read_tilings(records, model, backends)
    lowered = lower(
        partitioned, backends, options.index_checks, {**options.tilings, **tilings},
        find_cpu(options.cpu), generic_rows, options.choices,
    )  # fmt: skip
    if records is not None:
        for target in tilings:
            check_use(records, target, lowered.planned[target])
    return lowered


@contextmanager
def naming_file_of(model: Model) -> Iterator[None]:
    """Add the name of the model's file to errors of lowering."""
    try:
        yield
    except (LoweringError, ModelError) as error:
        if model.path and model.path not in error.where:
            error.where = f"{model.path}, {error.where}" if error.where else model.path
        raise
