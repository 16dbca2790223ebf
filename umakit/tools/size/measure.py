# SPDX-License-Identifier: Apache-2.0
"""Memory of an exported library on a device: code, constants, arena and stack, by layer.

Code sizes come from the compiler's object files, the stack from its call graph, the rest from
`metadata.json`. Imports neither TVM nor the pipeline.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from umakit.devices import HOST, Device
from umakit.devices.build import call_compiler, file_argument, library_sources
from umakit.devices.cpus import cpu_flags, description_for, device_for
from umakit.devices.libraries import driver_libraries, libraries_of
from umakit.errors import LibraryError
from umakit.files.compiled_files import is_compiled
from umakit.files.staging import temporary_folder
from umakit.library.cpu_sections import with_suffix
from umakit.library.identities import identities_of
from umakit.library.metadata import read_description
from umakit.library.roles import SOURCE_FOLDER
from umakit.library.tar_files import library_folder
from umakit.machine.simulator_config import CXX_SUFFIXES
from umakit.text.identities import LayerIdentity
from umakit.tools.size.call_graph import (
    CALL_GRAPH_FLAG,
    RED_ZONE_BYTES,
    CallGraph,
    Stack,
    worst_case_stack,
)
from umakit.tools.size.object_file import ObjectFile, compiled_objects, read_object

OBJECTS = "objects"
FLAGS = ("-std=c99", "-Os", "-ffunction-sections", "-fno-lto")


@dataclass(frozen=True)
class LayerSize:
    """The memory of one layer, in bytes.

    Attributes:
        where: `cpu` or the name of a backend.
        kernel: name of its kernel; empty for a plain copy.
        text_bytes: code of the kernel and all library functions that it calls; shared functions are
            counted in each layer. 0 if the compiler inlined or removed the kernel.
        own_text_bytes: share of `text_bytes` that no other layer reaches.
        constants_bytes: constants of the layer; shared constants are counted in each layer.
        arena_bytes: live bytes in the arena while the layer runs.
        stack_bytes: worst-case stack of the kernel, None without a bound.
    """

    name: str
    where: str
    kernel: str
    text_bytes: int
    own_text_bytes: int
    constants_bytes: int
    arena_bytes: int
    stack_bytes: int | None
    identity: LayerIdentity


@dataclass(frozen=True)
class LibrarySize:
    """The memory of a library, in bytes.

    Attributes:
        live_set_bound_bytes: maximum total size of tensors alive at the same time.
        constants_bytes: parameters of the network.
        text_bytes: machine code without the simulator, each function once.
        shared_text_bytes: share of the machine code that no layer reaches: run functions, status
            texts.
        common_text_bytes: share that several layers reach, by their targets. With
            `shared_text_bytes` and `own_text_bytes` of all layers, this adds up to `text_bytes`.
        read_only_bytes: read-only data other than constants: strings, tables, padding.
        static_bytes: variables of drivers and kernels, without the arena.
        simulator_text_bytes: machine code of the simulator, which a board omits.
        stack_bytes: worst-case stack of `tvmgen_NAME_run_unpacked` down to the device, without
            external functions; None without a bound.
        stack_bytes_of: worst-case stack of each function of the interface that runs the network.
        stack_with_simulator_bytes: `stack_bytes` with the simulator as the device.
        stack_external_calls: reachable functions outside the library: of libc, of the compiler's
            runtime, of the device.
    """

    compiler: str
    arena_bytes: int
    live_set_bound_bytes: int
    constants_bytes: int
    text_bytes: int
    shared_text_bytes: int
    common_text_bytes: dict[str, int]
    read_only_bytes: int
    static_bytes: int
    simulator_text_bytes: int
    stack_bytes: int | None
    stack_chain: dict[str, int]
    stack_bytes_of: dict[str, int | None]
    stack_with_simulator_bytes: int | None
    stack_external_calls: tuple[str, ...]
    stack_findings: tuple[str, ...]
    layers: tuple[LayerSize, ...]

    def as_json(self) -> dict[str, Any]:
        values = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
        }
        layers = [{**asdict(layer), "identity": layer.identity.as_json()} for layer in self.layers]
        return {**values, "layers": layers}


def library_size(
    library: Path,
    command: Sequence[str] = (),
    progress: Callable[[str], None] = lambda stage: None,
    device: Device = HOST,
    cpu: str = "",
) -> LibrarySize:
    """Compile a library for a device and measure its memory; the default is the first CPU that
    fits."""
    description = description_for(library, device, cpu)
    own_flags = cpu_flags(library, device, cpu)
    device = device_for(library, device, cpu)
    command = list(command) or device.compiler()
    optimized = any(word.startswith("-O") for word in command)
    basic = [flag for flag in FLAGS if not (optimized and flag.startswith("-O"))]
    with temporary_folder("umakit-size-") as folder:
        flags = [*basic, *_call_graph_flag(command, folder), *own_flags]
        objects = _compiled(library, device, command, flags, folder, progress)
        progress("reading the objects")
        read = {name: read_object(path, name) for name, path in objects.items()}
        graphs = {
            name: path.with_suffix(".ci").read_text(encoding="utf-8", errors="surrogateescape")
            for name, path in objects.items()
            if CALL_GRAPH_FLAG in flags
        }
        example = next(iter(objects.values()), folder)
        brought = driver_libraries(library)
        read |= compiled_objects(brought, list(read.values()), example, device.name)
    simulated = read_description(library).sources.simulated
    simulator = {_name(Path(name)) for name in simulated}
    network = with_suffix(description["interface"], description)
    if network not in read.keys() - simulator:
        raise LibraryError(
            f"has no code of {description['interface']!r}, which its metadata names",
            where=str(library),
            fix="export the library again",
        )
    text = (library_folder(library) / SOURCE_FOLDER / f"{network}.c").read_text(encoding="utf-8")
    whole = _Program(read, graphs, network, text)
    whole.resolve_tables(simulator)
    product = _Program(
        {name: item for name, item in read.items() if name not in simulator}, graphs, network, text
    )
    return _summarize(description, shlex.join([*command, *basic, *own_flags]), product, whole)


def _compiled(
    library: Path,
    device: Device,
    command: Sequence[str],
    flags: Sequence[str],
    folder: Path,
    progress: Callable[[str], None],
) -> dict[str, Path]:
    """Compile the sources of a library; return the objects by the name of the source."""
    objects: dict[str, Path] = {}
    sources = library_folder(library) / SOURCE_FOLDER
    libraries = libraries_of(library)
    owners = {path: each for each in libraries for path in each.sources}
    words = [word for each in libraries for word in each.words]
    for source in [*library_sources(library), *owners]:
        if is_compiled(source.name):
            continue
        progress(f"compiling {source.name}")
        target = folder / OBJECTS / source.relative_to(sources).with_suffix(".o")
        target.parent.mkdir(parents=True, exist_ok=True)
        named = _on_one_line(source, sources, folder)
        used, given = command, flags
        if source.suffix in CXX_SUFFIXES:
            used = device.cxx_compiler(source.name)
            given = [flag for flag in flags if not flag.startswith("-std=")]
        owner = owners.get(source)
        given = owner.arguments(source, given) if owner else [*given, *words]
        line = [*used, *given, "-c", file_argument(named), "-o", file_argument(target)]
        call_compiler(line, shlex.join(used), source.parent, device)
        objects[_name(source.relative_to(sources))] = target
    return objects


def _call_graph_flag(command: Sequence[str], folder: Path) -> list[str]:
    """Return the flag if the compiler supports it; a missing compiler is reported later."""
    probe = folder / "probe.c"
    probe.write_text("int probe;\n", encoding="utf-8")
    line = [*command, CALL_GRAPH_FLAG, "-c", str(probe), "-o", str(folder / "probe.out")]
    try:
        is_supported = subprocess.run(line, capture_output=True, check=False).returncode == 0
    except OSError:
        is_supported = False
    return [CALL_GRAPH_FLAG] if is_supported and (folder / "probe.ci").exists() else []


def _name(source: Path) -> str:
    return source.with_suffix("").as_posix()


def _on_one_line(source: Path, sources: Path, folder: Path) -> Path:
    """Return a path that fits a line of gcc's call graph, which has one line per function."""
    if str(source.parent).isprintable() and '"' not in str(source.parent):
        return source
    link = folder / "sources"
    if not link.is_symlink():
        link.symlink_to(sources.resolve(), target_is_directory=True)
    return link / source.relative_to(sources)


