# SPDX-License-Identifier: Apache-2.0
"""Arduino libraries: C files below `src`, a sketch, and `library.properties`.

By the Arduino library specification, revision 1.5 and later. Imports neither TVM nor the pipeline.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath

from umakit.errors import LibraryError, OutputError
from umakit.files.manifest import NAME
from umakit.files.outputs import FolderKind, check_folder
from umakit.files.staging import as_bytes, write_folder
from umakit.library.build_files import SIMULATOR_HEADERS, numeric_version
from umakit.library.kernel_libraries import included_c_files
from umakit.library.layout import LICENSE, METADATA, NOTICE
from umakit.library.metadata import read_description
from umakit.library.roles import COMPILED_FOLDER, HEADER_FOLDER, SOURCE_FOLDER
from umakit.library.schema import Description, KernelLibrary, Sources, TensorView
from umakit.library.tar_files import read_files
from umakit.machine.simulator_config import CXX_SUFFIXES
from umakit.text.names import plain_file_name
from umakit.text.rendering import render
from umakit.version import __version__

PROPERTIES = "library.properties"
DESCRIPTION = f"extras/{METADATA}"
"""File by which umakit recognizes its own folders; Arduino ignores the folder `extras`."""

C_TYPES = {"float32": "float", "float64": "double", "bool": "bool"}
SOURCES = (".c", *CXX_SUFFIXES)
HEADERS = (".h", ".hh", ".hpp", ".hxx")

INCLUDE = re.compile(r'^(\s*#\s*include\s*)"([^"\n]+)"', re.MULTILINE)


def write_package(library: Path, destination: Path, force: bool) -> None:
    """Write a library as an Arduino library, atomically."""
    check_arduino_name(destination)
    check_folder(destination, ARDUINO_FOLDER, [library], force=force)
    files = arduino_files(read_files(library), read_description(library), str(library))
    write_folder(destination, files, ARDUINO_FOLDER, [library], force=force)


def arduino_files(
    files: Mapping[str, str | bytes], description: Description, where: str
) -> dict[str, str | bytes]:
    if description.weights == "blob":
        raise LibraryError(
            "its weights are a file of their own, which an Arduino library has no place for",
            where=where,
            fix="compile with --weights c",
        )
    sources = description.sources
    # A simulator of a backend's own is no C file of `src`: without it, no device answers.
    headers = (f"umakit/{name}" for name in SIMULATOR_HEADERS)
    omitted = {f"{SOURCE_FOLDER}/{name}" for name in (*sources.simulated, *headers) if sources.own}
    compiled = _compiled(sources, files, where)
    start = render("arduino/source_start.c.j2") + macros(sources)
    libraries = library_files(sources, files, start, where)
    of_libraries = {
        f"{SOURCE_FOLDER}/{path}": target
        for library in sources.libraries.values()
        for path, target in moved_paths(library).items()
    }
    omitted |= of_libraries.keys()
    return {
        **_texts(description, compiled),
        DESCRIPTION: as_bytes(files[METADATA]),
        **{name: files[name] for name in (LICENSE, NOTICE) if name in files},
        **{f"src/{path}": content for path, content in compiled.items()},
        **{f"src/{path}": content for path, content in libraries.items()},
        **{
            f"src/{name}": _with_start(start, text) if name.endswith(SOURCES) else text
            for name, text in sources_and_headers(
                {path: text for path, text in files.items() if path not in omitted},
                where,
                of_libraries,
                [f for library in sources.libraries.values() for f in library.include],
            ).items()
        },
    }


def _texts(description: Description, compiled: Iterable[str]) -> dict[str, str]:
    """Return the texts of an Arduino library and its example, by path."""
    prefix, sources = description.interface, description.sources
    values = {
        "umakit_version": __version__,
        "version": numeric_version(),
        "name": description.name,
        "prefix": prefix,
        "prefix_upper": prefix.upper(),
        "inputs": [_tensor_view(tensor) for tensor in description.inputs],
        "outputs": [_tensor_view(tensor) for tensor in description.outputs],
        "simulated": [] if sources.own else sources.simulated,
        "is_on_board": bool(sources.own),
        "devices": [item.name for item in description.backends if item.simulated],
        "workspace_size": max(
            each.arena_bytes
            for each in (description.memory, *(each.memory for each in description.cpus))
        ),
        "has_several_cpus": bool(description.cpus),
        "compiled": list(compiled),
        "flags": [f"-l{PurePosixPath(path).stem.removeprefix('lib')}" for path in compiled]
        + [f"-l{name}" for library in sources.libraries.values() for name in library.link],
    }
    return {
        PROPERTIES: render("arduino/library.properties.j2", **values),
        "keywords.txt": render("arduino/keywords.txt.j2", **values),
        "README.md": render("arduino/README.md.j2", **values),
        f"examples/{prefix}/{prefix}.ino": render("arduino/sketch.ino.j2", **values),
    }


def _compiled(
    sources: Sources, files: Mapping[str, str | bytes], where: str
) -> dict[str, str | bytes]:
    """Return the static libraries of drivers by path in `src`.

    Arduino links libraries in a folder named after the board's processor, its `build.mcu`; the
    backend has to use such folders.
    """
    found: dict[str, str | bytes] = {}
    for backend, paths in sources.compiled.items():
        for path in paths:
            folder, _, name = path.removeprefix(f"{backend}/").rpartition("/")
            if not name.endswith(".a"):
                raise LibraryError(
                    f"the driver has {path}, and Arduino links static libraries only",
                    where=where,
                    fix="put objects into a library with ar rcs, and register that",
                )
            if not folder:
                raise LibraryError(
                    f"{path} lies in no folder that says for which processor it is",
                    where=where,
                    fix="put it into one that is named as Arduino names the processor, such as "
                    f"cortex-m4/{name}",
                )
            target = f"{folder}/{name if name.startswith('lib') else f'lib{name}'}"
            content = files[f"{COMPILED_FOLDER}/{path}"]
            if found.setdefault(target, content) != content:
                raise LibraryError(
                    f"two libraries would both be {target}", where=where, fix="rename one"
                )
    return found


def _with_start(start: str, text: str) -> str:
    """Return the text of a C file with a first part, placed after the line of the licence."""
    licence, newline, rest = text.partition("\n")
    is_licence = "SPDX-License-Identifier:" in licence and licence.endswith("*/")
    return f"{licence}{newline}{start}{rest}" if is_licence else start + text


def sources_and_headers(
    files: Mapping[str, str | bytes],
    where: str,
    others: Mapping[str, str] | None = None,
    folders: Sequence[str] = (),
) -> dict[str, str]:
    """Return C files and headers by path below `src`; `others` has that path of included files."""
    chosen = [
        path
        for path in sorted(files)
        if path.startswith((f"{SOURCE_FOLDER}/", f"{HEADER_FOLDER}/"))
        and path.endswith((*SOURCES, *HEADERS))
    ]
    folder = re.compile(f"{SOURCE_FOLDER}/|{HEADER_FOLDER}/")  # src/npu/conv.c is npu/conv.c
    paths = {path: folder.sub("", path, count=1) for path in chosen}
    taken: dict[str, str] = {}
    for path, target in paths.items():
        # Paths that differ in case only are one file on some machines with Arduino's IDE.
        other = taken.setdefault(target.lower(), path)
        if other != path:
            raise LibraryError(f"{other} and {path} would both be {target}", where=where)
    moved = paths | dict(others or {})
    return {
        target: _with_moved_includes(as_bytes(files[path]).decode("utf-8"), path, moved, folders)
        for path, target in paths.items()
    }


ARDUINO_FOLDER = FolderKind("Arduino library of umakit", f"extras/{NAME}")


def check_arduino_name(destination: Path) -> None:
    name = Path(os.path.realpath(destination)).name
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", name):
        raise OutputError(
            f"is not a name for an Arduino library: {name!r}",
            where=str(destination),
            fix="use up to 63 letters, digits and _ . - and no spaces",
        )


def _with_moved_includes(
    text: str, path: str, paths: Mapping[str, str], folders: Sequence[str]
) -> str:
    folder = posixpath.dirname(path)

    def replaced(match: re.Match[str]) -> str:
        for place in (folder, *(f"{SOURCE_FOLDER}/{each}" for each in folders)):
            included = posixpath.normpath(posixpath.join(place, match[2]))
            if included in paths:
                moved = posixpath.relpath(paths[included], posixpath.dirname(paths[path]) or ".")
                return f'{match[1]}"{moved}"'
        return match[0]

    return INCLUDE.sub(replaced, text)


def _tensor_view(tensor: TensorView) -> dict[str, object]:
    return {
        "name": tensor.c_name,
        "c_type": C_TYPES.get(tensor.dtype, f"{tensor.dtype}_t"),
        "is_empty": tensor.size_bytes == 0,
        "alignment": tensor.alignment_bytes,
    }


# Libraries of C functions in an Arduino library.
#
# Arduino gives a library neither folders of headers nor macros nor flags, and compiles every C file
# of it. So includes are written relative to their files, macros stand at the top of C files, and C
# files that others include get another name. All else in them stays.

LIBRARY_INCLUDE = re.compile(
    r"^(?P<start>[ \t]*#[ \t]*include[ \t]*)"
    r'(?:"(?P<own>[^"\n]+)"|<(?P<other>[^>\n]+)>|(?P<macro>\w+))',
    re.MULTILINE,
)


def library_files(
    sources: Sources, files: Mapping[str, str | bytes], start: str, where: str
) -> dict[str, bytes]:
    """Return the files of libraries of C functions, by path below `src`."""
    found: dict[str, bytes] = {}
    for library in sources.libraries.values():
        paths = moved_paths(library)
        for path, target in paths.items():
            content = as_bytes(files[f"{SOURCE_FOLDER}/{path}"])
            if path not in library.licence:
                text = content.decode("utf-8", "surrogateescape")
                text = _with_found_includes(text, path, library, paths, where)
                if path in library.sources:
                    text = start + _optimizations(library) + text
                content = text.encode("utf-8", "surrogateescape")
            if found.setdefault(target, content) != content:
                raise LibraryError(f"two files would both be {target}", where=where)
    return found


def moved_paths(library: KernelLibrary) -> dict[str, str]:
    """Return the path of each file of a library below `src`, by its path in the export."""
    apart = set(included_c_files({"": library}))
    found = {}
    for path in (*library.sources, *library.included, *library.licence):
        plain = "/".join(map(plain_file_name, path.split("/")))
        found[path] = f"{plain}.inc" if path in apart else plain
    return found


def macros(sources: Sources) -> str:
    """Return the definitions of the libraries' macros, for the top of C files."""
    defines = (each for library in sources.libraries.values() for each in library.defines)
    return "".join(
        f"#ifndef {name}\n#define {name} {value if equals else 1}\n#endif\n"
        for name, equals, value in (define.partition("=") for define in defines)
    )


