# SPDX-License-Identifier: Apache-2.0
"""Files of a difference: the inputs of its inference and its waveform."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy.typing as npt

from umakit.errors import InputError
from umakit.files.npz import npz_bytes
from umakit.files.outputs import NPZ_RESULTS, check_file, status_of
from umakit.files.staging import write_file

INPUTS, WAVE = "inputs.npz", "difference.fst"


def check_files(folder: Path, given: Path | None) -> None:
    """Check that the files of a difference can be written, before anything is compiled.

    Args:
        folder: the folder for them.
        given: the file of inputs that the user gave; None for random ones.

    Raises:
        InputError: the folder is a file.
        OutputError: a file there was not written by umakit, or is an input.
    """
    if status_of(folder) is not None and not folder.is_dir():
        raise InputError(
            "exists and is not a folder", where=str(folder), fix="choose another --output"
        )
    path = folder / INPUTS
    if given is None or not (path.exists() and path.samefile(given)):
        check_file(path, NPZ_RESULTS, [] if given is None else [given])


def write_inputs(folder: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> str:
    """Write the inputs of an inference; returns the path.

    Raises:
        OutputError: the file cannot be written.
    """
    path = folder / INPUTS
    folder.mkdir(parents=True, exist_ok=True)
    write_file(path, npz_bytes(dict(arrays), NPZ_RESULTS.mark), NPZ_RESULTS)
    return str(path)
