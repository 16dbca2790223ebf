# SPDX-License-Identifier: Apache-2.0
"""Files of Matplotlib's figures: equal figures give equal files."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from umakit.files.outputs import FileKind
from umakit.files.staging import write_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def write_picture(
    figure: Figure, path: Path, kind: FileKind, inputs: Iterable[Path], *, force: bool
) -> None:
    """Write a figure as SVG, PNG or PDF, with the mark of its kind in the metadata.

    Args:
        path: path ending in `.svg`, `.png` or `.pdf`; written in full or not at all.
        kind: kind of the file; its mark is stored.
        inputs: input files, which must not be overwritten.
        force: whether a file that umakit did not write is replaced too.

    Raises:
        OutputError: the file cannot be written, or must not be replaced.
    """
    import matplotlib

    suffix = path.suffix.lower().removeprefix(".")
    metadata: dict[str, Any] = {"Software" if suffix == "png" else "Creator": kind.mark.decode()}
    if suffix != "png":
        metadata["Date" if suffix == "svg" else "CreationDate"] = None
    buffer = io.BytesIO()
    with (
        matplotlib.rc_context({"svg.hashsalt": "umakit", "svg.fonttype": "none"}),
        warnings.catch_warnings(),
    ):
        # A font draws missing characters of a name as boxes.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        warnings.filterwarnings("ignore", message="Matplotlib currently does not support")
        figure.savefig(buffer, format=suffix, dpi=120, metadata=metadata)
    write_file(path, buffer.getvalue(), kind, inputs, force=force)
