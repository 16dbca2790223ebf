# SPDX-License-Identifier: Apache-2.0
"""Names of driver files in an export: they carry their backend's, so that several can share it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from umakit.registration.backend import Backend
from umakit.text.names import plain_file_name

MACRO = re.compile(r"^\s*#\s*define\s+(\w*[a-z]\w*)(?![\w(])", re.MULTILINE)
"""A macro without parentheses. No tensor is called by capitals only (`umakit.text.names`)."""


def exported_name(backend: Backend, driver_file: str) -> str:
    """`conv2dnchw.c` of a backend becomes `<target>_conv2dnchw.c`, in characters for any build."""
    name = plain_file_name(Path(driver_file).name)
    prefix = f"{backend.target_name}_"
    return name if name.startswith(prefix) else prefix + name


def exported_includes(backend: Backend, text: str) -> str:
    """C text in which includes of the backend's own headers use their exported names."""
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
    """Names that mean something in the files of drivers, which no tensor may have.

    Args:
        backends: by target name.
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
