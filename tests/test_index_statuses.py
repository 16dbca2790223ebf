# SPDX-License-Identifier: Apache-2.0
"""Indices at run time in PyTorch's and in quantized networks, and what a run that stops at one
leaves in memory. PyTorch and ONNX Runtime say what is right."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from comparisons import SANITIZED
from networks import Graph, onnx_runtime, save
from onnx import TensorProto, helper
from qdq import Qdq, runtime

import umakit
from umakit.devices import build
from umakit.devices.build import compile_c, library_sources
from umakit.errors import DeviceError

Array = npt.NDArray[Any]
BEYOND = (2**31, -(2**31) - 1, 2**32, 2**63 - 1, -(2**63))
"""Cast to 32 bits, some of them are inside of every tensor."""


def run(library: Path, inputs: Mapping[str, Array]) -> dict[str, Array]:
    with mock.patch.object(build, "FLAGS", (*SANITIZED, "-O0")):
        return umakit.run_library(library, dict(inputs)).outputs


def refused(library: Path, inputs: Mapping[str, Array]) -> str:
    """What a run says that stops at an index."""
    with pytest.raises(DeviceError, match="an index is out of range") as error:
        run(library, inputs)
    return str(error.value)


def test_torch_indices_are_inside_or_named(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="needs torch: pip install 'umakit[torch]'")

    class Lookups(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.words = torch.nn.Embedding(7, 3)

        def forward(self, x: Any, w: Any, s: Any, e: Any) -> Any:
            return self.words(w), torch.index_select(x, 1, s), x[:, e]

    model = Lookups().eval()
    x = np.random.default_rng(0).standard_normal((2, 5, 3)).astype("float32")
    right = {"x": x, "w": np.array([[6, 0], [3, 3]]), "s": np.array([4, 0, 2], "int32"),
             "e": np.array([[-5, 4], [0, -1]])}  # fmt: skip
    given = tuple(torch.from_numpy(array) for array in right.values())
    library = umakit.compile_model(torch.export.export(model, given), [], tmp_path / "library").path
    with torch.no_grad():
        expected = model(*given)
    for found, wanted in zip(run(library, right).values(), expected, strict=True):
        np.testing.assert_array_equal(found, wanted.numpy())
    for name, layer, size, least in (
        ("w", "words", 7, 0), ("s", "index_select", 5, 0), ("e", "index", 5, -5),
    ):  # fmt: skip
        limits = np.iinfo(right[name].dtype)
        for index in (size, least - 1, *BEYOND):
            if limits.min <= index <= limits.max:
                wrong = right[name].copy()
                wrong.reshape(-1)[-1] = index
                text = refused(library, {**right, name: wrong})
                assert re.search(rf", {layer}( #\d+)? \(", text), (text, index)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_quantized_gather(dtype: str, tmp_path: Path) -> None:
    graph = Qdq(dtype, 3)
    x = graph.input([1, 5, 4], 0.05)
    graph.inputs += [
        helper.make_tensor_value_info(name, kind, [2, 2])
        for name, kind in (("narrow", TensorProto.INT32), ("wide", TensorProto.INT64))
    ]
    gathered = graph.node("Gather", x, "narrow", axis=1)
    rows = graph.quantize(gathered, 0.05, 7)
    again = graph.dequantize(rows, 0.05, 7, dtype)
    gathered_again = graph.node("Gather", again, "wide", axis=3)
    output = graph.quantize(gathered_again, 0.04, 3)
    path = save(graph.model(output), tmp_path)
    library = umakit.compile_model(path, [], tmp_path / "library").path
    random = np.random.default_rng(1)
    session = runtime(path)
    for _ in range(4):
        right = {
            "x0": random.uniform(-6, 6, (1, 5, 4)).astype("float32"),
            "narrow": random.integers(-5, 5, (2, 2), "int32"),
            "wide": random.integers(-4, 4, (2, 2)),
        }
        np.testing.assert_array_equal(run(library, right)["result"], session.run(None, right)[0])
    # A layer on integers is called after its operator, not after the node that quantizes it.
    layers = {"narrow": gathered, "wide": gathered_again}
    for name, indices in (("narrow", (5, -6, 2**31 - 1)), ("wide", (4, -5, *BEYOND))):
        for index in indices:
            wrong = right[name].copy()
            wrong[1, 1] = index
            text = refused(library, {**right, name: wrong})
            assert re.search(rf", {layers[name]}( #\d)? \(take\)", text), (text, index)


# --- memory of a run that stops -------------------------------------------------------------------

GUARD, FILLING, ALIGNMENT = 256, 0xA5, 64


class Guarded:
    """Memory with bytes of a pattern before and behind it."""

    def __init__(self, size: int) -> None:
        self._memory = np.full(size + 2 * GUARD + ALIGNMENT, FILLING, "uint8")
        self._start = GUARD + -(self._memory.ctypes.data + GUARD) % ALIGNMENT
        self.bytes = self._memory[self._start : self._start + size]

    @property
    def address(self) -> int:
        return int(self.bytes.ctypes.data)

    @property
    def intact(self) -> bool:
        """Whether all bytes around it are as they were."""
        around = (self._memory[: self._start], self._memory[self._start + len(self.bytes) :])
        return all(bool((part == FILLING).all()) for part in around)


class GuardedLibrary:
    """A library in this process, whose tensors and working memory are guarded.

    Args:
        folder: of the library.
        metadata: its entry `umakit`.
    """

    def __init__(self, folder: Path, metadata: dict[str, Any]) -> None:
        path = folder / "shared.so"
        include = f"-I{folder / 'codegen/host/include'}"
        compile_c(library_sources(folder), path, ["-shared", "-fPIC", include])
        self._run = ctypes.CDLL(str(path)).tvmgen_net_run_in
        self._metadata = metadata

    @property
    def layers(self) -> list[dict[str, Any]]:
        return list(self._metadata["layers"])

    def outputs_around(self, number: int) -> tuple[set[str], set[str]]:
        """Outputs of the network that layers before a layer write, and those behind it."""
        names = {item["c_name"]: item["name"] for item in self._metadata["outputs"]}
        before, behind = (
            {names[tensor] for layer in layers for tensor in layer["outputs"] if tensor in names}
            for layers in (self.layers[:number], self.layers[number + 1 :])
        )
        return before, behind

    def run(self, inputs: Mapping[str, Array]) -> tuple[int, dict[str, Array]]:
        """Status and outputs as bytes; all else was left alone."""
        size = self._metadata["memory"]["arena_bytes"]
        workspace, tensors = Guarded(size), {}
        for item in (*self._metadata["inputs"], *self._metadata["outputs"]):
            tensors[item["name"]] = Guarded(
                int(np.prod(item["shape"])) * np.dtype(item["dtype"]).itemsize
            )
        for name, array in inputs.items():
            tensors[name].bytes[:] = array.reshape(-1).view("uint8")
        given, results = (
            (ctypes.c_void_p * len(items))(*(tensors[item["name"]].address for item in items))
            for items in (self._metadata["inputs"], self._metadata["outputs"])
        )
        pools = (ctypes.c_void_p * 2)(workspace.address, size)
        status = int(self._run(given, results, pools))
        assert workspace.intact and all(memory.intact for memory in tensors.values())
        for name, array in inputs.items():
            np.testing.assert_array_equal(tensors[name].bytes, array.reshape(-1).view("uint8"))
        return status, {
            item["name"]: tensors[item["name"]].bytes for item in self._metadata["outputs"]
        }


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> tuple[GuardedLibrary, Path]:
    """Layers before, at and behind three that take indices; all of their results are outputs."""
    graph, folder = Graph(), tmp_path_factory.mktemp("guarded")
    data, updates = graph.input("data", 4, 3), graph.input("updates", 2, 3)
    rows, places, columns = (
        graph.input(name, *shape, dtype=TensorProto.INT64)
        for name, shape in (("rows_at", (2,)), ("places_at", (2, 1)), ("columns_at", (2, 2)))
    )
    first = graph.node("Exp", data, name="first")
    taken = graph.node("Gather", first, rows, name="rows", axis=0)
    middle = graph.node("Softmax", taken, name="middle")
    written = graph.node("ScatterND", first, places, updates, name="places")
    picked = graph.node("GatherElements", middle, columns, name="columns", axis=1)
    scattered = graph.node(
        "ScatterElements", middle, columns, picked, name="scattered", axis=1, reduction="add"
    )
    last = graph.node("Softmax", scattered, name="last")
    for output in (first, taken, middle, written, picked, scattered, last):
        graph.output(output)
    path = save(graph.model(opset=18), folder)
    library = umakit.compile_model(path, [], folder / "library", name="net")
    return GuardedLibrary(library.path, library.metadata["umakit"]), path


def test_runs_that_stop_leave_memory_alone(guarded: tuple[GuardedLibrary, Path]) -> None:
    library, path = guarded
    random = np.random.default_rng(2)
    right = {
        "data": random.standard_normal((4, 3)).astype("float32"),
        "updates": random.standard_normal((2, 3)).astype("float32"),
        "rows_at": np.array([3, -4]), "places_at": np.array([[0], [-1]]),
        "columns_at": np.array([[0, -1], [2, -3]]),
    }  # fmt: skip
    status, results = library.run(right)
    assert status == 0
    for name, wanted in onnx_runtime(onnx.load(path), right).items():
        np.testing.assert_allclose(results[name].view("float32"), wanted.reshape(-1), rtol=1e-5)
    for name, layer, size in (
        ("rows_at", "rows", 4), ("places_at", "places", 4), ("columns_at", "columns", 3),
    ):  # fmt: skip
        for index in (size, -size - 1, *BEYOND):
            for place in (0, -1):
                wrong = right[name].copy()
                wrong.reshape(-1)[place] = index
                status, found = library.run({**right, name: wrong})
                stopped = library.layers[-16 - status]
                assert stopped["name"].split(" #")[0] == layer, (name, index, status)
                before, behind = library.outputs_around(-16 - status)
                for output in before:
                    np.testing.assert_array_equal(found[output], results[output], output)
                for output in behind:
                    assert (found[output] == FILLING).all(), (name, index, output)
