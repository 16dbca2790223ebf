# SPDX-License-Identifier: Apache-2.0
"""Where the program `uma` starts: before anything is imported that takes time."""

from __future__ import annotations

import sys


def main() -> None:
    """Run `uma`; Ctrl-C ends it from the first moment on without a traceback."""
    try:
        from umakit.cli.main import run_command

        code = run_command()
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    main()
