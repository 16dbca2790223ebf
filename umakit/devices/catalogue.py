# SPDX-License-Identifier: Apache-2.0
"""The supported devices."""

from __future__ import annotations

import os
import re
from pathlib import Path

from umakit.devices.addresses import is_address, parse_address
from umakit.devices.board_files import FOLDER, board_names, read_board
from umakit.devices.device import Device
from umakit.devices.remote_machines import asked_device, completed
from umakit.errors import InputError

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

ADDRESSES = "ssh://HOST, rpc://HOST:PORT, or a board's TOML file"
"""What else a device may be, for people."""

DEVICES = (
    HOST,
    *(read_board(FOLDER / f"{name}.toml", is_own=False) for name in board_names()),
)


def find_device(name: str | os.PathLike[str] | Device) -> Device:
    """Return the device of a name, an address, or the one that a TOML file describes.

    Args:
        name: a name of `DEVICES`, an address (`ssh://`, `rpc://`), the path of a TOML file, or a
            device, which is returned.

    Raises:
        InputError: there is no such device, or the file describes none.
        UmakitError: the machine of an address cannot be asked what it is, see `asked_device`.
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
    """Return the file of a device that `find_device` reads for a user; None for an address, and for
    a name, which has only small letters, digits and hyphens."""
    text = os.fspath(name)
    return None if is_address(text) or re.fullmatch(r"[a-z0-9-]*", text) else Path(text)
