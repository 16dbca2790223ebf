# SPDX-License-Identifier: Apache-2.0
"""Source files of a user's device."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

from umakit.devices.device import SUPPORT, Device
from umakit.library.layout import RUNTIME

SCRIPTS = ("*.ld", "*.lds", "*.inc")
"""File name patterns of linker scripts and of their included files."""


def digest_of(device: Device) -> str:
    """Return a digest of a user's device files: preprocessed C, and scripts."""
    digest = hashlib.sha256()
    for source in (*device.sources, *device.replaced):
        if source.parent != SUPPORT:
            digest.update(_preprocessed(device, source))
    if device.linker_script is not None and device.linker_script.parent != SUPPORT:
        folder = device.linker_script.parent
        scripts = {device.linker_script, *(path for form in SCRIPTS for path in folder.glob(form))}
        for path in sorted(scripts):
            digest.update(_content(path))
    return digest.hexdigest()


def _preprocessed(device: Device, source: Path) -> bytes:
    command = [*device.compiler(), "-std=c99", f"-I{RUNTIME}", f"-I{SUPPORT}", "-E", str(source)]
    ended = subprocess.run(command, capture_output=True, check=False)
    return ended.stdout + bytes([ended.returncode != 0])  # the compiler reports the mistake later


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""  # the linker says so
