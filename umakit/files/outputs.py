# SPDX-License-Identifier: Apache-2.0
"""Decides which files and folders a command may write.

An input is never an output. An existing file is replaced only if umakit wrote the file. In a
folder, that means files that the manifest lists and whose content is unchanged; a single file is
recognized by its mark. Any other file is refused by name. `staging` writes the permitted outputs.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

from umakit.errors import OutputError
from umakit.files.manifest import read_manifest, sha256

T = TypeVar("T")

FORCE = "move it away, or let --force replace it"
MARK_REACH = 4096
"""Number of bytes at the start and at the end of a file that are searched for its mark."""


@dataclass(frozen=True)
class FileKind:
    """A kind of file that umakit writes.

    Attributes:
        noun: name of the kind in messages.
        mark: byte string within the first or last `MARK_REACH` bytes of every file of this kind,
            and of no other file.
    """

    noun: str
    mark: bytes

    def wrote(self, path: Path) -> bool:
        with path.open("rb") as stream:
            start = stream.read(MARK_REACH)
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - MARK_REACH))
            return self.mark in start or self.mark in stream.read(MARK_REACH)


@dataclass(frozen=True)
class FolderKind:
    """A kind of folder that umakit writes."""

    noun: str
    manifest: str


NPZ_RESULTS = FileKind("file of results of umakit", b"umakit results")
PAGE = FileKind("report of umakit", b'<meta name="generator" content="umakit')
JUNIT = FileKind("JUnit report of umakit", b'<testsuite name="uma check ')
BUDGET = FileKind("budget of umakit", b'format = "umakit budget"')
REPORT = FileKind("report of umakit", b'"format": "umakit report"')
WAVEFORM = FileKind("waveform of umakit", b"fstWriter")
TRACE = FileKind("trace of umakit", b'"written_by": "umakit trace"')
MEMORY_MAP = FileKind("memory map of umakit", b"umakit memory map")
SWEEP_PLOT = FileKind("plot of a sweep of umakit", b"umakit sweep plot")


def check_parent(output: Path) -> None:
    """Refuse a file in a missing folder, so that a mistyped path creates no folders."""
    if not output.parent.is_dir():
        raise OutputError("no such folder", where=str(output.parent))


def check_distinct(*outputs: Path | None) -> None:
    """Refuse two outputs that are the same file."""
    recorded: set[str] = set()
    for output in outputs:
        if output is None:
            continue
        # Names that differ only in case are the same file on some file systems.
        name = os.path.realpath(output).casefold()
        if name in recorded:
            raise OutputError("is given for two outputs", where=str(output))
        recorded.add(name)


def check_file(
    output: Path, kind: FileKind, inputs: Iterable[Path] = (), *, force: bool = False
) -> None:
    """Refuse an output file that umakit must not write; an input folder stands for all its
    files."""
    _refuse_inputs(output, inputs, is_folder=False)
    found = status_of(output)
    if found is None:
        return
    if stat.S_ISDIR(found.st_mode):
        raise OutputError("is a folder", where=str(output), fix="name the file to write in it")
    if not stat.S_ISREG(found.st_mode):
        raise OutputError("exists and is not a regular file", where=str(output))
    if not force and not _reading(output, lambda: kind.wrote(output)) and found.st_size:
        raise OutputError(f"exists and is not a {kind.noun}", where=str(output), fix=FORCE)


def check_folder(
    output: Path,
    kind: FolderKind,
    inputs: Iterable[Path] = (),
    *,
    force: bool = False,
    files: Mapping[str, bytes] | None = None,
) -> frozenset[str]:
    """Refuse an output folder that umakit must not write; return its files that will be
    replaced."""
    _refuse_inputs(output, inputs, is_folder=True)
    if output.is_symlink():
        raise OutputError("exists and is not a folder", where=str(output))
    found = status_of(output)
    if found is None:
        return frozenset()
    if not stat.S_ISDIR(found.st_mode):
        raise OutputError("exists and is not a folder", where=str(output))
    return _reading(output, lambda: _replaced(output, kind, force, files))


def _replaced(
    output: Path, kind: FolderKind, force: bool, files: Mapping[str, bytes] | None
) -> frozenset[str]:
    if not any(output.iterdir()):
        return frozenset()
    listed = read_manifest(output / kind.manifest)
    if listed is None:
        raise OutputError(
            f"exists and is not a {kind.noun}",
            where=str(output),
            fix="choose another output folder",
        )
    recorded: Mapping[str, str | None] = {**listed, kind.manifest: None}
    for path, digest in recorded.items():
        # A file cannot replace a folder or a link.
        if _is_changed(output, path, digest) and not (force and _is_plain(output, path)):
            raise OutputError(
                "was changed since umakit wrote it", where=str(output / path), fix=FORCE
            )
    for path, content in (files or {}).items():
        if path in recorded or not _in_the_way(output, path, content):
            continue
        if not (force and _is_plain(output, path)):
            raise OutputError(
                "exists, and is none of the files that umakit wrote",
                where=str(output / path),
                fix=FORCE,
            )
    return frozenset(recorded) | frozenset(files or ())


def _is_changed(folder: Path, path: str, digest: str | None) -> bool:
    """Whether a file that umakit wrote was modified since; a deleted file counts as unmodified."""
    place = folder / path
    if status_of(place, follow=False) is None:
        return False
    if not _is_plain(folder, path):
        return True
    return digest is not None and sha256(place.read_bytes()) != digest


def _in_the_way(folder: Path, path: str, content: bytes) -> bool:
    if not _is_plain(folder, path):
        return _first_no_folder(folder, path) is not None
    return (folder / path).read_bytes() != content


def _is_plain(folder: Path, path: str) -> bool:
    """Whether a path is a regular file without a link on the way."""
    found = status_of(folder / path, follow=False)
    return (
        found is not None and stat.S_ISREG(found.st_mode) and not _first_no_folder(folder, path, -1)
    )


def _first_no_folder(folder: Path, path: str, end: int | None = None) -> Path | None:
    """Return the first part of a path that is no folder, or None; `end` of -1 omits the file."""
    place = folder
    parts = path.split("/")
    for number, part in enumerate(parts[:end], 1):
        place = place / part
        found = status_of(place, follow=False)
        if found is None:
            return None
        if not stat.S_ISDIR(found.st_mode) or number == len(parts):
            return place
    return None


def _refuse_inputs(output: Path, inputs: Iterable[Path], *, is_folder: bool) -> None:
    place = Path(os.path.realpath(output))
    is_output, real = _same_as(output), cache(os.path.realpath)
    folders: dict[str, Path] = {}
    for one in inputs:
        if is_output(one) or _is_linked_into(one, output):
            named = "an input of this command" if str(one) == str(output) else f"the input {one}"
            raise OutputError(
                f"is {named}, and no input is replaced",
                where=str(output),
                fix="choose another output",
            )
        if one.is_dir() and any(map(_same_as(one), place.parents)):
            raise OutputError(
                f"lies inside {one}, which is read", where=str(output), fix="choose another place"
            )
        # The file's folder with links resolved, and as named by the user.
        for folder in (str(Path(real(str(one))).parent), real(str(one.parent))):
            folders.pop(folder, None)
            folders[folder] = one
    if not is_folder:
        return
    above: dict[Path, Path] = {}
    for name, one in folders.items():
        above |= dict.fromkeys((Path(name), *Path(name).parents), one)
    for path, one in above.items():
        if is_output(path):
            raise OutputError(
                f"holds the input {one}", where=str(output), fix="choose another output folder"
            )
    if place in (Path(place.anchor), _home()):
        raise OutputError(
            "is not a folder of its own", where=str(output), fix="choose another output folder"
        )


def _is_linked_into(folder: Path, output: Path) -> bool:
    """Whether a file is a hard link to a file below a folder."""
    found = status_of(output)
    if found is None or found.st_nlink < 2 or not stat.S_ISREG(found.st_mode):
        return False
    return folder.is_dir() and any(map(_same_as(output), folder.rglob("*")))


def _home() -> Path | None:
    try:
        return Path(os.path.realpath(Path.home()))
    except RuntimeError:  # the user has none
        return None


def _same_as(one: Path) -> Callable[[Path], bool]:
    """Return a predicate for paths of the same file: links, hard links, names differing in case."""
    place, first = os.path.realpath(one), _known_status(one)

    def is_same(other: Path) -> bool:
        second = None if first is None else _known_status(other)
        if first is None or second is None:
            return place == os.path.realpath(other)
        return (first.st_dev, first.st_ino) == (second.st_dev, second.st_ino)

    return is_same


def _known_status(path: Path) -> os.stat_result | None:
    try:
        return status_of(path)
    except OutputError:  # of an input, which is refused later, on reading
        return None


def status_of(path: Path, *, follow: bool = True) -> os.stat_result | None:
    """Return the `stat` result of a path; None if nothing is there."""
    try:
        return path.stat(follow_symlinks=follow)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None


def _reading(path: Path, look: Callable[[], T]) -> T:
    try:
        return look()
    except OSError as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: OSError | ValueError) -> OutputError:
    reason = getattr(error, "strerror", None) or str(error)
    return OutputError(f"cannot be looked at: {reason}", where=str(path))
