# SPDX-License-Identifier: Apache-2.0
"""The order of the checks, and the prerequisites of each."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from umakit import tvm_api
from umakit.backend.registry import LocatedBackend, locate_backend
from umakit.devices import HOST, Device
from umakit.devices.designs import design_from
from umakit.devices.execution import UnansweredError
from umakit.devices.run import run_library
from umakit.errors import AcceleratorConfigError, DeviceError, UmakitError, short_path
from umakit.files.processes import TimeLimitError
from umakit.files.staging import temporary_folder
from umakit.machine.accelerator_config import load_accelerator_config
from umakit.machine.costs import TENSORS
from umakit.machine.simulator_config import CXX_SUFFIXES
from umakit.pipeline import compile_model
from umakit.registration.backend import Backend
from umakit.registration.code import raised, texts_in
from umakit.registration.registered import RELAX_PHASES, PassPhase
from umakit.registration.sources.tree import source_tree
from umakit.testing.harness import compare, llvm_reference
from umakit.text.spelling import closest
from umakit.tools.doctor import environment
from umakit.tools.doctor.calls import CallCheck
from umakit.tools.doctor.checks import (
    Check,
    Diagnosis,
    any_error,
    doubtful,
    failed,
    ok,
    refused,
    skipped,
)
from umakit.tools.doctor.driver import FILES, compile_checks, design_checks, file_checks, stage
from umakit.tools.doctor.probes import Probes, not_returned, probe, start_checks, time_limit
from umakit.tools.failed_layer import with_layer

Progress = Callable[[str], None]

PATTERNS, FIRST = "patterns", "first network"


def examine_machine(device: Device, tell: Progress = lambda stage: None) -> Diagnosis:
    """Check the machine: Python, packages, compilers, emulators, folders."""
    tell("looking at packages")
    checks = [*environment.python_checks()]
    tell("importing TVM")
    checks += [environment.tvm_check(), environment.folder_check()]
    tell("compiling a first program")
    checks.append(environment.device_check(HOST))
    if device is HOST:
        checks += [*environment.optional_checks(), *environment.other_device_checks(tell)]
    else:
        checks.append(environment.device_check(device))
    return Diagnosis(tuple(checks))


def examine_backend(name: str, device: Device, tell: Progress = lambda stage: None) -> Diagnosis:
    """Check the prerequisites of a backend's first run, up to a first network.

    The backend's folder is not written to.
    """
    tell("looking at packages and compilers")
    located = locate_backend(name)
    checks = [*environment.python_checks(), environment.folder_check()]
    checks.append(environment.device_check(HOST))
    if device is not HOST:
        tell(f"trying {device.name}")
        checks.append(environment.device_check(device))
    compiles = not any_error(checks)
    with _leaving_no_trace():
        tell("loading the backend")
        backend, loading = load_checks(located)
        checks += loading
        if backend is None:
            message = "the driver and a first network were not tried: the backend is not loaded"
            return Diagnosis((*checks, skipped(FIRST, message)))
        if any_error(loading):
            message = "was not tried: see accel.toml"
            return Diagnosis((*checks, *file_checks(backend), skipped(FIRST, message)))
        checks += _guarded(backend, "backend", lambda: _examine(backend, device, compiles, tell))
    return Diagnosis(tuple(checks))


def _examine(backend: Backend, device: Device, compiles: bool, tell: Progress) -> list[Check]:
    design = design_checks(backend)
    if backend.configuration.is_only_rtl:
        return _examine_driver(backend, device, design, compiles, tell)
    # An error of the design does not keep a network from the simulator.
    return [*design, *_examine_driver(backend, device, [], compiles, tell)]


def _examine_driver(
    backend: Backend, device: Device, design: list[Check], compiles: bool, tell: Progress
) -> list[Check]:
    passes = pass_checks(backend)
    checks = [*passes, *file_checks(backend), *design]
    if any_error(passes):
        return [*checks, skipped(FIRST, "was not tried: see passes")]
    is_complete = not any_error(checks)
    in_cxx = _files_in_cxx(backend)
    if in_cxx:
        checks.append(environment.cxx_check(device, in_cxx[0]))
        compiles &= not any_error(checks[-1:])
    tell("compiling small networks")
    probes = probe(backend, tell)
    checks += _pattern_checks(backend, probes)
    checks += memory_checks(backend, probes)
    if not compiles or not is_complete:
        what = "files of the driver" if compiles else "the compiler"
        return [*checks, skipped(FIRST, f"was not tried: see {what}")]
    with temporary_folder("umakit-doctor-") as folder:
        try:
            staged = stage(backend, device, folder, probes.functions)
        except UmakitError as error:
            return [*checks, refused(FILES, error)]
        tell("compiling the driver")
        checks += compile_checks(staged)
        calls = CallCheck(staged, probes)
        checks += calls.declared()
        tell("linking the driver")
        checks += calls.linked()
        section = backend.configuration.simulator
        is_program = section is not None and bool(section.program)
        # A simulator program is independent of faults of the driver.
        if device is HOST and (is_program or not any_error(checks)):
            tell("starting the simulator")
            checks += start_checks(staged)
        if any_error(checks):
            return [*checks, skipped(FIRST, "was not tried: see the errors above")]
        return [*checks, _first_network(backend, device, probes, folder / "library", tell)]


def _files_in_cxx(backend: Backend) -> list[str]:
    section = backend.configuration.simulator
    sources = [*backend.driver.sources, *(section.sources if section is not None else ())]
    tree = source_tree(backend)
    sources += tree.sources if tree is not None else ()
    return [name for name in sources if name.endswith(CXX_SUFFIXES)]


def _pattern_checks(backend: Backend, probes: Probes) -> list[Check]:
    faults = [refused(PATTERNS, error, "correct the line that is named") for error in probes.errors]
    if faults:
        return faults
    names = [pattern.name for pattern in backend.patterns]
    if not names:
        mend = "register one: _register_pattern; docs/patterns.md lists finished ones"
        return [doubtful(PATTERNS, "none is registered: all runs on the CPU", mend=mend)]
    if not probes.taken:
        message = f"none of the small networks has a layer that {', '.join(names)} take"
        mend = f"see what it takes of yours: uma partition MODEL --backend {backend.target_name}"
        where = short_path(backend.folder)
        return [doubtful(PATTERNS, message, where=where, mend=mend)]
    rest = [name for name in names if name not in probes.taken]
    text = f"{', '.join(name for name in names if name in probes.taken)} take layers"
    return [ok(PATTERNS, f"{text}; not tried: {', '.join(rest)}" if rest else text)]


def _first_network(
    backend: Backend, device: Device, probes: Probes, folder: Path, tell: Progress
) -> Check:
    model = probes.first
    if model is None:
        return skipped(FIRST, "was not tried: no small network has a layer that it takes")
    only_rtl = backend.configuration.is_only_rtl
    if only_rtl and device is not HOST:
        return skipped(FIRST, "was not tried: designs run on the host")
    tell(f"running a first network on {device.name}")
    seconds = time_limit(backend, device)
    try:
        rtl = [design_from(backend.configuration, backend.folder)] if only_rtl else []
        library = compile_model(model.module, [backend], folder, name=model.name)
        ran = run_library(folder, model.inputs, device=device, timeout=seconds, rtl=rtl)
        expected = llvm_reference(model)
    except (TimeLimitError, UnansweredError) as error:
        return refused(FIRST, not_returned(backend, seconds) if seconds else error)
    except DeviceError as error:
        found = error
        if not only_rtl:
            found = with_layer(error, folder, model.inputs, device, seconds)
        return refused(FIRST, found, "see what the driver and its device do there")
    except UmakitError as error:
        return refused(FIRST, error, "correct what it names")
    try:
        largest = compare(ran.outputs, expected, model.output_tolerance)
    except DeviceError as error:
        return refused(FIRST, error, "compare layer by layer: uma diff MODEL --backend NAME")
    count = len(library.report.offloaded)
    exact = "as TVM computes it" if not largest else f"within {largest:.2g} of TVM's"
    message = f"{count} of {len(library.report.placements)} operators ran on the {device.name}"
    if device is HOST:
        message = f"{count} of {len(library.report.placements)} operators ran on the accelerator"
    return ok(FIRST, f"{message}, the result is {exact}")


def _guarded(backend: Backend, name: str, run: Callable[[], list[Check]]) -> list[Check]:
    try:
        return run()
    except UmakitError as error:
        return [refused(name, error)]
    except Exception as error:  # a team's code may raise anything
        text = raised(error, backend)
        if f"{short_path(backend.folder)}{os.sep}" not in text:
            raise
        return [failed(name, f"raised {text}", mend="correct the line that is named")]


@contextlib.contextmanager
def _leaving_no_trace() -> Iterator[None]:
    """Write no compiled Python next to a backend's files; print output to standard error."""
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        sys.dont_write_bytecode = before


