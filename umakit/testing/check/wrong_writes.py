# SPDX-License-Identifier: Apache-2.0
"""Register writes that leave an error in a device, as other software could."""

from __future__ import annotations

from collections.abc import Sequence

from umakit.registration.backend import Backend
from umakit.testing.registers import map_of


def wrong_writes(backends: Sequence[Backend]) -> dict[str, tuple[int, int]]:
    """Return offset and value of a write that the register map of a backend calls an error.

    It is the write of its reset value to the first register that is read only. A backend has none
    without a register map, or if its map does not say that such a write is an error.

    Args:
        backends: accelerators.

    Raises:
        RegisterMapError: a map cannot be read, or is not sound.
    """
    found = {}
    for backend in backends:
        mapped = map_of(backend)
        if mapped is None or mapped[0].access.wrong != "error":
            continue
        for register in mapped[0].registers:
            if register.access == "ro":
                found[backend.target_name] = (register.offset, register.reset)
                break
    return found
