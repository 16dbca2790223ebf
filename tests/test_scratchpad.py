# SPDX-License-Identifier: Apache-2.0
"""Scratchpads: a memory by offset, transfers in TIR, and results that stay there."""

from __future__ import annotations

import ctypes
import itertools
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from comparisons import some
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tflite_exactness import weights_and_bias
from tflite_networks import TfliteFile, tflite_micro, trained_model

from umakit import PassPhase, UMABackend, compile_model, patterns, run_library, tir
from umakit.devices.build import compile_c, library_sources
from umakit.errors import AcceleratorConfigError, MemoryPlanError
from umakit.library.export import Library
from umakit.machine.accelerator_config import load_accelerator_config
from umakit.memory.pools import MemoryPool
from umakit.pipeline import ExportOptions
from umakit.tools.memory_map import draw_memory_map

Array = npt.NDArray[Any]

CONFIGURATION = """\
[accelerator]
name = "{name}"

[array]
rows = 4
columns = 4

[[memory]]
name = "scratchpad"
size = {size}
reachable_by = ["accelerator"]
address = "offset"
"""

DRIVER_FILES = ("integer_driver.c", "scratchpad_driver.c", "scratchpad_driver.h")
DECLARED = (
    "qconv2d", "qconv2d_add", "qdepthwise", "qdense", "qadd", "qmultiply", "qavg_pool2d",
    "qmax_pool2d",
)  # fmt: skip
EVERY_LAYER_ALONE = ExportOptions(keep_in_scratchpads=False)

_numbers = itertools.count()