MEMORIES = "memories"

OFFSET = 'address = "offset" and reachable_by = ["accelerator"]'
"""Settings that make a memory a scratchpad."""


def memory_checks(backend: Backend, probes: Probes) -> list[Check]:
    """Check that scratchpads in code are described, and that described ones are used."""
    path = backend.folder / "accel.toml"
    described = {memory.name: memory for memory in backend.configuration.memory}
    texts = texts_in(backend.folder)
    faults = []
    for name, patterns in sorted(probes.memories.items()):
        if name in described and described[name].address == "offset":
            continue
        unused = [each for each in described if each not in probes.memories]
        other = closest(name, described) or next(iter(unused or described), "")
        place = texts.get(name) or "the code"
        if name in described:
            message, mend = f"{name} is a scratchpad for the code", f"write {OFFSET}"
        else:
            message = f"{', '.join(sorted(patterns))} use a scratchpad {name!r}, which it lacks"
            mend = f'describe it: [[memory]] with name = "{name}", size and {OFFSET}'
            if other:
                mend = f"name {other} in {place}"
            if other in unused:
                mend += f', or write name = "{name}" in place of {other}'
        faults.append(failed(MEMORIES, message, where=short_path(path), mend=mend))
    if not faults:
        faults = _without_tiles(backend, probes)
    if not faults and probes.first is not None:
        faults = [
            doubtful(
                MEMORIES,
                f"no pattern uses the scratchpad {name!r}",
                where=_place(backend, name),
                mend="remove it, or allocate buffers in it: tir.scratchpad_buffer",
            )
            for name, memory in described.items()
            if memory.address == "offset" and name not in probes.memories and name not in texts
        ]
    if faults:
        return faults
    used = ", ".join(sorted(probes.memories))
    return [ok(MEMORIES, f"{used}: as the code uses it" if used else "code uses no scratchpad")]


