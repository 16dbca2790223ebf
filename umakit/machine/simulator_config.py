# SPDX-License-Identifier: Apache-2.0
"""The section `[simulator]` of `accel.toml`: a backend's own simulator."""

from __future__ import annotations

import ast
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from umakit.errors import AcceleratorConfigError
from umakit.files.compiled_files import is_compiled
from umakit.machine.config_faults import Section, line_of_value

C_SUFFIXES = (".c",)
CXX_SUFFIXES = (".cc", ".cpp", ".cxx", ".c++")
HEADER_SUFFIXES = (".h", ".hh", ".hpp", ".hxx", ".h++", ".inc", ".inl", ".ipp", ".tpp", ".def")

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_+.-]*")
"""Names of files and folders: plain ones, because CMake and compilers have to take them."""

FIGURE = re.compile(r"\{([a-z][a-z0-9_]*(?:\.[a-z_]+)?)\}")
"""A figure of the file in the value of a macro: `{lanes}`, `{data.size}`."""

FIGURE_OF_PROGRAM = re.compile(rf"(?<!\$){FIGURE.pattern}")
"""The same in a word of `program`; `${model}` is a variable of a shell."""

DEFINE = re.compile(rf"[A-Za-z_][A-Za-z0-9_]*(=([A-Za-z0-9_.+-]|{FIGURE.pattern})*)?")
INSTALLED = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_+.-]*")


def _check_path(path: str) -> str:
    parts = path.split("/")
    if path.startswith("/") or ".." in parts:
        raise ValueError(f"{path} is outside of the backend's folder")
    if not all(map(NAME.fullmatch, parts)):
        raise ValueError(f"{path!r} is not a path of letters, digits and _ + - . below the folder")
    return path


def _check_folder(path: str) -> str:
    return path if path == "." else _check_path(path)


def _check_define(define: str) -> str:
    if not DEFINE.fullmatch(define):
        raise ValueError(f"{define!r} is not NAME or NAME=value with a plain value")
    return define


def _check_library(name: str) -> str:
    if is_compiled(name):
        return _check_path(name)
    if not INSTALLED.fullmatch(name):
        raise ValueError(
            f"{name!r} is neither the name of a library nor a file ending in .a, .o or .so"
        )
    return name


def _check_word(word: str) -> str:
    if "\0" in word or not word:
        raise ValueError(f"{word!r} cannot be a program or an argument")
    return word


Word = Annotated[str, AfterValidator(_check_word)]
FilePath = Annotated[str, AfterValidator(_check_path)]
FolderPath = Annotated[str, AfterValidator(_check_folder)]
Define = Annotated[str, AfterValidator(_check_define)]
LibraryName = Annotated[str, AfterValidator(_check_library)]


class SimulatorSection(Section):
    """A simulator of the backend's own, for `[device] simulator = "own"`.

    All paths are relative to the backend's folder and stay inside the folder.

    Attributes:
        sources: C and C++ files; one file defines `NAME_simulator` of `umakit/own_simulator.h`.
        include: folders of headers for the compiler.
        defines: macros, as `NAME` or `NAME=value`; `{lanes}` in a value stands for the figure
            `lanes` of `[machine]`, `{data.size}` for the size of the memory `data`.
        libraries: names of installed libraries, such as `pthread`, and `.a`, `.o` or `.so`
            files.
        program: instead of sources, a program with arguments that runs in the backend's folder and
            answers requests (docs/simulator-protocol.md); figures as in `defines`.
        timeout: seconds for a program's answer to a request, for a function of linked sources on
            the host to return, and for the programs of `uma doctor` that run linked sources.
    """

    sources: list[FilePath] = Field(default=[])
    include: list[FolderPath] = Field(default=[])
    defines: list[Define] = Field(default=[])
    libraries: list[LibraryName] = Field(default=[])
    program: list[Word] = Field(default=[], max_length=1000)
    timeout: float = Field(default=60.0, ge=0.001, le=1_000_000.0)

    def filled(self, figures: Mapping[str, int]) -> Self:
        """Return the section with figures instead of their names.

        Raises:
            ValueError: the name of a figure is unknown; names the key.
        """

        def figure(key: str, found: re.Match[str]) -> str:
            name = found[1]
            if name not in figures:
                names = ", ".join(sorted(figures)) or "none"
                raise ValueError(f"simulator.{key}: there is no figure {name}; figures are {names}")
            return str(figures[name])

        defines = [FIGURE.sub(partial(figure, "defines"), each) for each in self.defines]
        program = [FIGURE_OF_PROGRAM.sub(partial(figure, "program"), each) for each in self.program]
        return self.model_copy(update={"defines": defines, "program": program})

    @model_validator(mode="after")
    def _sources_or_program(self) -> Self:
        if self.sources and self.program:
            raise ValueError("has sources and a program, and can have one of them only")
        if not self.sources and not self.program and not library_files(self):
            raise ValueError("needs sources or a program")
        for key in ("include", "defines", "libraries"):
            if self.program and getattr(self, key):
                raise ValueError(f"{key} is for sources, not for a program")
        return self

    @model_validator(mode="after")
    def _objects(self) -> Self:
        objects: dict[str, str] = {}
        for source in self.sources:
            path = PurePosixPath(source)
            if is_compiled(source):
                raise ValueError(f"{source} is compiled already: name it in libraries")
            if path.suffix not in (*C_SUFFIXES, *CXX_SUFFIXES):
                raise ValueError(f"{source} is not a C or C++ file (.c, .cc, .cpp, .cxx)")
            other = objects.setdefault(path.stem, source)
            if other is not source:
                raise ValueError(f"{other} and {source} would both become {path.stem}.o")
        return self


