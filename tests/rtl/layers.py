# SPDX-License-Identifier: Apache-2.0
"""Cycles of the layers of DS-CNN and ResNet-8 on Strawberry's RTL and on the C model.

    python tests/rtl/layers.py

The backend's driver runs both: operands are copied in, the array computes, the result is copied
out. Counts are of the device's clock, from the driver's first register access to its last one. An
access takes a cycle in the model and two on AXI4-Lite, which the table tells apart from the rest.
"""

from __future__ import annotations

import ctypes
import sys
import tempfile
from pathlib import Path

import numpy as np
from verilated_strawberry import CONFIG, DRIVER, SIM, Device, RtlDevice, clock_of

from umakit import sim
from umakit.devices.build import compile_c

# Name, operation, input height, width, channels, output channels, kernel height, width, stride.
LAYERS = [
    ("DS-CNN convolution 10x4", 0, 49, 10, 1, 64, 10, 4, 2),
    ("DS-CNN depthwise 3x3", 1, 25, 5, 64, 64, 3, 3, 1),
    ("DS-CNN pointwise", 0, 25, 5, 64, 64, 1, 1, 1),
    ("DS-CNN dense", 0, 1, 1, 64, 12, 1, 1, 1),
    ("ResNet-8 convolution 3 to 16", 0, 32, 32, 3, 16, 3, 3, 1),
    ("ResNet-8 convolution 16 to 16", 0, 32, 32, 16, 16, 3, 3, 1),
    ("ResNet-8 convolution 16 to 32", 0, 32, 32, 16, 32, 3, 3, 2),
    ("ResNet-8 shortcut 16 to 32", 0, 32, 32, 16, 32, 1, 1, 2),
    ("ResNet-8 convolution 32 to 32", 0, 16, 16, 32, 32, 3, 3, 1),
    ("ResNet-8 convolution 32 to 64", 0, 16, 16, 32, 64, 3, 3, 2),
    ("ResNet-8 shortcut 32 to 64", 0, 16, 16, 32, 64, 1, 1, 2),
    ("ResNet-8 convolution 64 to 64", 0, 8, 8, 64, 64, 3, 3, 1),
    ("ResNet-8 dense", 0, 1, 1, 64, 10, 1, 1, 1),
]

Layer = tuple[str, int, int, int, int, int, int, int, int]

_OPEN = """\
#include "umakit/device.h"
umakit_device *strawberry_accelerator_device(void);
static umakit_device *driven;
umakit_device *strawberry_accelerator_device(void) { return driven; }
void drive(umakit_device *device);
void drive(umakit_device *device) { driven = device; }
"""


class ModelDevice(Device):
    """The C model with the driver."""

    def __init__(self) -> None:
        super().__init__(CONFIG)
        folder = Path(tempfile.mkdtemp(prefix="umakit-rtl-"))
        (folder / "open.c").write_text(_OPEN, encoding="utf-8")
        kind = sim.KINDS["systolic_array"]
        files = [*sim.SIMULATOR_SOURCES, *sim.COMMON_SOURCES, *kind.sources]
        target = folder / "model.so"
        compile_c([folder / "open.c", DRIVER, *(SIM / name for name in files)], target,
                  ["-O2", "-shared", "-fPIC", f"-I{SIM / 'include'}"])  # fmt: skip
        self._library = ctypes.CDLL(str(target))
        self._library.umakit_device_read32.restype = ctypes.c_uint32
        self._library.drive(self.handle)


def accesses_of(device: Device) -> int:
    """Accesses to registers since the device's reset."""
    counters = (ctypes.c_uint64 * 14)()
    device._library.umakit_simulator_read_counters(device.handle, counters)
    return counters[12] + counters[13]


def run_layer(device: Device, layer: Layer) -> tuple[int, int, bytes]:
    """Run a layer; cycles, accesses to registers and result."""
    _, operation, height, width, inputs, outputs, rows, columns, stride = layer
    random = np.random.default_rng(3)
    result = np.zeros((-(-height // stride), -(-width // stride), outputs), np.int8)
    taps = rows * columns * (1 if operation else inputs)
    channels = outputs if operation else -(-outputs // 8) * 8
    operands = [
        random.integers(-128, 128, height * width * inputs).astype(np.int8),
        random.integers(-128, 128, channels * taps).astype(np.int8),
        random.integers(-5000, 5000, outputs).astype(np.int32),
        random.integers(1 << 30, 1 << 31, outputs).astype(np.int32),
        random.integers(-11, -7, outputs).astype(np.int8),
        result,
    ]  # fmt: skip
    places, place = [], 0
    for operand in operands:
        places.append(place)
        place += -(-operand.nbytes // 16) * 16
    assert place <= CONFIG.scratchpad_bytes, place
    driver = device._library
    before, accesses = clock_of(device), accesses_of(device)
    for operand, at in zip(operands[:-1], places[:-1], strict=True):
        pointer = ctypes.c_void_p(operand.ctypes.data)
        assert driver.strawberry_accelerator_dma_in(pointer, at, operand.nbytes) == 0
    status = driver.strawberry_accelerator_calculate(
        *places, 8, 0, operation, 0, height, width, inputs, *result.shape[:2], outputs, rows,
        columns, stride, stride, (rows - 1) // 2, (columns - 1) // 2, 1, 1, outputs, 3, -4, -128,
        127, 0,
    )  # fmt: skip
    assert status == 0, status
    pointer = ctypes.c_void_p(result.ctypes.data)
    assert driver.strawberry_accelerator_dma_out(places[-1], pointer, result.nbytes) == 0
    return clock_of(device) - before, accesses_of(device) - accesses, result.tobytes()


def main() -> int:
    """Print a line for each layer."""
    model, rtl = ModelDevice(), RtlDevice()
    wrong = 0
    print(
        f"{'layer':30} {'model':>7} {'RTL':>7} {'accesses':>8} {'rest':>5} {'share':>7} {'rest':>7}"
    )
    for layer in LAYERS:
        expected, accesses, result = run_layer(model, layer)
        found, _, rtl_result = run_layer(rtl, layer)
        wrong += result != rtl_result
        rest = found - expected - accesses
        print(f"{layer[0]:30} {expected:7} {found:7} {accesses:8} {rest:5} "
              f"{found / expected - 1:7.2%} {rest / expected:7.2%}"
              f"{'' if result == rtl_result else ' DIFFERENT'}")  # fmt: skip
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