def _without_tiles(backend: Backend, probes: Probes) -> list[Check]:
    """Return warnings about memories of a `[machine]` without tensors while others have some."""
    memories = backend.configuration.scratchpads
    held = {tensor for memory in memories for tensor in memory.holds}
    if backend.configuration.machine is None or not held:
        return []
    others = memories if held >= set(TENSORS) else memories[1:]  # the rest lies in the first
    return [
        doubtful(
            MEMORIES,
            f"no tensor lies in {memory.name!r}: it has no holds, other memories have",
            where=_place(backend, memory.name),
            mend=f"set holds, a list of {', '.join(TENSORS)}, or remove the memory",
        )
        for memory in others
        if not memory.holds and memory.name not in probes.memories
    ]


def _place(backend: Backend, name: str) -> str:
    path = backend.folder / "accel.toml"
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if re.match(rf"""\s*name\s*=\s*["']{name}["']""", line):
            return f"{short_path(path)}:{number}"
    return short_path(path)


BACKEND, CONFIGURATION, PASSES = "backend", "accel.toml", "passes"


def load_checks(located: LocatedBackend) -> tuple[Backend | None, list[Check]]:
    """Load a backend and its `accel.toml`; return the backend if loaded, and the checks."""
    backend: Backend | None = None
    loading: list[Check] = []
    try:
        backend = located.load()
    except AcceleratorConfigError as error:
        if located.folder is None:
            return None, [refused(CONFIGURATION, error)]
        loading = [skipped(BACKEND, f"is not loaded: it needs {CONFIGURATION}")]
    except UmakitError as error:
        folder = located.folder or Path()
        loading = [refused(BACKEND, error, mend_of_loading(error, folder))]
    else:
        message = f"{backend.target_name} in {short_path(backend.folder)} can be loaded"
        loading = [ok(BACKEND, message)]
    place = located.folder if backend is None else backend.folder
    return backend, [*loading, *([configuration_check(place, backend)] if place else [])]


