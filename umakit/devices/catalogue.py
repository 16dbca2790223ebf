# SPDX-License-Identifier: Apache-2.0
"""The supported devices."""

from __future__ import annotations

from umakit.devices.device import Device
from umakit.errors import InputError

QUIET = ("-display", "none", "-monitor", "none", "-serial", "none")

# An instruction takes 1 ns of emulated time, so that counters count instructions.
COUNTING = ("-icount", "shift=0")

RISCV_MACHINE = ("-M", "virt", "-m", "128M", "-bios", "none", *QUIET, *COUNTING)
RISCV_PACKAGES = ("gcc-riscv64-unknown-elf", "picolibc-riscv64-unknown-elf", "qemu-system-misc")

HOST = Device(
    name="host",
    description="this machine, with $CC or its C compiler",
    packages=("gcc", "libc6-dev"),
    has_time=True,
)

RTL = Device(
    name="rtl",
    description="this machine, where designs of [rtl] answer in place of simulators",
    packages=("verilator", "g++", "make", "zlib1g-dev"),
    has_time=True,
    runs_rtl=True,
)
"""Chosen with `--rtl`: it needs the folders of backends, which a library does not have."""

DEVICES = (
    HOST,
    Device(
        name="qemu-aarch64",
        description="64-bit Arm with Linux, emulated",
        command="aarch64-linux-gnu-gcc",
        size="aarch64-linux-gnu-size",
        packages=("gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross", "qemu-user"),
        emulator=("qemu-aarch64",),
        replaced=("tanhf.c",),
        linking=("-static",),
        processor="aarch64",
    ),
    Device(
        name="qemu-arm",
        description="32-bit Arm with Linux and hardware floating point, emulated",
        command="arm-linux-gnueabihf-gcc",
        size="arm-linux-gnueabihf-size",
        packages=("gcc-arm-linux-gnueabihf", "libc6-dev-armhf-cross", "qemu-user"),
        emulator=("qemu-arm",),
        linking=("-static",),
    ),
    Device(
        name="qemu-cortex-m3",
        description="Cortex-M3 without an operating system, software floating point, emulated",
        command="arm-none-eabi-gcc",
        architecture=("-mcpu=cortex-m3", "-mthumb"),
        size="arm-none-eabi-size",
        packages=("gcc-arm-none-eabi", "libnewlib-arm-none-eabi", "qemu-system-arm"),
        emulator=("qemu-system-arm", "-M", "mps2-an385", *QUIET, *COUNTING),
        start_up="cortex_m3",
        replaced=("expf.c",),
        counts_instructions=True,
    ),
    Device(
        name="qemu-riscv32",
        description="RV32IMAC without an operating system, software floating point, emulated",
        command="riscv64-unknown-elf-gcc",
        architecture=(
            "--specs=picolibc.specs", "-march=rv32imac", "-mabi=ilp32", "-mcmodel=medany",
        ),
        size="riscv64-unknown-elf-size",
        packages=RISCV_PACKAGES,
        emulator=("qemu-system-riscv32", *RISCV_MACHINE),
        start_up="riscv",
        replaced=("expf.c",),
        counts_instructions=True,
    ),
    Device(
        name="qemu-riscv64",
        description="RV64GC without an operating system, emulated",
        command="riscv64-unknown-elf-gcc",
        architecture=(
            "--specs=picolibc.specs", "-march=rv64imafdc", "-mabi=lp64d", "-mcmodel=medany",
        ),
        size="riscv64-unknown-elf-size",
        packages=RISCV_PACKAGES,
        emulator=("qemu-system-riscv64", *RISCV_MACHINE),
        start_up="riscv",
        replaced=("expf.c",),
        counts_instructions=True,
    ),
)  # fmt: skip


def find_device(name: str) -> Device:
    """Return the device of a name.

    Raises:
        InputError: there is no such device; lists the existing ones.
    """
    for device in (*DEVICES, RTL):
        if device.name == name:
            return device
    names = ", ".join(device.name for device in DEVICES)
    raise InputError(f"there is no device {name!r}", fix=f"devices are {names}")
