# SPDX-License-Identifier: Apache-2.0
"""The simulated systolic array for tests: compiled once, driven through its registers."""

from __future__ import annotations

import ctypes
import tempfile
import tomllib
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from umakit import sim
from umakit.devices.build import compile_c

Array = npt.NDArray[Any]

_FOLDER = sim.source_directory()
_MAP = tomllib.loads((_FOLDER / "registers/systolic_array.toml").read_text(encoding="utf-8"))
REGISTERS: dict[str, dict[str, Any]] = {item["name"]: item for item in _MAP["register"]}
OFFSETS: dict[str, int] = {name: item["offset"] for name, item in REGISTERS.items()}
VALUES: dict[str, dict[str, int]] = {
    item["name"]: {value["name"]: value["value"] for value in item.get("value", [])}
    for item in _MAP["register"]
}
BITS: dict[str, dict[str, int]] = {
    item["name"]: {bit["name"]: 1 << bit["lowest_bit"] for bit in item.get("field", [])}
    for item in _MAP["register"]
}

STATUS = {
    name: number
    for number, name in enumerate(
        "OK INVALID_ARGUMENT INVALID_REGISTER OUT_OF_RANGE MISALIGNED WRONG_DIRECTION BUSY TIMEOUT"
        " BUS_ERROR NO_DEVICE TABLE_FULL DEVICE_ERROR DMA_STOPPED PARITY_ERROR LOST_INTERRUPT"
        " STUCK_BUSY UNSUPPORTED".split()
    )
}

TO_DEVICE, FROM_DEVICE, BOTH = 1, 2, 3

TIMELINE_ENTRY = np.dtype(
    [("command", "<u4"), ("stream", "<u4")]
    + [(name, "<u8") for name in ("issued", "start", "end_of_busy", "completion")]
)
"""`struct umakit_systolic_timeline_entry`."""

FOREVER = 2**32 - 1


@dataclass
class Config:
    """`struct umakit_systolic_array_config` without the addresses of its memories."""

    array_rows: int = 8
    array_columns: int = 8
    drain_cycles_per_fold: int = 0
    output_stationary: bool = True
    weight_stationary: bool = True
    input_stationary: bool = True
    depthwise: bool = True
    preload: bool = False
    preload_rows: int = 0
    pack_columns: bool = False
    array_setup_cycles: int = 0
    pooling_lanes: int = 8
    scratchpad_bytes: int = 1 << 16
    scratchpad_banks: int = 4
    dma_bytes_per_cycle: int = 8
    dma_latency_cycles: int = 10
    dma_burst_bytes: int = 64
    dma_alignment: int = 1
    dma_outstanding: bool = False
    dma_setup_cycles: int = 0
    accumulator_bytes: int = 0
    command_queue_depth: int = 0


def _record_fields() -> list[tuple[str, Any]]:
    """The members of the C struct; each memory's address stands before its size."""
    members: list[tuple[str, Any]] = []
    for item in fields(Config):
        if item.name in ("scratchpad_bytes", "accumulator_bytes"):
            members.append((item.name.removesuffix("_bytes"), ctypes.c_void_p))
        members.append((item.name, ctypes.c_bool if item.type == "bool" else ctypes.c_uint32))
    return [*members, ("scratchpad_name", ctypes.c_void_p)]  # NULL


class _Config(ctypes.Structure):
    _fields_ = _record_fields()


@cache
def library() -> ctypes.CDLL:
    """The simulator as a shared object."""
    folder = Path(tempfile.mkdtemp(prefix="umakit-systolic-"))
    sizes = folder / "sizes.c"
    sizes.write_text(
        '#include "umakit/systolic_array.h"\n'
        "const uint32_t device_bytes = (uint32_t)sizeof(struct umakit_systolic_array);\n"
        "const uint32_t config_bytes = (uint32_t)sizeof(struct umakit_systolic_array_config);\n",
        encoding="utf-8",
    )
    kind = sim.KINDS["systolic_array"]
    sources = [*sim.SIMULATOR_SOURCES, *sim.COMMON_SOURCES, *kind.sources]
    target = folder / "simulator.so"
    compile_c(
        [sizes, *(_FOLDER / source for source in sources)],
        target,
        ["-O3", "-shared", "-fPIC", f"-I{_FOLDER / 'include'}"],  # it runs longer than this takes
    )
    loaded = ctypes.CDLL(str(target))
    loaded.umakit_device_read32.restype = ctypes.c_uint32
    loaded.umakit_systolic_timeline.restype = ctypes.c_size_t
    assert ctypes.c_uint32.in_dll(loaded, "config_bytes").value == ctypes.sizeof(_Config)
    return loaded