def mend_of_loading(error: UmakitError, folder: Path) -> str:
    """Return advice on an exception raised by loading a backend."""
    cause = error.__cause__
    if isinstance(cause, ModuleNotFoundError):
        package, _, module = (cause.name or "").rpartition(".")
        if package.startswith("umakit_backend_") or not cause.name:
            return f"write {short_path(folder / module)}.py, which this line imports"
        return f"pip install {cause.name}, or what has that module"
    if isinstance(cause, ImportError):
        return "define the name in the file that it is imported from, or correct the import"
    if isinstance(cause, AttributeError) and cause.obj is PassPhase:
        return f"the phases are {', '.join(phase.name for phase in PassPhase)}"
    if re.search(r"^syntax error", error.what):
        return "correct this line, or the one above it"
    return _hint_of_memories(cause, folder) or "correct the line that is named"


def _hint_of_memories(cause: BaseException | None, folder: Path) -> str:
    traceback = None if cause is None else cause.__traceback__
    line = ""
    while traceback is not None:
        path, number = Path(traceback.tb_frame.f_code.co_filename), traceback.tb_lineno
        if path.is_relative_to(folder) and path.is_file():
            line = path.read_text(encoding="utf-8", errors="replace").splitlines()[number - 1]
        traceback = traceback.tb_next
    if not re.search(r"\b(memory|scratchpads?)\b", line):
        return ""
    try:
        names = [each.name for each in load_accelerator_config(folder / CONFIGURATION).memory]
    except AcceleratorConfigError:
        return ""
    described = f"describes {', '.join(names)}" if names else "describes no memory"
    return f"this line reads accel.toml, which {described}: add a [[memory]], or correct the line"


def configuration_check(folder: Path, backend: Backend | None) -> Check:
    """Check an `accel.toml`; its memories are compared with the code later."""
    path = folder / CONFIGURATION
    try:
        found = load_accelerator_config(path)
        if backend is not None:
            found = backend.configuration
    except AcceleratorConfigError as error:
        return _configuration_fault(path, error)
    simulator = found.device.simulator
    answer = "no simulator" if simulator == "none" else f'simulator "{simulator}"'
    names = ", ".join(f"memory {each.name}" for each in found.memory) or "no memory of its own"
    return ok(CONFIGURATION, f"is valid: {answer}, {names}")


def _configuration_fault(path: Path, error: AcceleratorConfigError) -> Check:
    place, _, number = error.where.rpartition(":")
    where = f"{short_path(path)}:{number}" if place == str(path) else short_path(path)
    mend = "correct it; docs/backends-api.md lists the keys and their values"
    if not path.is_file():
        mend = "write it: `uma new NAME` shows one with all it needs"
    return failed(CONFIGURATION, error.what, where=where, mend=error.fix or mend)


def pass_checks(backend: Backend) -> list[Check]:
    faults = [
        failed(
            PASSES,
            f"{getattr(each, '__name__', type(each).__name__)} in {phase.name} is no pass of TVM",
            where=short_path(backend.folder),
            mend="wrap the function: tir.prim_func_pass(NAME, function)"
            if phase not in RELAX_PHASES
            else "register what tvm.transform.module_pass or a function of tvm.relax.transform "
            "returned",
        )
        for phase, passes in backend.passes.items()
        for each in passes
        if not isinstance(each, tvm_api.Pass)
    ]
    counts = [
        f"{len(passes)} in {phase.name}" for phase, passes in backend.passes.items() if passes
    ]
    return faults if any_error(faults) else [ok(PASSES, ", ".join(counts) or "none registered")]
