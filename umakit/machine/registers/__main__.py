# SPDX-License-Identifier: Apache-2.0
"""Write what comes from the register maps of the kit's devices: C headers, SystemVerilog packages.

With --check nothing is written: the exit code is 1 if a file is out of date.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from umakit import sim
from umakit.machine.registers.header import register_header
from umakit.machine.registers.package import package_name, register_package
from umakit.machine.registers.register_map import read_register_map

SPECIFICATIONS = sim.source_directory() / "registers"
HEADERS = sim.source_directory() / "include" / "umakit"
BACKENDS = sim.source_directory().parent / "backends"

DESIGNS = {"systolic_array": ("strawberry_accelerator", "chocolate_accelerator")}
"""Backends with RTL, by the name of the register map that it has."""


def generated_files(specification: Path) -> dict[Path, str]:
    """Return the texts of the files that come from a register map, by path.

    Raises:
        RegisterMapError: the map is not sound.
    """
    where = str(specification)
    registers = read_register_map(specification.read_text(encoding="utf-8"), where)
    notice = (
        f"Generated from sim/registers/{registers.name}.toml. Do not edit: change that file",
        "and run python -m umakit.machine.registers.",
    )
    prefix = f"UMAKIT_{registers.name.upper()}"
    header = register_header(registers, prefix=prefix, notice=notice)
    files = {HEADERS / f"{specification.stem}_registers.h": header}
    package = package_name(registers.name)
    for backend in DESIGNS.get(registers.name, ()):
        text = register_package(registers, package=package, notice=notice, where=where)
        files[BACKENDS / backend / "rtl" / f"{package}.sv"] = text
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
    for specification in sorted(SPECIFICATIONS.glob("*.toml")):
        for path, wanted in generated_files(specification).items():
            if not options.check:
                path.parent.mkdir(exist_ok=True)
                path.write_text(wanted, encoding="utf-8")
            elif not path.is_file() or path.read_text(encoding="utf-8") != wanted:
                print(
                    f"{path.name} in {path.parent} does not match {specification.name}: "
                    "run python -m umakit.machine.registers",
                    file=sys.stderr,
                )
                exit_code = 1
    return exit_code


if __name__ == "__main__":
    raise SystemExit(main())
