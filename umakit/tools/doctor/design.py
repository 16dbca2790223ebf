# SPDX-License-Identifier: Apache-2.0
"""Check of a backend's design in RTL: Verilator reads it, and its ports are those of `[rtl]`."""

from __future__ import annotations

from pathlib import Path

from umakit.devices.designs import design_from, wiring
from umakit.devices.verilator import verilator
from umakit.errors import BuildError, UmakitError, short_path
from umakit.library.roles import device_source
from umakit.registration.backend import Backend
from umakit.tools.doctor.checks import Check, failed, ok, refused

DESIGN = "RTL"


def design_checks(backend: Backend) -> list[Check]:
    """Let Verilator read the design of `[rtl]`, and see whether its ports fit; no checks without.

    A machine without Verilator is a fault, as commands with `--rtl` need it.
    """
    section = backend.configuration.rtl
    if section is None:
        return []
    try:
        version, _ = verilator()
    except BuildError as error:
        where = short_path(backend.folder / "accel.toml")
        what = f"the design was not read: {error.what}"
        return [failed(DESIGN, what, where=where, mend=error.fix)]
    try:
        found = wiring(design_from(backend.configuration, backend.folder))
    except UmakitError as error:
        return [refused(DESIGN, error)]
    memory = f", memory by {section.memory.bus} of {found.memory_bits} bits" if found.memory else ""
    version = " ".join(version.split()[:2])
    text = f"{section.top}: registers by {section.registers.bus}{memory}, read by {version}"
    return [ok(DESIGN, text)]


def write_stand_in(backend: Backend, folder: Path) -> None:
    """Write a C file with the device function of a backend that nothing but its design answers, so
    that its driver can be linked without it.

    Args:
        backend: the backend.
        folder: the folder of the driver's files in a library.
    """
    if backend.configuration.is_only_rtl:
        name = backend.target_name
        text = f'#include "umakit/device.h"\n\numakit_device *{name}_device(void);\n'
        text += f"umakit_device *{name}_device(void) {{ return 0; }}\n"
        (folder / device_source(name)).write_text(text, encoding="utf-8")
