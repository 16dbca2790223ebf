# SPDX-License-Identifier: Apache-2.0
"""Machines that are reached by an address: asked once what they are; their compilers."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from umakit.devices.addresses import RPC, Address
from umakit.devices.board_files import FOLDER, read_board
from umakit.devices.device import Device
from umakit.devices.machine_names import processor_of
from umakit.devices.ssh_client import SshClient
from umakit.errors import BuildError
from umakit.files.compilers import host_compiler
from umakit.machine.cpu import MACHINES, features_in

ASKING_SECONDS = 60.0

QUESTION = """\
printf '\\n%s ended %s\\n' "$mark" "$(uname -m)"
cat /proc/cpuinfo 2>/dev/null
"""

CROSS = {"aarch64": "qemu-aarch64", "armv7l": "qemu-arm", "armv8l": "qemu-arm",
         "riscv64": "qemu-riscv64-linux"}  # fmt: skip
"""Devices whose compilers compile for a machine, by what `uname -m` says of it."""

X86 = Device(
    name="x86-64",
    description="64-bit x86 with Linux",
    command="x86_64-linux-gnu-gcc",
    size="x86_64-linux-gnu-size",
    packages=("gcc-x86-64-linux-gnu", "libc6-dev-amd64-cross"),
    processors=("x86-64",),
)


def asked_device(address: Address, options: Sequence[str] = ()) -> Device:
    """Return the device of an address, which is asked once in a process what it is.

    Args:
        address: where it is.
        options: options of ssh.

    Raises:
        UmakitError: there is no connection, or umakit has no compiler for the machine.
    """
    return _asked(address, tuple(options))


def completed(device: Device) -> Device:
    """Return a device of a file, with the compiler for its machine if the file names none.

    Raises:
        UmakitError: as of `asked_device`.
    """
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
def _asked(address: Address, options: tuple[str, ...]) -> Device:
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
    """Return a device with the compiler for a machine.

    Args:
        machine: what `uname -m` says there.
        where: the address, for messages.

    Raises:
        BuildError: there is none.
    """
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
