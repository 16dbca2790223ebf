# SPDX-License-Identifier: Apache-2.0
"""The command line of UMA's tutorial: `python cli/uma_cli.py --add_hardware NAME`.

It does what `uma new NAME` does.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def main(arguments: list[str] | None = None) -> int:
    """Write a new backend; returns the exit code."""
    parser = argparse.ArgumentParser(
        description="Add a hardware target, as in UMA's tutorial. `uma new` does the same.",
        epilog="example: python cli/uma_cli.py --add_hardware vanilla_accelerator "
        "--tutorial vanilla",
    )
    parser.add_argument("--add_hardware", required=True, metavar="NAME", help="name of the target")
    parser.add_argument("--tutorial", metavar="TUTORIAL", help="start from a mock accelerator")
    parser.add_argument("--directory", type=Path, default=Path(), help="where to write")
    options = parser.parse_args(arguments)
    try:
        from umakit.cli.main import run_command
    except ImportError:
        print(
            "error: umakit is not installed in this Python; run `make install`, then use "
            ".venv/bin/python",
            file=sys.stderr,
        )
        return 2
    command = ["new", options.add_hardware, "--directory", str(options.directory)]
    return run_command([*command, "--tutorial", options.tutorial] if options.tutorial else command)


if __name__ == "__main__":
    sys.exit(main())
