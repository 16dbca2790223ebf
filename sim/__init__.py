# SPDX-License-Identifier: Apache-2.0
"""The C simulator of MAC-array accelerators, as files to compile or to export."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = [
    "ARITHMETIC_HEADER",
    "BOARD_SOURCES",
    "COMMON_HEADERS",
    "COMMON_SOURCES",
    "KINDS",
    "MOCK_SOURCES",
    "PROGRAM_HEADERS",
    "PROGRAM_SOURCES",
    "SIMULATOR_HEADERS",
    "SIMULATOR_SOURCES",
    "Kind",
    "source_directory",
]


@dataclass(frozen=True)
class Kind:
    """One of the simulated devices; `simulator = "..."` in `accel.toml`.

    Attributes:
        sources: C files in addition to `SIMULATOR_SOURCES`, relative to `source_directory()`.
        driver_headers: what its drivers include, on a board too.
        headers: what only the simulator includes.
    """

    sources: tuple[str, ...]
    driver_headers: tuple[str, ...]
    headers: tuple[str, ...]


#: C files that all simulated devices need, relative to `source_directory()`.
SIMULATOR_SOURCES: tuple[str, ...] = (
    "src/umakit_faults.c",
    "src/umakit_host.c",
    "src/umakit_simulator.c",
    "src/umakit_systolic_cycles.c",
    "src/umakit_windows.c",
)

#: The simulated devices by name.
KINDS: Mapping[str, Kind] = {
    "mac_array": Kind(
        sources=(
            "src/umakit_mac_array.c",
            "src/umakit_mac_array_convolution.c",
            "src/umakit_mac_array_job.c",
        ),
        driver_headers=("include/umakit/mac_array_registers.h",),
        headers=(
            "include/umakit/mac_array.h",
            "include/umakit/mac_array_convolution.h",
            "include/umakit/mac_array_job.h",
        ),
    ),
    "systolic_array": Kind(
        sources=(
            "src/umakit_systolic_array.c",
            "src/umakit_systolic_commands.c",
            "src/umakit_systolic_compute.c",
            "src/umakit_systolic_costs.c",
            "src/umakit_systolic_dma.c",
            "src/umakit_systolic_engines.c",
            "src/umakit_systolic_job.c",
            "src/umakit_systolic_operands.c",
            "src/umakit_systolic_output.c",
            "src/umakit_systolic_pooling.c",
            "src/umakit_systolic_queue.c",
            "src/umakit_systolic_read.c",
            "src/umakit_systolic_run.c",
            "src/umakit_systolic_scratchpad.c",
            "src/umakit_systolic_timeline.c",
            "src/umakit_systolic_write.c",
        ),
        driver_headers=("include/umakit/systolic_array_registers.h",),
        headers=(
            "include/umakit/systolic_array.h",
            "include/umakit/systolic_command.h",
            "include/umakit/systolic_commands.h",
            "include/umakit/systolic_compute.h",
            "include/umakit/systolic_costs.h",
            "include/umakit/systolic_dma.h",
            "include/umakit/systolic_engines.h",
            "include/umakit/systolic_job.h",
            "include/umakit/systolic_operands.h",
            "include/umakit/systolic_output.h",
            "include/umakit/systolic_pooling.h",
            "include/umakit/systolic_queue.h",
            "include/umakit/systolic_read.h",
            "include/umakit/systolic_register_file.h",
            "include/umakit/systolic_run.h",
            "include/umakit/systolic_scratchpad.h",
            "include/umakit/systolic_taps.h",
            "include/umakit/systolic_timeline.h",
            "include/umakit/systolic_write.h",
        ),
    ),
}

#: C files that every device needs, simulated or not, relative to `source_directory()`.
COMMON_SOURCES: tuple[str, ...] = ("src/umakit_status.c",)

#: C files that replace the simulator on a board; they need `UMAKIT_DEVICE_BASE`.
BOARD_SOURCES: tuple[str, ...] = ("board/umakit_device_memory_mapped.c",)

#: C files that replace the simulator in tests of drivers.
MOCK_SOURCES: tuple[str, ...] = ("mock/umakit_device_mock.c",)

#: C files of a simulator that is a program, for hosts with POSIX.
PROGRAM_SOURCES: tuple[str, ...] = (
    "program/umakit_child_process.c",
    "program/umakit_simulator_program.c",
)

#: Headers of `PROGRAM_SOURCES`.
PROGRAM_HEADERS: tuple[str, ...] = (
    "include/umakit/child_process.h",
    "include/umakit/simulator_program.h",
)

#: Integer arithmetic of quantized operators, for drivers, devices and generated code alike.
ARITHMETIC_HEADER = "include/umakit/requantize.h"

#: Headers of all drivers, included as "umakit/<name>.h" with `include` on the search path.
COMMON_HEADERS: tuple[str, ...] = (
    "include/umakit/device.h",
    "include/umakit/memory_mapped.h",
    "include/umakit/static_assert.h",
    "include/umakit/status.h",
)

#: Headers of the simulator that a board has no use for.
SIMULATOR_HEADERS: tuple[str, ...] = (
    "include/umakit/faults.h",
    "include/umakit/own_simulator.h",
    "include/umakit/saturating.h",
    "include/umakit/simulator.h",
    "include/umakit/simulator_faults.h",
    "include/umakit/simulator_windows.h",
    "include/umakit/systolic_cycles.h",
    "include/umakit/trace.h",
)


def source_directory() -> pathlib.Path:
    """Return the folder that the paths of this module are relative to."""
    return pathlib.Path(__file__).resolve().parent
