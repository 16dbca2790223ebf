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

CORTEX_M_PACKAGES = ("gcc-arm-none-eabi", "libnewlib-arm-none-eabi", "qemu-system-arm")
ARM_V7M = ("armv6-m", "armv7-m")
ARM_V7EM = (*ARM_V7M, "armv7e-m")
ARM_V81M = (*ARM_V7EM, "armv8-m", "armv8.1-m")
"""Architectures of microcontrollers, each with those whose programs run on it. Those of ARMv8-M
without its main extension, `armv8-m.base`, have no device."""


def _cortex_m(
    name: str,
    machine: str,
    script: str,
    description: str,
    flags: tuple[str, ...],
    processors: tuple[str, ...],
    features: tuple[str, ...] = (),
) -> Device:
    return Device(
        name=f"qemu-{name}",
        description=f"{name.title()} without an operating system, {description}, emulated",
        command="arm-none-eabi-gcc",
        architecture=(f"-mcpu={name}", "-mthumb", *flags),
        size="arm-none-eabi-size",
        packages=CORTEX_M_PACKAGES,
        emulator=("qemu-system-arm", "-M", machine, *QUIET, *COUNTING),
        start_up="cortex_m",
        linker_script=script,
        replaced=("expf.c", "tanhf.c") if "fp32" in features else ("expf.c",),
        counts_instructions=True,
        processors=processors,
        features=features,
    )


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
        processors=("aarch64",),
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
    _cortex_m(
        "cortex-m3", "mps2-an385", "cortex_m3", "software floating point", (), ARM_V7M,
    ),
    _cortex_m(
        "cortex-m4", "mps2-an386", "cortex_m3", "DSP extension and float32",
        ("-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"), ARM_V7EM, ("dsp", "fp32"),
    ),
    _cortex_m(
        "cortex-m7", "mps2-an500", "cortex_m3", "DSP extension, float32 and float64",
        ("-mfloat-abi=hard", "-mfpu=fpv5-d16"), ARM_V7EM, ("dsp", "fp32", "fp64"),
    ),
    _cortex_m(
        "cortex-m55", "mps3-an547", "cortex_m55", "vectors (MVE), float32 and float64",
        ("-mfloat-abi=hard",), ARM_V81M, ("dsp", "fp32", "fp64", "mve"),
    ),
    Device(
        name="qemu-riscv64-linux",
        description="64-bit RISC-V with Linux and vectors, emulated",
        command="clang-16",
        # QEMU 7.2 ends with an assertion at vectors of floats that compilers make of loops.
        architecture=(
            "--target=riscv64-linux-gnu", "-march=rv64gc", "-mabi=lp64d",
            "-mllvm", "-vectorize-loops=0", "-mllvm", "-vectorize-slp=0",
        ),
        processors=("riscv64",),
        features=("v",),
        size="riscv64-linux-gnu-size",
        packages=("clang-16", "gcc-riscv64-linux-gnu", "libc6-dev-riscv64-cross", "qemu-user"),
        emulator=("qemu-riscv64", "-cpu", "rv64,v=true,vext_spec=v1.0"),
        replaced=("tanhf.c",),
        linking=("-static",),
    ),
    Device(
        name="qemu-riscv32",
        description="RV32IMAC without an operating system, software floating point, emulated",
        command="riscv64-unknown-elf-gcc",
        architecture=(
            "--specs=picolibc.specs", "-march=rv32imac", "-mabi=ilp32", "-mcmodel=medany",
        ),
        processors=("riscv32",),
        features=(),
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
        processors=("riscv64",),
        features=(),
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