class ScratchpadNpu(UMABackend):
    """Loads operands, computes, stores the result, one layer after the other.

    Args:
        folder: a new one becomes the backend's.
        size: of the scratchpad in bytes.
        pool: its name.
        sums: whether a convolution and the sum behind it are one layer.
    """

    def __init__(
        self, folder: Path, size: int, pool: str = "scratchpad", sums: bool = False
    ) -> None:
        self._name = f"scratchpad{next(_numbers)}_npu"
        self._folder, self._size, self._pool = folder / self._name, size, pool
        super().__init__()
        for registration in (
            *([patterns.qconv2d_add(predicate=self._fits)] if sums else []),
            patterns.qconv2d(groups=None, dilation=None, predicate=self._fits),
            patterns.qdepthwise(dilation=None, multipliers=None, predicate=self._fits),
            patterns.qdense(weight_layout="IO", predicate=self._fits),
            patterns.qadd(predicate=self._fits),
        ):
            self._register_pattern(*registration)
        self._register_tir_pass(
            PassPhase.TIR_PHASE_0, tir.prim_func_pass("load_compute_store", self._transfer)
        )
        self._register_transfers("scratchpad_load", "scratchpad_store")
        self._register_codegen(includes=lambda: '#include "scratchpad_driver.h"')
        headers = ["integer_driver.h", "scratchpad_driver.h", "scratchpad_size.h"]
        self._register_driver(["integer_driver.c", "scratchpad_driver.c"], headers)

    def _fits(self, composite: patterns.Composite) -> bool | str:
        needed = sum(-(-size // 16) * 16 for size in operand_bytes(composite))
        return needed <= self._size or f"needs {needed:,} B, scratchpad has {self._size:,} B"

    def _transfer(self, function: Any) -> Any:
        composite = patterns.parameters_of(function)
        if composite is None:
            return function
        places = []
        for name, tensor in zip(composite.POINTERS, function.params, strict=True):
            elements = int(np.prod(tir.buffer_shape(tensor)))
            dtype = composite.pointer_types[name]
            place = tir.scratchpad_buffer(name, elements, dtype, self._pool)
            places.append((tensor, place, elements * np.dtype(dtype).itemsize))
        calls: list[tuple[str, list[Any]]] = [
            ("scratchpad_load", [tir.pointer(tensor), tir.pointer(place), size])
            for tensor, place, size in places[:-1]
        ]
        offsets = [tir.pointer(place) for _, place, _ in places]
        pattern = tir.composite_name(function).partition(".")[2]
        calls.append((f"scratchpad_{pattern}", [*offsets, *composite.scalars.values()]))
        result, place, size = places[-1]
        calls.append(("scratchpad_store", [tir.pointer(place), tir.pointer(result), size]))
        body = tir.allocate([place for _, place, _ in places], tir.driver_calls(calls))
        return tir.with_body(function, body)

    @property
    def target_name(self) -> str:
        return self._name

    @property
    def folder(self) -> Path:
        if not self._folder.exists():
            self._folder.mkdir(parents=True)
            text = CONFIGURATION.format(name=self._name, size=self._size)
            (self._folder / "accel.toml").write_text(text)
            for name in DRIVER_FILES:
                shutil.copy(Path(__file__).parent / name, self._folder)
            (self._folder / "scratchpad_size.h").write_text(
                f"#pragma once\n#define SCRATCHPAD_BYTES {self._size}u\n"
            )
            declarations = [
                patterns.c_declaration(f"npu_{name}", getattr(patterns, name)())
                for name in DECLARED
            ]
            for name, kind in (("npu_qconv2d_blocked", "qconv2d"), ("npu_broken", "qmultiply")):
                declarations.append(patterns.c_declaration(name, getattr(patterns, kind)()))
            header = "\n".join(["#pragma once", "#include <stdint.h>", *declarations, ""])
            (self._folder / "integer_driver.h").write_text(header)
        return self._folder


def operand_bytes(composite: Any) -> Iterator[int]:
    """Bytes of every operand and of the result."""
    itemsize = {"int8": 1, "int32": 4}
    shapes = {
        "data": composite.data_shape,
        "left": composite.data_shape,
        "result": composite.output_shape,
    }
    if "weights" in composite.POINTERS:
        channels = (composite.weights_shape[0],)
        shapes |= {"weights": composite.weights_shape, "bias": channels}
        shapes |= {"multipliers": (composite.scales,), "shifts": (composite.scales,)}
        shapes["addend"] = composite.output_shape
    else:
        shapes["right"] = composite.right_shape
    for name, dtype in composite.pointer_types.items():
        yield int(np.prod(shapes[name])) * itemsize[dtype]


def inputs_of(library: Library, count: int) -> Array:
    (input_view,) = library.metadata["umakit"]["inputs"]
    shape = (count, *input_view["shape"])
    noise = np.random.default_rng(5)
    smooth = np.clip(noise.normal(0, 9, shape).cumsum(axis=-1), -128, 127)
    return np.concatenate([noise.integers(-128, 128, shape), smooth]).astype(np.int8)


def outputs_of(library: Library, inputs: Array) -> Array:
    (input_view,) = library.metadata["umakit"]["inputs"]
    (output,) = run_library(library.path, {input_view["name"]: inputs}).outputs.values()
    return output


def traffic(library: Library) -> dict[str, Any]:
    found: dict[str, Any] = library.metadata["umakit"]["memory"]["traffic"]
    return found


@pytest.mark.soak
@pytest.mark.optimized
@pytest.mark.parametrize(
    ("name", "size"),
    some(
        itertools.product(
            ("ad01_int8.tflite", "pretrainedResnet_quant.tflite", "kws_ref_model.tflite"),
            (48 * 1024, 64 * 1024, 1024 * 1024),
        ),
        2,
    ),
)
def test_trained_models_are_exact_with_any_scratchpad(name: str, size: int, tmp_path: Path) -> None:
    path, npu = trained_model(name), ScratchpadNpu(tmp_path, size)
    library = compile_model(path, [npu], tmp_path / "library")
    inputs = inputs_of(library, 8)
    np.testing.assert_array_equal(
        outputs_of(library, inputs), tflite_micro(path.read_bytes(), inputs)
    )
    alone = compile_model(path, [npu], tmp_path / "alone", options=EVERY_LAYER_ALONE)
    assert traffic(alone) is None
    saved = sum(item["saved"] for item in traffic(library)["kept"])
    assert saved > 0
    (scratchpad,) = library.metadata["umakit"]["memory"]["scratchpads"]
    assert scratchpad["used_bytes"] <= size


# --- networks without trained weights -----------------------------------------------------------


class Network:
    """Convolutions and sums of images of one size, quantized."""

    def __init__(self) -> None:
        self.file = TfliteFile()
        self.values: list[tuple[int, int, float]] = []
        self.first = self._value("x", 4, 0.05, -7)

    def _value(self, name: str, channels: int, scale: float, zero_point: int) -> int:
        shape = [1, 8, 8, channels]
        number = self.file.tensor(shape, scale=scale, zero_point=zero_point, name=name)
        self.values.append((number, channels, scale))
        return number

    def convolution(self, source: int, outputs: int = 4) -> int:
        """A 3x3 convolution of the value number `source`; the number of its result."""
        x, channels, scale = self.values[source]
        constants, product = weights_and_bias(
            self.file, (outputs, 3, 3, channels), outputs, 0, scale, len(self.values), True
        )
        y = self._value(f"conv{len(self.values)}", outputs, product * 40, 5)
        self.file.operator(
            "CONV_2D", [x, *constants], [y], "Conv2DOptions", Padding=0, StrideH=1, StrideW=1,
            DilationHFactor=1, DilationWFactor=1, FusedActivationFunction=0,
        )  # fmt: skip
        return len(self.values) - 1

    def addition(self, left: int, right: int) -> int:
        """The sum of two values with equally many channels."""
        x, channels, scale = self.values[left]
        y = self._value(f"add{len(self.values)}", channels, scale * 1.7, 11)
        self.file.operator("ADD", [x, self.values[right][0]], [y], "AddOptions")
        return len(self.values) - 1

    def finish(self, *outputs: int) -> bytes:
        return bytes(self.file.finish([self.first], [self.values[o][0] for o in outputs]))


def compiled(file: bytes, npu: ScratchpadNpu, folder: Path, **options: Any) -> Library:
    path = folder / "net.tflite"
    path.write_bytes(file)
    return compile_model(path, [npu], folder / "library", options=ExportOptions(**options))


def copied_bytes(library: Library, inputs: Array, folder: Path) -> int:
    """What the driver itself counts in one inference."""
    description = library.metadata["umakit"]
    compile_c(library_sources(library.path), folder / "net.so", ["-shared", "-fPIC"])
    binary = ctypes.CDLL(str(folder / "net.so"))
    outputs = [np.empty(item["shape"], item["dtype"]) for item in description["outputs"]]
    pools = [np.zeros(pool["used_bytes"] + 16, np.uint8) for pool in description["memory"]["pools"]]
    pointers = [array.ctypes.data for array in (inputs, *outputs)]
    pointers += [-(-pool.ctypes.data // 16) * 16 for pool in pools]
    run = getattr(binary, f"{description['interface']}_run_unpacked")
    assert run(*map(ctypes.c_void_p, pointers)) == 0
    return ctypes.c_int64.in_dll(binary, "scratchpad_copied").value


def block() -> bytes:
    """Two convolutions and the sum with what they started from."""
    net = Network()
    start = net.convolution(0)
    return net.finish(net.addition(net.convolution(net.convolution(start)), start))


TENSOR = 8 * 8 * 4


def test_a_block_stays_in_the_scratchpad_and_the_driver_copies_what_the_report_says(
    tmp_path: Path,
) -> None:
    library = compiled(block(), ScratchpadNpu(tmp_path, 1 << 16), tmp_path)
    kept = {item["tensor"]: item for item in traffic(library)["kept"]}
    assert {name: item["saved"] for name, item in kept.items()} == {
        "conv1": 3 * TENSOR,  # its store, and the loads of conv2 and add4
        "conv2": 2 * TENSOR,
        "conv3": 2 * TENSOR,
    }
    assert kept["conv1"]["readers"] == ("conv2", "add4")
    constants = 3 * (4 * 36 + 4 * 4 + 4 * 4 + 4)
    assert traffic(library)["moved"] == 2 * TENSOR + constants
    inputs = inputs_of(library, 1)[0]
    assert copied_bytes(library, inputs, tmp_path) == traffic(library)["moved"]
    assert library.metadata["umakit"]["memory"]["arena_bytes"] == 0


def test_what_does_not_fit_makes_its_round_trip(tmp_path: Path) -> None:
    """conv1 cannot wait for the sum beside what conv2 and conv3 need; the others can stay."""
    room = 3 * TENSOR + 32
    library = compiled(block(), ScratchpadNpu(tmp_path, room), tmp_path)
    memory = library.metadata["umakit"]["memory"]
    assert memory["scratchpads"][0]["used_bytes"] <= room
    inputs = inputs_of(library, 4)
    expected = tflite_micro(block(), inputs)
    np.testing.assert_array_equal(outputs_of(library, inputs), expected)
    kept = {item["tensor"]: item["readers"] for item in traffic(library)["kept"]}
    assert kept == {"conv1": ("conv2",), "conv2": ("conv3",), "conv3": ("add4",)}


def test_an_output_is_stored_though_it_is_read_again(tmp_path: Path) -> None:
    net = Network()
    first = net.convolution(0)
    file = net.finish(first, net.convolution(first))
    library = compiled(file, ScratchpadNpu(tmp_path, 1 << 16), tmp_path)
    (kept,) = traffic(library)["kept"]
    assert (kept["tensor"], kept["saved"]) == ("conv1", TENSOR)


def test_an_input_of_two_layers_is_loaded_once(tmp_path: Path) -> None:
    net = Network()
    file = net.finish(net.addition(net.convolution(0), net.convolution(0)))
    library = compiled(file, ScratchpadNpu(tmp_path, 1 << 16), tmp_path)
    kept = {item["tensor"] for item in traffic(library)["kept"]}
    assert kept == {"x", "conv1", "conv2"}
    inputs = inputs_of(library, 4)
    np.testing.assert_array_equal(outputs_of(library, inputs), tflite_micro(file, inputs))


def test_a_sum_behind_a_convolution_finds_its_operands_in_the_scratchpad(tmp_path: Path) -> None:
    library = compiled(block(), ScratchpadNpu(tmp_path, 1 << 16, sums=True), tmp_path)
    names = [layer["name"] for layer in library.metadata["umakit"]["layers"]]
    assert names == ["conv1", "conv2", "conv3 + add4"]
    kept = {item["tensor"]: item["readers"] for item in traffic(library)["kept"]}
    assert kept == {"conv1": ("conv2", "conv3 + add4"), "conv2": ("conv3 + add4",)}
    constants = 3 * (4 * 36 + 4 * 4 + 4 * 4 + 4)
    assert traffic(library)["moved"] == 2 * TENSOR + constants
    inputs = inputs_of(library, 4)
    assert copied_bytes(library, inputs[0], tmp_path) == traffic(library)["moved"]
    np.testing.assert_array_equal(outputs_of(library, inputs), tflite_micro(block(), inputs))


def test_a_tensor_may_be_the_data_of_a_convolution_and_what_is_added(tmp_path: Path) -> None:
    net = Network()
    start = net.convolution(0)
    file = net.finish(net.addition(start, net.convolution(start)))
    library = compiled(file, ScratchpadNpu(tmp_path, 1 << 16, sums=True), tmp_path)
    assert len(library.metadata["umakit"]["layers"]) == 2
    inputs = inputs_of(library, 4)
    np.testing.assert_array_equal(outputs_of(library, inputs), tflite_micro(file, inputs))


@settings(
    max_examples=8, deadline=None, suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
)  # fmt: skip
@given(data=st.data(), room=st.integers(800, 4000), sums=st.booleans())
def test_random_networks_are_exact_in_scratchpads_of_any_size(
    data: Any, room: int, sums: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    net = Network()
    for _ in range(data.draw(st.integers(2, 7))):
        left, right = (data.draw(st.integers(0, len(net.values) - 1)) for _ in range(2))
        if data.draw(st.booleans()) and net.values[left][1] == net.values[right][1]:
            net.addition(left, right)
        else:
            net.convolution(left, data.draw(st.sampled_from([4, 4, 12])))
    folder = tmp_path_factory.mktemp("random")
    file = net.finish(len(net.values) - 1)
    library = compiled(file, ScratchpadNpu(folder, room, sums=sums), folder)
    inputs = inputs_of(library, 3)
    np.testing.assert_array_equal(outputs_of(library, inputs), tflite_micro(file, inputs))


# --- the memory itself --------------------------------------------------------------------------


def test_a_scratchpad_is_no_part_of_the_interface(tmp_path: Path) -> None:
    npu = ScratchpadNpu(tmp_path, 1 << 16)
    library = compiled(block(), npu, tmp_path)
    header = (library.path / "codegen/host/include/tvmgen_net.h").read_text()
    assert "scratchpad" not in header.replace(npu.target_name, "")
    text = (library.path / "codegen/host/src/tvmgen_net.c").read_text()
    assert re.search(r"scratchpad_load\(data, data_offset, /\*bytes=\*/256\)", text)
    draw_memory_map(library.metadata["umakit"], tmp_path / "map.svg")
    assert "scratchpad" in (tmp_path / "map.svg").read_text()


def test_a_larger_or_smaller_scratchpad_may_be_asked_for(tmp_path: Path) -> None:
    npu = ScratchpadNpu(tmp_path, 1 << 16)
    pools = (MemoryPool("scratchpad", 1200),)
    library = compiled(block(), npu, tmp_path, pools=pools)
    (scratchpad,) = library.metadata["umakit"]["memory"]["scratchpads"]
    assert scratchpad["size_bytes"] == 1200
    with pytest.raises(MemoryPlanError, match="memory pool scratchpad: has 512 B, the network"):
        compiled(block(), npu, tmp_path, pools=(MemoryPool("scratchpad", 512),))


def test_a_pass_that_names_no_scratchpad_of_its_backend_is_told(tmp_path: Path) -> None:
    npu = ScratchpadNpu(tmp_path, 1 << 16, pool="tcm")
    with pytest.raises(MemoryPlanError, match="scratchpad 'tcm', which no backend declares"):
        compiled(block(), npu, tmp_path)


@pytest.mark.parametrize(
    "section",
    ['size = 1024\naddress = "offset"', 'reachable_by = ["accelerator"]\naddress = "offset"'],
)
def test_a_scratchpad_has_a_size_and_no_way_for_the_cpu(section: str, tmp_path: Path) -> None:
    path = tmp_path / "accel.toml"
    head = CONFIGURATION.partition("[[memory]]")[0].format(name="npu")
    path.write_text(f'{head}[[memory]]\nname = "scratchpad"\n{section}\n')
    with pytest.raises(AcceleratorConfigError, match='address = "offset" needs a size'):
        load_accelerator_config(path)
