# SPDX-License-Identifier: Apache-2.0
"""The C files of a backend as they are built for this machine while it compiles a network."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from weakref import WeakKeyDictionary

from umakit.registration.backend import Backend
from umakit.registration.sources.needed import needed_files
from umakit.registration.sources.tree import source_tree


@dataclass(frozen=True)
class HostSources:
    """What a program that calls a backend's functions is built of.

    Attributes:
        core: name of the core whose macros are defined; empty for the library as it is.
        files: C files.
        flags: flags of the compiler: folders of headers and macros.
        linked: objects and libraries.
        versions: times at which files were changed, headers too.
    """

    core: str
    files: tuple[Path, ...]
    flags: tuple[str, ...]
    linked: tuple[str, ...] = ()
    versions: tuple[int, ...] = ()


_known: WeakKeyDictionary[Backend, dict[frozenset[str], list[HostSources]]] = WeakKeyDictionary()


def host_sources(backend: Backend, identifiers: Collection[str]) -> list[HostSources]:
    """Return the files of a backend, once as they are and once for each core.

    They are looked for once for each backend that was loaded: all layers of a kernel ask for them.

    Args:
        backend: the backend.
        identifiers: names of C that are used.
    """
    known, names = _known.setdefault(backend, {}), frozenset(identifiers)
    if names not in known:
        known[names] = list(_host_sources(backend, names))
    return known[names]


def _host_sources(backend: Backend, identifiers: Collection[str]) -> Iterator[HostSources]:
    driver, folder = backend.driver, backend.folder
    library, section = _library_files(backend, identifiers), backend.configuration.sources
    folders = dict.fromkeys(
        [folder, *((folder / name).parent for name in (*driver.headers, *driver.sources))]
    )
    names = (*driver.sources, *driver.headers, *driver.compiled)
    files = [*(folder / name for name in names), *library.sources, *library.others]
    as_it_is = HostSources(
        "",
        (*(folder / name for name in driver.sources), *library.sources),
        (*(f"-I{each}" for each in folders), *library.flags),
        (*(str(folder / name) for name in driver.compiled), *library.linked),
        tuple(each.stat().st_mtime_ns if each.exists() else 0 for each in files),
    )
    yield as_it_is
    for core in section.cores if section is not None else ():
        assert section is not None
        macros = tuple(f"-D{define}" for define in section.macros_of(core))
        kept = tuple(flag for flag in as_it_is.flags if not flag.startswith("-D"))
        yield replace(as_it_is, core=core, flags=(*kept, *macros))


@dataclass(frozen=True)
class _LibraryFiles:
    """What calls need of a backend's library."""

    sources: tuple[Path, ...] = ()
    others: tuple[Path, ...] = ()
    flags: tuple[str, ...] = ()
    linked: tuple[str, ...] = ()


def _library_files(backend: Backend, identifiers: Collection[str]) -> _LibraryFiles:
    tree = source_tree(backend)
    if tree is None:
        return _LibraryFiles()
    texts = [" ".join(sorted(identifiers))]
    for name in (*backend.driver.sources, *backend.driver.headers):
        path = backend.folder / name
        texts += [path.read_text("utf-8", "replace")] if path.is_file() else []
    needed = needed_files(tree, texts)
    folders = (tree.root / each for each in ("", *tree.section.include))
    return _LibraryFiles(
        tuple(tree.root / name for name in needed.sources),
        tuple(tree.root / name for name in needed.included),
        (*(f"-I{each}" for each in folders), *(f"-D{each}" for each in tree.section.macros)),
        tuple(f"-l{name}" for name in tree.section.link),
    )
