# SPDX-License-Identifier: Apache-2.0
"""The TIR pass of backends that register kernels, and the sizes of the kernels' working memory."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from weakref import WeakKeyDictionary

from umakit import tir, tvm_api
from umakit.errors import BackendError, BuildError
from umakit.files.compiled_files import host_compiler
from umakit.files.processes import Limits, TimeLimitError, run_limited
from umakit.operators.offload.composite import Composite
from umakit.patterns.driver import parameters_of
from umakit.registration.backend import Backend
from umakit.registration.code import called, included_text
from umakit.registration.kernels import RegisteredKernel, kernel_call
from umakit.registration.sources.needed import known_functions, needed_files
from umakit.registration.sources.tree import source_tree
from umakit.text.c_text import CText
from umakit.text.spelling import closest


def kernel_pass(backend: Backend) -> tvm_api.Pass:
    """Return the pass that turns composites into calls of the kernels registered by then."""

    def replace(function: tvm_api.PrimFunc) -> tvm_api.PrimFunc:
        kernel = backend.kernels.get(tir.composite_name(function).partition(".")[2])
        layer = parameters_of(function)
        if kernel is None or layer is None:
            return function
        size = 0 if kernel.scratch is None else scratch_bytes(backend, kernel, layer)
        return tir.with_body(function, kernel_call(kernel, layer, function, size))

    return tir.prim_func_pass("kernel_calls", replace)


# Sizes of the working memory of kernels, asked from the library's own functions.
#
# The functions are built for this machine, once as the library is and once for each core that it is
# configured for, and called with the numbers of a layer.

MOST = 2**31 - 1
"""Maximum size in bytes of the scratch of a call."""

LONGEST_RUN = 60
"""Limit on the processor time of a library function, in seconds."""

FLAGS = (
    "-w", "-O1", "-ffunction-sections", "-fdata-sections",
    "-fsanitize=signed-integer-overflow,integer-divide-by-zero",
    "-fsanitize-undefined-trap-on-error",
)  # fmt: skip
"""Warnings concern only the library, and unused functions are not linked. An overflow in the size
is an error."""

LINKING = ("-Wl,--gc-sections", "-lm")

DIAGNOSTIC = re.compile(r"error(?!: ld returned)|undefined reference|multiple definition")

PREFIX = "umakit_"
"""Start of the names of C variables that hold the layer's numbers."""

PROGRAM = """\
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
{includes}

static int64_t {prefix}size(int64_t *{prefix}numbers)
{{
{declarations}
    return (int64_t)({text});
}}

int main(int argc, char **argv)
{{
    int64_t numbers[{count}];
    for (int i = 1; i < argc && i < {count}; ++i) {{
        numbers[i] = (int64_t)strtoll(argv[i], NULL, 10);
    }}
    printf("%lld\\n", (long long){prefix}size(numbers));
    return 0;
}}
"""


def scratch_bytes(backend: Backend, kernel: RegisteredKernel, layer: Composite) -> int:
    """Return the bytes of scratch of a layer, the maximum over all cores."""
    what = f"the scratch of pattern {kernel.pattern}"
    if not isinstance(kernel.scratch, CText):
        own = kernel.scratch
        assert own is not None
        value: object = called(backend, what, lambda: own(layer))
        return _checked(value, what, kernel.place)
    values = [layer.scalars[name] for name in kernel.scratch.names]
    program = _program(backend, kernel.scratch, layer.wide_scalars)
    sizes = []
    for sources in host_sources(backend, _identifiers(backend)):
        of_core = f"{what} on core {sources.core}" if sources.core else what
        try:
            answer = _answer(program, sources, tuple(values))
        except BuildError as error:
            _check_defined(kernel.scratch, backend, what, kernel.place)
            raise BackendError(
                f"{of_core} cannot be evaluated: {error.what}", where=kernel.place, fix=error.fix
            ) from None
        sizes.append(_checked(answer, of_core, kernel.place))
    return max(sizes)


def _check_defined(size: CText, backend: Backend, what: str, place: str) -> None:
    """Refuse the text of a size that calls a function missing in the library."""
    known = known_functions(backend)
    if not size.function or known is None or not known.is_whole or size.function in known.functions:
        return
    close = closest(size.function, known.functions)
    raise BackendError(
        f"{what} calls {size.function}, which no file of the library defines",
        where=place,
        fix=f"write {close}" if close else "name the file that has it in files of [sources]",
    ) from None


