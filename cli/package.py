# SPDX-License-Identifier: Apache-2.0
"""`uma package`: converts an exported library to package formats."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from umakit.cli.console import print_json, say
from umakit.cli.options import ForceOption

from umakit.library.packages import FORMATS

EXAMPLES = """Examples:  uma package digits_library --format tar -o digits.tar

uma package digits.tar --format arduino -o ~/Arduino/libraries/tvmgen_digits

The folder that `uma compile` writes needs no packaging for CMake and Zephyr."""


def package(
    library: Annotated[
        Path, typer.Argument(help="What `uma compile` wrote, folder or tar.", show_default=False)
    ],
    form: Annotated[
        str,
        typer.Option(
            "--format",
            "-f",
            help=f"{'; '.join(f'{form.name}: {form.description}' for form in FORMATS.values())}.",
            show_default=False,
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
    """Pack a compiled library in a form that other projects take in."""
    from umakit.library.packages import package_library

    written = package_library(library, form, output, force=force)
    if as_json:
        print_json({"output": str(written), "format": form})
    else:
        say(f"Wrote {written}")
