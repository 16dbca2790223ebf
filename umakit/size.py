# SPDX-License-Identifier: Apache-2.0
"""Code size of an exported library. Imports neither TVM nor the pipeline."""

from __future__ import annotations

import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from umakit.build import library_sources
from umakit.devices import HOST
from umakit.errors import BuildError

FLAGS = ("-std=c99", "-Os")


@dataclass(frozen=True)
class CodeSize:
    """Bytes of machine code of one C file, compiled for the host with -Os."""

    source: str
    text_bytes: int


def code_sizes(library: Path) -> list[CodeSize]:
    """Bytes of machine code of each C file of a library, without its constants.

    Raises:
        BuildError: the compiler or binutils' `size` is missing or refused.
    """
    sizes = []
    with tempfile.TemporaryDirectory(prefix="umakit-size-") as temporary:
        for source in library_sources(library):
            target = Path(temporary) / f"{source.stem}.o"
            _call([*HOST.compiler(), *FLAGS, "-c", str(source), "-o", str(target)])
            listing = _call(["size", "-A", str(target)])
            sizes.append(CodeSize(source.name, _text_bytes(listing)))
    return sizes


def _call(command: list[str]) -> str:
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise BuildError(f"cannot run {command[0]}: {error.strerror}") from None
    if result.returncode != 0:
        raise BuildError(f"{command[0]} failed: {result.stderr.strip().splitlines()[0]}")
    return result.stdout


def _text_bytes(listing: str) -> int:
    """Sum of the `.text` sections in the output of `size -A`."""
    rows = [line.split() for line in listing.splitlines()]
    return sum(int(row[1]) for row in rows if len(row) == 3 and row[0].startswith(".text"))