class Device:
    """A simulated device and its buffers."""

    def __init__(self, config: Config | None = None) -> None:
        self.config = config or Config()
        self._library = library()
        size = ctypes.c_uint32.in_dll(self._library, "device_bytes").value
        self._memory = ctypes.create_string_buffer(size)
        self.handle = ctypes.byref(self._memory)
        self.scratchpad = np.zeros(self.config.scratchpad_bytes, np.uint8)
        self.accumulator = np.zeros(self.config.accumulator_bytes // 4, np.int32)
        values = {item.name: getattr(self.config, item.name) for item in fields(Config)}
        record = _Config(scratchpad=self.scratchpad.ctypes.data, **values)
        if self.accumulator.size:
            record.accumulator = self.accumulator.ctypes.data
        assert self._library.umakit_systolic_array_init(self.handle, ctypes.byref(record)) == 0
        self.write("INTERRUPT_ENABLE", 7)

    def write(self, register: str, value: int) -> None:
        """Write a register by name; negative values in two's complement."""
        self.write_at(OFFSETS[register], value)

    def write_at(self, offset: int, value: int) -> None:
        """Write a register by offset."""
        number = ctypes.c_uint32(value & FOREVER)
        self._library.umakit_device_write32(self.handle, ctypes.c_uint32(offset), number)

    def program(self, **values: int) -> None:
        """Write registers."""
        for register, value in values.items():
            self.write(register, value)

    def read(self, register: str) -> int:
        """Read a register by name."""
        return self.read_at(OFFSETS[register])

    def read_at(self, offset: int) -> int:
        """Read a register by offset."""
        return int(self._library.umakit_device_read32(self.handle, ctypes.c_uint32(offset)))

    def counter(self, name: str) -> int:
        """Read both halves of a counter."""
        low = self.read(f"{name}_LOW")
        return low | self.read(f"{name}_HIGH") << 32

    def counters(self) -> dict[str, int]:
        """All of them; each read takes cycles."""
        names = [name.removesuffix("_LOW") for name in OFFSETS if name.endswith("_LOW")]
        return {name: self.counter(name) for name in names}

    def control(self, *commands: str) -> None:
        """Write CONTROL."""
        self.write("CONTROL", sum(BITS["CONTROL"][name] for name in commands))

    def status(self) -> set[str]:
        """Names of the bits that are set in STATUS."""
        value = self.read("STATUS")
        return {name for name, bit in BITS["STATUS"].items() if value & bit}

    def error(self) -> str:
        """Name of what ERROR holds."""
        value = self.read("ERROR")
        return next(name for name, number in STATUS.items() if number == value)

    def wait(self, cycles: int = FOREVER) -> int:
        """`umakit_device_wait`."""
        return int(self._library.umakit_device_wait(self.handle, ctypes.c_uint32(cycles)))

    def map(self, memory: Array, direction: int) -> int:
        """The bus address of an array."""
        address = ctypes.c_uint32()
        status = self._library.umakit_device_map(
            self.handle, ctypes.c_void_p(memory.ctypes.data), ctypes.c_size_t(memory.nbytes),
            direction, ctypes.byref(address),
        )  # fmt: skip
        assert status == 0, status
        return address.value

    def unmap(self, address: int) -> None:
        """`umakit_device_unmap`."""
        self._library.umakit_device_unmap(self.handle, ctypes.c_uint32(address))

    def record_timeline(self, capacity: int) -> Array:
        """The entries that `umakit_systolic_record_timeline` fills from now on."""
        entries = np.zeros(capacity, TIMELINE_ENTRY)
        self._library.umakit_systolic_record_timeline(
            self.handle, ctypes.c_void_p(entries.ctypes.data), ctypes.c_size_t(capacity)
        )
        return entries

    def timeline(self) -> int:
        """How many commands ended since."""
        return int(self._library.umakit_systolic_timeline(self.handle))

    def start(self, command: str) -> int:
        """Run one engine to its end; the array's cycles."""
        self.write("INTERRUPT_PENDING", 7)
        self.control("RESET_COUNTERS", command)
        status = self.wait()
        assert status == 0, status
        return self.counter("COMPUTE_CYCLES") + self.counter("DRAIN_CYCLES")

    def load(self, data: Array, offset: int) -> None:
        """Copy an array into the scratchpad with a 1-D transfer."""
        source = np.zeros(-(-data.nbytes // 4) * 4 + 4, np.uint8)
        source[: data.nbytes] = np.frombuffer(data.tobytes(), np.uint8)
        address = self.map(source, TO_DEVICE)
        self.program(
            DMA_BUS_ADDRESS=address, DMA_SCRATCHPAD_START=offset, DMA_DIRECTION=0,
            DMA_ROW_BYTES=data.nbytes, DMA_ROWS=1, DMA_PLANES=1,
        )  # fmt: skip
        self.start("DMA_START")
        assert self.error() == "OK" and self.read("DMA_BYTES_LEFT") == 0
        self.unmap(address)
