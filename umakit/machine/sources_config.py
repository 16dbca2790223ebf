# SPDX-License-Identifier: Apache-2.0
"""The section `[sources]` of `accel.toml`: C files of a library for the backend.

The files are a vendor's and stay unchanged: folders, names and texts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from umakit.machine.config_faults import Section

FLAG = re.compile(
    r"-W(no-)?[a-z][a-z0-9+-]*(=[a-z0-9]+)?|-w|-pedantic|-O[0-3sgz]|-std=[a-z0-9+:]+"
    r"|-f(?!.*(?:plugin|dump|profile|use-ld|lto|sanitize))[a-z][a-z0-9-]*(=[a-z0-9-]+)?"
)
"""Flags that change how C is compiled, and name no file or program."""

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
VALUE = re.compile(r"[A-Za-z0-9_.+-]*")
INSTALLED = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_+.-]*")


def _check_inside(path: str) -> str:
    parts = path.split("/")
    if path.startswith("/") or ".." in parts or "\\" in path or "\0" in path or not path:
        raise ValueError(f"{path!r} is not a path below the folder root")
    return path


def _check_text(path: str) -> str:
    if "\0" in path or not path:
        raise ValueError(f"{path!r} is not a path")
    return path


def check_flag(flag: str) -> str:
    """Return a flag that changes the compilation of C; raise a ValueError for another flag."""
    if not FLAG.fullmatch(flag):
        raise ValueError(f"{flag!r} is none of -W..., -f..., -O..., -std=..., -w and -pedantic")
    return flag


def check_library(name: str) -> str:
    """Return the name of an installed library; raise a ValueError for another text."""
    if not INSTALLED.fullmatch(name):
        raise ValueError(f"{name!r} is not the name of a library, such as nova_nn for libnova_nn.a")
    return name


def _check_value(value: object) -> object:
    if isinstance(value, str) and not VALUE.fullmatch(value):
        raise ValueError(f"{value!r} is not a plain value of letters, digits and _ . + -")
    return value


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


Inside = Annotated[str, AfterValidator(_check_inside)]
Flag = Annotated[str, AfterValidator(check_flag)]
LibraryName = Annotated[str, AfterValidator(check_library)]
MacroName = Annotated[str, Field(pattern=rf"^{NAME.pattern}$")]
Value = Annotated[bool | int | str, AfterValidator(_check_value)]
Licence = Annotated[list[Annotated[str, AfterValidator(_check_text)]], BeforeValidator(_listed)]


def _macros(defines: Mapping[str, bool | int | str]) -> list[str]:
    given = {name: value for name, value in defines.items() if value is not False}
    return [name if value is True else f"{name}={value}" for name, value in given.items()]


class SourcesSection(Section):
    """C files of a library for the backend, or the name of a library that boards already have.

    Attributes:
        root: folder of the library, relative to the backend's folder, and possibly outside. All
            other paths are relative to `root` and stay inside.
        files: compiled C and C++ files, as globs such as `Source/**/*.c`.
        headers: headers that generated C includes.
        defines: macros by name; a number, a plain text, or `true` for a macro without a value.
        flags: compiler flags for these files alone.
        licence: copied files of the library's licence; they may lie outside of `root`.
        link: instead of `files`, names of linked libraries.
        cores: macros on top of `defines`, by the name of a core that networks may run on; `false`
            for a macro that the core lacks. The scratch of a call is the largest request of a
            function on all cores.
        reentrant: whether the functions keep no state, so that runs need not exclude each other.
    """

    root: Annotated[str, AfterValidator(_check_text)] = "."
    files: list[Inside] = Field(default=[])
    exclude: list[Inside] = Field(default=[])
    include: list[Inside] = Field(default=[])
    headers: list[Inside] = Field(default=[])
    defines: dict[MacroName, Value] = Field(default={})
    flags: list[Flag] = Field(default=[])
    licence: Licence = Field(default=[])
    link: list[LibraryName] = Field(default=[])
    cores: dict[Annotated[str, AfterValidator(_check_text)], dict[MacroName, Value]] = Field(
        default={}
    )
    reentrant: bool = False

    @property
    def macros(self) -> list[str]:
        """The macros as `NAME` or `NAME=value`, without macros that are `false`."""
        return _macros(self.defines)

    def macros_of(self, core: str) -> list[str]:
        """Return the macros of a core, in the form of `macros`."""
        return _macros({**self.defines, **self.cores[core]})

    @property
    def all_macros(self) -> list[str]:
        """The macros of the library and of all cores; a macro may have several values."""
        found = [self.macros, *map(self.macros_of, self.cores)]
        return list(dict.fromkeys(macro for macros in found for macro in macros))

    @model_validator(mode="after")
    def _files_or_link(self) -> Self:
        if bool(self.files) == bool(self.link):
            raise ValueError("needs either files or link")
        for key in ("exclude", "flags"):
            if self.link and getattr(self, key):
                raise ValueError(f"{key} is for files, and link has none")
        return self
