# SPDX-License-Identifier: Apache-2.0
"""Devices described by TOML files.

umakit's files are in `umakit/devices/boards`; users write further files.
"""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from umakit.devices.addresses import FORMS, is_address, parse_address
from umakit.devices.device import (
    DEFAULT_TIMEOUT,
    FILES,
    SERIAL,
    SUPPORT,
    Device,
    filled,
    placeholders_in,
)
from umakit.devices.serial_run import PSEUDO, RATES
from umakit.errors import InputError
from umakit.machine.config_faults import read_described
from umakit.text.spelling import closest

FOLDER = Path(__file__).with_name("boards")

PLACES = ("support", "here")
"""Placeholders of folders: umakit's files for boards, and the folder of the TOML file."""

COMMAND_PLACES = (*PLACES, "program", "arguments", "semihosting", "folder", "port")
"""Placeholders of the commands `load` and `run`."""

RESERVED = ("host", "rtl")

Word = Annotated[str, Field(min_length=1, max_length=4000, pattern=r"^[^\x00]*$")]


class Board(BaseModel):
    """The content of a device's TOML file; docs/boards.md explains the keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    base: str = ""
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=60)
    description: str = Field(default="", max_length=200)
    compiler: str = Field(default="", max_length=4000, pattern=r"^[^\x00]*$")
    flags: tuple[Word, ...] = ()
    size: Word = "size"
    packages: tuple[Word, ...] = ()
    linking: tuple[Word, ...] = ()
    sources: tuple[Word, ...] = ()
    linker_script: str = Field(default="", max_length=4000)
    replaced: tuple[Word, ...] = ()
    load: tuple[Word, ...] = ()
    run: tuple[Word, ...] = ()
    output: Literal["files", "semihosting", "serial"] = "files"
    port: str = Field(default="", max_length=4000)
    baud: int = 115_200
    remote: str = Field(default="", max_length=4000)
    ssh_options: tuple[Word, ...] = ()
    timeout_seconds: float = Field(default=DEFAULT_TIMEOUT, gt=0, le=10_000_000)
    has_time: bool | None = None
    counts_instructions: bool = False
    processors: tuple[Word, ...] = ()
    features: tuple[Word, ...] | None = None

    @field_validator(
        "compiler", "flags", "size", "linking", "sources", "linker_script", "replaced", "load",
        "run", "port", "ssh_options",
    )  # fmt: skip
    @classmethod
    def _known_placeholders(
        cls, value: str | tuple[str, ...], info: ValidationInfo
    ) -> str | tuple[str, ...]:
        known = COMMAND_PLACES if info.field_name in ("load", "run") else PLACES
        for name in placeholders_in([value] if isinstance(value, str) else value):
            if name not in known:
                close = closest(name, known)
                names = ", ".join(f"{{{each}}}" for each in known)
                mend = f"write {{{close}}}" if close else f"there are {names}"
                raise ValueError(f"there is no placeholder {{{name}}} here; {mend}")
        return value

    @model_validator(mode="after")
    def _complete(self) -> Board:
        self._check_remote()
        is_serial, asks = self.output == SERIAL, f'which output = "{self.output}" needs'
        if self.output != FILES and not self.linker_script:
            raise ValueError(f"linker_script: is missing, {asks}")
        if not self.run and self.load and not is_serial:
            raise ValueError("run: is missing, which load needs")
        if not self.run and not self.load and self.output != FILES:
            raise ValueError(f"run: is missing, {asks}")
        used = placeholders_in([*self.load, *self.run])
        if (self.run or self.load) and "program" not in used:
            raise ValueError("run: neither run nor load has {program}")
        if self.run and not is_serial and not {"arguments", "semihosting"} & set(used):
            raise ValueError("run: the program gets no arguments; add {arguments} or {semihosting}")
        self._check_line(used)
        return self

    def _check_remote(self) -> None:
        """Refuse an address combined with `load` or `run`, and a machine without a compiler."""
        if not self.remote:
            if not self.compiler:
                raise ValueError("compiler: is missing; set it, or base")
            if self.ssh_options:
                raise ValueError("ssh_options: only an address (remote) has options of ssh")
            return
        if not is_address(self.remote):
            raise ValueError(f"remote: is no address; write {' or '.join(FORMS.values())}")
        try:
            parse_address(self.remote)
        except InputError as error:
            raise ValueError(f"remote: {error.what}; {error.fix}") from None
        if self.output != FILES:
            raise ValueError('output: a machine with an address (remote) has output = "files"')

    def _check_line(self, used: list[str]) -> None:
        if self.output != SERIAL:
            if self.port:
                raise ValueError('port: only output = "serial" has a port')
            return
        if not self.port:
            raise ValueError('port: is missing, which output = "serial" needs')
        if self.port == PSEUDO and "port" not in placeholders_in(self.run):
            raise ValueError(f'port: run has no {{port}}, which port = "{PSEUDO}" needs')
        if self.baud not in RATES:
            raise ValueError(f"baud: {self.baud} is no rate of a port")

    def device(self, path: Path, *, is_own: bool) -> Device:
        """Return the device."""
        here = Path(os.path.realpath(path)).parent
        places = {"support": str(SUPPORT), "here": str(here)}

        def file(text: str) -> Path:
            return Path(os.path.normpath(here / filled([text], places)[0]))

        def command(words: tuple[str, ...]) -> tuple[str, ...]:
            found = filled(words, places)
            if found and os.sep in found[0]:  # names without slash stay for $PATH
                found[0] = os.path.normpath(here / found[0])
            return tuple(found)

        return Device(
            name=self.name,
            description=self.description or f"described by {path.name}",
            command=command((self.compiler,))[0] if self.compiler else "",
            architecture=tuple(filled(self.flags, places)),
            size=command((self.size,))[0],
            packages=self.packages,
            load=command(self.load) if not self.remote else (),
            run=command(self.run) if not self.remote else (),
            linking=tuple(filled(self.linking, places)),
            output=self.output,
            port=self.port if self.port in ("", PSEUDO) else str(file(self.port)),
            baud=self.baud,
            sources=tuple(map(file, self.sources)),
            linker_script=file(self.linker_script) if self.linker_script else None,
            replaced=tuple(map(file, self.replaced)),
            has_time=bool(self.remote) if self.has_time is None else self.has_time,
            counts_instructions=self.counts_instructions,
            timeout_seconds=self.timeout_seconds,
            processors=self.processors,
            features=self.features,
            own_file=path if is_own else None,
            remote=parse_address(self.remote) if self.remote else None,
            ssh_options=tuple(filled(self.ssh_options, places)),
        )


@cache
def board_names() -> tuple[str, ...]:
    """Return the names of umakit's devices with TOML files, sorted naturally."""
    names = (path.stem for path in FOLDER.glob("*.toml"))
    return tuple(sorted(names, key=_in_order))


def _in_order(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", name)]


def read_board(path: Path, *, is_own: bool = True) -> Device:
    """Return the device described by a TOML file."""
    bases = {name: FOLDER / f"{name}.toml" for name in board_names()}
    board = read_described(path, Board, bases, "device", defaults={"name": path.stem})
    if is_own and board.name in (*RESERVED, *bases):
        raise InputError(
            f"name: {board.name} is a device of umakit", where=str(path), fix="choose another name"
        )
    return board.device(path, is_own=is_own)
