# SPDX-License-Identifier: Apache-2.0
"""The files that make an exported folder a CMake package and a Zephyr module."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

from umakit import sim
from umakit.files.compiled_files import Machine, is_compiled, is_shared, read_compiled
from umakit.files.staging import as_bytes
from umakit.library.roles import COMPILED_FOLDER, SIMULATOR_FOLDER, SOURCE_FOLDER
from umakit.library.schema import KernelLibrary, OwnSimulator, Sources
from umakit.machine.simulator_config import CXX_SUFFIXES
from umakit.text.rendering import render
from umakit.version import __version__

SIMULATOR_HEADERS = {
    PurePosixPath(path).name
    for path in (
        *sim.SIMULATOR_HEADERS,
        *(path for kind in sim.KINDS.values() for path in kind.headers),
    )
}
"""Headers below `umakit/` that only the simulator needs, not a board."""

INLINE_HEADERS = {
    path.removeprefix("include/"): {each.removeprefix("include/") for each in (path, *others)}
    for path, others in sim.INLINE_HEADERS.items()
}
"""Headers that are exported only for models that use them, with the headers that each includes."""

BEYOND_SMALL_LIBC = re.compile(
    r"\b(?:(?:a?(?:sin|cos|tan)h?|atan2|exp2?|expm1|log(?:10|1p|2|b)?|pow|cbrt|hypot|erfc?"
    r"|[lt]gamma|ceil|floor|trunc|(?:ll?)?(?:round|rint)|nearbyint|fmod|remainder|remquo|modf"
    r"|frexp|ldexp|scalb(?:l?n)|ilogb|copysign|nextafter|nexttoward|fdim|fmax|fmin|fma|fabs)f?"
    r"|isnan|isinf|isfinite|isnormal|signbit|fpclassify)\Z"
)
"""Functions of math.h that Zephyr's minimal C library lacks, at the end of a text; it has only
sqrt."""

LONGEST_NAME = 16
"""No name of `BEYOND_SMALL_LIBC` has so many characters."""

SPECIAL_VALUE = re.compile(r"\b(?:INFINITY|NAN|HUGE_VALF?)\b")
"""Macros of math.h that Zephyr's minimal C library lacks."""

COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)


@dataclass(frozen=True)
class Part:
    """A CMake library; models of a build with the same files in their exports share the library.

    Attributes:
        name: name of the library, such as `umakit_simulator`.
        target: CMake target: the name with a digest of the contents of its files.
        dependencies: targets of called functions.
        device_sources: C files of the simulated device, omitted on a board with its own device.
        device_dependencies: targets of functions called in device sources.
        only_simulated: whether the library is omitted on a board.
        folder: folder of the sources in the export; empty for `codegen/host/src`.
        own: build of a simulator other than umakit's; None for umakit's parts.
        library_files: linked objects and libraries, as paths in the export.
        machine: target machine of the objects and libraries; None if unknown.
        library: the library of C functions with files among `sources`; None without one.
        identity: text that all models of a program have to agree in, if it is not the target: each
            model has only the called files of a library.
    """

    name: str
    target: str
    sources: Sequence[str]
    dependencies: Sequence[str] = ()
    device_sources: Sequence[str] = ()
    device_dependencies: Sequence[str] = ()
    only_simulated: bool = False
    folder: str = ""
    own: OwnSimulator | None = None
    library_files: Sequence[str] = ()
    machine: Machine | None = None
    links_cxx: bool = False
    library: KernelLibrary | None = None
    identity: str = ""

    @property
    def own_sources(self) -> list[str]:
        """The C files that do not belong to a library of C functions."""
        names = self.library.sources if self.library is not None else ()
        return [source for source in self.sources if source not in names]

    @property
    def is_cxx(self) -> bool:
        return any(source.endswith(CXX_SUFFIXES) for source in self.sources)

    @property
    def installed_libraries(self) -> list[str]:
        """Names of the installed libraries that a simulator needs."""
        libraries = self.own.libraries if self.own else []
        return [name for name in libraries if not is_compiled(name)]

    @property
    def shared_files(self) -> list[str]:
        return [path for path in self.library_files if is_shared(path)]


