# SPDX-License-Identifier: Apache-2.0
"""Write the C headers of the register maps of the kit's simulators.

With --check nothing is written: the exit code is 1 if a header is out of date.
"""

from __future__ import annotations

import argparse
import sys

from umakit import sim
from umakit.machine.registers.header import register_header
from umakit.machine.registers.register_map import read_register_map

SPECIFICATIONS = sim.source_directory() / "registers"
HEADERS = sim.source_directory() / "include" / "umakit"


def render_register_header(toml_text: str, where: str = "the register map") -> str:
    """Return the C header for a register map.

    Raises:
        RegisterMapError: the map is not sound.
    """
    registers = read_register_map(toml_text, where)
    notice = (
        f"Generated from sim/registers/{registers.name}.toml. Do not edit: change that file",
        "and run python -m umakit.machine.registers.",
    )
    prefix = f"UMAKIT_{registers.name.upper()}"
    return register_header(registers, prefix=prefix, notice=notice)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check",
        action="store_true",
        help="write nothing, fail if a header is out of date",
    )
    options = parser.parse_args(arguments)

    exit_code = 0
    for specification in sorted(SPECIFICATIONS.glob("*.toml")):
        header = HEADERS / f"{specification.stem}_registers.h"
        text = specification.read_text(encoding="utf-8")
        wanted = render_register_header(text, str(specification))
        if not options.check:
            header.write_text(wanted, encoding="utf-8")
        elif not header.is_file() or header.read_text(encoding="utf-8") != wanted:
            print(
                f"{header.name} does not match {specification.name}: "
                "run python -m umakit.machine.registers",
                file=sys.stderr,
            )
            exit_code = 1
    return exit_code


if __name__ == "__main__":
    raise SystemExit(main())
