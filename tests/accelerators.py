# SPDX-License-Identifier: Apache-2.0
"""Accelerators of the tutorials with other hardware, and networks on them beside the CPU."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from umakit import compile_model, run_library
from umakit.backend import UMABackend
from umakit.example_networks import QuantizedNetwork
from umakit.library import Library
from umakit.registry import load_backend_folder
from umakit.run import RunResult
from umakit.scaffold import new_backend

SECTION = re.compile(r"(?m)^\[+(\w+)\]+$")


def accelerator_with(
    folder: Path, tutorial: str, values: Mapping[str, Any], name: str = "edited"
) -> UMABackend:
    """A new backend whose `accel.toml` has other values.

    Args:
        folder: to write it to.
        tutorial: that it is made from.
        values: by section and key, as `array.rows`.
        name: of the backend.
    """
    written = new_backend(name, folder, tutorial).folder
    path = written / "accel.toml"
    head, *parts = SECTION.split(path.read_text(encoding="utf-8"))
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    for place, value in values.items():
        section, key = place.split(".")
        text = str(value).lower() if isinstance(value, bool) else repr(value).replace("'", '"')
        edited, count = re.subn(rf"(?m)^{key} = ([^#\n]*)", f"{key} = {text} ", sections[section])
        assert count == 1, place
        sections[section] = edited
    body = [f"[[{name}]]{text}" if name == "memory" else f"[{name}]{text}"
            for name, text in sections.items()]  # fmt: skip
    path.write_text(head + "".join(body), encoding="utf-8")
    return load_backend_folder(written)


def same_as_the_cpu(
    network: QuantizedNetwork, backend: UMABackend, folder: Path
) -> tuple[Library, RunResult]:
    """A network's library and its run, whose outputs are those of the CPU's kernels."""
    model = network.model()
    inputs = dict(model.inputs)
    library = compile_model(model.module, [backend], folder / "library", name="net")
    accelerated = run_library(library.path, inputs, profile=True)
    plain = compile_model(model.module, [], folder / "cpu", name="net")
    for name, values in run_library(plain.path, inputs).outputs.items():
        np.testing.assert_array_equal(accelerated.outputs[name], values)
        assert len(np.unique(values)) > 3 or values.size < 8
    return library, accelerated
