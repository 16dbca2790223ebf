# SPDX-License-Identifier: Apache-2.0
"""`uma new --update`: updates a project to newer templates or other flags, and keeps all edits.

A file has three texts: as written earlier (the base), as edited, and as it would be written now.
Changes on one side are taken. Changes on both sides are merged if requested, and shown otherwise.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from umakit.errors import ScaffoldError
from umakit.files.staging import PREFIX, temporary_folder
from umakit.tools.scaffold.answers import answers_of
from umakit.tools.scaffold.new import kind_of, project_files
from umakit.tools.scaffold.record import BASE, FLAGS, Record, read_record, record_text

REGISTERS = "registers.toml"
"""A project file that other files are rendered from: its edits are an input of an update."""


@dataclass
class Update:
    """The result of an update; paths are relative to the folder.

    Attributes:
        replaced: unedited files with new text.
        removed: unedited files that are obsolete.
        merged: edited files with their templates' changes merged, without conflicts.
        conflicts: files with markers of conflicts, which the user has to resolve.
        to_merge: edited files whose templates changed too, left unchanged.
        kept: edited files that are obsolete.
        differences: pending changes of a merge for each file of `to_merge`, by path.
    """

    folder: str
    added: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    merged: list[str] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)
    to_merge: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    differences: dict[str, str] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left to merge."""
        return not self.to_merge and not self.conflicts


def update_backend(
    folder: Path, flags: Mapping[str, str] | None = None, registers: str = "", *, merge: bool
) -> Update:
    """Update a project to the present output of `uma new`."""
    record = read_record(folder)
    kind = kind_of(record.kind)
    chosen = {name: text for name, text in record.flags.items() if name in kind.flags}
    registers = registers or _own_registers(folder, record)
    if registers:  # from now on the map is the project's, not its kind's
        chosen["registers"] = REGISTERS
    answers = answers_of(kind, chosen | dict(flags or {}), registers)
    texts = project_files(record.name, answers)
    new = {path: text.encode("utf-8") for path, text in texts.items()}
    update = Update(str(folder))
    with _named(folder):
        for path in sorted({*new, *record.base}):
            _update_file(folder, path, record.base.get(path), new.get(path), merge, update)
        _write(folder / FLAGS, record_text(record.name, answers).encode("utf-8"))
    return update


def _own_registers(folder: Path, record: Record) -> str:
    content = _read(folder / REGISTERS)
    is_given = bool(record.flags.get("registers"))
    if content is None or (content == record.base.get(REGISTERS) and not is_given):
        return ""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise ScaffoldError(
            "is not a text in UTF-8", where=str(folder / REGISTERS), fix="store it as UTF-8"
        ) from None


def _update_file(
    folder: Path, path: str, base: bytes | None, new: bytes | None, merge: bool, update: Update
) -> None:
    yours = _read(folder / path)
    if new is None:
        if yours is not None and yours == base:
            (folder / path).unlink()
            update.removed.append(path)
        elif yours is not None:
            update.kept.append(path)
        (folder / BASE / path).unlink(missing_ok=True)
        return
    if yours is None:
        if base is None:
            _write(folder / path, new)
            update.added.append(path)
    elif yours == base != new:
        _write(folder / path, new)
        update.replaced.append(path)
    elif yours not in (new, base) and new != base:
        _merge_file(folder / path, path, (yours, base or b"", new), merge, update)
        if path in update.to_merge:
            return
    elif has_conflicts(yours) and not has_conflicts(new):
        update.conflicts.append(path)
    if base != new:
        _write(folder / BASE / path, new)


def _merge_file(
    file: Path, path: str, sides: tuple[bytes, bytes, bytes], merge: bool, update: Update
) -> None:
    result = merged(*sides)
    if not merge:
        update.to_merge.append(path)
        update.differences[path] = difference(path, sides[0], result)
        return
    _write(file, result)
    (update.conflicts if has_conflicts(result) else update.merged).append(path)


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _write(path: Path, content: bytes) -> None:
    """Write a file atomically, with the permissions of the replaced file."""
    place = Path(os.path.realpath(path))
    place.parent.mkdir(parents=True, exist_ok=True)
    temporary = place.with_name(f"{PREFIX}{os.getpid()}-{place.name}")
    try:
        temporary.write_bytes(content)
        if place.exists():
            temporary.chmod(place.stat().st_mode & 0o7777)
        temporary.replace(place)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def _named(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ScaffoldError(
            f"cannot be updated: {error.strerror}", where=str(error.filename or folder)
        ) from None


MOST_CONFLICTS = 127
"""Maximum number of conflicts that `git merge-file` returns; a higher code is a failure."""

LABELS = ("yours", "as `uma new` wrote it", "as `uma new` writes it now")


def merged(yours: bytes, base: bytes, new: bytes) -> bytes:
    """Return an edited file with the changes of its template; conflicts have markers."""
    with temporary_folder("umakit-merge-") as folder:
        paths = []
        for name, content in (("yours", yours), ("base", base), ("new", new)):
            path = Path(folder) / name
            path.write_bytes(content)
            paths.append(str(path))
        labels = [word for label in LABELS for word in ("-L", label)]
        command = ["git", "merge-file", "--stdout", "--diff3", *labels, *paths]
        try:
            result = subprocess.run(command, capture_output=True, check=False)
        except OSError as error:
            raise ScaffoldError(
                f"edited files are merged with git, which cannot be run: {error.strerror}",
                fix="install git",
            ) from None
    if not 0 <= result.returncode <= MOST_CONFLICTS:
        reason = result.stderr.decode("utf-8", "replace").strip()
        raise ScaffoldError(f"git cannot merge the file: {reason}", fix="merge it by hand")
    return result.stdout


def has_conflicts(content: bytes) -> bool:
    """Whether a file has unresolved markers of conflicts."""
    lines = content.splitlines()
    marks = (b"<<<<<<< ", b"=======", b">>>>>>> ")
    return all(any(line.startswith(mark) for line in lines) for mark in marks)


def difference(path: str, old: bytes, new: bytes) -> str:
    before, after = (text.decode("utf-8", "replace").splitlines() for text in (old, new))
    names = f"{path} (yours)", f"{path} (merged)"
    lines = difflib.unified_diff(before, after, *names, lineterm="")
    return "\n".join(lines)
