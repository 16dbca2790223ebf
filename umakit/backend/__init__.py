# SPDX-License-Identifier: Apache-2.0
"""What a hardware team subclasses and configures; the names here are public.

`UMABackend` is the class that a backend is. `accel.toml` is read as an `AcceleratorConfig`.
"""

from umakit.backend.base import PassPhase, Pattern, UMABackend
from umakit.backend.registry import find_backend, list_backends, load_backend_folder
from umakit.backend.strategy import OpStrategy
from umakit.backend.target import create_target, target_attributes
from umakit.backend.undecided import undecided
from umakit.machine.accelerator_config import (
    AcceleratorConfig,
    AcceleratorSection,
    ArraySection,
    DeviceSection,
    DmaSection,
    MemorySection,
)

__all__ = [
    "AcceleratorConfig",
    "AcceleratorSection",
    "ArraySection",
    "DeviceSection",
    "DmaSection",
    "MemorySection",
    "OpStrategy",
    "PassPhase",
    "Pattern",
    "UMABackend",
    "create_target",
    "find_backend",
    "list_backends",
    "load_backend_folder",
    "target_attributes",
    "undecided",
]
