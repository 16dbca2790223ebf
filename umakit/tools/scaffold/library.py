# SPDX-License-Identifier: Apache-2.0
"""Files of the kind `library` that have no template: headers of the kit in the stand-in library."""

from __future__ import annotations

from umakit import sim
from umakit.tools.scaffold.answers import Answers

HEADERS = ("include/umakit/reference.h", sim.ARITHMETIC_HEADER)


def library_files(answers: Answers, name: str) -> dict[str, str]:
    """Return headers with which the stand-in library is complete, as a vendor's is."""
    folder = sim.source_directory()
    return {f"kernels/{path}": (folder / path).read_text(encoding="utf-8") for path in HEADERS}
