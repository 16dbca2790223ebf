# SPDX-License-Identifier: Apache-2.0
"""`uma package`: converts an exported library to package formats."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import typer
from umakit.cli.console import print_json, say
from umakit.cli.options import ForceOption

EXAMPLES = """Examples:  uma package digits_library --format tar -o digits.tar

uma package digits.tar --format arduino -o ~/Arduino/libraries/tvmgen_digits

The folder that `uma compile` writes needs no packaging for CMake and Zephyr."""


class Format(enum.StrEnum):
    """Package formats of a library."""

    TAR = "tar"
    ARDUINO = "arduino"


def package(
    library: Annotated[
        Path, typer.Argument(help="What `uma compile` wrote, folder or tar.", show_default=False)
    ],
    form: Annotated[
        Format,
        typer.Option(
            "--format", "-f", help="tar: one file; arduino: a flat folder.", show_default=False
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="The file or folder to write; default: tvmgen_NAME here. Of an earlier one, the "
            "files that umakit wrote are replaced.",
            show_default=False,
        ),
    ] = None,
    force: ForceOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Pack a compiled library as one tar file or as an Arduino library."""
    from umakit.library.packages.convert import package_library

    written = package_library(library, form.value, output, force=force)
    if as_json:
        print_json({"output": str(written), "format": form.value})
    else:
        say(f"Wrote {written}")
