# SPDX-License-Identifier: Apache-2.0
"""Writing folders and files all at once or not at all.

What is new is written next to its destination and put in place by renaming, under a lock that other
processes of umakit wait for: whoever looks sees the old files or the new ones, and of two writers
the last one's.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path

from umakit.errors import OutputError, StorageError
from umakit.files.manifest import manifest_text
from umakit.files.outputs import FileKind, FolderKind, check_file, check_folder

PREFIX = ".umakit-"
"""Of names of temporary files and folders, which lie next to what is written."""

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)
AT_WORKING_FOLDER = -100
"""`AT_FDCWD` of Linux."""

EXCHANGE = 2
"""`RENAME_EXCHANGE` of Linux's renameat2."""


def write_folder(
    destination: Path,
    files: Mapping[str, str | bytes],
    kind: FolderKind,
    inputs: Iterable[Path] = (),
    *,
    force: bool = False,
) -> None:
    """Write a folder and its manifest; what umakit did not write in it stays.

    Args:
        destination: the folder.
        files: contents by path.
        kind: what it is; its manifest is added.
        inputs, force: as in `outputs.check_folder`.

    Raises:
        OutputError: it is not ours to write, or cannot be written; all is as it was then.
    """
    contents = with_manifest(files, kind.manifest)
    with _written_to(destination) as place:
        place.parent.mkdir(parents=True, exist_ok=True)
        with _temporary_sibling(place) as temporary:
            staged = temporary / "new"
            _write_files(staged, contents)
            with _locked(place.parent), _uninterrupted():
                owned = check_folder(destination, kind, inputs, force=force, files=contents)
                _put_folder(staged, place, temporary / "old", owned)


def with_manifest(files: Mapping[str, str | bytes], manifest: str) -> dict[str, bytes]:
    """Files and the manifest of them, as they lie on the disk."""
    contents = {path: as_bytes(content) for path, content in files.items() if path != manifest}
    return contents | {manifest: manifest_text(contents).encode("utf-8")}


def write_file(
    destination: Path,
    content: bytes | Callable[[], bytes],
    kind: FileKind,
    inputs: Iterable[Path] = (),
    *,
    force: bool = False,
) -> None:
    """Write a file.

    Args:
        destination: the file; a link to one is followed.
        content: of the file; or what makes it of the file that is there, while other processes of
            umakit wait.
        kind: what it is.
        inputs, force: as in `outputs.check_file`.

    Raises:
        OutputError: it is not ours to write, or cannot be written; all is as it was then.
    """
    with _written_to(destination) as place:
        place.parent.mkdir(parents=True, exist_ok=True)
        with _temporary_sibling(place) as temporary:
            staged = temporary / "new"
            if isinstance(content, bytes):
                staged.write_bytes(content)
            with _locked(place.parent):
                check_file(destination, kind, inputs, force=force)
                if not isinstance(content, bytes):
                    staged.write_bytes(content())
                staged.replace(place)


def write_new_folder(destination: Path, files: Mapping[str, str | bytes]) -> None:
    """Write a folder where nothing is.

    Raises:
        OutputError: there is something, or it cannot be written.
    """
    with _written_to(destination) as place:
        place.parent.mkdir(parents=True, exist_ok=True)
        with _temporary_sibling(place) as temporary:
            _write_files(temporary / "new", {p: as_bytes(text) for p, text in files.items()})
            with _locked(place.parent):
                if destination.is_symlink() or place.exists():
                    raise OutputError("exists already", where=str(destination))
                (temporary / "new").rename(place)


@contextlib.contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """A folder that is deleted after the block.

    Raises:
        StorageError: there is no place for it, or no room left in it.
    """
    try:
        folder = tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)
    except OSError as error:
        raise StorageError(
            f"no temporary folder can be made: {error.strerror}",
            fix="set TMPDIR to a folder that can be written",
        ) from None
    with folder as name:
        try:
            yield Path(name)
        except OSError as error:
            if error.errno not in NO_ROOM or error.filename is not None:
                raise
            raise StorageError(
                f"cannot be written: {error.strerror}",
                where=name,
                fix="make room, or set TMPDIR to a folder that has some",
            ) from None


def as_bytes(content: str | bytes) -> bytes:
    """Contents of a file as they lie on the disk."""
    return content if isinstance(content, bytes) else content.encode("utf-8")


@contextlib.contextmanager
def _written_to(destination: Path) -> Iterator[Path]:
    """Where a destination leads to; errors of the system name it."""
    try:
        yield Path(os.path.realpath(destination))
    except OSError as error:
        raise OutputError(f"cannot be written: {error.strerror}", where=str(destination)) from error


@contextlib.contextmanager
def _temporary_sibling(place: Path) -> Iterator[Path]:
    """A folder in the same file system. What is not ours is never deleted with it."""
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place.parent))
    try:
        yield folder
    finally:
        new = folder / "new"
        if new.is_dir():
            shutil.rmtree(new, ignore_errors=True)
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            folder.rmdir()


def _write_files(folder: Path, contents: Mapping[str, bytes]) -> None:
    folder.mkdir()
    for path, content in contents.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


def _put_folder(staged: Path, place: Path, old: Path, owned: Collection[str]) -> None:
    """Put a folder in the place of another one, whose other files move over.

    Args:
        staged: the new folder.
        place: where it goes.
        old: where what was there is until it is deleted.
        owned: files of the old folder that are deleted, by path.
    """
    if not place.exists():
        staged.rename(place)
        return
    staged.chmod(place.stat().st_mode & 0o7777)
    is_working_folder = _is_working_folder(place)
    staged.rename(old)
    if not _exchange(old, place):
        old.rename(staged)
        place.rename(old)
        try:
            staged.rename(place)
        except OSError:
            old.rename(place)
            raise
    if is_working_folder:
        os.chdir(place)
    for path in owned:
        (old / path).unlink(missing_ok=True)
    _move_over(old, place)


def _move_over(old: Path, new: Path) -> None:
    """Move what is left of a folder into another one, and delete it.

    A file that appeared in both in the last moment stays in the old folder, which is kept then.
    """
    for item in list(old.iterdir()):
        target = new / item.name
        if item.is_dir() and not item.is_symlink():
            if not any(item.iterdir()):
                item.rmdir()
                continue
            if target.is_dir() and not target.is_symlink():
                _move_over(item, target)
                continue
        if not target.exists() and not target.is_symlink():
            item.rename(target)
    with contextlib.suppress(OSError):
        old.rmdir()


def _exchange(one: Path, other: Path) -> bool:
    """Let two folders change places in one step; False where the system cannot."""
    call = getattr(ctypes.CDLL(None), "renameat2", None)
    if call is None:
        return False
    names = os.fsencode(one), os.fsencode(other)
    done = call(AT_WORKING_FOLDER, names[0], AT_WORKING_FOLDER, names[1], EXCHANGE)
    return bool(done == 0)


def _is_working_folder(place: Path) -> bool:
    try:
        return place.samefile(Path.cwd())
    except OSError:
        return False


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Wait for other processes of umakit that put something into a folder."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):  # some network file systems know no locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C waits until the block is done: it takes a few milliseconds."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    waiting: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: waiting.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before if before is not None else signal.SIG_DFL)
        if waiting:
            signal.raise_signal(signal.SIGINT)