class _Program:
    """The object files of a library, or of a part of it, with their references and call graph.

    Attributes:
        network: name of the network's own file.
        text: C text of the network's own file.
    """

    def __init__(
        self, objects: dict[str, ObjectFile], graphs: dict[str, str], network: str, text: str
    ) -> None:
        self.objects = objects
        self.network = network
        self.text = text
        self._graph = CallGraph() if graphs else None
        for name in objects.keys() & graphs.keys():
            assert self._graph is not None
            self._graph.add(graphs[name], name)
            for names in objects[name].merged:
                exported = objects[name].exported
                self._graph.unite([n if n in exported else f"{name}:{n}" for n in names])
        self._owner = {
            symbol: (item.name, number)
            for item in objects.values()
            for symbol, number in item.exported.items()
        }

    @property
    def text_bytes(self) -> int:
        return sum(item.text_bytes for item in self.objects.values())

    def text_of(self, function: str) -> dict[tuple[str, int], int]:
        """Return the code bytes of a function and all its callees, by file and section."""
        sizes = {}
        for name, number in self._closure(function) if function else ():
            section = self.objects[name].sections[number]
            if section.is_code:
                sizes[name, number] = section.size
        return sizes

    def resolve_tables(self, files: Collection[str]) -> None:
        if self._graph is not None:
            self._graph.resolve_tables(files)

    def stack(self, function: str) -> Stack:
        """Return the worst-case stack of a function of the network's own file or interface."""
        if self._graph is None:
            return Stack(None, (), ("the compiler writes no call graph; use gcc 10 or later",))
        zone = RED_ZONE_BYTES.get(self.objects[self.network].machine, 0)
        results = [worst_case_stack(self._graph, key, zone) for key in self._keys(function)]
        external = {name for result in results for name in result.external_calls}
        external |= {name for key in self._keys(function) for name in self._mentioned(key)}
        findings = dict.fromkeys(text for result in results for text in result.findings)
        deepest = max(results, key=lambda result: result.size or 0, default=Stack(0, (), ()))
        size, chain = (None, {}) if findings else (deepest.size, deepest.chain)
        return Stack(size, tuple(sorted(external)), tuple(findings), chain)

    def has(self, function: str) -> bool:
        """Whether a function was compiled, or is in the C text without needing code."""
        in_c = re.search(rf"\b{function}\b", self.text)
        return bool(in_c or self._sections_of(function))

    def _keys(self, function: str) -> list[str]:
        """Return the call graph's nodes of a function, including compiler-made clones.

        For a merged function, these are the nodes of the remaining function.
        """
        assert self._graph is not None
        wanted = (function, f"{self.network}:{function}")
        found = [
            key
            for key in self._graph.frames
            if key in wanted or key.startswith(tuple(f"{name}." for name in wanted))
        ]
        return found or self._merged_with(function)

    def _merged_with(self, function: str) -> list[str]:
        key = self._graph.called_as(function, self.text) if self._graph else None
        return [key] if key is not None else []

    def _mentioned(self, start: str) -> set[str]:
        """Return the undefined symbols that a function and its callees refer to.

        The call graph lacks functions that only assembly calls, such as helpers of the compiler.
        """
        assert self._graph is not None
        names: set[str] = set()
        for key in self._graph.reachable(start):
            place = self._place(key)
            if place is not None:
                names |= self.objects[place[0]].sections[place[1]].symbols - self._owner.keys()
        return names

    def _place(self, key: str) -> tuple[str, int] | None:
        file_name, _, name = key.rpartition(":")
        if not file_name:
            return self._owner.get(name)
        number = self.objects[file_name].local_functions.get(name)
        return None if number is None else (file_name, number)

    def _sections_of(self, function: str) -> list[tuple[str, int]]:
        """Return the sections of a function of the network and of its clones.

        For a merged function, these are the sections of the remaining function.
        """
        item = self.objects[self.network]
        names = {**item.exported, **item.local_functions}
        found = [
            (item.name, number)
            for name, number in names.items()
            if name == function or name.startswith(f"{function}.")
        ]
        found = found or [self._owner[name] for name in (function,) if name in self._owner]
        places = [self._place(key) for key in ([] if found else self._merged_with(function))]
        return found or [place for place in places if place is not None]

    def _closure(self, function: str) -> Iterable[tuple[str, int]]:
        """Return all sections that a linker would keep for a function."""
        waiting = self._sections_of(function)
        found = dict.fromkeys(waiting)
        while waiting:
            name, number = waiting.pop()
            section = self.objects[name].sections[number]
            places = [(name, other) for other in section.sections]
            places += [self._owner[symbol] for symbol in section.symbols if symbol in self._owner]
            for place in places:
                if place not in found:
                    found[place] = None
                    waiting.append(place)
        return found


