# SPDX-License-Identifier: Apache-2.0
"""User time and peak memory of a command, as JSON in the last line.

python bench/usage.py COMMAND...

This program is small: a process starts with the peak memory of the one that it was made of, so
that a large one could not measure less than what it has itself.
"""

import json
import resource
import subprocess
import sys


def main() -> int:
    """Return the exit code of the command."""
    code = subprocess.call(sys.argv[1:], stdout=sys.stderr)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(json.dumps({"user": used.ru_utime, "peak_bytes": 1024 * used.ru_maxrss}))
    return code


if __name__ == "__main__":
    sys.exit(main())
