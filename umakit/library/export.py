# SPDX-License-Identifier: Apache-2.0
"""Export of a library: a folder in Model Library Format with everything a C compiler needs.

The layout is TVM's Model Library Format, version 7 (`codegen/host`, `metadata.json`, `parameters`,
`src`, `runtime`). No file depends on TVM, on the date or on the place of the folder.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from umakit import sim
from umakit.codegen.constants import CONSTANT_ALIGNMENT, is_large, layout_weights
from umakit.codegen.driver_names import (
    device_file,
    exported_includes,
    exported_path,
    is_simulated,
    kit_simulator,
)
from umakit.codegen.interface_comments import constants_of_backends, dma_constants
from umakit.codegen.locks import lock_header, lock_source, locks_view
from umakit.codegen.model_source import (
    common_values,
    generate_code,
    interface_prefix,
)
from umakit.codegen.several_cpus import generate_for_cpus, values_for_cpus
from umakit.errors import LibraryError
from umakit.files.npz import npz_bytes
from umakit.files.outputs import check_file, check_folder
from umakit.files.staging import write_folder
from umakit.library.board_notes import board_notes, time_limits
from umakit.library.build_files import build_files
from umakit.library.description import constants_size, describe
from umakit.library.driver_notices import check_driver_texts, driver_notices, rounding_notices
from umakit.library.kernel_libraries import included_names, kernel_libraries, library_values
from umakit.library.layout import HOSTED_PLATFORM, LICENSE, NOTICE, PLATFORM_HEADER, RUNTIME
from umakit.library.metadata import LIBRARY_FOLDER, METADATA, check_metadata, weights_path
from umakit.library.own_simulators import (
    compiled_values,
    driver_libraries,
    own_simulator_files,
    own_simulators,
)
from umakit.library.roles import COMPILED_FOLDER, find_roles
from umakit.library.several_cpus import NetworkForCpu, files_of, sections_of
from umakit.library.tar_files import LIBRARY_TAR, SUFFIX, write_tar
from umakit.machine.simulator_config import CXX_SUFFIXES
from umakit.memory.plan import MemoryPlan
from umakit.partition.report import OffloadReport
from umakit.program.program import Program
from umakit.registration.backend import Backend
from umakit.registration.buffer_alignment import check_buffer_alignment
from umakit.text.rendering import render

INCLUDED = re.compile(r'^\s*#\s*include\s*[<"](umakit/[^>"]*)[>"]', re.MULTILINE)


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


def _check_blob(program: Program, backends: Mapping[str, Backend]) -> None:
    """Refuse constants in a blob that an accelerator could not read there.

    Raises:
        LibraryError: an accelerator needs a larger alignment than the constants of a blob have.
    """
    needed = max(dma_constants(program, backends).values(), default=1)
    if needed > CONSTANT_ALIGNMENT:
        raise LibraryError(
            f"constants in a blob begin at multiples of {CONSTANT_ALIGNMENT} bytes, and an "
            f"accelerator reads them at multiples of {needed}",
            fix="leave --weights blob out, so that they are in C",
        )


def write_library(
    destination: Path,
    program: Program,
    plan: MemoryPlan,
    report: OffloadReport,
    backends: Mapping[str, Backend],
    relax_text: str,
    weights: str = "c",
    inputs: Sequence[Path] = (),
    force: bool = False,
    for_cpus: Sequence[NetworkForCpu] = (),
) -> Library:
    """Write a library atomically.

    Args:
        destination: the folder, or a tar file if the name ends in `.tar`. Files of umakit in an
            earlier export are replaced.
        plan: memory plan of the program.
        backends: backends of the program, by target name.
        relax_text: text of the partitioned network, for `src/`.
        weights: `c` puts constants into C, `blob` into one binary file.
        inputs: input files, which must not be overwritten.
        force: whether to replace also changed files and files of other origin.
        for_cpus: the network for each CPU of a library for several CPUs, in the order of the
            compiler's choice, with common pools; program, plan, report and text belong to the last
            CPU.

    Raises:
        OutputError: the destination must not be replaced or cannot be written.
        LibraryError: accelerators take other layers for one CPU than for another.
    """
    check_destination(destination, inputs, force=force)
    layout = layout_weights(program) if weights == "blob" else None
    if layout is not None:
        _check_blob(program, backends)
    if for_cpus:
        printed = [each.printed for each in for_cpus]
        sources, codes = generate_for_cpus(printed, backends)
        code, shared = codes[-1], values_for_cpus(printed, backends)
    else:
        code = generate_code(program, plan, backends, layout)
        sources, shared = dict(code.sources), common_values(program, plan, layout, backends)
    metadata = describe(program, plan, report, backends, code)
    if for_cpus:
        sections = sections_of(for_cpus, backends, codes)
        metadata["umakit"] |= {"suffix": sections[-1]["suffix"], "cpus": sections}
    _add(sources, _driver_files(backends), str(destination))
    for backend in backends.values():
        check_buffer_alignment(backend)
    simulators = own_simulator_files(backends)
    _add(sources, _inline_headers(sources, simulators), str(destination))
    sources |= _with_found_includes(sources, backends)
    check_driver_texts(backends, sources)
    libraries = kernel_libraries(backends, sources)
    metadata["umakit"]["notices"] += driver_notices(
        program,
        backends,
        sources,
        included_names(libraries),
        [each.choice.suffix for each in for_cpus],
    )
    metadata["umakit"]["notices"] += [text for each in libraries.values() for text in each.notices]
    metadata["umakit"]["notices"] += rounding_notices(report)
    files: dict[str, str | bytes] = {f"codegen/host/{path}": text for path, text in sources.items()}
    files |= simulators
    for each in libraries.values():
        files |= each.files
    compiled = driver_libraries(backends)
    files |= {
        f"{COMPILED_FOLDER}/{path}": content
        for of_backend in compiled.values()
        for path, content in of_backend.items()
    }
    if code.weights is not None:
        files[weights_path(program.name)] = code.weights
    simulated_as = {
        name: kind
        for name, backend in backends.items()
        if (kind := kit_simulator(backend)) is not None
    }
    roles = find_roles(
        interface_prefix(program.name),
        list(files),
        _driver_paths(backends, code.locked),
        {name: [device_file(name, "c")] for name in simulated_as},
        simulated_as,
        own_simulators(backends),
        {name: list(paths) for name, paths in compiled.items()},
        {name: each.view for name, each in libraries.items()},
    )
    metadata["umakit"]["sources"] = roles.as_json()
    designs = [
        name for name, backend in sorted(backends.items()) if backend.configuration.is_only_rtl
    ]
    notes = board_notes(program, backends, metadata)
    values = {
        **shared,
        "locks": locks_view(code.locked),
        "backends": metadata["umakit"]["backends"],
        "layers": program.calls,
        "board_notes": {name: each.device for name, each in notes.items() if each.device},
        "time_limits": time_limits(backends, notes),
        "simulator_sources": {
            **{name: [*roles.simulator, *roles.kinds[kind]] for name, kind in simulated_as.items()},
            **dict.fromkeys((*roles.own, *designs), roles.simulator),
        },
        "own_simulators": roles.own,
        "designs": designs,
        "simulators_without_headers": [*roles.own, *designs],
        **compiled_values(compiled),
        **library_values(roles.libraries),
        "board_defines": {
            **{name: sim.KINDS[kind].board_defines for name, kind in simulated_as.items()},
            **dict.fromkeys((*roles.own, *designs), (sim.BOARD_INTERRUPT,)),
        },
        "cxx_sources": sorted(
            source
            for source in (
                *(source for driver in roles.drivers.values() for source in driver),
                *(source for each in roles.libraries.values() for source in each.sources),
            )
            if source.endswith(CXX_SUFFIXES)
        ),
        "has_simulator": bool(roles.simulator),
        "board_sources": [
            *roles.model,
            *roles.static_workspace,
            *roles.status,
            *(source for driver in roles.drivers.values() for source in driver),
            *(source for each in roles.libraries.values() for source in each.sources),
        ],
        "objects_clash": len({Path(path).stem for path in _c_files(files)}) < len(_c_files(files)),
        "constants_size": max(
            constants_size(each) for each in (program, *(each.program for each in for_cpus))
        ),
        "constants_of": sorted(constants_of_backends(program, backends)),
        "has_large": any(map(is_large, program.constants.values())),
        "weights_path": weights_path(program.name),
    }
    files |= build_files(values, roles, files)
    files |= {
        "runtime/main.c": render("library/main.c.j2", **values),
        **{
            f"runtime/{name}": (RUNTIME / name).read_text(encoding="utf-8")
            for name in (PLATFORM_HEADER, HOSTED_PLATFORM)
        },
        **(_board_files() if roles.simulator else {}),
        LICENSE: RUNTIME.with_name(LICENSE).read_text(encoding="utf-8"),
        NOTICE: render("library/NOTICE.j2", **values),
        "README.md": render("library/README.md.j2", **values),
        f"parameters/{program.name}.npz": npz_bytes(program.constants),
        f"src/{program.name}.relax.txt": relax_text,
        **files_of(for_cpus),
        METADATA: json.dumps(metadata, indent=2) + "\n",
    }
    check_metadata(str(files[METADATA]), METADATA)
    write_files(destination, files, inputs, force=force)
    return Library(destination, metadata, report, program)


def write_files(
    destination: Path,
    files: Mapping[str, str | bytes],
    inputs: Sequence[Path] = (),
    *,
    force: bool = False,
) -> None:
    """Write the files of a library as a folder, or as a tar file if the destination ends in `.tar`.

    Raises:
        OutputError: the destination must not be replaced or cannot be written.
    """
    if destination.suffix == SUFFIX:
        write_tar(destination, files, inputs, force=force)
    else:
        write_folder(destination, files, LIBRARY_FOLDER, inputs, force=force)


def check_destination(
    destination: Path, inputs: Sequence[Path] = (), *, force: bool = False
) -> None:
    """Refuse a destination that umakit must not replace, before anything is compiled.

    Args:
        destination: the folder or tar file of the library.
        inputs: input files, which must not be overwritten.
        force: as in `write_library`.

    Raises:
        OutputError: the destination is an input, is no library, or was changed since umakit wrote
            it.
    """
    if destination.suffix == SUFFIX:
        check_file(destination, LIBRARY_TAR, inputs, force=force)
    else:
        check_folder(destination, LIBRARY_FOLDER, inputs, force=force)


def files_of_driver(backend: Backend) -> dict[str, str]:
    """Return the files of a driver and of its simulator in a library.

    Returns:
        Contents by path below `codegen/host`.

    Raises:
        LibraryError: a driver file is missing, or two files share a path.
        AcceleratorConfigError: a file of the backend's own simulator is missing.
    """
    backends = {backend.target_name: backend}
    files = _driver_files(backends)
    _add(files, _inline_headers(files, own_simulator_files(backends)), str(backend.folder))
    return files | _with_found_includes(files, backends)


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


def _driver_files(backends: Mapping[str, Backend]) -> dict[str, str]:
    """Return the files of drivers and of their simulators, by path below `codegen/host`."""
    files: dict[str, str] = {}
    for name, backend in sorted(backends.items()):
        for driver_file in (*backend.driver.sources, *backend.driver.headers):
            source = backend.folder / driver_file
            if not source.is_file():
                raise LibraryError(
                    "the driver file is missing",
                    where=str(source),
                    fix=f"see _register_driver in the backend {name}",
                )
            text = driver_text(source)
            _add(files, {f"src/{exported_path(backend, driver_file)}": text}, str(source))
        if is_simulated(backend):
            _add(files, _simulator_files(name, backend), str(backend.folder))
    return files


def driver_text(source: Path) -> str:
    """Return the text of a driver file.

    Raises:
        LibraryError: the file is compiled for another system, or not in UTF-8.
    """
    try:
        return source.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        pass
    if source.suffix in (".lib", ".dll", ".dylib", ".obj"):
        raise LibraryError(
            "is compiled code of a form that is not linked",
            where=str(source),
            fix="register .o, .a or .so files, or sources",
        )
    raise LibraryError("is no UTF-8 text", where=str(source), fix="store it as UTF-8")


def _with_found_includes(
    files: Mapping[str, str], backends: Mapping[str, Backend]
) -> dict[str, str]:
    """Return the files in the folders of backends, with includes that need no include path."""
    others = {path.removeprefix("src/") for path in files}
    found = {}
    for name, backend in backends.items():
        paths = {
            exported_path(backend, driver_file): driver_file
            for driver_file in (*backend.driver.sources, *backend.driver.headers)
        }
        if kit_simulator(backend):
            devices = [device_file(name, suffix) for suffix in ("c", "h")]
            paths |= {path: PurePosixPath(path).name for path in devices}
        for path, driver_file in paths.items():
            text = files[f"src/{path}"]
            found[f"src/{path}"] = exported_includes(backend, text, driver_file, others)
    return found


def _add(files: dict[str, str], more: Mapping[str, str], where: str) -> None:
    """Add files to others; equal files, such as files of the simulator, may be added twice.

    Raises:
        LibraryError: two files of different content have the same path.
    """
    for path, text in more.items():
        if files.setdefault(path, text) != text:
            raise LibraryError(
                f"two different files would become {path}",
                where=where,
                fix="give the driver's file another name",
            )


def _inline_headers(sources: Mapping[str, str], simulators: Mapping[str, bytes]) -> dict[str, str]:
    """Return the headers of inline functions that C files or simulators include."""
    simulated = (content.decode("utf-8", "replace") for content in simulators.values())
    texts = [*sources.values(), *simulated]
    # Looking for the name first takes a fiftieth of the time in megabytes of constants.
    included = {name for text in texts if "umakit/" in text for name in INCLUDED.findall(text)}
    found: dict[str, str] = {}
    for path, others in sim.INLINE_HEADERS.items():
        if path.removeprefix("include/") in included:
            for each in (path, *others):
                text = (sim.source_directory() / each).read_text(encoding="utf-8")
                found[f"src/{each.removeprefix('include/')}"] = text
    return found


def _simulator_files(name: str, backend: Backend) -> dict[str, str]:
    folder = sim.source_directory()
    kind = kit_simulator(backend)
    sources: tuple[str, ...] = (*sim.SIMULATOR_SOURCES, *sim.COMMON_SOURCES)
    headers: tuple[str, ...] = (*sim.COMMON_HEADERS, *sim.SIMULATOR_HEADERS)
    if kind is not None:
        sources += sim.KINDS[kind].sources
        headers += (*sim.KINDS[kind].driver_headers, *sim.KINDS[kind].headers)
    files = {}
    for source in sources:
        files[f"src/{Path(source).name}"] = (folder / source).read_text(encoding="utf-8")
    for header in headers:
        files[f"src/umakit/{Path(header).name}"] = (folder / header).read_text(encoding="utf-8")
    for suffix in ("c", "h") if kind is not None else ():
        files[f"src/{device_file(name, suffix)}"] = render(
            f"device/{kind}_device.{suffix}.j2",
            name=name,
            array=backend.configuration.array,
            dma=backend.configuration.dma,
            device=backend.configuration.device,
            scratchpad=next(iter(backend.configuration.scratchpads), None),
        )
    return files


def _board_files() -> dict[str, str]:
    """Return the device of a board; builds of a library do not compile it."""
    folder = sim.source_directory()
    return {path: (folder / path).read_text(encoding="utf-8") for path in sim.BOARD_SOURCES}


def _c_files(files: Iterable[str]) -> list[str]:
    return [path for path in files if path.endswith((".c", *CXX_SUFFIXES))]