def _summarize(
    description: Mapping[str, Any], command: str, product: _Program, whole: _Program
) -> LibrarySize:
    memory, run = description["memory"], f"{description['interface']}_run"
    entry = with_suffix(f"{run}_unpacked", description)
    functions = [name for layer in description["layers"] if (name := layer["function"])]
    for function in (entry, *functions):
        if not product.has(function):
            raise LibraryError(
                f"does not define {function}",
                where=f"{product.network}.c",
                fix="export the library again",
            )
    stack = product.stack(entry)
    texts = [product.text_of(layer["function"]) for layer in description["layers"]]
    sizes = {place: size for text in texts for place, size in text.items()}
    arena_file = f"{description['interface']}_workspace"
    data = [
        section
        for name, item in product.objects.items()
        if name != arena_file
        for section in item.sections.values()
        if section.is_writable
    ]
    read_only = sum(item.read_only_bytes for item in product.objects.values())
    if description["weights"] == "c":
        read_only -= memory["constants_bytes"]
    return LibrarySize(
        command,
        memory["arena_bytes"],
        memory["live_set_bound_bytes"],
        memory["constants_bytes"],
        product.text_bytes,
        product.text_bytes - sum(sizes.values()),
        _common_text(description, texts),
        read_only,
        sum(section.size for section in data),
        whole.text_bytes - product.text_bytes,
        stack.size,
        dict(stack.chain),
        {
            f"{run}_unpacked": stack.size,
            **{name: product.stack(name).size for name in (f"{run}_in", run)},
        },
        whole.stack(entry).size,
        stack.external_calls,
        stack.findings,
        tuple(_layer_sizes(description, product, texts)),
    )


