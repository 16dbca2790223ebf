# SPDX-License-Identifier: Apache-2.0
"""The library of C functions that a backend calls: its files exist, and are laid out as in an
export."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from umakit.devices.libraries import CallableLibrary
from umakit.errors import AcceleratorConfigError, UmakitError, short_path
from umakit.library.kernel_libraries import kernel_libraries
from umakit.library.roles import SOURCE_FOLDER
from umakit.registration.backend import Backend
from umakit.registration.sources.needed import header_contents
from umakit.registration.sources.tree import source_tree
from umakit.tools.doctor.checks import Check, ok, refused

LIBRARY = "library"


def library_checks(backend: Backend) -> list[Check]:
    """Check that the files of `[sources]` exist and can be read; no checks without a library."""
    try:
        tree = source_tree(backend)
        if tree is None:
            return []
        header_contents(backend)
        tree.licences()
        count = len(tree.sources)
    except AcceleratorConfigError:  # the check of accel.toml says so
        return []
    except UmakitError as error:
        return [refused(LIBRARY, error)]
    what = f"{count} C files" if tree.section.files else ", ".join(tree.section.link)
    return [ok(LIBRARY, f"{what} of {short_path(tree.root)}")]


def stage_library(
    backend: Backend, folder: Path, called: Collection[str], texts: Collection[str]
) -> tuple[CallableLibrary | None, dict[str, Path]]:
    """Write what calls need of a library into a folder as an export has it.

    Args:
        backend: the backend.
        folder: the folder, with the driver's files in `src`.
        called: C functions that generated code calls.
        texts: C texts of the driver.

    Returns:
        The library, None without one, and the user's files by path in `folder`.

    Raises:
        LibraryError: a file is missing, or two files have one path.
    """
    name, tree = backend.target_name, source_tree(backend)
    if tree is None:
        return None, {}
    given = {f"src/{number}.c": text for number, text in enumerate([" ".join(called), *texts])}
    exported = kernel_libraries({name: backend}, given)[name]
    for place, content in exported.files.items():
        path = folder / "src" / place.removeprefix(f"{SOURCE_FOLDER}/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    own = (*exported.view.sources, *exported.view.included)
    places = {f"src/{path}": tree.root / path.removeprefix(f"{name}/") for path in own}
    return CallableLibrary(name, folder / "src", exported.view), places
