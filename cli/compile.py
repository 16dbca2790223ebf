# SPDX-License-Identifier: Apache-2.0
"""`uma compile`: from a network to a C library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
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
    find_backends,
    parse_shapes,
    path_of,
)
from umakit.cli.tables import offload_summary

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
    context: typer.Context,
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
        from umakit.cpu.description import cpu_file
        from umakit.cpu.several import cpu_texts
        from umakit.frontend import model_files
        from umakit.pipeline import compile_model
        from umakit.registration.sources.tree import input_files
        from umakit.tools.memory_map import draw_memory_map

        options = _export_options(context.params)
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


PASSED_ON = "force index_checks keep_layout cpu scratch_limit require_offload".split()
"""Options of the command that are options of an export of the same names."""


def _export_options(given: Mapping[str, Any]) -> ExportOptions:
    from umakit.library.options import ExportOptions, parse_choose, parse_overlap, parse_weights
    from umakit.memory.pools import parse_pool

    return ExportOptions(
        given["planner"], tuple(map(parse_pool, given["pool"] or [])),
        parse_weights(given["weights"]), records=path_of(given, "records"),
        overlap=parse_overlap(given["overlap"]), choose=parse_choose(given["choose"]),
        parallel=given["parallel_for"], **{name: given[name] for name in PASSED_ON},
    )  # fmt: skip


def _json(library: Library, output: Path) -> dict[str, Any]:
    from umakit.library.identities import cpu_steps

    description = library.metadata["umakit"]
    steps = [asdict(each) for each in cpu_steps(description)]
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
    say_wrapped(offload_summary(library.report))
    if library.report.offloaded:
        _say_cpu_steps(cpu_steps(description))
    for line in cpu_summary(description):
        say_wrapped(line)
    if has_records and description["tilings"] is not None:
        say_wrapped(tilings_summary(description["tilings"]))
    say(f"Wrote {output}")


def _say_cpu_steps(steps: Sequence[CpuStep]) -> None:
    """Print the steps on the CPU beside the accelerators' layers, with reasons."""
    if steps:
        say("1 step on the CPU:" if len(steps) == 1 else f"{len(steps)} steps on the CPU:")
    for step in steps[:MOST_STEPS]:
        say(f"  {step.text}")
    if len(steps) > MOST_STEPS:
        say(f"  and {len(steps) - MOST_STEPS} more, which --json lists")


def memory_summary(memory: Mapping[str, Any]) -> list[str]:
    """Return a line with arena, its lower bound and constants, and a line per pool if several."""
    arena, bound = memory["arena_bytes"], memory["live_set_bound_bytes"]
    ratio = f"{arena / bound:.2f} x the live-set bound" if bound else "nothing to place"
    lines = [f"arena {arena:,} B ({ratio}), constants {memory['constants_bytes']:,} B"]
    if len(memory["pools"]) > 1 or any(pool["size_bytes"] for pool in memory["pools"]):
        lines += [f"  {_pool_summary(pool)}" for pool in memory["pools"]]
    lines += [_pool_summary(scratchpad) for scratchpad in memory["scratchpads"]]
    if memory["traffic"]:
        lines.append(_traffic_summary(memory["traffic"]))
    return lines


def cpu_summary(description: Mapping[str, Any]) -> list[str]:
    """Return lines about the memory and the tuned kernels of a library, by CPU if several.

    Args:
        description: section `umakit` of the library's metadata.
    """
    sections = description.get("cpus")
    if not sections:
        lines = [*memory_summary(description["memory"]), *scratch_summary(description)]
        return [*lines, *choices_summary(description)]
    lines = []
    for section in sections:
        name = section["cpu"]["name"]
        first, *rest = [*memory_summary(section["memory"]), *scratch_summary(section)]
        lines += [f"{name}: {first}", *rest]
        lines += [f"{name}: {line}" for line in choices_summary(section)]
    return lines


def choices_summary(section: Mapping[str, Any]) -> list[str]:
    """Return a line about the kernels chosen by tuning records; empty without records.

    Args:
        section: section `umakit` of the library's metadata, or its section of a CPU.
    """
    choices = section.get("choices")
    if choices is None:
        return []
    tuned, kernels = choices["tuned"], choices["kernels"]
    return [f"tuned choices for {tuned} of {kernels} kernels, the rules' own for the rest"]


MOST_SCRATCH = 3
"""Maximum number of layers with printed scratch; `--json` has all."""


def scratch_summary(description: Mapping[str, Any]) -> list[str]:
    """Return lines about a CPU library's use of the memory that `--scratch-limit` allows.

    Args:
        description: section `umakit` of the library's metadata, or its section of a CPU.
    """
    memory, scratch = description["memory"], description["memory"].get("scratch")
    if scratch is None:
        return []
    lines = []
    arena, generic = memory["arena_bytes"], scratch["generic_arena_bytes"]
    if arena > generic and not description.get("most_parts"):  # `generic` lacks CPU scratch
        taking = [each for each in description["layers"] if each["where"] == "cpu"]
        taking.sort(key=lambda each: -each["scratch_bytes"])
        named = [_with_scratch(each) for each in taking[:MOST_SCRATCH] if each["scratch_bytes"]]
        text = f"; most scratch: {', '.join(named)}" if named else ""
        lines.append(f"  {arena - generic:,} B more than for generic, {generic:,} B{text}")
    reason = f"because of --scratch-limit {scratch['limit_percent']}"
    if scratch["keeps_layout"]:
        lines.append(f"  the network keeps its layout {reason}")
    if scratch["generic_layers"]:
        named = [_with_scratch(each) for each in scratch["generic_layers"]]
        what = f"kernels as for generic {reason}, and the scratch of their own form"
        lines.append(f"  {what}: {', '.join(named)}")
    return lines


def _with_scratch(layer: Mapping[str, Any]) -> str:
    size = layer["scratch_bytes"]
    return layer["name"] if size is None else f"{layer['name']} {size:,} B"


def tilings_summary(tilings: Mapping[str, int]) -> str:
    """Return a line about the number of layers tiled by records."""
    layers, tuned = tilings["layers"], tilings["tuned"]
    rest = "" if tuned == layers else "; the default for the rest, `uma tune` finds more"
    return f"tuned tilings for {tuned} of {layers} layers that are cut into tiles{rest}"


def _traffic_summary(traffic: Mapping[str, Any]) -> str:
    """Return a line about the bytes moved to and from scratchpads, and the bytes saved."""
    saved = sum(kept["saved"] for kept in traffic["kept"])
    total = traffic["moved"] + saved
    text = f"{traffic['moved']:,} B move to and from it in an inference"
    if not saved:
        return text
    share = 100 * saved / total
    return f"{text}; {saved:,} B more ({share:.1f} %) stay there between layers"


def _pool_summary(pool: Mapping[str, Any]) -> str:
    used, size = pool["used_bytes"], pool["size_bytes"]
    share = f" of {size:,} B ({100 * used / size:.1f} %)" if size else " B"
    return f"{pool['name']}: {used:,}{share}, {len(pool['tensors'])} tensors"
