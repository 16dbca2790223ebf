# SPDX-License-Identifier: Apache-2.0
"""Libraries of C functions for backends in an export: the needed files, unchanged."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from umakit.errors import LibraryError
from umakit.library.roles import SOURCE_FOLDER
from umakit.library.schema import KernelLibrary
from umakit.machine.simulator_config import C_SUFFIXES, CXX_SUFFIXES
from umakit.registration.backend import Backend
from umakit.registration.sources.needed import needed_files
from umakit.registration.sources.tree import SourceTree, source_tree


@dataclass(frozen=True)
class ExportedLibrary:
    """A library of C functions in an export.

    Attributes:
        files: contents by path in the export.
        notices: a sentence for each missing part of the library.
    """

    view: KernelLibrary
    files: Mapping[str, bytes]
    notices: Sequence[str]


def kernel_libraries(
    backends: Mapping[str, Backend], texts: Mapping[str, str]
) -> dict[str, ExportedLibrary]:
    """Return the libraries of backends, by backend, with the files that C `texts` need."""
    trees = {name: source_tree(backend) for name, backend in sorted(backends.items())}
    taken = {path.lower() for path in texts}
    found = {}
    for name, tree in trees.items():
        if tree is not None:
            found[name] = _exported(tree, list(texts.values()))
            for path in found[name].files:
                if path.removeprefix("codegen/host/").lower() in taken:
                    raise LibraryError(
                        f"two different files would become {path}",
                        where=str(tree.where),
                        fix="give the file of the library or of the driver another name",
                    )
    return found


def _exported(tree: SourceTree, texts: Iterable[str]) -> ExportedLibrary:
    needed = needed_files(tree, texts)
    files = {name: tree.content(name) for name in (*needed.sources, *needed.included)}
    licences = tree.licences()
    for name, content in licences.items():
        if files.setdefault(name, content) != content:
            raise LibraryError(
                f"two different files would become {tree.backend}/{name}",
                where=str(tree.where),
                fix="give the licence another name",
            )
    tree.check_names(files)

    def exported(names: Iterable[str]) -> list[str]:
        return [f"{tree.backend}/{name}" for name in names]

    view = KernelLibrary(
        sources=exported(needed.sources),
        included=exported(needed.included),
        include=[PurePosixPath(tree.backend, f).as_posix() for f in tree.section.include],
        defines=tree.section.macros,
        flags=tree.section.flags,
        link=tree.section.link,
        licence=exported(licences),
        digest=needed.digest,
    )
    notices = [
        f"{tree.backend}/{name} includes {header}, which is no file of the library: name its "
        "folder in include of [sources], or give it to the C compiler"
        for name, header in needed.missing
    ]
    contents = {f"{SOURCE_FOLDER}/{tree.backend}/{name}": files[name] for name in sorted(files)}
    return ExportedLibrary(view, contents, notices)


def included_names(libraries: Mapping[str, ExportedLibrary]) -> set[str]:
    """Return the library files that generated C and drivers may include, as paths below
    `codegen/host` in the folder `src`."""
    found = set()
    for each in libraries.values():
        for path in each.view.included:
            found.add(f"src/{path}")
            for folder in each.view.include:
                if path.startswith(f"{folder}/"):
                    found.add(f"src/{path.removeprefix(f'{folder}/')}")
    return found


def compiler_words(libraries: Mapping[str, KernelLibrary], folder: str) -> list[str]:
    """Return the compiler options for include folders and macros of libraries."""
    words = [f"-I{folder}/{path}" for each in libraries.values() for path in each.include]
    words += [f"-D{define}" for each in libraries.values() for define in each.defines]
    return list(dict.fromkeys(words))


def included_c_files(libraries: Mapping[str, KernelLibrary]) -> list[str]:
    """Return the paths of C and C++ files that other files include and no build compiles."""
    return [
        path
        for each in libraries.values()
        for path in each.included
        if path.endswith((*C_SUFFIXES, *CXX_SUFFIXES))
    ]


def library_values(libraries: Mapping[str, KernelLibrary]) -> dict[str, Any]:
    """Return the template values of libraries: files, and compiler options for a shell."""
    words = compiler_words(libraries, SOURCE_FOLDER)
    apart = included_c_files(libraries)
    return {
        "libraries": libraries,
        "library_words": "".join(f" {shlex.quote(word)}" for word in words),
        "library_links": [name for each in libraries.values() for name in each.link],
        "not_compiled": "".join(
            f" ! -path {shlex.quote(f'{SOURCE_FOLDER}/{path}')}" for path in apart
        ),
        "has_spaces": any(
            " " in path for each in libraries.values() for path in (*each.sources, *each.included)
        ),
    }
