# SPDX-License-Identifier: Apache-2.0
"""Finding backends: in umakit itself, through entry points, or in a folder.

Listing imports no backend; loading one imports TVM.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

from umakit import errors
from umakit.errors import BackendError, UmakitError, short_path

if TYPE_CHECKING:
    from umakit.backend.base import UMABackend

ENTRY_POINT_GROUP = "umakit.backends"

LINE = re.compile(r"\.\w+:\d+")
"""Form of a file's name and a line."""

NOT_OF_TEAMS = re.compile(
    rf"^{re.escape(str(Path(errors.__file__).parent))}/(?!backends/)|-packages/tvm(_ffi)?/"
)
"""Form of the paths of code of umakit and of TVM."""

T = TypeVar("T")

folders_of_loaded: set[Path] = set()


@dataclass(frozen=True)
class BackendSource:
    """Name, owner and location of a loadable backend."""

    name: str
    origin: str
    location: str
    entry_point: EntryPoint | None = None

    @property
    def folder(self) -> Path | None:
        """Return the folder whose path also names the backend; None if no folder holds its
        `backend.py`."""
        if self.entry_point is None:
            return Path(self.location)
        first, *rest = self.entry_point.module.split(".")
        try:
            spec = importlib.util.find_spec(first)
        except (ImportError, ValueError):
            return None
        places = [] if spec is None else spec.submodule_search_locations or []
        found = (Path(place, *part) for place in places for part in (rest, rest[:-1]))
        return next((each for each in found if (each / "backend.py").is_file()), None)


def list_backends() -> list[BackendSource]:
    """Return all known backends, sorted by name. Names may repeat."""
    in_tree = Path(str(files("umakit.backends")))
    found = [
        BackendSource(folder.name, "umakit", str(folder))
        for folder in in_tree.iterdir()
        if (folder / "backend.py").is_file()
    ]
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        package = entry.dist.name if entry.dist else "an unknown package"
        found.append(BackendSource(entry.name, package, entry.value, entry))
    return sorted(found, key=lambda source: (source.name, source.origin))


def find_backend(name_or_path: str | os.PathLike[str]) -> UMABackend:
    """Load a backend by name or folder path.

    A bare NAME may also be a folder in the working folder; `./NAME` is always a path.

    Raises:
        BackendError: the backend is missing, ambiguous or cannot be imported.
    """
    return locate_backend(name_or_path).load()


@dataclass(frozen=True)
class LocatedBackend:
    """A backend that was found but not loaded.

    Attributes:
        folder: folder of the backend; None for an entry point, whose folder is known after loading.
        load: function that loads the backend; raises BackendError.
    """

    folder: Path | None
    load: Callable[[], UMABackend]


def locate_backend(name_or_path: str | os.PathLike[str], base: Path = Path()) -> LocatedBackend:
    """Find a backend by name or folder path, relative to `base`, without loading it."""
    text = os.fspath(name_or_path)
    place = base / text
    if isinstance(name_or_path, os.PathLike) or os.sep in text or text.startswith("."):
        return _located_folder(place)
    owners = [source for source in list_backends() if source.name == text]
    is_folder = (place / "backend.py").is_file()
    folder = place if is_folder and not any(_is_in(place, owner) for owner in owners) else None
    if len(owners) + (folder is not None) > 1:
        raise _ambiguous(text, owners, folder)
    if folder is not None:
        return _located_folder(folder)
    if not owners:
        names = ", ".join(sorted({source.name for source in list_backends()}))
        raise BackendError(
            f"there is no backend {text!r}", fix=f"known backends are {names}; a path works too"
        )
    owner = owners[0]
    return LocatedBackend(
        Path(owner.location) if owner.entry_point is None else None,
        lambda: _check_name(_alone(lambda: _load_source(owner)), text, owner.location),
    )


def built_in_backend(name: str) -> UMABackend:
    """Load a backend that is part of umakit, even if a folder or package has the same name."""
    source = BackendSource(name, "umakit", str(files("umakit.backends") / name))
    return _alone(lambda: _load_source(source))


def _is_in(folder: Path, owner: BackendSource) -> bool:
    return owner.folder is not None and owner.folder.resolve() == folder.resolve()


def _ambiguous(name: str, owners: Sequence[BackendSource], folder: Path | None) -> BackendError:
    places = [f"that of {owner.origin} ({owner.location})" for owner in owners]
    fixes = [f"{each.folder} for that of {each.origin}" for each in owners if each.folder]
    if folder is not None:
        places.append(f"that in the folder {folder.resolve()}")
        fixes.insert(0, f"{os.curdir}{os.sep}{name} for that in the folder")
    fix = f"write {' or '.join(fixes)}" if fixes else ""
    if not all(owner.folder for owner in owners):  # no path names the backend's module
        others = len(owners) > 1
        more = "uninstall one of the packages" if others else "give the folder another name"
        fix = f"{fix}, or {more}" if fix else more
    return BackendError(f"backend {name!r} is ambiguous: {' and '.join(places)}", fix=fix)


