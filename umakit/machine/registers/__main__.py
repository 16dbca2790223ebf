# SPDX-License-Identifier: Apache-2.0
"""Write the files generated from the register maps of the kit's devices: C headers, SystemVerilog
packages and a page of the documentation.

With --check nothing is written: the exit code is 1 if a file is out of date.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from pathlib import Path

from umakit import sim
from umakit.machine.registers.register_map import RegisterMap, read_register_map
from umakit.machine.registers.texts import (
    package_name,
    register_header,
    register_package,
    register_table,
)

SPECIFICATIONS = sim.source_directory() / "registers"
HEADERS = sim.source_directory() / "include" / "umakit"
PAGE = sim.source_directory().parent / "docs" / "registers.md"
BACKENDS = sim.source_directory().parent / "backends"

RTL = "rtl"
"""Folder of a backend's design, if it has one."""


INTRODUCTION = """\
# Registers of umakit's devices

Written by `python -m umakit.machine.registers` from the register maps in `sim/registers`, as the C
headers `umakit/NAME_registers.h` and the packages `rtl/NAME_registers_pkg.sv` of the backends are.
Offsets are in bytes from the first register. [`uma check`](check.md#registers) compares
devices with their map; [An engine for whole layers](new-layer.md#your-registers) has its form.
"""


def generated_files() -> dict[Path, str]:
    """Return the texts of all files generated from register maps, by path."""
    files: dict[Path, str] = {}
    page = [INTRODUCTION]
    for specification in sorted(SPECIFICATIONS.glob("*.toml")):
        where = str(specification)
        registers = read_register_map(specification.read_text(encoding="utf-8"), where)
        files |= _files_of(specification, registers)
        page.append(f"## {registers.name}\n\n{register_table(registers)}")
    return files | {PAGE: "\n".join(page)}


def designs_of(name: str) -> list[Path]:
    """Return the design folders of umakit's backends whose simulator has a name."""
    found = []
    for folder in sorted(BACKENDS.glob(f"*/{RTL}")):
        configuration = tomllib.loads((folder.parent / "accel.toml").read_text(encoding="utf-8"))
        if configuration["device"]["simulator"] == name:
            found.append(folder)
    return found


def _files_of(specification: Path, registers: RegisterMap) -> dict[Path, str]:
    notice = (
        f"Generated from sim/registers/{registers.name}.toml. Do not edit: change that file",
        "and run python -m umakit.machine.registers.",
    )
    prefix = f"UMAKIT_{registers.name.upper()}"
    header = register_header(registers, prefix=prefix, notice=notice)
    files = {HEADERS / f"{specification.stem}_registers.h": header}
    package = package_name(registers.name)
    for folder in designs_of(registers.name):
        text = register_package(registers, package=package, notice=notice, where=str(specification))
        files[folder / f"{package}.sv"] = text
    return files


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check",
        action="store_true",
        help="write nothing, fail if a file is out of date",
    )
    options = parser.parse_args(arguments)

    exit_code = 0
    for path, wanted in generated_files().items():
        if not options.check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(wanted, encoding="utf-8")
        elif not path.is_file() or path.read_text(encoding="utf-8") != wanted:
            print(
                f"{path} does not match its register map in sim/registers: "
                "run python -m umakit.machine.registers",
                file=sys.stderr,
            )
            exit_code = 1
    return exit_code


if __name__ == "__main__":
    raise SystemExit(main())
