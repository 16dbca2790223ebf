# SPDX-License-Identifier: Apache-2.0
"""The supported devices."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

from umakit.cpu.description import MACHINES, features_in
from umakit.devices.addresses import RPC, Address, is_address, parse_address
from umakit.devices.board_files import FOLDER, board_names, read_board
from umakit.devices.device import Device
from umakit.devices.machine_names import processor_of
from umakit.devices.ssh_client import SshClient
from umakit.errors import BuildError, InputError
from umakit.files.compiled_files import host_compiler

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
"""Chosen with `--rtl`, because it needs the folders of backends, which a library lacks."""

ADDRESSES = "ssh://HOST, rpc://HOST:PORT, or a board's TOML file"
"""Further forms of a device, for messages."""

DEVICES = (
    HOST,
    *(read_board(FOLDER / f"{name}.toml", is_own=False) for name in board_names()),
)


def find_device(name: str | os.PathLike[str] | Device) -> Device:
    """Return the device for a name, an address, or a TOML file.

    Args:
        name: a name of `DEVICES`, an address (`ssh://`, `rpc://`), the path of a TOML file, or a
            device, which is returned.
    """
    if isinstance(name, Device):
        return name
    text = os.fspath(name)
    for device in (*DEVICES, RTL):
        if device.name == text:
            return device
    if is_address(text):
        return asked_device(parse_address(text))
    file = device_file(name)
    if file is not None:
        return completed(read_board(file))
    names = ", ".join(device.name for device in DEVICES)
    raise InputError(f"there is no device {text!r}", fix=f"devices are {names}, {ADDRESSES}")


def device_file(name: str | os.PathLike[str]) -> Path | None:
    """Return the path of a user's device file that `find_device` reads.

    None for an address, and for a name, which has only small letters, digits and hyphens.
    """
    text = os.fspath(name)
    return None if is_address(text) or re.fullmatch(r"[a-z0-9-]*", text) else Path(text)


ASKING_SECONDS = 60.0

QUESTION = """\
printf '\\n%s ended %s\\n' "$mark" "$(uname -m)"
cat /proc/cpuinfo 2>/dev/null
"""

CROSS = {"aarch64": "qemu-aarch64", "armv7l": "qemu-arm", "armv8l": "qemu-arm",
         "riscv64": "qemu-riscv64-linux"}  # fmt: skip
"""Devices whose compilers target a machine, by the machine's `uname -m`."""

X86 = Device(
    name="x86-64",
    description="64-bit x86 with Linux",
    command="x86_64-linux-gnu-gcc",
    size="x86_64-linux-gnu-size",
    packages=("gcc-x86-64-linux-gnu", "libc6-dev-amd64-cross"),
    processors=("x86-64",),
)


def completed(device: Device) -> Device:
    """Return a device described by a file; a missing compiler is chosen for its machine."""
    if device.remote is None or device.command:
        return device
    asked = asked_device(device.remote, device.ssh_options)
    return replace(
        device,
        command=asked.command,
        architecture=(*asked.architecture, *device.architecture),
        size=asked.size,
        packages=device.packages or asked.packages,
        linking=device.linking or asked.linking,
        replaced=device.replaced or asked.replaced,
        processors=device.processors or asked.processors,
        features=asked.features if device.features is None else device.features,
    )


@cache
def asked_device(address: Address, options: tuple[str, ...] = ()) -> Device:
    """Return the device at an address; the machine is queried once per process."""
    if address.scheme == RPC:
        from umakit.devices.rpc_run import machine_of_server

        machine, features = machine_of_server(address), None
    else:
        answer = SshClient(address, options).talk(QUESTION, limit=ASKING_SECONDS)
        machine = answer.said["ended"]
        features = features_in(answer.rest.decode("ascii", "replace"))
    device = _compiled_for(machine, str(address))
    return replace(
        device,
        name=str(address),
        description=f"{machine}, reached by {address.scheme.upper()}",
        run=(),
        linking=("-static",) if address.scheme != RPC else (),
        has_time=True,
        features=features,
        remote=address,
        ssh_options=options,
        folder_name=f"{address.scheme}-{machine}",
    )


def _compiled_for(machine: str, where: str) -> Device:
    """Return a device with the compiler for a machine with this output of `uname -m`."""
    machine = {"arm64": "aarch64", "amd64": "x86_64"}.get(machine, machine)
    architecture = MACHINES.get(machine, machine)
    if processor_of(machine) == processor_of(platform.machine()) != "Arm":
        command, *flags = host_compiler()
        return Device(
            name="here", description="", command=command, architecture=tuple(flags),
            packages=("gcc", "libc6-dev"), processors=(architecture,),
        )  # fmt: skip
    if machine in CROSS:
        return read_board(FOLDER / f"{CROSS[machine]}.toml", is_own=False)
    if machine == "x86_64":
        return X86
    raise BuildError(
        f"umakit has no compiler for {machine or 'an unknown machine'}",
        where=where,
        fix=f'describe it in a TOML file with remote = "{where}", compiler and flags: '
        "--device FILE.toml",
    )
