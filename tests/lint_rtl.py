# SPDX-License-Identifier: Apache-2.0
"""Runs `verilator --lint-only -Wall` on the designs of all backends in `backends/`, and on that of
the tests which is as complete: `make lint`."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from umakit.devices.designs import design_from
from umakit.machine.accelerator_config import load_accelerator_config

BACKENDS = Path(__file__).parents[1] / "backends"
SQUARE = Path(__file__).with_name("rtl") / "square" / "square.sv"


def main() -> int:
    """Return 1 if a design is not clean, otherwise 0."""
    if shutil.which("verilator") is None:
        print("Verilator is not installed: designs were not checked")
        return 0
    command = ["verilator", "--lint-only", "-Wall"]
    failed = subprocess.run([*command, str(SQUARE)], check=False).returncode != 0
    print(f"verilator --lint-only -Wall: {SQUARE.stem}")
    for path in sorted(BACKENDS.glob("*/accel.toml")):
        configuration = load_accelerator_config(path)
        if configuration.rtl is None:
            continue
        files = design_from(configuration, path.parent).files
        failed |= subprocess.run([*command, *files.arguments()], check=False).returncode != 0
        print(f"verilator --lint-only -Wall: {path.parent.name}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