def load_backend_folder(folder: str | os.PathLike[str]) -> UMABackend:
    """Load the backend in a folder that `uma new` wrote.

    Raises:
        BackendError: the folder or its `backend.py` is missing or cannot be imported. For a syntax
            error, the message has file and line.
    """
    return _located_folder(Path(folder)).load()


def _located_folder(folder: Path) -> LocatedBackend:
    place = Path(os.path.realpath(folder))
    if not place.is_dir():
        raise BackendError("no such folder", where=str(place))
    if not (place / "backend.py").is_file():
        raise BackendError("holds no backend.py", where=str(place), fix="see `uma new --help`")
    return LocatedBackend(place, lambda: _alone(lambda: _load_folder(place)))


def _alone(load: Callable[[], UMABackend]) -> UMABackend:
    """Load a backend while no other thread loads a backend or uses TVM."""
    from umakit import tvm_api

    return tvm_api.one_at_a_time(load)()


def _load_source(source: BackendSource) -> UMABackend:
    if source.entry_point is not None:
        return _load_entry_point(source.entry_point)
    name = f"umakit.backends.{source.name}.backend"
    module = _import(lambda: importlib.import_module(name), source.name)
    return _instantiate(module, source.location)


def _load_folder(folder: Path) -> UMABackend:
    """Load the backend in a folder as a package with a unique name."""
    digest = hashlib.sha256(str(folder).encode()).hexdigest()[:8]
    package_name = f"umakit_backend_{folder.name}_{digest}"
    if package_name not in sys.modules:
        package = ModuleType(package_name)
        package.__path__ = [str(folder)]
        sys.modules[package_name] = package
    try:
        module = _import(lambda: importlib.import_module(f"{package_name}.backend"), str(folder))
    except UmakitError:
        for name in [n for n in sys.modules if n.split(".")[0] == package_name]:
            del sys.modules[name]
        raise
    return _instantiate(module, str(folder))


def _import(load: Callable[[], T], where: str) -> T:
    """Import a backend and turn any exception into a BackendError."""
    try:
        return load()
    except UmakitError as error:
        raise _with_line(error, where) from error.__cause__
    except SyntaxError as error:
        place = f"{short_path(error.filename or where)}:{error.lineno}"
        raise BackendError(f"syntax error: {error.msg}", where=place) from None
    except (Exception, SystemExit) as error:  # a team's code may raise anything
        from umakit.registration.code import meant, plain_tvm_text

        frames = [f for f in traceback.extract_tb(error.__traceback__) if not _is_of_python(f)]
        own = [frame for frame in frames if Path(frame.filename).is_file()]
        own = [frame for frame in own if not NOT_OF_TEAMS.search(frame.filename)]
        last = (own or frames)[-1]
        close = meant(error)
        text = f"{type(error).__name__}: {plain_tvm_text(str(error))}"
        text += f", did you mean {close}?" if close else ""
        raise BackendError(
            f"cannot be imported: {text} ({short_path(last.filename)}:{last.lineno})", where=where
        ) from error


def _with_line(error: UmakitError, folder: str) -> UmakitError:
    if LINE.search(str(error)) or (error.where and Path(error.where).exists()):
        return error
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if os.path.realpath(f.filename).startswith(f"{folder}{os.sep}")]
    if own:
        place = f"{short_path(own[-1].filename)}:{own[-1].lineno}"
        error.where = f"{place}: {error.where}" if error.where else place
        error.args = (str(error),)
    return error


def _is_of_python(frame: traceback.FrameSummary) -> bool:
    library = f"{sysconfig.get_path('stdlib')}{os.sep}"
    is_package = "site-packages" in frame.filename or "dist-packages" in frame.filename
    return "<frozen" in frame.filename or (frame.filename.startswith(library) and not is_package)


def _load_entry_point(entry: EntryPoint) -> UMABackend:
    loaded = _import(entry.load, f"entry point {entry.name} = {entry.value}")
    if isinstance(loaded, ModuleType):
        return _instantiate(loaded, entry.value)
    return _create(loaded, entry.value)


def _instantiate(module: ModuleType, where: str) -> UMABackend:
    from umakit.backend.base import UMABackend

    classes = [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, UMABackend)
        and value.__module__ == module.__name__
    ]
    if len(classes) != 1:
        raise BackendError(
            f"backend.py defines {len(classes)} subclasses of UMABackend, it must define one",
            where=where,
        )
    return _create(classes[0], where)


def _create(backend_class: Callable[[], object], where: str) -> UMABackend:
    from umakit.backend.base import UMABackend

    backend = _import(backend_class, where)
    if not isinstance(backend, UMABackend):
        raise BackendError(f"is a {type(backend).__name__}, not a UMABackend", where=where)
    folders_of_loaded.add(backend.folder)
    name: object = _import(lambda: backend.target_name, where)
    if not isinstance(name, str):
        raise BackendError(
            f"target_name of {type(backend).__name__} is a {type(name).__name__}, not a text",
            where=where,
            fix="write @property above it, and return the name",
        )
    return backend


def _check_name(backend: UMABackend, name: str, where: str) -> UMABackend:
    if backend.target_name != name:
        raise BackendError(
            f"the backend is registered as {name!r} but its target is {backend.target_name!r}",
            where=where,
        )
    return backend
