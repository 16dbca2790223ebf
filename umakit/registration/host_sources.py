# SPDX-License-Identifier: Apache-2.0
"""The C files of a backend as they are built for this machine while it compiles a network."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from umakit.registration.backend import Backend


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


def host_sources(backend: Backend, identifiers: Collection[str]) -> Iterator[HostSources]:
    """Yield the files of a backend, once as they are and once for each core.

    Args:
        backend: the backend.
        identifiers: names of C that are used.
    """
    driver, folder = backend.driver, backend.folder
    folders = dict.fromkeys(
        [folder, *((folder / name).parent for name in (*driver.headers, *driver.sources))]
    )
    yield HostSources(
        "",
        tuple(folder / name for name in driver.sources),
        tuple(f"-I{each}" for each in folders),
        tuple(str(folder / name) for name in driver.compiled),
        tuple(
            (folder / name).stat().st_mtime_ns if (folder / name).exists() else 0
            for name in (*driver.sources, *driver.headers, *driver.compiled)
        ),
    )