def _checked(value: object, what: str, place: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise BackendError(f"{what} is {value!r}, which is no number of bytes", where=place)
    if not 0 <= value <= MOST:
        raise BackendError(
            f"{what} is {value} bytes",
            where=place,
            fix="the library's function may refuse the layer: so must a predicate of the pattern",
        )
    return value


def _identifiers(backend: Backend) -> frozenset[str]:
    texts = [each.scratch for each in backend.kernels.values()]
    return frozenset(name for t in texts if isinstance(t, CText) for name in t.identifiers)


def _program(backend: Backend, scratch: CText, wide: Collection[str]) -> str:
    hook, section = backend.codegen.includes, backend.configuration.sources
    includes = [f'#include "{name}"' for name in (section.headers if section is not None else ())]
    includes += [included_text(backend, hook)] if hook is not None else []
    names = {name: f"{PREFIX}{name}" for name in scratch.names}
    declarations = [f"    (void){PREFIX}numbers;"]
    for number, (name, variable) in enumerate(names.items(), start=1):
        type_ = f"int{64 if name in wide else 32}_t"
        value = f"({type_}){PREFIX}numbers[{number}]"
        declarations.append(f"    const {type_} {variable} = {value};")
    return PROGRAM.format(
        includes="\n".join(includes),
        prefix=PREFIX,
        declarations="\n".join(declarations),
        text=scratch.filled(names),
        count=len(names) + 1,
    )


@cache
def _answer(program: str, sources: HostSources, values: tuple[int, ...]) -> int:
    command = [str(_built(program, sources)), *map(str, values)]
    try:
        result = run_limited(command, Path.cwd(), limits=Limits(LONGEST_RUN))
    except TimeLimitError:
        raise BuildError(f"the library's function took longer than {LONGEST_RUN} s") from None
    if result.returncode != 0:
        raise BuildError(f"the library's function ended with status {result.returncode}")
    return int(result.stdout.split()[-1])


@cache
def _built(program: str, sources: HostSources) -> Path:
    folder = Path(_folder().name) / sha256(repr([program, sources]).encode()).hexdigest()[:16]
    folder.mkdir(exist_ok=True)
    source, output = folder / "scratch.c", folder / "scratch"
    source.write_text(program, encoding="utf-8")
    compiler = host_compiler()
    # Messages are parsed below, so they must not be translated.
    result = subprocess.run(
        [*compiler, *FLAGS, *sources.flags, str(source), *map(str, sources.files), "-o",
         str(output), *sources.linked, *LINKING],
        capture_output=True, text=True, errors="replace", check=False,
        env={**os.environ, "LC_ALL": "C"},
    )  # fmt: skip
    if result.returncode != 0:
        lines = [each for each in result.stderr.splitlines() if DIAGNOSTIC.search(each)]
        first = (lines or result.stderr.splitlines() or ["no message"])[0]
        raise BuildError(
            f"{shlex.join(compiler)} refused: {first.replace(f'{source}:', '').strip()}",
            fix="correct the text, or the headers and sources of the library",
        )
    return output


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="umakit-scratch-")


@dataclass(frozen=True)
class HostSources:
    """The parts of a program that calls a backend's functions.

    Attributes:
        core: name of the core for its macros; empty for the library without a core.
        linked: objects and libraries.
        versions: modification times of all files, including headers.
    """

    core: str
    files: tuple[Path, ...]
    flags: tuple[str, ...]
    linked: tuple[str, ...] = ()
    versions: tuple[int, ...] = ()


_known: WeakKeyDictionary[Backend, dict[frozenset[str], list[HostSources]]] = WeakKeyDictionary()


def host_sources(backend: Backend, identifiers: Collection[str]) -> list[HostSources]:
    """Return the files of a backend, cached: without a core, and for each core."""
    known, names = _known.setdefault(backend, {}), frozenset(identifiers)
    if names not in known:
        known[names] = list(_host_sources(backend, names))
    return known[names]


def _host_sources(backend: Backend, identifiers: Collection[str]) -> Iterator[HostSources]:
    driver, folder, tree = backend.driver, backend.folder, source_tree(backend)
    own = [folder / name for name in (*driver.headers, *driver.sources)]
    sources = [folder / name for name in driver.sources]
    folders = list(dict.fromkeys([folder, *(path.parent for path in own)]))
    linked = [str(folder / name) for name in driver.compiled]
    files = [*own, *(folder / name for name in driver.compiled)]
    macros: dict[str, Sequence[str]] = {"": ()}
    if tree is not None:
        texts = [" ".join(sorted(identifiers))]
        texts += [path.read_text("utf-8", "replace") for path in own if path.is_file()]
        needed, section = needed_files(tree, texts), tree.section
        sources += [tree.root / name for name in needed.sources]
        files += [tree.root / name for name in (*needed.sources, *needed.included)]
        folders += [tree.root / each for each in ("", *section.include)]
        linked += [f"-l{name}" for name in section.link]
        macros = {"": section.macros, **{core: section.macros_of(core) for core in section.cores}}
    versions = tuple(each.stat().st_mtime_ns if each.exists() else 0 for each in files)
    for core, defined in macros.items():
        flags = (*(f"-I{each}" for each in folders), *(f"-D{each}" for each in defined))
        yield HostSources(core, tuple(sources), flags, tuple(linked), versions)
