# SPDX-License-Identifier: Apache-2.0
"""Libraries of C functions in an Arduino library.

Arduino gives a library neither folders of headers nor macros nor flags, and compiles every C file
of it. So includes are written relative to their files, macros stand at the top of C files, and C
files that others include get another name. All else in them stays.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping

from umakit.errors import LibraryError
from umakit.files.staging import as_bytes
from umakit.library.kernel_libraries import included_c_files
from umakit.library.roles import SOURCE_FOLDER, Sources
from umakit.library.schema import KernelLibrary
from umakit.text.names import plain_file_name

INCLUDE = re.compile(
    r"^(?P<start>[ \t]*#[ \t]*include[ \t]*)"
    r'(?:"(?P<own>[^"\n]+)"|<(?P<other>[^>\n]+)>|(?P<macro>\w+))',
    re.MULTILINE,
)


def library_files(
    sources: Sources, files: Mapping[str, str | bytes], start: str, where: str
) -> dict[str, bytes]:
    """Return the files of libraries of C functions, by path below `src`.

    Args:
        sources: roles of the files of the export.
        files: files of the export, by path.
        start: what stands at the top of every C file.
        where: path that errors name.

    Raises:
        LibraryError: a macro names a file that is included, or two files get the same path.
    """
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
    """Return the text that defines the macros of libraries, for the top of C files."""
    return "".join(f"{line}\n" for line in _macro_lines(sources))


def _macro_lines(sources: Sources) -> Iterator[str]:
    for library in sources.libraries.values():
        for define in library.defines:
            name, equals, value = define.partition("=")
            yield f"#ifndef {name}"
            yield f"#define {name} {value if equals else 1}"
            yield "#endif"


def _optimizations(library: KernelLibrary) -> str:
    """Return the flags that change code as GCC's pragmas; Arduino has no place for the others."""
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

    return INCLUDE.sub(replaced, text)
