# SPDX-License-Identifier: Apache-2.0
"""A clock that only planted work moves: drivers, devices and steps take as long as a test says."""

from __future__ import annotations

import re
from pathlib import Path

CLOCK = """\
#define _POSIX_C_SOURCE 200809L
#include <stdint.h>
#include <time.h>

static uint64_t now;

void planted_work(uint64_t nanoseconds);
void planted_work(uint64_t nanoseconds)
{
    now += nanoseconds;
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
    (void)clock;
    time->tv_sec = (time_t)(now / 1000000000u);
    time->tv_nsec = (long)(now % 1000000000u);
    return 0;
}
"""
"""In place of the clocks of the system, of all of them."""

DECLARED = "extern void planted_work(unsigned long nanoseconds);"

READ, WRITE, WAIT = 11, 7, 60_000
"""Work of a driver before each access to a register, and before a wait: a long one, in which other
processes would run."""

DEVICE_READ, DEVICE_WRITE, DEVICE_WAIT = 30, 50, 200_000
"""Work of a device in the same calls."""

STEP = 900
"""Work of a step on the CPU, times its number."""


def plant_in_driver(path: Path) -> None:
    """Let a driver work before it calls its device."""
    macros = [DECLARED]
    for name, arguments, work in (
        ("read32", "d, o", READ), ("write32", "d, o, v", WRITE), ("wait", "d, c", WAIT)
    ):  # fmt: skip
        call = f"umakit_device_{name}({arguments})"
        macros.append(f"#define {call} (planted_work({work}u), {call})")
    text = path.read_text(encoding="utf-8")
    end = [match.end() for match in re.finditer(r"^#include .*\n", text, re.MULTILINE)][-1]
    path.write_text(f"{text[:end]}{chr(10).join(macros)}\n{text[end:]}", encoding="utf-8")


def plant_in_device(path: Path, prefix: str = "umakit_device_") -> None:
    """Let the functions of a device, or of a simulator's table, work."""
    text = path.read_text(encoding="utf-8")
    for name, work in (("read32", DEVICE_READ), ("write32", DEVICE_WRITE), ("wait", DEVICE_WAIT)):
        form = rf"^([a-z][^\n;]*\b{prefix}{name}\([^;{{}}]*\)\n\{{\n)"
        text, count = re.subn(form, rf"\1    planted_work({work}u);\n", text, flags=re.MULTILINE)
        assert count == 1, name
    include = text.index("#include")
    path.write_text(f"{text[:include]}{DECLARED}\n{text[include:]}", encoding="utf-8")


def plant_in_steps(path: Path, steps: list[int]) -> None:
    """Let steps on the CPU work, by their numbers."""
    text = path.read_text(encoding="utf-8")
    for step in steps:
        hook = f"    AFTER_LAYER({step});\n"
        assert text.count(hook) == 1
        text = text.replace(hook, f"    planted_work({STEP * (step + 1)}u);\n{hook}")
    include = text.index("#include")
    path.write_text(f"{text[:include]}{DECLARED}\n{text[include:]}", encoding="utf-8")


PARTS = {
    "main.c": f"""\
#include "umakit/device.h"
#include "umakit_platform.h"
{DECLARED}
void umakit_device_times(uint64_t times[4]);
int drive(umakit_device *device);

int main(void)
{{
    uint64_t before[4];
    uint64_t after[4];

    umakit_device_times(before);
    if (drive((umakit_device *)before) != 0) {{
        return 1;
    }}
    planted_work(5u);
    umakit_device_times(after);
    umakit_platform_print_number(after[0] - before[0]);
    umakit_platform_print(" ");
    umakit_platform_print_number(after[2] - before[2]);
    return 0;
}}
""",
    "driver.c": f"""\
#include "umakit/device.h"
{DECLARED}
int drive(umakit_device *device);

int drive(umakit_device *device)
{{
    uint32_t address;
    int status;

    planted_work(1000u);
    status = umakit_device_map(device, device, 4u, UMAKIT_TO_DEVICE, &address);
    planted_work(1000u);
    umakit_device_write32(device, 0u, address);
    planted_work(1000u);
    umakit_device_barrier(device);
    planted_work(1000u);
    status |= umakit_device_wait(device, 1u);
    planted_work(1000u);
    status |= (int)umakit_device_read32(device, 0u);
    planted_work(1000u);
    umakit_device_unmap(device, address);
    return status;
}}
""",
    # The wait reads a register, which is no call of the driver's.
    "umakit_simulator.c": f"""\
#include "umakit/device.h"
{DECLARED}
uint32_t umakit_device_read32(umakit_device *device, uint32_t offset)
{{
    (void)device;
    planted_work(40u);
    return offset;
}}
void umakit_device_write32(umakit_device *device, uint32_t offset, uint32_t value)
{{
    (void)device, (void)offset, (void)value;
    planted_work(40u);
}}
int umakit_device_map(umakit_device *device, const void *memory, size_t bytes,
                      enum umakit_direction direction, uint32_t *bus_address)
{{
    (void)device, (void)memory, (void)bytes, (void)direction;
    planted_work(40u);
    *bus_address = 0u;
    return 0;
}}
void umakit_device_unmap(umakit_device *device, uint32_t bus_address)
{{
    (void)device, (void)bus_address;
    planted_work(40u);
}}
int umakit_device_wait(umakit_device *device, uint32_t timeout_cycles)
{{
    (void)timeout_cycles;
    planted_work(70000u);
    return (int)umakit_device_read32(device, 0u);
}}
void umakit_device_barrier(umakit_device *device)
{{
    (void)device;
    planted_work(40u);
}}
""",
}
"""A program with a driver and a device."""
