# SPDX-License-Identifier: Apache-2.0
"""What the formats of networks share: compiling, building with sanitizers, running, comparing."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from comparisons import SANITIZED

import umakit
from mutators.runner import alone
from umakit.devices import build
from umakit.frontend import Model, import_model
from umakit.quantized import quantize_to_integers

Arrays = Mapping[str, Any]
MOST_BYTES = 1 << 26
"""Maximum total size of inputs, outputs and arena of a network that is run."""

QUICK = ("-std=c99", "-O1", *SANITIZED[2:])


def read_network(path: Path, thorough: bool) -> None:
    """Import a network and make its quantized operators integers; compile it if that is wanted."""
    quantize_to_integers(import_model(path))
    if thorough:
        with tempfile.TemporaryDirectory() as folder:
            umakit.compile_model(path, [], Path(folder) / "library")


def inputs_of(model: Model) -> dict[str, Any]:
    """Random inputs of a network."""
    random, arrays = np.random.default_rng(1), {}
    for item in model.inputs:
        if item.dtype == "bool":
            arrays[item.name] = random.integers(0, 2, item.shape).astype(bool)
        elif item.dtype.startswith("float"):
            arrays[item.name] = random.normal(size=item.shape).astype(item.dtype)
        else:
            low = 0 if item.dtype.startswith("uint") or item.dtype in ("int32", "int64") else -100
            high = 3 if item.dtype in ("int32", "int64") else 100
            arrays[item.name] = random.integers(low, high, item.shape).astype(item.dtype)
    return arrays


def compare_network(
    path: Path, reference: Callable[[Path, Arrays, Model], Arrays], tolerance: float, steps: int
) -> str:
    """Run a network that was accepted, built with sanitizers, and its reference.

    Args:
        path: of the network.
        reference: (path, inputs by name, model) -> outputs by name.
        tolerance: of floats, relative to the largest value of an output.
        steps: by how much integers may differ.
    """
    model = import_model(path)
    sizes = [int(np.prod(item.shape)) * 8 for item in (*model.inputs, *model.outputs)]
    if sum(sizes) > MOST_BYTES:
        return ""
    arrays = inputs_of(model)
    expected = alone(lambda: reference(path, arrays, model))
    with tempfile.TemporaryDirectory() as folder:
        library = umakit.compile_model(path, [], Path(folder) / "library")
        if library.metadata["umakit"]["memory"]["arena_bytes"] > MOST_BYTES:
            return ""
        with mock.patch.object(build, "FLAGS", QUICK):
            try:
                got = umakit.run_library(library.path, arrays).outputs
            except umakit.errors.DeviceError as error:
                if error.status > 0:
                    return ""  # an index out of range, which a reference may take
                raise
    for name, wanted in expected.items():
        if name in got and (problem := _difference(got[name], wanted, tolerance, steps)):
            return f"output {name!r} {problem}"
    return "" if set(expected) == set(got) else f"outputs are {list(got)}, not {list(expected)}"


def _difference(got: Any, wanted: Any, tolerance: float, steps: int) -> str:
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        return f"is {got.dtype}{list(got.shape)}, not {wanted.dtype}{list(wanted.shape)}"
    one, other = got.astype(np.float64), wanted.astype(np.float64)
    if not np.isfinite(other).all() or not other.size:
        return ""
    allowed = tolerance * max(1.0, float(np.abs(other).max()))
    allowed = float(steps) if got.dtype.kind in "iu" else allowed
    largest = float(np.abs(one - other).max())
    return f"differs by {largest:g}" if not largest <= allowed else ""
