# SPDX-License-Identifier: Apache-2.0
"""The public interface for backends: base class, configuration and operator strategies.

Backends subclass `UMABackend`. `AcceleratorConfig` is the content of `accel.toml`.

Names are imported on first use, so that `umakit.backend.registry` needs no TVM.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from umakit.imports import imported_on_use

if TYPE_CHECKING:
    from umakit.backend.base import UMABackend, undecided
    from umakit.backend.registry import find_backend, list_backends, load_backend_folder
    from umakit.machine.accelerator_config import (
        AcceleratorConfig,
        AcceleratorSection,
        ArraySection,
        DeviceSection,
        DmaSection,
        MemorySection,
    )
    from umakit.machine.machine_config import (
        CostSection,
        DriverSection,
        EngineSection,
        MachineSection,
        QueueSection,
    )
    from umakit.machine.simulator_config import SimulatorSection
    from umakit.registration.registered import BoardNotes, DeviceUse, PassPhase, Pattern
    from umakit.registration.target import OpStrategy, create_target, target_attributes

__all__ = [
    "AcceleratorConfig",
    "AcceleratorSection",
    "ArraySection",
    "BoardNotes",
    "CostSection",
    "DeviceSection",
    "DeviceUse",
    "DmaSection",
    "DriverSection",
    "EngineSection",
    "MachineSection",
    "MemorySection",
    "OpStrategy",
    "PassPhase",
    "Pattern",
    "QueueSection",
    "SimulatorSection",
    "UMABackend",
    "create_target",
    "find_backend",
    "list_backends",
    "load_backend_folder",
    "target_attributes",
    "undecided",
]

_NAMES = {
    "umakit.backend.base": "UMABackend undecided",
    "umakit.backend.registry": "find_backend list_backends load_backend_folder",
    "umakit.machine.accelerator_config": "AcceleratorConfig AcceleratorSection ArraySection "
    "DeviceSection DmaSection MemorySection",
    "umakit.machine.machine_config": "CostSection DriverSection EngineSection MachineSection "
    "QueueSection",
    "umakit.machine.simulator_config": "SimulatorSection",
    "umakit.registration.registered": "BoardNotes DeviceUse PassPhase Pattern",
    "umakit.registration.target": "OpStrategy create_target target_attributes",
}

__getattr__ = imported_on_use(
    __name__, {name: module for module, names in _NAMES.items() for name in names.split()}
)
