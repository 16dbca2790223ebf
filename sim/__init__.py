# SPDX-License-Identifier: Apache-2.0
"""The C simulator of MAC-array accelerators, as files to compile or to export."""

from __future__ import annotations

import pathlib

__all__ = [
    "ARITHMETIC_HEADER",
    "BOARD_SOURCES",
    "COMMON_SOURCES",
    "HEADERS",
    "SIMULATOR_SOURCES",
    "source_directory",
]

#: C files of the simulator, relative to `source_directory()`.
SIMULATOR_SOURCES: tuple[str, ...] = (
    "src/umakit_convolution.c",
    "src/umakit_cycles.c",
    "src/umakit_simulator.c",
    "src/umakit_windows.c",
)

#: C files that every device needs, simulated or not, relative to `source_directory()`.
COMMON_SOURCES: tuple[str, ...] = ("src/umakit_status.c",)

#: C files that replace the simulator on a board; they need `UMAKIT_DEVICE_BASE`.
BOARD_SOURCES: tuple[str, ...] = ("board/umakit_device_memory_mapped.c",)

#: Integer arithmetic of quantized operators, for drivers, devices and generated code alike.
ARITHMETIC_HEADER = "include/umakit/requantize.h"

#: Headers of both, included as "umakit/<name>.h" with `include` on the search path.
HEADERS: tuple[str, ...] = (
    "include/umakit/device.h",
    "include/umakit/mac_array_registers.h",
    "include/umakit/memory_mapped.h",
    "include/umakit/simulator.h",
    "include/umakit/simulator_internal.h",
    "include/umakit/static_assert.h",
    "include/umakit/status.h",
)


def source_directory() -> pathlib.Path:
    """Return the folder that the paths of this module are relative to."""
    return pathlib.Path(__file__).resolve().parent
