# SPDX-License-Identifier: Apache-2.0
"""Atomic writing of folders and files.

New content is written next to its destination and renamed into place, under a lock between umakit
processes. A reader sees either the old files or the new files. Of two writers, the last one wins.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import io
import os
import shutil
import signal
import tempfile
import threading
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from umakit.errors import OutputError, StorageError
from umakit.files.manifest import manifest_text
from umakit.files.outputs import NPZ_RESULTS, FileKind, FolderKind, check_file, check_folder

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PREFIX = ".umakit-"
"""Prefix of temporary files and folders, created next to the destination."""

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)
AT_WORKING_FOLDER = -100
"""The Linux constant `AT_FDCWD`."""

EXCHANGE = 2
"""The flag `RENAME_EXCHANGE` of the Linux system call renameat2."""


def write_folder(
    destination: Path,
    files: Mapping[str, str | bytes],
    kind: FolderKind,
    inputs: Iterable[Path] = (),
    *,
    force: bool = False,
) -> None:
    """Write a folder and its manifest; keep files that umakit did not write."""
    contents = with_manifest(files, kind.manifest)
    with _staged_for(destination) as (place, staged):
        _write_files(staged, contents)
        with _locked(place.parent), _uninterrupted():
            owned = check_folder(destination, kind, inputs, force=force, files=contents)
            _put_folder(staged, place, staged.with_name("old"), owned)


def with_manifest(files: Mapping[str, str | bytes], manifest: str) -> dict[str, bytes]:
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
    """Write a file; a function computes the content from the existing file under the lock."""
    with _staged_for(destination) as (place, staged):
        if isinstance(content, bytes):
            staged.write_bytes(content)
        with _locked(place.parent):
            check_file(destination, kind, inputs, force=force)
            if not isinstance(content, bytes):
                staged.write_bytes(content())
            staged.replace(place)


def write_chunks(
    destination: Path,
    chunks: Iterable[bytes],
    kind: FileKind,
    inputs: Iterable[Path] = (),
    *,
    force: bool = False,
) -> None:
    """Write a file that is too large for memory."""
    with _written_to(destination) as place, _temporary_sibling(place) as temporary:
        staged = temporary / "new"
        with staged.open("wb") as stream:
            stream.writelines(chunks)
        with _locked(place.parent):
            check_file(destination, kind, inputs, force=force)
            staged.replace(place)


def write_new_folder(destination: Path, files: Mapping[str, str | bytes]) -> None:
    """Write a folder where nothing exists; raise OutputError otherwise."""
    with _staged_for(destination) as (place, staged):
        _write_files(staged, {path: as_bytes(text) for path, text in files.items()})
        with _locked(place.parent):
            if destination.is_symlink() or place.exists():
                raise OutputError("exists already", where=str(destination))
            staged.rename(place)


@contextlib.contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """Create a temporary folder that is deleted after the block."""
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
    """Return the content of a file as bytes; text is encoded as UTF-8."""
    return content if isinstance(content, bytes) else content.encode("utf-8")


@contextlib.contextmanager
def _written_to(destination: Path) -> Iterator[Path]:
    """Resolve links of a destination; system errors within the block name the destination."""
    try:
        yield Path(os.path.realpath(destination))
    except OSError as error:
        raise OutputError(f"cannot be written: {error.strerror}", where=str(destination)) from error


@contextlib.contextmanager
def _staged_for(destination: Path) -> Iterator[tuple[Path, Path]]:
    """Yield the place of a destination, whose folder is created, and a path next to it."""
    with _written_to(destination) as place:
        place.parent.mkdir(parents=True, exist_ok=True)
        with _temporary_sibling(place) as temporary:
            yield place, temporary / "new"


@contextlib.contextmanager
def _temporary_sibling(place: Path) -> Iterator[Path]:
    """Create a temporary folder next to a path, on the same file system.

    After the block, only files that umakit created are deleted.
    """
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
    """Replace a folder by a staged one; files that are not `owned` are carried over from `old`."""
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
    """Move the remaining files of a folder into another one, and delete the folder.

    A file created in both folders meanwhile stays in the old folder, which is then kept.
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
    """Exchange two folders atomically; return False if the system does not support it."""
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
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):  # some network file systems know no locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
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


def write_picture(
    figure: Figure, path: Path, kind: FileKind, inputs: Iterable[Path], *, force: bool
) -> None:
    """Write a figure as `.svg`, `.png` or `.pdf`, with the mark of its kind in the metadata."""
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


GIVEN = "inputs.npz"
"""Name of the file of inputs in a folder of a difference."""


@dataclass(frozen=True)
class DifferenceFolder:
    """A folder with the files of a difference, such as its inputs.

    Attributes:
        given: file of the given inputs; None for random inputs.
        read: other files and folders that the command reads.
    """

    folder: Path
    given: Path | None
    read: list[Path]
    force: bool

    @property
    def inputs(self) -> list[Path]:
        return [*self.read, *([] if self.given is None else [self.given])]

    def is_given(self, path: Path) -> bool:
        """Whether a file is the given one, as when an earlier difference is repeated.

        The inputs are then a single inference, and would be written unchanged.
        """
        return (
            path.name == GIVEN
            and self.given is not None
            and path.is_file()
            and path.samefile(self.given)
            and NPZ_RESULTS.wrote(path)
        )

    def check_path(self, path: Path, kind: FileKind) -> None:
        """Check that a file can be written, unless the file is the given one."""
        if not self.is_given(path):
            check_file(path, kind, self.inputs, force=self.force)

    def write_path(self, path: Path, content: bytes, kind: FileKind) -> None:
        write_file(path, content, kind, self.inputs, force=self.force)
