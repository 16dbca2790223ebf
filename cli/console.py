# SPDX-License-Identifier: Apache-2.0
"""Output of `uma`: results on standard output, progress and errors on standard error."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from umakit.errors import NOTHING_RUNS
from umakit.text.escaping import shown

PIPE_WIDTH = 120
"""Width in columns of a table that is not printed to a terminal."""


def console(error: bool = False) -> Any:
    """A rich console; wide enough for tables when the output is a pipe.

    Texts are printed without markup, emoji or highlighting. `new_table` and `say` escape names with
    `umakit.text.escaping.shown`.
    """
    from rich.console import Console

    class Plain(Console):
        """Leaves the handling of a closed output to the command."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    stream = sys.stderr if error else sys.stdout
    width = None
    if not stream.isatty():
        wanted = os.environ.get("COLUMNS", "")
        width = (
            int(wanted)
            if wanted.isdecimal() and 0 < len(wanted) < 6 and int(wanted) > 0
            else PIPE_WIDTH
        )
    return Plain(stderr=error, width=width, highlight=False, markup=False, emoji=False)


def say(text: str, error: bool = False) -> None:
    """Print a line; escape unprintable characters, line breaks included."""
    print(shown(text), file=sys.stderr if error else sys.stdout, flush=True)


def say_notices(notices: Iterable[str], as_json: bool = False) -> None:
    """Print decisions made for the user on standard error; print warnings also with JSON."""
    for notice in notices:
        is_warning = notice.startswith(NOTHING_RUNS)
        if is_warning or not as_json:
            say(f"{'warning' if is_warning else 'note'}: {notice}", error=True)


def say_wrapped(text: str) -> None:
    """Print a result, wrapped at the width of the terminal."""
    console().print(shown(text))


def print_whole(table: Any) -> None:
    """Print a table at least as wide as its numbers need; a narrow terminal wraps the table.

    A narrower table would cut off digits.
    """
    from rich.measure import Measurement

    out = console()
    _break_names(table, out.width)
    for column in table.columns:
        if column.no_wrap:  # numbers; headers may have several words
            column.min_width = max(column.min_width or 0, _widest(column))
    out.width = max(
        out.width, Measurement.get(out, out.options.update(width=10_000), table).minimum
    )
    out.print(table)


NARROWEST_NAME = 16
"""Minimum width of names of layers that are broken behind a slash, and not anywhere."""

GAP = 3
"""Blanks between two columns of a table."""


def _break_names(table: Any, width: int) -> None:
    """Break words of the first column after slashes if the other columns leave less room.

    Layer names are paths, which would break anywhere otherwise.
    """
    first, *others = table.columns
    room = width - sum(_widest(column) + GAP for column in others)
    if first.no_wrap or room < NARROWEST_NAME:
        return
    first._cells[:] = [
        broken_at_slashes(each, room) if isinstance(each, str) else each for each in first._cells
    ]


def _widest(column: Any) -> int:
    from rich.cells import cell_len

    lines = "\n".join(str(each) for each in (column.header, *column.cells)).splitlines()
    return max(map(cell_len, lines), default=0)


def broken_at_slashes(text: str, width: int) -> str:
    """Return a text with its words longer than `width` characters broken after slashes."""
    return re.sub(r"\S+", lambda word: _broken(word[0], width), text)


def _broken(word: str, width: int) -> str:
    lines = [""]
    for part in re.findall(r"[^/]*/|[^/]+", word):
        if lines[-1] and len(lines[-1]) + len(part) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def print_json(value: Any) -> None:
    """Print a result for other programs."""
    print(json.dumps(value, indent=2))


def print_any_character() -> None:
    """Escape characters that the encoding of standard output or error lacks."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


@contextlib.contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Show the progress: a spinner on a terminal, lines with seconds elsewhere."""
    if sys.stderr.isatty():
        from rich.text import Text

        with console(error=True).status("starting") as status:
            yield lambda stage: status.update(Text(shown(stage)))
        return
    started = time.monotonic()
    last = ""

    def tell(stage: str) -> None:
        nonlocal last
        # A pipe gets lines only once a command takes long enough for someone to wonder.
        if last and time.monotonic() - started > 2:
            say(f"[{time.monotonic() - started:5.1f} s] {stage}", error=True)
        last = stage

    yield tell
