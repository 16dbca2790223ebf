# SPDX-License-Identifier: Apache-2.0
"""User time and peak memory of one compilation behind all imports, as JSON in the last line.

python bench/compile_one.py MODEL CPU FOLDER
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

import umakit.pipeline
from umakit.library.options import ExportOptions
from umakit.tvm_api import VERSION


def peak_bytes() -> int:
    """The largest memory of this process, without that of the one that started it."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    (line,) = (line for line in lines if line.startswith("VmHWM:"))
    return 1024 * int(line.split()[1])


def main(model: str, cpu: str, folder: str) -> None:
    """Compile a network."""
    before, imported = resource.getrusage(resource.RUSAGE_SELF).ru_utime, peak_bytes()
    options = ExportOptions(cpu=cpu)
    umakit.pipeline.compile_model(model, [], folder, name="net", options=options)
    user = resource.getrusage(resource.RUSAGE_SELF).ru_utime - before
    found = {"user": user, "peak_bytes": peak_bytes(), "imported_bytes": imported, "tvm": VERSION}
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
