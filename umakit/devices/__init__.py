# SPDX-License-Identifier: Apache-2.0
"""Devices for exported libraries. Imports neither TVM nor the pipeline.

>>> find_device("qemu-cortex-m3").compiler()
['arm-none-eabi-gcc', '-mcpu=cortex-m3', '-mthumb']
"""

from __future__ import annotations

from umakit.devices.catalogue import DEVICES, HOST, find_device
from umakit.devices.device import DEFAULT_TIMEOUT, Device
from umakit.devices.execution import check_memory, execute

__all__ = ["DEFAULT_TIMEOUT", "DEVICES", "HOST", "Device", "check_memory", "execute", "find_device"]
