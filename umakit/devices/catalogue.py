# SPDX-License-Identifier: Apache-2.0
"""The supported devices."""

from __future__ import annotations

import os
import re
from pathlib import Path

from umakit.devices.board_files import FOLDER, board_names, read_board
from umakit.devices.device import Device
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

DEVICES = (
    HOST,
    *(read_board(FOLDER / f"{name}.toml", is_own=False) for name in board_names()),
)


def find_device(name: str | os.PathLike[str] | Device) -> Device:
    """Return the device of a name, or the one that a TOML file describes.

    Args:
        name: a name of `DEVICES`, the path of a TOML file, or a device, which is returned.

    Raises:
        InputError: there is no such device, or the file describes none.
    """
    if isinstance(name, Device):
        return name
    text = os.fspath(name)
    for device in (*DEVICES, RTL):
        if device.name == text:
            return device
    file = device_file(name)
    if file is not None:
        return read_board(file)
    names = ", ".join(device.name for device in DEVICES)
    raise InputError(f"there is no device {text!r}", fix=f"devices are {names}, or a TOML file")


def device_file(name: str | os.PathLike[str]) -> Path | None:
    """Return the file of a device that `find_device` reads for a user; None for a name, which has
    only small letters, digits and hyphens."""
    text = os.fspath(name)
    return None if re.fullmatch(r"[a-z0-9-]*", text) else Path(text)
