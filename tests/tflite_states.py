# SPDX-License-Identifier: Apache-2.0
"""Layers with variable tensors, compared with TensorFlow Lite Micro over several inferences.

TensorFlow Lite Micro keeps the states; for the library the test passes them on.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from unittest import mock

import numpy as np
from comparisons import SANITIZED
from tflite_networks import Array, micro_interpreter

import umakit
from umakit.devices import build
from umakit.frontend import import_model
from umakit.frontend.model import Model

INFERENCES = 2
"""With states of the one before, then as many after a reset."""


def assert_states_equal_micro(content: bytes, seed: int, *, tolerance: float = 0.0) -> None:
    """Outputs of a library equal those of TensorFlow Lite Micro, with states passed on.

    Args:
        content: of a file.
        seed: of random inputs.
        tolerance: of float results, relative and absolute; with 0 the C uses no floating point.
    """
    random = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "layers.tflite"
        path.write_bytes(content)
        model = import_model(path)
        states = [item for item in model.inputs if item.next_state]
        data = [item for item in model.inputs if not item.next_state]
        rounds = [
            {item.name: drawn(random, item.shape, item.dtype) for item in data}
            for _ in range(2 * INFERENCES)
        ]
        library = umakit.compile_model(path, [], Path(folder) / "library")
        expected = micro_outputs(content, rounds, len(model.outputs) - len(states))
        with mock.patch.object(build, "FLAGS", SANITIZED):
            found = passed_on(library.path, model, rounds)
        sources = list((library.path / "codegen/host").rglob("*.[ch]"))
        text = "".join(source.read_text(encoding="utf-8") for source in sources)
        assert sources and (tolerance or not re.search(r"\b(float|double)\b", text))
    for ours, theirs in zip(found, expected, strict=True):
        for value, wanted in zip(ours, theirs, strict=True):
            assert (value.dtype, value.shape) == (wanted.dtype, wanted.shape)
            if value.dtype == np.float32:
                np.testing.assert_allclose(value, wanted, rtol=tolerance, atol=tolerance)
            else:
                np.testing.assert_array_equal(value, wanted)


def drawn(random: np.random.Generator, shape: Sequence[int], dtype: str) -> Array:
    """Values of the whole range of integers, or reals around 0."""
    if dtype == "float32":
        return random.normal(0, 1.5, shape).astype(np.float32)
    limits = np.iinfo(dtype)
    return random.integers(limits.min, limits.max + 1, shape).astype(dtype)


def micro_outputs(
    content: bytes, rounds: Sequence[Mapping[str, Array]], outputs: int
) -> list[list[Array]]:
    """Outputs of one interpreter, which is reset in the middle."""
    interpreter, found = micro_interpreter(content), []
    for number, inputs in enumerate(rounds):
        if number == INFERENCES:
            interpreter.reset()
        for place, values in enumerate(inputs.values()):
            interpreter.set_input(values, place)
        interpreter.invoke()
        found.append([np.array(interpreter.get_output(place)) for place in range(outputs)])
    return found


def passed_on(
    library: Path, model: Model, rounds: Sequence[Mapping[str, Array]]
) -> list[list[Array]]:
    """Outputs of a library that gets its states back, and first ones in the middle again."""
    states = [item for item in model.inputs if item.next_state]
    first = {
        item.name: np.full(
            item.shape, item.quantization.zero_point if item.quantization else 0, item.dtype
        )
        for item in states
    }
    held, found = first, []
    for number, inputs in enumerate(rounds):
        held = first if number == INFERENCES else held
        outputs = umakit.run_library(library, {**inputs, **held}).outputs
        held = {item.name: outputs[item.next_state] for item in states}
        found.append([outputs[item.name] for item in model.outputs[: -len(states)]])
    return found
