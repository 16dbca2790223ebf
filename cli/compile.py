# SPDX-License-Identifier: Apache-2.0
"""`uma compile`: from a network to a C library."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from umakit.cli import tables
from umakit.cli.console import print_json, progress, say, say_notices, say_wrapped
from umakit.cli.options import (
    BackendOption,
    ChooseOption,
    CpuOption,
    ForceOption,
    IndexChecksOption,
    JsonOption,
    KeepLayoutOption,
    ModelArgument,
    OverlapOption,
    ParallelOption,
    PlannerOption,
    PoolOption,
    RecordsOption,
    RequireOffloadOption,
    RoundingOption,
    ScratchLimitOption,
    ShapesOption,
    WeightsOption,
    export_options,
    find_backends,
    parse_shapes,
)

from umakit.errors import InputError
from umakit.files.outputs import check_distinct
from umakit.memory.planners import DEFAULT_PLANNER, DEFAULT_SCRATCH_LIMIT
from umakit.text.escaping import shell_word

if TYPE_CHECKING:
    from umakit.library.export import Library
    from umakit.library.identities import CpuStep
    from umakit.library.options import ExportOptions

MOST_STEPS = 12
"""Maximum number of steps on the CPU that are printed; `--json` has all."""

EPILOG = """Examples:  uma compile digits.onnx --backend vanilla_accelerator -o digits_library

uma compile digits.onnx --input-shapes "image:[4,1,8,8]" --pool sram=96K,align=32 -o digits.tar"""

OutputOption = Annotated[
    Path,
    typer.Option(
        "--output",
        "-o",
        help="The folder, or FILE.tar, to write. Of an earlier library, the files that umakit "
        "wrote are replaced; your own stay.",
        show_default=False,
    ),
]
NameOption = Annotated[
    str | None,
    typer.Option(help="Name of the model in C; default: the file's.", show_default=False),
]
MemoryMapOption = Annotated[
    Path | None,
    typer.Option(help="Draw the memory plan to this .svg or .png file.", show_default=False),
]


def compile_(
    model: ModelArgument,
    output: OutputOption,
    backend: BackendOption = None,
    name: NameOption = None,
    input_shapes: ShapesOption = None,
    rounding: RoundingOption = None,
    pool: PoolOption = None,
    planner: PlannerOption = DEFAULT_PLANNER,
    weights: WeightsOption = "c",
    records: RecordsOption = None,
    overlap: OverlapOption = "free",
    index_checks: IndexChecksOption = True,
    keep_layout: KeepLayoutOption = False,
    choose: ChooseOption = "order",
    cpu: CpuOption = "generic",
    scratch_limit: ScratchLimitOption = DEFAULT_SCRATCH_LIMIT,
    parallel_for: ParallelOption = 0,
    memory_map: MemoryMapOption = None,
    require_offload: RequireOffloadOption = False,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compile a network to a standalone C library in Model Library Format."""
    shapes = parse_shapes(input_shapes)
    check_distinct(output, memory_map)
    notices: list[str] = []
    with progress() as tell:
        tell("loading TVM")
        from umakit.frontend import model_files
        from umakit.machine.cpu import cpu_file
        from umakit.machine.cpu_choice import cpu_texts
        from umakit.pipeline import compile_model
        from umakit.registration.sources.tree import input_files
        from umakit.tools.memory_map import draw_memory_map

        options = export_options(
            pool, planner, weights, records, overlap, force, index_checks, keep_layout, choose, cpu,
            scratch_limit, parallel_for, require_offload,
        )  # fmt: skip
        found = find_backends(backend)
        own = map(cpu_file, cpu_texts(cpu))
        inputs = input_files(records, *own, backends=found, model=model_files(model))
        if memory_map is not None:
            _check_map(memory_map, options, inputs)
        library = compile_model(
            model, found, output, name=name, input_shapes=shapes, rounding=rounding,
            options=options, progress=tell, notice=notices.append,
        )  # fmt: skip
        if memory_map is not None:
            tell("drawing the memory map")
            draw_memory_map(library.metadata["umakit"], memory_map, inputs, force=force)
    say_notices(notices)
    if as_json:
        print_json(_json(library, output))
        return
    _print(library, output, records is not None)
    if memory_map is not None:
        say(f"Wrote {memory_map}")
    say(f"Next: uma run {shell_word(str(output))} --inputs in.npz{_options(backend, found)}")


def _json(library: Library, output: Path) -> dict[str, Any]:
    from umakit.library.identities import cpu_steps

    description = library.metadata["umakit"]
    steps = [each.as_json() for each in cpu_steps(description)]
    return {"output": str(output), **description, "cpu_steps": steps}


def _check_map(path: Path, options: ExportOptions, inputs: list[Path]) -> None:
    from umakit.tools.memory_map import check_memory_map

    if len(options.cpus) > 1:
        raise InputError(
            "--memory-map draws the arena of one CPU", fix="leave it out, or name one CPU"
        )
    check_memory_map(path, inputs, options.force)


def _options(names: list[str] | None, backends: list[Any]) -> str:
    """Return options of `uma run`, with the accelerators that only RTL simulates."""
    found = zip(names or [], backends, strict=True)
    rtl = [f" --rtl {shell_word(name)}" for name, each in found if each.configuration.is_only_rtl]
    return f" --profile{''.join(rtl)}"


def _print(library: Library, output: Path, has_records: bool) -> None:
    from umakit.library.identities import cpu_steps

    description = library.metadata["umakit"]
    say_wrapped(tables.offload_summary(library.report))
    if library.report.offloaded:
        _say_cpu_steps(cpu_steps(description))
    for line in tables.cpu_summary(description):
        say_wrapped(line)
    if has_records and description["tilings"] is not None:
        say_wrapped(tables.tilings_summary(description["tilings"]))
    say(f"Wrote {output}")


def _say_cpu_steps(steps: Sequence[CpuStep]) -> None:
    """Print the steps on the CPU beside the accelerators' layers, with reasons."""
    if steps:
        say("1 step on the CPU:" if len(steps) == 1 else f"{len(steps)} steps on the CPU:")
    for step in steps[:MOST_STEPS]:
        say(f"  {step.text}")
    if len(steps) > MOST_STEPS:
        say(f"  and {len(steps) - MOST_STEPS} more, which --json lists")
