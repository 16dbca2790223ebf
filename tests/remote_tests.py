# SPDX-License-Identifier: Apache-2.0
"""What tests of machines elsewhere share: a network, and a process that has asked nobody yet."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from networks import Graph, save

import umakit
from umakit.devices import device
from umakit.devices.catalogue import asked_device

X = np.float32([1, -2, 3, 4])


def negative_library(folder: Path) -> Path:
    """y = -x, for four numbers; its input is `in.npz` of the folder."""
    graph = Graph("negative")
    graph.output(graph.node("Neg", graph.input("x", 4), name="y"))
    np.savez(folder / "in.npz", x=X)
    return Path(umakit.compile_model(save(graph.model(), folder), [], folder / "library").path)


def as_new_process(patch: pytest.MonkeyPatch) -> None:
    """Forget what was said, and what machines have answered."""
    patch.setattr(device, "_said", set())
    asked_device.cache_clear()
