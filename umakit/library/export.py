# SPDX-License-Identifier: Apache-2.0
"""Export of a library: a folder in Model Library Format with everything a C compiler needs.

The layout is TVM's Model Library Format, version 7 (`codegen/host`, `metadata.json`, `parameters`,
`src`, `runtime`). No file depends on TVM, on the date or on the place of the folder.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from umakit import sim
from umakit.codegen.constants import CONSTANT_ALIGNMENT, is_large, layout_weights
from umakit.codegen.driver_names import device_file, exported_path, kit_simulator
from umakit.codegen.interface_comments import constants_of_backends, dma_constants
from umakit.codegen.locks import lock_header, lock_source, locks_view
from umakit.codegen.model_source import GeneratedCode, generate_code
from umakit.codegen.several_cpus import generate_for_cpus, values_for_cpus
from umakit.codegen.template_values import common_values, interface_prefix
from umakit.errors import LibraryError
from umakit.files.npz import npz_bytes
from umakit.files.outputs import check_file, check_folder
from umakit.files.staging import write_folder
from umakit.library.board_notes import board_notes, time_limits
from umakit.library.build_files import build_files
from umakit.library.description import constants_size, describe, sections_of
from umakit.library.driver_files import add_files, driver_files, inline_headers, with_found_includes
from umakit.library.driver_notices import check_driver_texts, driver_notices, rounding_notices
from umakit.library.kernel_libraries import (
    ExportedLibrary,
    included_names,
    kernel_libraries,
    library_values,
)
from umakit.library.layout import HOSTED_PLATFORM, LICENSE, NOTICE, PLATFORM_HEADER, RUNTIME
from umakit.library.metadata import LIBRARY_FOLDER, METADATA, check_metadata, weights_path
from umakit.library.own_simulators import (
    compiled_values,
    driver_libraries,
    own_simulator_files,
    own_simulators,
)
from umakit.library.roles import COMPILED_FOLDER, find_roles
from umakit.library.schema import Sources
from umakit.library.tar_files import LIBRARY_TAR, SUFFIX, write_tar
from umakit.machine.simulator_config import CXX_SUFFIXES
from umakit.memory.plan import PlannedProgram
from umakit.partition.report import OffloadReport
from umakit.program.program import Program
from umakit.registration.backend import Backend
from umakit.registration.buffer_alignment import check_buffer_alignment
from umakit.text.rendering import render


@dataclass(frozen=True)
class Library:
    """An exported library.

    Attributes:
        path: the folder or tar file.
        metadata: content of `metadata.json`.
        report: the offload report.
        program: the program behind the library; None for a library read from disk.
    """

    path: Path
    metadata: dict[str, Any]
    report: OffloadReport
    program: Program | None = None

    @property
    def notices(self) -> list[str]:
        """Decisions made for the user and missing parts of the library, one sentence each."""
        return list(self.metadata["umakit"]["notices"])


@dataclass(frozen=True)
class Destination:
    """Where a library is written.

    Attributes:
        path: the folder, or a tar file if the name ends in `.tar`.
        inputs: input files, which must not be overwritten.
    """

    path: Path
    inputs: Sequence[Path] = ()
    force: bool = False

    def check(self) -> None:
        """Refuse a destination that umakit must not replace, before anything is compiled."""
        if self.path.suffix == SUFFIX:
            check_file(self.path, LIBRARY_TAR, self.inputs, force=self.force)
        else:
            check_folder(self.path, LIBRARY_FOLDER, self.inputs, force=self.force)

    def write(self, files: Mapping[str, str | bytes]) -> None:
        if self.path.suffix == SUFFIX:
            write_tar(self.path, files, self.inputs, force=self.force)
        else:
            write_folder(self.path, files, LIBRARY_FOLDER, self.inputs, force=self.force)


def write_library(
    networks: Sequence[PlannedProgram],
    backends: Mapping[str, Backend],
    destination: Destination,
    weights: str = "c",
) -> Library:
    """Write a library atomically, of one network, or of the network for each CPU in order."""
    destination.check()
    last, where = networks[-1], str(destination.path)
    program = last.program
    sources, code, shared, metadata = _printed(networks, backends, weights)
    parts = _add_parts(sources, backends, where)
    metadata["umakit"]["notices"] += [
        *driver_notices(
            program, backends, sources, included_names(parts.libraries),
            [each.choice.suffix for each in networks if each.choice is not None],
        ),
        *(text for each in parts.libraries.values() for text in each.notices),
        *rounding_notices(last.report),
    ]  # fmt: skip
    files = {f"codegen/host/{path}": text for path, text in sources.items()} | parts.files
    if code.weights is not None:
        files[weights_path(program.name)] = code.weights
    roles = find_roles(
        interface_prefix(program.name),
        list(files),
        _driver_paths(backends, code.locked),
        {name: [device_file(name, "c")] for name in parts.simulated_as},
        parts.simulated_as,
        own_simulators(backends),
        {name: list(paths) for name, paths in parts.compiled.items()},
        {name: each.view for name, each in parts.libraries.items()},
    )
    metadata["umakit"]["sources"] = roles.model_dump()
    values = shared | _template_values(networks, backends, metadata, parts, roles)
    values |= {"locks": locks_view(code.locked), **_build_values(parts, roles, files)}
    files |= build_files(values, roles, files)
    files |= _texts(networks, values, metadata, roles)
    check_metadata(str(files[METADATA]), METADATA)
    destination.write(files)
    return Library(destination.path, metadata, last.report, program)


def _printed(
    networks: Sequence[PlannedProgram], backends: Mapping[str, Backend], weights: str
) -> tuple[dict[str, str], GeneratedCode, dict[str, Any], dict[str, Any]]:
    """Return a network, for one or several CPUs, as C.

    Returns:
        C files by path below `codegen/host`, the generated code of the last CPU, the template
        values common to all C files, and `metadata.json` without roles and notices of drivers.
    """
    last = networks[-1]
    if last.choice is None:
        layout = layout_weights(last.program) if weights == "blob" else None
        needed = max(dma_constants(last.program, backends).values(), default=1) if layout else 0
        if needed > CONSTANT_ALIGNMENT:
            raise LibraryError(
                f"constants in a blob begin at multiples of {CONSTANT_ALIGNMENT} bytes, and an "
                f"accelerator reads them at multiples of {needed}",
                fix="leave --weights blob out, so that they are in C",
            )
        code = generate_code(last.program, last.memory, backends, layout)
        shared = common_values(last.program, last.memory, layout, backends)
        return dict(code.sources), code, shared, describe(last, backends, code)
    sources, codes = generate_for_cpus(networks, backends)
    shared = values_for_cpus(networks, backends)
    metadata = describe(last, backends, codes[-1])
    sections = sections_of(networks, backends, codes)
    metadata["umakit"] |= {"suffix": sections[-1]["suffix"], "cpus": sections}
    return sources, codes[-1], shared, metadata


@dataclass(frozen=True)
class _Parts:
    """The parts of a library that backends add, apart from C files in `codegen/host`.

    Attributes:
        compiled: objects and libraries of drivers, by backend and path.
        simulated_as: kind of umakit's simulator, by backend with such a simulator.
        designs: backends whose only simulator is a design.
    """

    simulators: Mapping[str, bytes]
    libraries: Mapping[str, ExportedLibrary]
    compiled: Mapping[str, Mapping[str, bytes]]
    simulated_as: Mapping[str, str]
    designs: Sequence[str]

    @property
    def files(self) -> dict[str, str | bytes]:
        files: dict[str, str | bytes] = dict(self.simulators)
        for library in self.libraries.values():
            files |= library.files
        for of_backend in self.compiled.values():
            files |= {f"{COMPILED_FOLDER}/{path}": each for path, each in of_backend.items()}
        return files


def _add_parts(
    sources: dict[str, str], backends: Mapping[str, Backend], destination: str
) -> _Parts:
    """Add the C files of drivers to generated C, and return what else backends add."""
    add_files(sources, driver_files(backends), destination)
    for backend in backends.values():
        check_buffer_alignment(backend)
    simulators = own_simulator_files(backends)
    add_files(sources, inline_headers(sources, simulators), destination)
    sources |= with_found_includes(sources, backends)
    check_driver_texts(backends, sources)
    return _Parts(
        simulators,
        kernel_libraries(backends, sources),
        driver_libraries(backends),
        {name: kind for name, each in backends.items() if (kind := kit_simulator(each))},
        [name for name, each in sorted(backends.items()) if each.configuration.is_only_rtl],
    )


def _template_values(
    networks: Sequence[PlannedProgram],
    backends: Mapping[str, Backend],
    metadata: Mapping[str, Any],
    parts: _Parts,
    roles: Sources,
) -> dict[str, Any]:
    """Return the template values about the network, its drivers and their devices."""
    program = networks[-1].program
    notes = board_notes(program, backends, metadata)
    return {
        "backends": metadata["umakit"]["backends"],
        "layers": program.calls,
        "board_notes": {name: each.device for name, each in notes.items() if each.device},
        "time_limits": time_limits(backends, notes),
        "own_simulators": roles.own,
        "designs": parts.designs,
        "simulators_without_headers": [*roles.own, *parts.designs],
        **compiled_values(parts.compiled),
        **library_values(roles.libraries),
        "constants_size": max(constants_size(each.program) for each in networks),
        "constants_of": sorted(constants_of_backends(program, backends)),
        "has_large": any(map(is_large, program.constants.values())),
        "weights_path": weights_path(program.name),
    }


def _build_values(parts: _Parts, roles: Sources, files: Iterable[str]) -> dict[str, Any]:
    """Return the template values about the C files that builds compile."""
    simulated_as, others = parts.simulated_as, (*roles.own, *parts.designs)
    added = [source for driver in roles.drivers.values() for source in driver]
    added += [source for each in roles.libraries.values() for source in each.sources]
    c_files = [path for path in files if path.endswith((".c", *CXX_SUFFIXES))]
    return {
        "simulator_sources": {
            **{name: [*roles.simulator, *roles.kinds[kind]] for name, kind in simulated_as.items()},
            **dict.fromkeys(others, roles.simulator),
        },
        "board_defines": {
            **{name: sim.KINDS[kind].board_defines for name, kind in simulated_as.items()},
            **dict.fromkeys(others, (sim.BOARD_INTERRUPT,)),
        },
        "cxx_sources": sorted(source for source in added if source.endswith(CXX_SUFFIXES)),
        "has_simulator": bool(roles.simulator),
        "board_sources": [*roles.model, *roles.static_workspace, *roles.status, *added],
        "objects_clash": len({Path(path).stem for path in c_files}) < len(c_files),
    }


def _texts(
    networks: Sequence[PlannedProgram],
    values: Mapping[str, Any],
    metadata: Mapping[str, Any],
    roles: Sources,
) -> dict[str, str | bytes]:
    """Return the files beside C and builds: the program, texts, parameters and metadata."""
    texts: dict[str, str | bytes] = {
        "runtime/main.c": render("library/main.c.j2", **values),
        **{
            f"runtime/{name}": (RUNTIME / name).read_text(encoding="utf-8")
            for name in (PLATFORM_HEADER, HOSTED_PLATFORM)
        },
        LICENSE: RUNTIME.with_name(LICENSE).read_text(encoding="utf-8"),
        NOTICE: render("library/NOTICE.j2", **values),
        "README.md": render("library/README.md.j2", **values),
        METADATA: json.dumps(metadata, indent=2) + "\n",
    }
    if roles.simulator:  # builds of a library do not compile the device of a board
        folder = sim.source_directory()
        texts |= {path: (folder / path).read_text(encoding="utf-8") for path in sim.BOARD_SOURCES}
    for each in networks:
        name = each.program.name
        name += f"_{each.of_several.suffix}" if each is not networks[-1] else ""
        texts[f"parameters/{name}.npz"] = npz_bytes(each.program.constants)
        texts[f"src/{name}.relax.txt"] = each.relax_text
    return texts


def _driver_paths(
    backends: Mapping[str, Backend], locked: Sequence[str]
) -> dict[str, tuple[list[str], list[str]]]:
    """Return the exported paths of sources and headers of each driver, with its lock and device."""
    return {
        name: (
            [exported_path(backend, source) for source in backend.driver.sources]
            + ([lock_source(name)] if name in locked else []),
            [exported_path(backend, header) for header in backend.driver.headers]
            + ([lock_header(name)] if name in locked else [])
            + ([device_file(name, "h")] if kit_simulator(backend) else []),
        )
        for name, backend in backends.items()
    }
