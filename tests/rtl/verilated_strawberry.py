# SPDX-License-Identifier: Apache-2.0
"""Strawberry's RTL as a device of tests: Verilated once, driven through its registers."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from systolic_device import Config, Device  # noqa: E402

from umakit import sim  # noqa: E402
from umakit.text.rendering import render  # noqa: E402

SIM = Path(sim.source_directory())
RTL = ROOT / "backends" / "strawberry_accelerator" / "rtl"
KIT = ("simulator", "host", "windows", "faults", "status")
LATENCY = 16

CONFIG = Config(
    drain_cycles_per_fold=8, weight_stationary=False, input_stationary=False, pooling_lanes=0,
    scratchpad_banks=1, dma_latency_cycles=LATENCY, dma_burst_bytes=256,
    array_setup_cycles=22, dma_setup_cycles=3,
)  # fmt: skip
"""The C model of what the RTL is, as `accel.toml` says it."""

_OPEN = """\
#include "umakit/simulator.h"
const struct umakit_own_simulator *strawberry_simulator(void);
umakit_device *strawberry_accelerator_device(void);
const uint32_t device_bytes = (uint32_t)sizeof(struct umakit_device);
static umakit_device *driven;
umakit_device *strawberry_accelerator_device(void)
{
    return driven;
}
void open_device(umakit_device *device)
{
    umakit_simulator_open(device, strawberry_simulator());
    driven = device;
}
"""
DRIVER = ROOT / "backends" / "strawberry_accelerator" / "strawberry_accelerator.c"


def sources(folder: Path = RTL) -> list[Path]:
    """Return the files of the design, packages first."""
    first = ["systolic_array_registers_pkg.sv", "strawberry_pkg.sv", "fixed_point_pkg.sv"]
    others = sorted(path for path in folder.glob("*.sv") if path.name not in first)
    return [*(folder / name for name in first), *others]


def _ports(prefix: str) -> dict[str, str]:
    text = (RTL / "strawberry.sv").read_text(encoding="utf-8")
    names = re.findall(r"^ *(?:input|output) +logic +(?:\[.*?\] +)?(\w+)", text, re.MULTILINE)
    return {name.removeprefix(prefix): name for name in names if name.startswith(prefix)}


def simulator_source() -> str:
    """Return the C++ that makes the Verilated design answer."""
    return render(
        "rtl/simulator.cc.j2", name="strawberry", top="strawberry", clock="clk", reset="rst_n",
        reset_level=0, reset_cycles=2, interrupt="irq", interrupt_level=1, ties={},
        widths={"s_axil_awaddr": 12, "s_axil_araddr": 12},
        registers={"bus": "axi4-lite", "ports": _ports("s_axil_"), "data_bits": 32},
        memory={"bus": "axi4", "ports": _ports("m_axi_"), "data_bits": 64, "latency": LATENCY,
                "alignment": 1},
    )  # fmt: skip


def _run(*command: str | Path) -> str:
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if result.returncode != 0:
        raise SystemExit(f"{command[0]} failed:\n{result.stdout}{result.stderr}")
    return result.stdout


@cache
def _verilator_headers() -> Path:
    found = re.search(r"^ *VERILATOR_ROOT *= (\S+)", _run("verilator", "-V"), re.MULTILINE)
    assert found
    return Path(found[1]) / "include"


def include_flags(folder: Path) -> list[str | Path]:
    """Return flags for what is compiled with the C++ of a folder."""
    root = _verilator_headers()
    return ["-I", SIM / "rtl" / "include", "-I", SIM / "include", "-isystem", root,
            "-isystem", root / "vltstd", "-isystem", folder, "-DVM_TRACE=0", "-DVM_TRACE_FST=0",
            "-DVM_TRACE_VCD=0", "-DVERILATOR=1", "-DVM_COVERAGE=0", "-DVM_SC=0"]  # fmt: skip


def build(
    folder: Path, files: list[Path] | None = None, parameters: dict[str, int] | None = None
) -> Path:
    """Return a shared object of the design with the kit's part of a simulator."""
    options = [f"-G{name}={value}" for name, value in (parameters or {}).items()]
    root = _verilator_headers()
    flags = include_flags(folder)
    (folder / "simulator.cc").write_text(simulator_source(), encoding="utf-8")
    (folder / "open.c").write_text(_OPEN, encoding="utf-8")
    _run("verilator", "--cc", "-O3", "--x-assign", "fast", "--x-initial", "unique", "--noassert",
         "-Wall", "--top-module", "strawberry", "--prefix", "Vstrawberry", "-Mdir", folder,
         *options, *(files or sources()))  # fmt: skip
    model = sorted(folder.glob("V*.cpp"))
    (folder / "model.cc").write_text(
        "".join(f'#include "{path.name}"\n' for path in model), encoding="utf-8"
    )
    _run("g++", "-std=c++17", "-O2", "-fPIC", *flags, "-include",
         SIM / "rtl/include/umakit/rtl_messages.h", "-o", folder / "design.o", "-r",
         folder / "model.cc", root / "verilated.cpp", root / "verilated_threads.cpp")  # fmt: skip
    objects: list[Path] = [folder / "design.o"]
    for source in [folder / "open.c", DRIVER, *(SIM / "src" / f"umakit_{name}.c" for name in KIT)]:
        objects.append(folder / f"{source.stem}.o")
        _run("gcc", "-std=c99", "-O2", "-fPIC", "-I", SIM / "include", "-c", source, "-o",
             objects[-1])  # fmt: skip
    _run("g++", "-std=c++17", "-O2", "-fPIC", "-shared", "-Wl,-Bsymbolic", *flags,
         folder / "simulator.cc", *objects, "-pthread", "-o", folder / "strawberry.so")  # fmt: skip
    return folder / "strawberry.so"


