# SPDX-License-Identifier: Apache-2.0
"""Waveforms of designs, in FST files. Imports no TVM.

A program built with waveforms (`design_objects`) writes one according to environment variables, see
`templates/rtl/design_device.c.j2`. The file's time is defined in
`sim/rtl/include/umakit/rtl_trace.h`: the clock is low at twice the number of a cycle, and rises one
later.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from umakit.devices.designs import Design
from umakit.errors import InputError
from umakit.files.outputs import WAVEFORM, check_file, check_parent
from umakit.files.staging import write_file
from umakit.text.rendering import render
from umakit.text.spelling import closest

MOST_WAVE_CYCLES = 1_000_000
"""Maximum length of a waveform in cycles; later cycles are not written."""

HEADER = struct.Struct(">BQQQ")
"""Begin of an FST file: type and length of its header, first and last time."""


def no_design() -> InputError:
    """Return the error of a waveform without a running design."""
    return InputError(
        "--wave is of a design, and none runs without --rtl",
        fix="add --rtl, which runs the design of [rtl] in accel.toml",
    )


@dataclass(frozen=True)
class Wave:
    """The scope of a waveform.

    Attributes:
        layer: number of the layer, in its first run; None for all cycles since the reset.
        name: name of the layer; empty for all layers.
        is_alone: whether the run ends with the waveform and has no other result.
    """

    backend: str
    layer: int | None = None
    name: str = ""
    is_alone: bool = False
    most_cycles: int = MOST_WAVE_CYCLES

    def environment(self, path: Path) -> dict[str, str]:
        """Return the environment variables that make a program write the waveform to a file."""
        found = {
            "UMAKIT_RTL_WAVE": str(path.absolute()),
            "UMAKIT_RTL_WAVE_BACKEND": self.backend,
            "UMAKIT_RTL_WAVE_CYCLES": str(self.most_cycles),
        }
        if self.layer is not None:
            found["UMAKIT_RTL_WAVE_LAYER"] = str(self.layer)
        if self.is_alone:
            found["UMAKIT_RTL_WAVE_ALONE"] = "1"
        return found


@dataclass(frozen=True)
class WrittenWave:
    """A waveform that was written.

    Attributes:
        first, last: first and last cycle of the design's clock; None if the file does not say.
    """

    path: Path
    wave: Wave
    first: int | None
    last: int | None
    size: int

    @property
    def is_cut(self) -> bool:
        """Whether the waveform was cut at the maximum number of cycles."""
        if self.first is None or self.last is None:
            return False
        return self.last - self.first + 1 >= self.wave.most_cycles

    @property
    def sentence(self) -> str:
        """A sentence about the file, for the user."""
        layer = f" in layer {self.wave.name}" if self.wave.name else ""
        cycles = ""
        if self.first is not None and self.last is not None:
            cycles = f", cycles {self.first:,} to {self.last:,}"
        text = f"Wrote {self.path}: waveform of {self.wave.backend}{layer}{cycles}, {self.size:,} B"
        return f"{text}; no more cycles are written" if self.is_cut else text

    def as_json(self) -> dict[str, Any]:
        """Return the waveform as JSON."""
        return {
            "file": str(self.path),
            "backend": self.wave.backend,
            "layer": self.wave.name or None,
            "first_cycle": self.first,
            "last_cycle": self.last,
            "cut": self.is_cut,
            "bytes": self.size,
        }


@dataclass
class WaveFile:
    """The file of a waveform that a user requested.

    Attributes:
        path: the file, which replaces an earlier waveform.
        layer: name of the traced layer, in its first run; None for the whole run.
        force: whether a file of another program is replaced too.
        written: the written waveform; None if none was written yet.
    """

    path: Path
    layer: str | None = None
    force: bool = False
    inputs: list[Path] = field(default_factory=list)
    written: WrittenWave | None = None
    why: str = "the design had no cycle there"

    @property
    def sentence(self) -> str:
        """A sentence about the written file, or the reason for its absence."""
        if self.written is not None:
            return self.written.sentence
        return f"{self.path} was not written: {self.why}"

    def check(self) -> None:
        """Refuse the file before anything is compiled."""
        check_parent(self.path)
        check_file(self.path, WAVEFORM, self.inputs, force=self.force)

    def keep(self, found: Path, wave: Wave) -> None:
        """Keep a program's temporary waveform file, if one was written."""
        content = found.read_bytes() if found.exists() else b""
        if not content:
            return
        write_file(self.path, content, WAVEFORM, self.inputs, force=self.force)
        first, last = cycles_of(content)
        self.written = WrittenWave(self.path, wave, first, last, len(content))


@contextlib.contextmanager
def written_wave(
    file: WaveFile | None, wave: Wave | None, folder: Path
) -> Iterator[Mapping[str, str]]:
    """Yield the environment of a program that writes a waveform; keep the waveform afterwards.

    The waveform is kept also if the block raises an exception.
    """
    if file is None or wave is None:
        yield {}
        return
    path = folder / "wave.fst"
    try:
        yield wave.environment(path)
    finally:
        file.keep(path, wave)


def cycles_of(content: bytes) -> tuple[int | None, int | None]:
    """Return the first and the last cycle of a waveform; None if it is incomplete."""
    if len(content) < HEADER.size:
        return None, None
    kind, _, first, last = HEADER.unpack_from(content)
    return (first // 2, last // 2) if kind == 0 and first <= last else (None, None)


def wave_of(description: Mapping[str, Any], designs: Sequence[Design], layer: str | None) -> Wave:
    """Return the scope of a run's waveform."""
    if not designs:
        raise no_design()
    answering = {design.backend for design in designs}
    there = {
        each["name"]: Wave(each["where"], number, each["name"])
        for number, each in reversed(list(enumerate(description["layers"])))
        if each["where"] in answering
    }
    if layer is not None:
        if layer not in there:
            near = closest(layer, list(there))
            names = ", ".join(reversed(there)) or "none"
            raise InputError(
                f"no layer {layer} runs on a design of [rtl]",
                fix=f"write {near}" if near else f"the layers are {names}",
            )
        return there[layer]
    backends = sorted({each.backend for each in there.values()})
    if not backends:
        raise InputError("no layer of the library runs on a design of [rtl]")
    if len(backends) > 1:
        raise InputError(
            f"the designs of {' and '.join(backends)} run, and a waveform is of one",
            fix="choose a layer with --wave-layer",
        )
    return Wave(backends[0])


def traced_main(main: Path, interface: str, backends: Iterable[str], folder: Path) -> Path:
    """Write the main program of a library with waveforms, and return its path."""
    path = folder / "wave_main.c"
    text = render(
        "rtl/wave_main.c.j2",
        interface=interface,
        main=str(main.absolute()),
        designs=sorted(backends),
    )
    path.write_text(text, encoding="utf-8")
    return path
