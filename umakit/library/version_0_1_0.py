# SPDX-License-Identifier: Apache-2.0
"""Names of the files in an export of umakit 0.1.0, which wrote no manifest.

Only these files are replaced in such an export; other files belong to the user.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from umakit import sim

PLAIN_NAME = re.compile(r"[^/\\\0]+")


def library_names(metadata: bytes) -> frozenset[str]:
    """Return the paths of the files of an export.

    Args:
        metadata: content of the export's `metadata.json`.

    Returns:
        The paths; empty if umakit did not write the export.
    """
    view = _view(metadata)
    if view is None:
        return frozenset()
    name, prefix = view["name"], view["interface"]
    return frozenset(
        (
            "README.md", "metadata.json", "CMakeLists.txt", "zephyr/CMakeLists.txt",
            "zephyr/Kconfig", "zephyr/module.yml", f"cmake/{prefix}-config.cmake.in",
            "runtime/main.c", "runtime/umakit_platform.h", "runtime/umakit_platform_hosted.c",
            f"src/{name}.relax.txt", f"parameters/{name}.npz", f"parameters/{name}.weights.bin",
            f"codegen/host/include/{prefix}.h",
            *(f"codegen/host/src/{path}" for path in _sources(view)),
        )
    )  # fmt: skip


def arduino_names(metadata: bytes) -> frozenset[str]:
    """Return the paths of the files of an Arduino library, like `library_names`."""
    view = _view(metadata)
    if view is None:
        return frozenset()
    prefix = view["interface"]
    return frozenset(
        (
            "README.md", "library.properties", "keywords.txt", "extras/metadata.json",
            f"examples/{prefix}/{prefix}.ino", f"src/{prefix}.h",
            *(f"src/{path.replace('/', '_')}" for path in _sources(view)),
        )
    )  # fmt: skip


def _view(metadata: bytes) -> dict[str, Any] | None:
    """Return the section `umakit` of `metadata.json`; None if 0.1.0 did not write it."""
    try:
        data = json.loads(metadata)
    except (ValueError, RecursionError):
        return None
    view = data.get("umakit") if isinstance(data, dict) else None
    modules = data.get("modules") if isinstance(data, dict) else None
    if not isinstance(view, dict) or not isinstance(modules, dict):
        return None
    name = view.get("name")
    is_plain = isinstance(name, str) and name in modules and re.fullmatch(r"[A-Za-z0-9_]+", name)
    return view if is_plain and view.get("interface") == f"tvmgen_{name}" else None


def _sources(view: dict[str, Any]) -> Iterator[str]:
    """Return the files of `codegen/host/src`, relative to the folder."""
    prefix = view["interface"]
    yield from (f"umakit/{header}" for header in sim.HEADERS_OF_0_1_0)
    yield from (f"{prefix}.c", f"{prefix}_constants.c", f"{prefix}_constants.h")
    sources = view.get("sources")
    if not isinstance(sources, dict):
        return
    for role in ("model", "static_workspace", "status", "simulator"):
        start = prefix if role in ("model", "static_workspace") else "umakit_"
        yield from _plain(sources.get(role), start)
    for role in ("kinds", "drivers", "devices", "headers"):
        groups = sources.get(role)
        for owner, names in groups.items() if isinstance(groups, dict) else ():
            yield from _plain(names, "umakit_" if role == "kinds" else f"{owner}_")


def _plain(names: Any, start: str) -> Iterator[str]:
    """Return the plain file names of a list that begin with a prefix of umakit."""
    for name in names if isinstance(names, list) else ():
        plain = isinstance(name, str) and PLAIN_NAME.fullmatch(name)
        if plain and name.startswith(start):
            yield name
