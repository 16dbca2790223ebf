# SPDX-License-Identifier: Apache-2.0
"""Running test networks through the whole of umakit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import onnx
from networks import Array, assert_close, onnx_runtime, random_inputs, save

import umakit
from umakit.devices.run import RunResult
from umakit.library.export import Library
from umakit.partition.report import OperatorPlacement

VANILLA = "vanilla_accelerator"
DRIVER = "vanilla_accelerator_conv2dnchw"


@cache
def vanilla() -> umakit.UMABackend:
    """The backend under test, loaded once."""
    return umakit.find_backend(VANILLA)


@dataclass(frozen=True)
class Execution:
    """A network that was compiled for Vanilla and run once."""

    library: Library
    result: RunResult

    @property
    def placements(self) -> tuple[OperatorPlacement, ...]:
        """What ran where."""
        return self.library.report.placements

    @property
    def offloaded(self) -> list[str]:
        """Names of the nodes that the report says ran on the accelerator."""
        return [row.name for row in self.placements if row.where == VANILLA]

    @property
    def accelerator_layers(self) -> int:
        """How many calls of the program ran on the accelerator."""
        return sum(layer.where == VANILLA for layer in self.result.layers)

    @property
    def model_source(self) -> str:
        """The generated C of the network itself."""
        interface = self.library.metadata["umakit"]["interface"]
        folder = self.library.path / "codegen" / "host" / "src"
        return (folder / f"{interface}.c").read_text(encoding="utf-8")

    def reason(self, name: str) -> str:
        """Why a node stayed on the CPU."""
        row = next(row for row in self.placements if row.name == name)
        assert row.where == "cpu", f"{name} ran on {row.where}"
        return row.reason


def execute(
    model: onnx.ModelProto,
    folder: Path,
    inputs: Mapping[str, Array] | None = None,
    expected: Mapping[str, Array] | None = None,
    *,
    tolerance: float = 1e-5,
) -> Execution:
    """Run a network through Vanilla's C library and compare every output.

    Args:
        model: the network.
        folder: where the model file and the library are written.
        inputs: default: random ones.
        expected: outputs by name; default: ONNX Runtime's.
        tolerance: of floats, relative to the largest value of the output.
    """
    inputs = random_inputs(model) if inputs is None else inputs
    expected = onnx_runtime(model, inputs) if expected is None else expected
    path = save(model, folder)
    library = umakit.compile_model(path, [vanilla()], folder / "library")
    result = umakit.run_library(library.path, inputs, profile=True)
    assert list(result.outputs) == list(expected), f"outputs are {list(result.outputs)}"
    for name, wanted in expected.items():
        assert_close(result.outputs[name], wanted, tolerance)
    return Execution(library, result)
