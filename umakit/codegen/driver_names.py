# SPDX-License-Identifier: Apache-2.0
"""Names of driver files in an export, prefixed by their backend's name to avoid collisions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from umakit.registration.backend import Backend
from umakit.text.names import plain_file_name

MACRO = re.compile(r"^\s*#\s*define\s+(\w*[a-z]\w*)(?![\w(])", re.MULTILINE)
"""Definition of a macro without parameters. Names in capitals are excluded for tensors anyway
(`umakit.text.names`)."""


def exported_name(backend: Backend, driver_file: str) -> str:
    """Return the exported name of a driver file: `conv2dnchw.c` becomes `<target>_conv2dnchw.c`."""
    name = plain_file_name(Path(driver_file).name)
    prefix = f"{backend.target_name}_"
    return name if name.startswith(prefix) else prefix + name


def exported_includes(backend: Backend, text: str) -> str:
    """Rewrite includes of the backend's own headers in C text to their exported names."""
    for header in backend.driver.headers:
        name = Path(header).name
        text = re.sub(
            rf'^(\s*#\s*include\s*)"{re.escape(name)}"',
            rf'\1"{exported_name(backend, header)}"',
            text,
            flags=re.MULTILINE,
        )
    return text


def names_taken_by(backends: Mapping[str, Backend]) -> list[str]:
    """Return the identifiers that driver files define, which no tensor may have.

    Args:
        backends: backends by target name.
    """
    names: list[str] = []
    for name, backend in sorted(backends.items()):
        names += [f"{name}_device", f"{name}_counters"]
        if backend.completion is not None:
            names.append(backend.completion)
        for header in backend.driver.headers:
            path = backend.folder / header
            if path.is_file():
                names += MACRO.findall(path.read_text(encoding="utf-8", errors="replace"))
    return names
