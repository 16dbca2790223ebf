# SPDX-License-Identifier: Apache-2.0
"""Files of a difference: the inputs of its inference and its waveform."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt

from umakit.errors import InputError, OutputError
from umakit.files.npz import npz_bytes
from umakit.files.outputs import NPZ_RESULTS, WAVEFORM, FileKind, check_file, status_of
from umakit.files.staging import write_file

INPUTS, WAVE = "inputs.npz", "difference.fst"

KINDS: Mapping[str, FileKind] = {INPUTS: NPZ_RESULTS, WAVE: WAVEFORM}


@dataclass(frozen=True)
class CosimFiles:
    """The files of a difference.

    Attributes:
        folder: folder for the files.
        given: file of the given inputs; None for random inputs.
        read: other files and folders that the command reads.
        force: whether files that umakit did not write are replaced too.
    """

    folder: Path
    given: Path | None
    read: list[Path]
    force: bool

    def check(self) -> None:
        """Check that the files can be written, before anything is compiled.

        Raises:
            InputError: the folder is a file.
            OutputError: a file there is an input, or was not written by umakit.
        """
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
            if not self._is_given(name):
                check_file(self.folder / name, kind, self._inputs(), force=self.force)

    def write_inputs(self, arrays: Mapping[str, npt.NDArray[Any]]) -> str:
        """Write the inputs of an inference, unless they are the given inputs; return their path.

        Raises:
            OutputError: the file cannot be written.
        """
        path = self.folder / INPUTS
        if not self._is_given(INPUTS):
            self._write(INPUTS, npz_bytes(dict(arrays), NPZ_RESULTS.mark))
        return str(path)

    def write_wave(self, content: bytes) -> str:
        """Write a waveform in FST; return its path.

        Raises:
            OutputError: the file cannot be written.
        """
        self._write(WAVE, content)
        return str(self.folder / WAVE)

    def _write(self, name: str, content: bytes) -> None:
        path = self.folder / name
        write_file(path, content, KINDS[name], self._inputs(), force=self.force)

    def _inputs(self) -> list[Path]:
        return [*self.read, *([] if self.given is None else [self.given])]

    def _is_given(self, name: str) -> bool:
        """Whether a file is the given one, as when a difference is repeated."""
        path = self.folder / name
        return (
            name == INPUTS
            and self.given is not None
            and path.is_file()
            and path.samefile(self.given)
            and NPZ_RESULTS.wrote(path)
        )