def _optimizations(library: KernelLibrary) -> str:
    """Return the flags that change code as GCC's pragmas; Arduino has no place for other flags."""
    flags = [flag[1:].removeprefix("f") for flag in library.flags if flag.startswith(("-f", "-O"))]
    if not flags:
        return ""
    lines = "".join(f'#pragma GCC optimize("{flag}")\n' for flag in flags)
    return f"#if defined(__GNUC__) && !defined(__clang__)\n{lines}#endif\n"


def _with_found_includes(
    text: str, path: str, library: KernelLibrary, paths: Mapping[str, str], where: str
) -> str:
    folder = posixpath.dirname(path)

    def replaced(match: re.Match[str]) -> str:
        if match["macro"] is not None:
            raise LibraryError(
                f"{path} includes a file that the macro {match['macro']} names, and Arduino has no "
                "folders of headers to look for it in",
                where=where,
                fix="build it with CMake or Zephyr",
            )
        name = match["own"] or match["other"]
        for place in ([folder] if match["own"] else []) + library.include:
            included = posixpath.normpath(posixpath.join(place, name))
            if included in paths:
                moved = posixpath.relpath(paths[included], posixpath.dirname(paths[path]))
                return f'{match["start"]}"{moved}"'
        return match[0]

    return LIBRARY_INCLUDE.sub(replaced, text)
