# SPDX-License-Identifier: Apache-2.0
"""The command line of UMA's tutorial, as an alias of `uma new NAME`.

Usage: `python cli/uma_cli.py --add_hardware NAME`.
"""

from __future__ import annotations

import argparse
import subprocess
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
        return run_in_virtual_environment(sys.argv[1:] if arguments is None else arguments)
    command = ["new", options.add_hardware, "--directory", str(options.directory)]
    return run_command([*command, "--tutorial", options.tutorial] if options.tutorial else command)


def run_in_virtual_environment(arguments: list[str]) -> int:
    """Run this script again with the checkout's own Python, which has umakit installed."""
    python = Path(__file__).resolve().parents[1] / ".venv" / "bin" / "python"
    if not python.exists() or Path(sys.prefix) == python.parents[1]:
        print("error: umakit is not installed here; run `make install` first", file=sys.stderr)
        return 2
    return subprocess.run([python, __file__, *arguments], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