def simulator_files(section: SimulatorSection, folder: Path) -> dict[str, Path]:
    """Return the files of a simulator by their path below the backend's folder.

    The files are sources, libraries that are files, all headers of the include folders, and headers
    next to sources.
    """
    files: dict[str, Path] = {}
    _check_program(section, folder)
    for name in (*section.sources, *library_files(section)):
        if not (folder / name).is_file():
            raise AcceleratorConfigError(
                f"simulator: there is no file {name} in the backend's folder",
                where=_place(folder, "sources" if name in section.sources else "libraries", name),
                fix="add it, or correct its path in [simulator]",
            )
        files[name] = folder / name
    for include in section.include:
        if not (folder / include).is_dir():
            raise AcceleratorConfigError(
                f"simulator.include: there is no folder {include} in the backend's folder",
                where=_place(folder, "include", include),
                fix="add it, or correct its path in [simulator]",
            )
        files |= {name: folder / name for name in _headers(folder, include, "**/*")}
    for parent in {str(PurePosixPath(source).parent) for source in section.sources}:
        files |= {name: folder / name for name in _headers(folder, parent, "*")}
    return dict(sorted(files.items()))


def _place(folder: Path, key: str, value: str) -> str:
    return line_of_value(folder / "accel.toml", "simulator", key, value)


def _check_program(section: SimulatorSection, folder: Path) -> None:
    name = next(iter(section.program), "")
    if "/" in name and not (folder / name).is_file():
        raise AcceleratorConfigError(
            f"simulator.program: there is no file {name} in the backend's folder",
            where=_place(folder, "program", name),
            fix="build it, or correct its path in [simulator]",
        )
    if "/" in name and not os.access(folder / name, os.X_OK):
        raise AcceleratorConfigError(
            f"simulator.program: {name} is not executable",
            where=_place(folder, "program", name),
            fix=f"run chmod +x {name}, or name its interpreter first",
        )
    if name and "/" not in name and shutil.which(name) is None:
        raise AcceleratorConfigError(
            f"simulator.program: {name} is not installed",
            where=_place(folder, "program", name),
            fix=f"install it; a file of the backend's folder is written ./{name}",
        )


def library_files(section: SimulatorSection) -> list[str]:
    """Return the libraries that are files and no names of installed libraries."""
    return [name for name in section.libraries if is_compiled(name)]


def _headers(folder: Path, below: str, form: str) -> Iterator[str]:
    for path in sorted((folder / below).glob(form)):
        name = path.relative_to(folder)
        hidden = any(part.startswith(".") for part in name.parts)  # such as .umakit of `uma new`
        if path.suffix in HEADER_SUFFIXES and path.is_file() and not hidden:
            yield name.as_posix()


def program_files(program: Sequence[str], folder: Path) -> dict[str, Path]:
    """Return the files of a program by their path below the backend's folder.

    The files are the words of the command that name files of the folder, also behind `=`, the
    module behind `-m`, and the modules of the folder that Python files import, in functions too.
    Files that the program opens or starts in another way are not found.
    """
    inside = folder.resolve()
    found: dict[str, Path] = {}
    todo = [path for word in program for path in _named(word, inside)]
    for before, word in pairwise(program):
        if before == "-m":
            todo += _modules(word, inside)
            todo += _modules(f"{word}.__main__", inside)
    roots = {inside, *(path.parent for path in todo)}
    while todo:
        path = todo.pop().resolve()
        if not path.is_relative_to(inside) or path.relative_to(inside).as_posix() in found:
            continue
        found[path.relative_to(inside).as_posix()] = path
        if path.suffix == ".py":
            todo += _imported(path, roots)
    return dict(sorted(found.items()))


def _named(word: str, folder: Path) -> Iterator[Path]:
    """Yield the files of a folder that a word of the command names, directly or behind `=`."""
    for name in {word, word.partition("=")[2]} - {""}:
        try:
            if (folder / name).is_file():
                yield folder / name
        except OSError:  # too long for a name, for example
            continue


def _modules(name: str, folder: Path) -> Iterator[Path]:
    """Yield the files of a folder that Python reads for a module: files of packages and the
    module's own."""
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        path = folder.joinpath(*parts[:count])
        for file in (path.with_name(f"{path.name}.py"), path / "__init__.py"):
            if file.is_file():
                yield file


def _imported(path: Path, roots: set[Path]) -> Iterator[Path]:
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return  # the program says so itself
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                for root in roots:
                    yield from _modules(alias.name, root)
        elif isinstance(node, ast.ImportFrom):
            places = {path.parents[node.level - 1]} if node.level else roots
            for place in places:
                for alias in node.names:
                    yield from _modules(".".join(filter(None, (node.module, alias.name))), place)
