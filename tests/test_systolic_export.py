# SPDX-License-Identifier: Apache-2.0
"""Libraries whose accelerator is simulated as a systolic array, and its part of `accel.toml`."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from pathlib import Path

import cmake_builds
import numpy as np
import pytest
from execution import vanilla
from networks import Graph, save
from strict import WARNINGS

import umakit
from umakit import sim
from umakit.devices import find_device
from umakit.devices.run import run_library
from umakit.errors import AcceleratorConfigError
from umakit.machine.accelerator_config import load_accelerator_config
from umakit.tools.scaffold import new_backend

MEMORY = '[[memory]]\nname = "scratchpad"\nsize = 4096\naddress = "offset"\nbanks = 4\n'
MEMORY += 'reachable_by = ["accelerator"]\n'
DMA = "[dma]\nbytes_per_cycle = 16\nlatency_cycles = 30\nburst_bytes = 64\nalignment = 4\n"

DRIVER = """
/* Copies the input through the scratchpad to the result: what a driver needs of the library. */
#include "conv2dnchw.h"
#include "umakit/device.h"
#include "umakit/systolic_array_registers.h"

#define WRITE(name, value) \\
    umakit_device_write32(device, UMAKIT_SYSTOLIC_ARRAY_##name##_OFFSET, (value))
#define READ(name) umakit_device_read32(device, UMAKIT_SYSTOLIC_ARRAY_##name##_OFFSET)

static int move(umakit_device *device, const void *memory, uint32_t bytes, uint32_t direction)
{
    uint32_t address;
    int status = umakit_device_map(device, memory, bytes, direction == 0u ? UMAKIT_TO_DEVICE
                                                                           : UMAKIT_FROM_DEVICE,
                                   &address);

    if (status == UMAKIT_OK) {
        WRITE(INTERRUPT_ENABLE, UMAKIT_SYSTOLIC_ARRAY_INTERRUPT_ENABLE_DMA_DONE_MASK);
        WRITE(DMA_BUS_ADDRESS, address);
        WRITE(DMA_ROW_BYTES, bytes);
        WRITE(DMA_DIRECTION, direction);
        WRITE(CONTROL, UMAKIT_SYSTOLIC_ARRAY_CONTROL_CLEAR_MASK |
                           UMAKIT_SYSTOLIC_ARRAY_CONTROL_DMA_START_MASK);
        status = umakit_device_wait(device, 100000u);
        umakit_device_unmap(device, address);
    }
    return status;
}

int NAME_conv2dnchw(const float *ifmap, const float *weights, float *result, int oc, int iw,
                    int ih, int ic, int kh, int kw)
{
    umakit_device *device = NAME_device();
    const uint32_t bytes = (uint32_t)(oc * ih * iw) * 4u;
    int status;

    (void)weights;
    (void)ic;
    (void)kh;
    (void)kw;
    if (device == (umakit_device *)0 || READ(ID) != UMAKIT_SYSTOLIC_ARRAY_ID_RESET) {
        return UMAKIT_NO_DEVICE;
    }
    if (READ(ARRAY_ROWS) != 8u || READ(SCRATCHPAD_BYTES) != 4096u || READ(SCRATCHPAD_BANKS) != 4u ||
        READ(DMA_BYTES_PER_CYCLE) != 16u || READ(DMA_ALIGNMENT) != 4u ||
        READ(POOLING_LANES) != 2u ||
        READ(FEATURES) != (UMAKIT_SYSTOLIC_ARRAY_FEATURES_WEIGHT_STATIONARY_MASK |
                           UMAKIT_SYSTOLIC_ARRAY_FEATURES_DEPTHWISE_MASK |
                           UMAKIT_SYSTOLIC_ARRAY_FEATURES_POOLING_MASK)) {
        return UMAKIT_UNSUPPORTED;
    }
    status = move(device, ifmap, bytes, 0u);
    return status == UMAKIT_OK ? move(device, result, bytes, 1u) : status;
}
"""


def systolic_backend(folder: Path) -> umakit.UMABackend:
    """Vanilla's files with a systolic array as device and a driver that copies."""
    written = new_backend("copying_npu", folder, "vanilla").folder
    config = written / "accel.toml"
    text = config.read_text(encoding="utf-8")
    text = text.replace('simulator = "mac_array"', 'simulator = "systolic_array"')
    text = re.sub(
        r"(?m)^dataflow = .*$",
        'dataflow = "weight_stationary"\ndrain_cycles = 8\ndepthwise = true\npooling_lanes = 2',
        text,
    )
    config.write_text(text + DMA + MEMORY, encoding="utf-8")
    (written / "conv2dnchw.c").write_text(DRIVER.replace("NAME", "copying_npu"), encoding="utf-8")
    return umakit.find_backend(written)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One layer on the systolic array."""
    folder = tmp_path_factory.mktemp("systolic")
    graph = Graph()
    graph.output(graph.conv(graph.input("x", 1, 3, 6, 5), 3, 3))
    backend = systolic_backend(folder)
    return umakit.compile_model(save(graph.model(), folder), [backend], folder / "library").path


@pytest.mark.parametrize("name", ["host", "qemu-cortex-m3", "qemu-riscv32"])
def test_the_device_is_that_of_accel_toml(name: str, library: Path) -> None:
    device = find_device(name)
    if device.run and not (shutil.which(device.run[0]) and shutil.which(device.command)):
        pytest.skip(f"{name} is not installed")
    data = np.random.default_rng(0).normal(size=(2, 1, 3, 6, 5)).astype(np.float32)
    result = run_library(library, {"x": data}, device=name).outputs
    np.testing.assert_array_equal(next(iter(result.values())), data)


def test_only_what_is_used_is_shipped(library: Path) -> None:
    files = {path.name for path in (library / "codegen/host/src").rglob("*.[ch]")}
    kinds = {
        name: {Path(path).name for path in (*kind.sources, *kind.driver_headers, *kind.headers)}
        for name, kind in sim.KINDS.items()
    }
    assert kinds["systolic_array"] <= files
    assert not kinds["mac_array"] & files


def test_devices_of_both_kinds_live_in_one_program(tmp_path: Path) -> None:
    """One library has both, another one of them: what they share is built once."""
    graph = Graph()
    graph.output(graph.conv(graph.input("x", 1, 3, 6, 5), 3, 3))
    model = save(graph.model(), tmp_path)
    for name, backends in (("both", [systolic_backend(tmp_path), vanilla()]), ("one", [vanilla()])):
        umakit.compile_model(model, backends, tmp_path / name, name=name)
    (tmp_path / "main.c").write_text(
        '#include "tvmgen_both.h"\n#include "tvmgen_one.h"\nint main(void) { return 0; }\n',
        encoding="utf-8",
    )
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(app C)\n"
        "add_subdirectory(both)\nadd_subdirectory(one)\nadd_executable(app main.c)\n"
        "target_link_libraries(app tvmgen_both::tvmgen_both tvmgen_one::tvmgen_one)\n",
        encoding="utf-8",
    )
    flags = " ".join(WARNINGS)
    configure = ["-S", ".", "-B", "build", f"-DCMAKE_C_FLAGS={flags}"]
    cmake = functools.partial(
        subprocess.run, check=True, cwd=tmp_path, capture_output=True, text=True,
        env=cmake_builds.environment(quick=True),
    )  # fmt: skip
    cmake([cmake_builds.program(), *configure])
    built = cmake([cmake_builds.program(), "--build", "build"]).stdout
    for source in ("umakit_simulator.c", "umakit_mac_array.c", "umakit_systolic_array.c"):
        assert built.count(f"{source}.o") == 1, source


def test_the_docs_show_a_valid_accel_toml(tmp_path: Path) -> None:
    text = (Path(__file__).parents[1] / "docs/simulator.md").read_text(encoding="utf-8")
    (sections,) = re.findall(r"```toml\n(\[array\].*?)```", text, re.DOTALL)
    path = tmp_path / "accel.toml"
    path.write_text(f'[accelerator]\nname = "n"\n{sections}', encoding="utf-8")
    known = load_accelerator_config(path)
    assert known.device.simulator == "systolic_array" and known.scratchpads[0].banks == 4


BARE_METAL = {
    "arm-none-eabi-gcc": ["-mcpu=cortex-m3", "-mthumb"],
    "riscv64-unknown-elf-gcc": ["-march=rv32imac_zicsr", "-mabi=ilp32", "--specs=picolibc.specs"],
}


@pytest.mark.parametrize("compiler", BARE_METAL)
def test_it_compiles_for_bare_metal_and_needs_no_more_than_memcpy(
    compiler: str, tmp_path: Path
) -> None:
    if not shutil.which(compiler):
        pytest.skip(f"{compiler} is not installed")
    folder = sim.source_directory()
    sources = [*sim.SIMULATOR_SOURCES, *sim.COMMON_SOURCES, *sim.KINDS["systolic_array"].sources]
    subprocess.run(
        [compiler, *BARE_METAL[compiler], "-std=c99", "-O2", *WARNINGS,
         f"-I{folder / 'include'}", "-c", *(str(folder / source) for source in sources)],
        check=True, cwd=tmp_path,
    )  # fmt: skip
    symbols: dict[str, set[str]] = {"--undefined-only": set(), "--defined-only": set()}
    for option, names in symbols.items():
        listing = subprocess.run(
            ["nm", option, *map(str, tmp_path.glob("*.o"))],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        names |= {line.split()[-1] for line in listing.stdout.splitlines() if " " in line}
    needed = symbols["--undefined-only"] - symbols["--defined-only"]
    runtime = {name for name in needed if name.startswith("__")}
    assert needed - runtime <= {"memcpy", "memset", "memmove"}


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ("", "needs one .* address = .offset., not 0"),
        (MEMORY + MEMORY.replace("scratchpad", "other"), "not 2"),
        (MEMORY.replace("4096", "4100"), "scratchpad: 4100 bytes are not 4 banks"),
        (MEMORY.replace("banks = 4", "banks = 33"), "memory.0.banks"),
        (MEMORY + "[dma]\nalignment = 3\n", "dma.alignment: 3 is not a power of two"),
        (MEMORY + "[dma]\nbytes_per_cycle = 0\n", "dma.bytes_per_cycle"),
    ],
)
def test_an_impossible_device_is_named(sections: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "accel.toml"
    path.write_text(
        '[accelerator]\nname = "n"\n[array]\nrows = 1\ncolumns = 1\n'
        f'[device]\nsimulator = "systolic_array"\n{sections}',
        encoding="utf-8",
    )
    with pytest.raises(AcceleratorConfigError, match=message):
        load_accelerator_config(path)


@pytest.mark.parametrize(
    ("simulator", "array", "message"),
    [
        ("mac_array", 'dataflow = "input_stationary"', "needs simulator = .systolic_array."),
        ("systolic_array", 'dataflow = "is"', "array.dataflow"),
        ("systolic_array", 'dataflow = "input_stationary"\ndepthwise = true', "depthwise"),
        ("systolic_array", "drain_cycles = -1", "array.drain_cycles"),
    ],
)
def test_an_impossible_array_is_named(
    simulator: str, array: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "accel.toml"
    path.write_text(
        f'[accelerator]\nname = "n"\n[array]\nrows = 1\ncolumns = 1\n{array}\n'
        f'[device]\nsimulator = "{simulator}"\n{MEMORY}',
        encoding="utf-8",
    )
    with pytest.raises(AcceleratorConfigError, match=message):
        load_accelerator_config(path)
