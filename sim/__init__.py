# SPDX-License-Identifier: Apache-2.0
"""The C simulator of MAC-array accelerators, as files to compile or to export."""

from __future__ import annotations

import pathlib

from umakit.sim.kinds import KINDS, Kind

__all__ = [
    "ARITHMETIC_HEADER",
    "BOARD_INTERRUPT",
    "BOARD_SOURCES",
    "COMMON_HEADERS",
    "COMMON_SOURCES",
    "INLINE_HEADERS",
    "KINDS",
    "MOCK_SOURCES",
    "PROGRAM_HEADERS",
    "PROGRAM_SOURCES",
    "SIMULATOR_HEADERS",
    "SIMULATOR_SOURCES",
    "Kind",
    "source_directory",
]


#: C files that all simulated devices need, relative to `source_directory()`.
SIMULATOR_SOURCES: tuple[str, ...] = (
    "src/umakit_faults.c",
    "src/umakit_host.c",
    "src/umakit_simulator.c",
    "src/umakit_systolic_cycles.c",
    "src/umakit_windows.c",
)

#: C files that every device needs, simulated or not, relative to `source_directory()`.
COMMON_SOURCES: tuple[str, ...] = ("src/umakit_status.c",)

#: C files that replace the simulator on a board; they need `UMAKIT_DEVICE_BASE`.
BOARD_SOURCES: tuple[str, ...] = ("board/umakit_device_memory_mapped.c",)

#: What they are compiled with for a device with registers of its own.
BOARD_INTERRUPT = "UMAKIT_BOARD_HAS_INTERRUPT"

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

#: Sums of products of integers for kernels of CPUs; headers of instruction sets include it.
DOT_PRODUCTS_HEADER = "include/umakit/dot_products.h"

#: Headers that are exported if a file includes them, with the headers that each includes.
INLINE_HEADERS: dict[str, tuple[str, ...]] = {
    ARITHMETIC_HEADER: (),
    "include/umakit/status.h": (),
    "include/umakit/static_assert.h": (),
    "include/umakit/reference.h": (ARITHMETIC_HEADER,),
    **{
        f"include/umakit/dot_products_{form}.h": (DOT_PRODUCTS_HEADER, ARITHMETIC_HEADER)
        for form in ("avx2", "mve", "rvv", "sdot", "smlad", "vnni")
    },
    DOT_PRODUCTS_HEADER: (ARITHMETIC_HEADER,),
}

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