def build_files(
    values: Mapping[str, Any], sources: Sources, files: Mapping[str, str | bytes]
) -> dict[str, str]:
    """Return `CMakeLists.txt` and the files of `cmake/` and `zephyr/` of an export, by path."""
    prefix = values["prefix"]
    start = f"{SOURCE_FOLDER}/umakit/"
    headers = [p for p in sorted(files) if p.startswith(start) and p.endswith(".h")]
    parts = shared_parts(sources, files)
    shown = {
        **values,
        "numeric_version": numeric_version(),
        "model_sources": sources.model,
        "workspace_sources": sources.static_workspace,
        "parts": parts,
        "needs_cxx": any((part.is_cxx or part.links_cxx) and part.only_simulated for part in parts),
        "links_cxx": any(part.links_cxx and not part.only_simulated for part in parts),
        "has_own": bool(sources.own),
        "library_include": _unique(each.include for each in sources.libraries.values()),
        "library_defines": _unique(each.defines for each in sources.libraries.values()),
        "programs": [name for name, own in sources.own.items() if own.program],
        "has_devices": any(sources.devices.values()) or bool(sources.own or values["designs"]),
        "devices": [
            backend
            for backend, names in sources.devices.items()
            if names or backend in sources.own or backend in values["designs"]
        ],
        "board_headers": [
            name for p in headers if (name := p.removeprefix(start)) not in SIMULATOR_HEADERS
        ],
        "needs_full_libc": needs_full_libc(files),
    }
    return {
        "CMakeLists.txt": render("library/CMakeLists.txt.j2", **shown),
        f"cmake/{prefix}-config.cmake.in": render("library/config.cmake.in.j2", **shown),
        "zephyr/CMakeLists.txt": render("library/zephyr_CMakeLists.txt.j2", **shown),
        "zephyr/Kconfig": render("library/zephyr_Kconfig.j2", **shown),
        "zephyr/module.yml": render("library/zephyr_module.yml.j2", **shown),
    }


def needs_full_libc(files: Mapping[str, str | bytes]) -> bool:
    """Whether C files may use functions of math.h besides sqrt."""
    return any(
        _is_beyond_small_libc(COMMENT.sub(" ", as_bytes(content).decode("utf-8", "replace")))
        for path, content in files.items()
        if path.startswith(f"{SOURCE_FOLDER}/")
    )


def _is_beyond_small_libc(code: str) -> bool:
    # A regular expression is slow in a network's constants, which are megabytes of numbers.
    if any(name in code for name in ("INF", "NAN", "HUGE")) and SPECIAL_VALUE.search(code):
        return True
    called = (before.rstrip()[-LONGEST_NAME:] for before in code.split("(")[:-1])
    return any(BEYOND_SMALL_LIBC.search(name) for name in called)


def numeric_version() -> str:
    """Return umakit's version as three numbers, the only form that CMake and Arduino accept."""
    numbers = re.findall(r"\d+", __version__.split("+")[0])[:3]
    return ".".join([*numbers, "0", "0"][:3])


def shared_parts(sources: Sources, files: Mapping[str, str | bytes]) -> list[Part]:
    """Return the parts of an export that other models may contain too, dependencies first."""
    parts = []
    status = simulator = ""
    if sources.status:
        status = _target("umakit_status", [*sources.status, *_headers(sim.COMMON_HEADERS)], files)
        parts.append(Part("umakit_status", status, sources.status))
    dependencies = [status] if status else []
    simulator_headers = [*_headers(sim.COMMON_HEADERS), *_headers(sim.SIMULATOR_HEADERS)]
    if sources.simulator:
        simulator = _target("umakit_simulator", [*sources.simulator, *simulator_headers], files)
        parts.append(
            Part(
                "umakit_simulator", simulator, sources.simulator, dependencies, only_simulated=True
            )
        )
    kinds = {}
    for kind, names in sources.kinds.items():
        contents = [*names, *simulator_headers, *_kind_headers(kind)]
        kinds[kind] = _target(f"umakit_{kind}", contents, files)
        kind_dependencies = [simulator, *dependencies]
        parts.append(
            Part(f"umakit_{kind}", kinds[kind], names, kind_dependencies, only_simulated=True)
        )
    own = {}
    for backend, simulator_files in sources.own.items():
        own[backend] = _own_part(backend, simulator_files, simulator_headers, files)
        parts.append(replace(own[backend], dependencies=[simulator, *dependencies]))
    for backend, driver in sources.drivers.items():
        devices = sources.devices[backend]
        compiled = [f"{COMPILED_FOLDER}/{path}" for path in sources.compiled.get(backend, ())]
        library = sources.libraries.get(backend)
        if not (driver or devices or compiled or library or backend in own):
            continue
        contents = [*driver, *devices, *sources.headers[backend]]
        simulated = sources.simulated_as.get(backend)
        if simulated:
            contents += [*simulator_headers, *_kind_headers(simulated)]
        target = _target(backend, contents, files, compiled)
        identity = ""
        if library is not None:
            driver = [*driver, *library.sources]
            identity = f"{target}_{library.digest[:12]}"
            target = f"{target}_{_digest_of(library, files)}"
        device_dependencies = [kinds[simulated]] if simulated else []
        device_dependencies += [own[backend].target] if backend in own else []
        parts.append(
            Part(
                backend, target, driver, dependencies, devices, device_dependencies,
                library_files=compiled, library=library, identity=identity,
                **_compiled_for(compiled, files),
            )
        )  # fmt: skip
    return parts


