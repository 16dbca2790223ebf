# SPDX-License-Identifier: Apache-2.0
"""Roles of a library's C files, stored as `umakit.sources` in `metadata.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from umakit import sim
from umakit.library.schema import KernelLibrary, OwnSimulator, Sources

SOURCE_FOLDER = "codegen/host/src"
SIMULATOR_FOLDER = "simulator"
HEADER_FOLDER = "codegen/host/include"
COMPILED_FOLDER = "codegen/host/lib"

ADAPTER = tuple(PurePosixPath(path).name for path in sim.PROGRAM_SOURCES)
"""Files in the folder of a simulator that is a program, which start it; they are linked once for
all of them."""


def device_source(backend: str) -> str:
    return f"{backend}_device.c"


def find_roles(
    prefix: str,
    files: Sequence[str],
    drivers: Mapping[str, tuple[Sequence[str], Sequence[str]]],
    devices: Mapping[str, Sequence[str]],
    simulated_as: Mapping[str, str],
    own: Mapping[str, OwnSimulator],
    compiled: Mapping[str, Sequence[str]],
    libraries: Mapping[str, KernelLibrary],
) -> Sources:
    """Determine the roles of an export's files; `drivers` has sources and headers by backend."""
    start = f"{SOURCE_FOLDER}/"
    names = {path.removeprefix(start) for path in files if path.startswith(start)}
    sources = Sources(
        model=[],
        static_workspace=_present([f"{prefix}_workspace.c"], names),
        status=_present(_names(sim.COMMON_SOURCES), names),
        simulator=_present(_names(sim.SIMULATOR_SOURCES), names),
        kinds={
            kind: _present(_names(sim.KINDS[kind].sources), names)
            for kind in sorted(set(simulated_as.values()))
        },
        simulated_as=dict(sorted(simulated_as.items())),
        drivers={backend: _present(drivers[backend][0], names) for backend in sorted(drivers)},
        devices={backend: _present(devices.get(backend, ()), names) for backend in sorted(drivers)},
        headers={backend: _present(drivers[backend][1], names) for backend in sorted(drivers)},
        own=dict(own),
        compiled={backend: list(paths) for backend, paths in compiled.items()},
        libraries=dict(libraries),
    )
    special = {*sources.static_workspace, *sources.status, *sources.simulated}
    special |= {name for driver in sources.drivers.values() for name in driver}
    sources.model = sorted(
        name for name in names - special if name.endswith(".c") and "/" not in name
    )
    return sources


def _names(paths: Sequence[str]) -> list[str]:
    return [PurePosixPath(path).name for path in paths]


def _present(wanted: Sequence[str], names: set[str]) -> list[str]:
    return sorted(name for name in wanted if name in names)
