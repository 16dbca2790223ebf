# SPDX-License-Identifier: Apache-2.0
"""Entry point of the program `uma`, which runs before slow imports."""

from __future__ import annotations

import sys


def main() -> None:
    """Run `uma`; Ctrl-C ends it without a traceback, even during imports."""
    try:
        from umakit.cli.main import run_command

        code = run_command()
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    main()
