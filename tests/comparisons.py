# SPDX-License-Identifier: Apache-2.0
"""What comparisons with other implementations share: how much they try, and TVM's LLVM build."""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from hypothesis import HealthCheck, Phase, settings

from umakit.devices import build
from umakit.frontend import import_model
from umakit.testing.harness import llvm_runner

Array = npt.NDArray[Any]
T = TypeVar("T")

LINKER = ("-fuse-ld=gold",) if shutil.which("ld.gold") else ()
"""Flags of a linker that reads the sanitizers' libraries in a third of the time, where it is."""

SANITIZED = (*build.FLAGS, "-fsanitize=address,undefined", "-fno-sanitize-recover=all", *LINKER)
"""Flags with which undefined behaviour and any access outside an array end the program.

Optimizing would take most of the time and hide some of it; `make soak` optimizes all the same.
"""


def inferences(default: int) -> int:
    """How many inputs to compare a network with; `make soak` sets more."""
    return int(os.environ.get("UMAKIT_INFERENCES", default))


def examples(default: int, *, phases: Sequence[Phase] = tuple(Phase)) -> settings:
    """Hypothesis's settings for examples that compile C: always the same ones.

    `make soak` draws others, as many as it says.
    """
    wanted = os.environ.get("UMAKIT_EXAMPLES")
    return settings(
        max_examples=int(wanted or default),
        deadline=None,
        derandomize=wanted is None,
        suppress_health_check=list(HealthCheck),
        phases=list(phases),
    )


def sample(inputs: Array, default: int) -> Array:
    """Some of the inputs, evenly spread: as many as `inferences(default)`, or all there are."""
    return inputs[:: max(1, len(inputs) // inferences(default))]


def some(values: Iterable[T], every: int) -> list[T]:
    """One of `every` parameters of a test; all of them in `make soak`, for tests marked `soak`."""
    return list(values)[:: 1 if "UMAKIT_EXAMPLES" in os.environ else every]


def llvm_takes_part(model: bytes) -> bool:
    """Whether a model that was drawn is compared with TVM's LLVM build too, which takes as long as
    all the rest: one of three, in `make soak` all."""
    return "UMAKIT_EXAMPLES" in os.environ or zlib.crc32(model) % 3 == 0


def llvm_outputs(path: Path, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Outputs of TVM's LLVM build of a model file; one row for each inference."""
    run = llvm_runner(import_model(path))
    count = len(next(iter(inputs.values())))
    results = [run({name: rows[i] for name, rows in inputs.items()}) for i in range(count)]
    return {name: np.stack([result[name] for result in results]) for name in results[0]}