def _unique(lists: Iterable[Sequence[str]]) -> list[str]:
    return list(dict.fromkeys(item for each in lists for item in each))


def _digest_of(library: KernelLibrary, files: Mapping[str, str | bytes]) -> str:
    """Return a digest of a model's files of a library, and of their compilation."""
    digest = hashlib.sha256(library.model_dump_json().encode())
    for path in (*library.sources, *library.included):
        digest.update(hashlib.sha256(as_bytes(files[f"{SOURCE_FOLDER}/{path}"])).digest())
    return digest.hexdigest()[:12]


def _own_part(
    backend: str, own: OwnSimulator, headers: Sequence[str], files: Mapping[str, str | bytes]
) -> Part:
    """Return the part of a simulator other than umakit's, without its dependencies."""
    folder = f"{SIMULATOR_FOLDER}/{backend}"
    paths = [path for path in files if path.startswith(f"{folder}/")]
    paths += [f"{SOURCE_FOLDER}/{header}" for header in headers]
    # CMake's programs are not watched.
    digest = hashlib.sha256(own.model_dump_json(exclude={"timeout"}).encode())
    for path in sorted(paths):
        data = as_bytes(files[path])
        digest.update(f"{path}\0{len(data)}\0".encode() + data)
    name = f"{backend}_simulator"
    target = f"{name}_{digest.hexdigest()[:12]}"
    compiled = [f"{folder}/{name}" for name in own.libraries if is_compiled(name)]
    return Part(
        name, target, own.sources, only_simulated=True, folder=folder, own=own,
        library_files=compiled, **_compiled_for(compiled, files),
    )  # fmt: skip


def _compiled_for(paths: Sequence[str], files: Mapping[str, str | bytes]) -> dict[str, Any]:
    """Return the target machine of objects and libraries, and whether they need C++."""
    read = [read_compiled(path, as_bytes(files[path]), path) for path in paths]
    return {
        "machine": next((each.machine for each in read if each.machine), None),
        "links_cxx": any(each.needs_cxx for each in read),
    }


def _headers(paths: Sequence[str]) -> list[str]:
    return [f"umakit/{PurePosixPath(path).name}" for path in paths]


def _kind_headers(kind: str) -> list[str]:
    return _headers((*sim.KINDS[kind].driver_headers, *sim.KINDS[kind].headers))


def _target(
    name: str,
    contents: Sequence[str],
    files: Mapping[str, str | bytes],
    compiled: Sequence[str] = (),
) -> str:
    digest = hashlib.sha256()
    sources = [as_bytes(files[f"{SOURCE_FOLDER}/{path}"]) for path in contents]
    included: set[str] = set()
    for header, headers in INLINE_HEADERS.items():
        if any(header.encode() in source for source in sources):
            included |= {each for each in headers if f"{SOURCE_FOLDER}/{each}" in files}
    paths = [f"{SOURCE_FOLDER}/{path}" for path in sorted({*contents, *included})]
    for path in [*paths, *compiled]:
        data = as_bytes(files[path])
        path = path.removeprefix(f"{SOURCE_FOLDER}/")
        digest.update(f"{path}\0{len(data)}\0".encode() + data)
    return f"{name}_{digest.hexdigest()[:12]}"
