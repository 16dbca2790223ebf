# SPDX-License-Identifier: Apache-2.0
"""What a linker takes of the objects and static libraries that a library brings along."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from umakit.devices.compiled import check_machine, read_file
from umakit.files.compiled_files import ELF, is_shared, members
from umakit.tools.size.object_file import ObjectFile, read_content


def compiled_objects(
    files: Sequence[Path], compiled: Collection[ObjectFile], example: Path, target: str
) -> dict[str, ObjectFile]:
    """Return the objects that are linked, by a name that no source has.

    Objects are linked whole, of static libraries what defines a symbol that is missing. Shared
    libraries are the host's, not the program's.

    Args:
        files: objects and libraries, in the order in which they are linked.
        compiled: what was compiled from sources.
        example: an object that was compiled.
        target: what is compiled for, for messages.

    Raises:
        BuildError: one is for another kind of processor, missing or damaged.
    """
    files = [path for path in files if not is_shared(path.name)]
    if not files:
        return {}
    wanted = read_file(example).machine
    for path in files:
        check_machine(path, read_file(path).machine, wanted, target)
    found: dict[str, ObjectFile] = {}
    for path in files:
        if path.suffix == ".o":
            found[path.name] = read_content(path.read_bytes(), path.name)
            continue
        rest = {
            f"{path.name}/{name}/{number}": data
            for number, (name, data) in enumerate(members(path.read_bytes(), str(path)))
            if data.startswith(ELF)
        }
        read = {name: read_content(data, name) for name, data in rest.items()}
        while taken := _next_member(read.values(), [*compiled, *found.values()]):
            found[taken] = read.pop(taken)
    return found


def _next_member(members_left: Iterable[ObjectFile], linked: Sequence[ObjectFile]) -> str:
    """Return the name of a member that defines a missing symbol; empty if none does."""
    wanted = {
        symbol
        for item in linked
        for section in item.sections.values()
        for symbol in section.symbols
    }
    wanted -= {symbol for item in linked for symbol in item.exported}
    return next((item.name for item in members_left if wanted & item.exported.keys()), "")
