# SPDX-License-Identifier: Apache-2.0
"""Running a program on a machine with an address, whichever way leads there."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from umakit.devices.addresses import RPC
from umakit.devices.device import Device
from umakit.devices.ssh_client import SshClient
from umakit.devices.ssh_run import LateError, run_over_ssh

__all__ = ["LateError", "run_remotely"]


def run_remotely(
    device: Device, program: Path, arguments: Sequence[str], folder: Path, seconds: float
) -> subprocess.CompletedProcess[str]:
    """Run a program on a device that has an address, and remove there what was copied.

    Args:
        device: the device.
        program: the program, or for TVM's server the shared object.
        arguments: arguments of `main`; file names are relative to the folder.
        folder: folder of the files of inputs, which gets what the program writes.
        seconds: time limit.

    Returns:
        Standard output, standard error and exit code, which is negative for a signal.

    Raises:
        LateError: it did not end in time.
        UmakitError: there is no connection, it was lost, or the program cannot run there.
    """
    assert device.remote is not None
    if device.remote.scheme == RPC:
        from umakit.devices.rpc_run import run_over_rpc

        return run_over_rpc(device.remote, program, arguments, folder, seconds)
    client = SshClient(device.remote, device.ssh_options)
    return run_over_ssh(client, program, arguments, folder, seconds)
