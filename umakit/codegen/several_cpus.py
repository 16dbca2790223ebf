# SPDX-License-Identifier: Apache-2.0
"""The C files of one model for several CPUs; the preprocessor chooses a CPU.

Each CPU has its own files with kernels and constants; the files are empty for other CPUs. The
common header and working memory of the library test the CPU where sizes and statuses differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from umakit.codegen.interface_comments import failure_comment
from umakit.codegen.locks import locked_backends, locks_view
from umakit.codegen.model_source import GeneratedCode, generate_code
from umakit.codegen.template_values import chosen_macro, common_values
from umakit.cpu.description import GENERIC
from umakit.errors import LibraryError
from umakit.memory.plan import PlannedProgram
from umakit.partition.report import CPU
from umakit.program.program import Program
from umakit.registration.backend import Backend
from umakit.text.rendering import render

DIFFER = ("pools", "large_object", "workspace_size", "index_checks", "cpu")
"""Template values that may differ between CPUs."""


def generate_for_cpus(
    networks: Sequence[PlannedProgram], backends: Mapping[str, Backend]
) -> tuple[dict[str, str], list[GeneratedCode]]:
    """Print a network for several CPUs as C.

    Args:
        networks: the network for each CPU, in the order in which the preprocessor chooses.

    Returns:
        The files by path relative to `codegen/host`, and the generated code of each CPU.
    """
    values = values_for_cpus(networks, backends)
    codes = [
        generate_code(each.program, each.memory, backends, None, each.choice) for each in networks
    ]
    prefix = values["prefix"]
    sources: dict[str, str] = {}
    for code in codes:
        sources |= code.sources
    sources[f"include/{prefix}.h"] = render(
        "library/model.h.j2", **values, failure_comment=failure_comment(values, backends)
    )
    sources[f"src/{prefix}_workspace.c"] = render("library/static_workspace.c.j2", **values)
    return sources, codes


def values_for_cpus(
    networks: Sequence[PlannedProgram], backends: Mapping[str, Backend]
) -> dict[str, Any]:
    """Return the template values common to all files of a model for several CPUs."""
    all_values = [common_values(each.program, each.memory, None, backends) for each in networks]
    last = networks[-1]
    for each, values in zip(networks, all_values, strict=True):
        _check_alike(each, last, values, all_values[-1])
    merged = {**all_values[-1], "locks": locks_view(locked_backends(last.program, backends))}
    sizes = {
        pool["name"]: [found["size"] for values in all_values for found in values["pools"]
                       if found["name"] == pool["name"]]
        for pool in merged["pools"]
    }  # fmt: skip
    merged["pools"] = [
        {**pool, "size": max(sizes[pool["name"]]), "may_be_empty": 0 in sizes[pool["name"]]}
        for pool in merged["pools"]
    ]
    merged["workspace_size"] = max(values["workspace_size"] for values in all_values)
    merged["cpus"] = [
        _cpu_view(each, values) for each, values in zip(networks, all_values, strict=True)
    ]
    return merged


def _cpu_view(network: PlannedProgram, values: Mapping[str, Any]) -> dict[str, Any]:
    choice = network.of_several
    cpu = choice.cpu
    return {
        **{name: values[name] for name in DIFFER},
        "name": cpu.name,
        "description": cpu.description,
        "flags": " ".join(cpu.flags),
        "suffix": choice.suffix,
        "macro": chosen_macro(values["prefix"], choice),
        "forced_by": choice.forced_by,
        "is_compiled_for": " && ".join(f"defined({macro})" for macro in cpu.macros),
        "macros": list(cpu.macros),
        "is_generic": cpu.name == GENERIC,
        "layer_count": len(network.program.calls),
        "constants_size": sum(array.nbytes for array in network.program.constants.values()),
    }


def _check_alike(
    one: PlannedProgram, other: PlannedProgram, values: Mapping[str, Any], others: Mapping[str, Any]
) -> None:
    """Refuse networks whose interfaces or accelerators differ."""
    differing = [name for name in values if name not in DIFFER and values[name] != others[name]]
    if _offloaded(one.program) != _offloaded(other.program) or differing:
        raise LibraryError(
            f"accelerators take other layers for {one.of_several.cpu.name} than for "
            f"{other.of_several.cpu.name}",
            where="--cpu",
            fix="export a library for each CPU",
        )


def _offloaded(program: Program) -> list[tuple[str, str]]:
    return [(call.target, call.label) for call in program.calls if call.target != CPU]
