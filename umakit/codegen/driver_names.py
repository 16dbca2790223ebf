# SPDX-License-Identifier: Apache-2.0
"""Names of driver files in an export: they carry their backend's, so that several can share it."""

from __future__ import annotations

import re
from pathlib import Path

from umakit.backend import UMABackend


def exported_name(backend: UMABackend, driver_file: str) -> str:
    """`conv2dnchw.c` of a backend becomes `<target>_conv2dnchw.c`."""
    name = Path(driver_file).name
    prefix = f"{backend.target_name}_"
    return name if name.startswith(prefix) else prefix + name


def exported_includes(backend: UMABackend, text: str) -> str:
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
