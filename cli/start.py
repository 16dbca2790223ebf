# SPDX-License-Identifier: Apache-2.0
"""Entry point of the program `uma`, which runs before slow imports."""

from __future__ import annotations

import gc
import sys

ALLOCATIONS = 20_000
"""Number of allocations between garbage collections. Imported objects are no garbage, and a command
makes little: with Python's default of 700, collections would take a tenth of the time."""


def main() -> None:
    """Run `uma`; Ctrl-C ends the program without a traceback, even during imports."""
    try:
        gc.disable()
        from umakit.cli.main import run_command

        gc.freeze()
        gc.set_threshold(ALLOCATIONS)
        gc.enable()
        code = run_command()
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    main()
