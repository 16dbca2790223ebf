# SPDX-License-Identifier: Apache-2.0
"""The simulated devices that umakit ships: one entry of `KINDS` is all that it knows of each.

What a driver sees of one is `device/NAME_device.h.j2` and its register map in `registers`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Kind:
    """One of the simulated devices; `simulator = "..."` in `accel.toml`.

    The device of a driver is rendered from `device/NAME_device.c.j2` and `.h.j2`, with the sections
    of `accel.toml` as values.

    Attributes:
        sources: C files in addition to `SIMULATOR_SOURCES`, relative to `source_directory()`.
        driver_headers: what its drivers include, on a board too.
        headers: what only the simulator includes.
        check: takes an `AcceleratorConfig`; raises ValueError for what the device cannot be, or
            would ignore.
        has_dma: whether it has the DMA engine of the section `[dma]`.
        counts_accesses: whether it counts accesses to its memories as `umakit.machine.counts` does.
        board_defines: macros that `BOARD_SOURCES` need for its registers.
    """

    sources: tuple[str, ...]
    driver_headers: tuple[str, ...]
    headers: tuple[str, ...]
    check: Callable[[Any], None]
    has_dma: bool = False
    counts_accesses: bool = False
    board_defines: tuple[str, ...] = ()


MOST_BANKS = 32
"""The banks of the systolic array's scratchpad are bits of a word."""


def _check_mac_array(config: Any) -> None:
    """Refuse fields that only `systolic_array` implements."""
    array = config.array
    settings = {
        f'dataflow = "{array.dataflow}"': array.dataflow != "output_stationary",
        f"dataflows = {array.dataflows}": array.allowed_dataflows != ["output_stationary"],
        "preload = true": array.preload,
        f"preload_rows = {array.preload_rows}": array.preload_rows != 1,
        "pack_columns = true": array.pack_columns,
        f"accumulator_bytes = {array.accumulator_bytes}": array.accumulator_bytes != 0,
        f"setup_cycles = {array.setup_cycles}": array.setup_cycles != 0,
        "outstanding = true": config.dma.outstanding,
        f"command_queue = {config.device.command_queue}": config.device.command_queue != 0,
    }
    for setting, is_set in settings.items():
        if is_set:
            raise ValueError(f'{setting} needs simulator = "systolic_array"')


def _check_systolic_array(config: Any) -> None:
    array, scratchpads = config.array, config.scratchpads
    if len(scratchpads) != 1:
        raise ValueError(
            'simulator = "systolic_array" needs one [[memory]] with address = "offset", not '
            f"{len(scratchpads)}"
        )
    (memory,) = scratchpads
    key = f"memory.{config.memory.index(memory)}"
    if memory.banks > MOST_BANKS:
        raise ValueError(
            f"{key}.banks: {memory.name} has more than the {MOST_BANKS} banks of "
            f'simulator = "systolic_array": write {MOST_BANKS} or less'
        )
    if memory.size % (4 * memory.banks):
        raise ValueError(
            f"{key}.size: {memory.name}: {memory.size} bytes are not {memory.banks} "
            f"banks of whole 32-bit words: write a multiple of {4 * memory.banks}"
        )
    if array.depthwise and array.allowed_dataflows == ["input_stationary"]:
        raise ValueError(
            "depthwise convolutions cannot be input_stationary: each input meets one weight only"
        )
    if array.pack_columns and "output_stationary" not in array.allowed_dataflows:
        raise ValueError("pack_columns needs output_stationary among the dataflows")


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
            "include/umakit/mac_array_job.h",
        ),
        check=_check_mac_array,
    ),
    "systolic_array": Kind(
        sources=(
            "src/umakit_systolic_accesses.c",
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
            "include/umakit/systolic_engines.h",
            "include/umakit/systolic_jobs.h",
            "include/umakit/systolic_register_file.h",
            "include/umakit/systolic_scratchpad.h",
            "include/umakit/systolic_taps.h",
        ),
        check=_check_systolic_array,
        has_dma=True,
        counts_accesses=True,
        board_defines=("UMAKIT_DEVICE_IS_SYSTOLIC_ARRAY",),
    ),
}
