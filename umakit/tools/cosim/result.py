# SPDX-License-Identifier: Apache-2.0
"""The result of a co-simulation, and the files of a difference."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from umakit.devices.waveforms import MOST_WAVE_CYCLES
from umakit.errors import InputError, OutputError
from umakit.files.npz import npz_bytes
from umakit.files.outputs import NPZ_RESULTS, WAVEFORM, FileKind, status_of
from umakit.files.staging import GIVEN, DifferenceFolder
from umakit.tools.columns import view


@dataclass(frozen=True)
class CosimLayer:
    """A layer of the network.

    Attributes:
        number: position among the layers of the library.
        is_part: whether the RTL took part in the first tiles of the layer only.
        stays: whether the result stays in a scratchpad, so that only a later layer shows it.
        tiles: number of tiles with the RTL; None without the RTL.
        model_cycles, rtl_cycles: clock cycles of the model and of the RTL while the RTL took part;
            None if unknown.
        model_access_cycles, rtl_access_cycles: share of register accesses. The model waits for the
            RTL's bus beyond its own single cycle.
        compared_bytes: compared bytes of buffers, including bytes that the co-simulated tiles did
            not write; None without the RTL.
        register_reads, register_writes, waits: accesses of the driver that went to both; None
            without the RTL.
    """

    number: int
    name: str
    where: str
    checked: bool
    is_part: bool
    stays: bool
    tiles: int | None
    model_cycles: int | None
    rtl_cycles: int | None
    model_access_cycles: int | None
    rtl_access_cycles: int | None
    compared_bytes: int | None
    register_reads: int | None
    register_writes: int | None
    waits: int | None

    @property
    def difference_percent(self) -> float | None:
        """Deviation of the model's cycles, in percent of the RTL's."""
        if self.model_cycles is None or not self.rtl_cycles:
            return None
        return 100 * (self.model_cycles - self.rtl_cycles) / self.rtl_cycles

    def as_json(self) -> dict[str, Any]:
        percent = self.difference_percent
        return {
            **view(self, "layer:name where checked part:is_part in_scratchpad:stays tiles"),
            **view(self, "model_cycles rtl_cycles model_access_cycles rtl_access_cycles"),
            "difference_percent": None if percent is None else round(percent, 3),
            **view(self, "compared_bytes register_reads register_writes waits"),
        }


@dataclass(frozen=True)
class CosimDifference:
    """The first difference of model and RTL.

    Attributes:
        kind: `register`, `memory`, `interrupt`, `status` or `failure`.
        sentence: description with place, expected and found values.
        facts: all facts written by the comparison, see `sim/cosim/umakit_cosim.h`.
        wave: path of the waveform; empty if none was written.
        inputs: path of the inputs of the inference; empty if they were not written.
        wave_cycles: first and last cycle of a waveform; None if unknown.
    """

    layer: str
    backend: str
    kind: str
    sentence: str
    facts: Mapping[str, Any]
    inference: int
    wave: str = ""
    inputs: str = ""
    wave_cycles: tuple[int, int] | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            **self.facts,
            **view(self, "layer backend kind sentence inference"),
            "wave": self.wave or None,
            "wave_cycles": self.wave_cycles if self.wave else None,
            "inputs": self.inputs or None,
        }


@dataclass(frozen=True)
class CosimResult:
    """The result of a co-simulation.

    Attributes:
        layers: layers of the first inference, in order.
        equal_accesses: whether register accesses took equally long in the model and on the RTL's
            bus.
    """

    layers: tuple[CosimLayer, ...]
    difference: CosimDifference | None
    inferences: int
    seconds: float
    equal_accesses: bool = False
    notices: tuple[str, ...] = ()

    @property
    def rtl_cycles(self) -> int:
        """Simulated cycles of the RTL in the first inference."""
        return sum(layer.rtl_cycles or 0 for layer in self.layers)

    @property
    def cycles_per_second(self) -> float | None:
        """Simulated cycles of the RTL in a second; None if there were none."""
        cycles = self.rtl_cycles * max(1, self.inferences)
        return cycles / self.seconds if cycles and self.seconds > 0 else None

    def as_json(self) -> dict[str, Any]:
        return {
            "agrees": self.difference is None,
            "difference": None if self.difference is None else self.difference.as_json(),
            **view(self, "inferences layers"),
            "model_cycles": sum(layer.model_cycles or 0 for layer in self.layers),
            **view(self, "rtl_cycles seconds equal_accesses cycles_per_second notices"),
        }


WINDOW_CYCLES = 100
"""Cycles behind a difference that a waveform shows too."""

MOST_WINDOW = 50_000
"""Maximum length of a waveform in cycles; a longer layer's waveform is its end."""


def wave_cycles(facts: Mapping[str, Any], begin: int) -> tuple[int, int] | None:
    """Return the first and the last cycle of the waveform of a difference.

    The waveform of wrong memory ends after the first wrong write, that of a failure at the RTL's
    failure, and others where the difference was seen. The waveform of a missing interrupt extends
    to the cycle in which the co-simulation gave up, if near enough, to show where the design hangs.

    Args:
        begin: cycle in which the layer began.

    Returns:
        The cycles; None if the design's clock is unknown.
    """
    is_failure = facts.get("kind") == "failure"
    failed = re.search(r"in cycle (\d+)$", facts["sentence"]) if is_failure else None
    seen = facts["last_cycle"] if failed is None else int(failed[1])
    if seen is None or facts["first_cycle"] is None:
        return None
    last = int(facts.get("written_cycle", seen)) + WINDOW_CYCLES
    gave_up = facts.get("gave_up_cycle")
    if gave_up is None:
        return max(begin, last - MOST_WINDOW), last
    is_long = int(gave_up) - begin >= MOST_WAVE_CYCLES
    first = max(begin, int(facts["first_cycle"])) if is_long else begin
    return first, min(int(gave_up), first + MOST_WAVE_CYCLES - 1)


WAVE = "difference.fst"

KINDS: Mapping[str, FileKind] = {GIVEN: NPZ_RESULTS, WAVE: WAVEFORM}


class CosimFiles(DifferenceFolder):
    """The files of a difference."""

    def check(self) -> None:
        """Check that the files can be written, before anything is compiled."""
        if status_of(self.folder) is not None and not self.folder.is_dir():
            raise InputError(
                "exists and is not a folder", where=str(self.folder), fix="choose another --output"
            )
        backends = {path.parent for path in self.read if path.name == "accel.toml"}
        if any(self.folder.exists() and self.folder.samefile(folder) for folder in backends):
            raise OutputError(
                "is the folder of a backend", where=str(self.folder), fix="choose another --output"
            )
        for name, kind in KINDS.items():
            self.check_path(self.folder / name, kind)

    def write_inputs(self, arrays: Mapping[str, npt.NDArray[Any]]) -> str:
        """Write the inputs of an inference, unless they are the given inputs; return their path."""
        path = self.folder / GIVEN
        if not self.is_given(path):
            self.write_path(path, npz_bytes(dict(arrays), NPZ_RESULTS.mark), NPZ_RESULTS)
        return str(path)

    def write_wave(self, content: bytes) -> str:
        self.write_path(self.folder / WAVE, content, WAVEFORM)
        return str(self.folder / WAVE)