@cache
def verilated() -> Path:
    """Return the shared object of the design as it is, which is kept between runs."""
    digest = hashlib.sha256()
    for path in [*sources(), *sorted((SIM / "rtl").rglob("*.h")), Path(__file__)]:
        digest.update(path.read_bytes())
    cached = os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))
    folder = Path(cached) / "umakit-rtl-tests" / digest.hexdigest()[:24]
    if not (folder / "strawberry.so").exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            build(Path(scratch))
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(scratch, folder)
    return folder / "strawberry.so"


class RtlDevice(Device):
    """The design behind the same calls as the C model. One at a time."""

    def __init__(self, library: Path | None = None) -> None:
        self.config = CONFIG
        self._library: Any = ctypes.CDLL(str(library or verilated()))
        self._library.umakit_device_read32.restype = ctypes.c_uint32
        self._library.umakit_simulator_failure.restype = ctypes.c_char_p
        size = ctypes.c_uint32.in_dll(self._library, "device_bytes").value
        self._memory = ctypes.create_string_buffer(size)
        self.handle = ctypes.byref(self._memory)
        self._library.open_device(self.handle)
        self.write("INTERRUPT_ENABLE", 7)

    def reset(self) -> None:
        """Bring it into its state after power-on."""
        assert self._library.umakit_simulator_reset(self.handle) == 0
        self.write("INTERRUPT_ENABLE", 7)

    def failure(self) -> str:
        """Return what the harness found wrong; empty if nothing."""
        found = self._library.umakit_simulator_failure(self.handle)
        return found.decode() if found else ""

    def clock(self) -> int:
        """Cycles since the reset, without a register access."""
        return clock_of(self)

    def randomize(self, state: int, pauses: int) -> None:
        """From the next reset on: random contents of memories, and pauses of the memory bus."""
        self._library.strawberry_randomize(ctypes.c_uint32(state), ctypes.c_uint32(pauses))


def clock_of(device: Device) -> int:
    """Return the cycles of a device's clock since its reset, without a register access."""
    counters = np.zeros(7, np.uint64)
    device._library.umakit_simulator_measure(device.handle, ctypes.c_void_p(counters.ctypes.data))
    return int(counters[0])
