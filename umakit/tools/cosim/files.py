# SPDX-License-Identifier: Apache-2.0
"""Files of a difference: the inputs of its inference and its waveform."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from umakit.errors import InputError, OutputError
from umakit.files.npz import npz_bytes
from umakit.files.outputs import NPZ_RESULTS, WAVEFORM, FileKind, status_of
from umakit.files.staging import GIVEN, DifferenceFolder

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