Text = Mapping[tuple[str, int], int]
"""The code bytes of a layer, by file and section."""


def _common_text(description: Mapping[str, Any], texts: Sequence[Text]) -> dict[str, int]:
    """Return the code bytes that several layers reach, by their targets."""
    users = Counter(place for text in texts for place in text)
    common: Counter[str] = Counter()
    for place in (place for place, count in users.items() if count > 1):
        reached = [
            (layer["where"], text[place])
            for layer, text in zip(description["layers"], texts, strict=True)
            if place in text
        ]
        common[", ".join(sorted({where for where, _ in reached}))] += reached[0][1]
    return dict(sorted(common.items()))


def _layer_sizes(
    description: Mapping[str, Any], product: _Program, texts: Sequence[Text]
) -> Iterator[LayerSize]:
    users = Counter(place for text in texts for place in text)
    layers, identities = description["layers"], identities_of(description)
    for layer, identity, text in zip(layers, identities, texts, strict=True):
        yield LayerSize(
            layer["name"],
            layer["where"],
            layer["kernel"],
            sum(text.values()),
            sum(size for place, size in text.items() if users[place] == 1),
            layer["constants_bytes"],
            layer["arena_bytes"],
            product.stack(layer["function"]).size if layer["function"] else 0,
            identity,
        )
