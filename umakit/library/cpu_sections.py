# SPDX-License-Identifier: Apache-2.0
"""The part of a library's metadata for one CPU. Imports nothing of the pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from umakit.cpu.description import GENERIC
from umakit.errors import InputError

KEYS = ("memory", "tilings", "layers", "operators", "choices")
"""Keys that differ between CPUs, besides `cpu` and `suffix`; `choices` is optional."""


def names_of_cpus(description: Mapping[str, Any]) -> list[str]:
    """Return the CPUs of a library in the order of the compiler's choice."""
    sections = description.get("cpus") or []
    if sections:
        return [str(each["cpu"]["name"]) for each in sections]
    cpu = description.get("cpu")
    return [GENERIC if cpu is None else str(cpu["name"])]


def section_for(description: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the section `umakit` of a library as if for one CPU alone."""
    names = names_of_cpus(description)
    if name not in names:
        raise InputError(
            f"the library has code for {', '.join(names)}, and not for {name}",
            where="--cpu",
            fix="leave --cpu out, or compile the model for it",
        )
    view = {key: value for key, value in description.items() if key != "cpus"}
    if not description.get("cpus"):
        return view
    section = description["cpus"][names.index(name)]
    view.pop("choices", None)
    view |= {key: section[key] for key in (*KEYS, "cpu", "suffix") if key in section}
    if name == GENERIC:
        del view["cpu"]
    return view


def chosen_cpu(description: Mapping[str, Any]) -> str:
    """Return the CPU of a section of `section_for`; empty if the library is for one CPU."""
    return names_of_cpus(description)[-1] if description.get("suffix") else ""


def run_unpacked_symbol(description: Mapping[str, Any]) -> str:
    """Return the name of `_run_unpacked` in objects, for a section of the metadata."""
    return with_suffix(f"{description['interface']}_run_unpacked", description)


def with_suffix(name: str, description: Mapping[str, Any]) -> str:
    """Return a name with the CPU's suffix in a library for several CPUs."""
    suffix = description.get("suffix")
    return f"{name}_{suffix}" if suffix else name
