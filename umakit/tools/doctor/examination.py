# SPDX-License-Identifier: Apache-2.0
"""The order of the checks, and what each needs of those before it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from umakit.backend.registry import locate_backend
from umakit.devices import HOST, Device
from umakit.devices.designs import design_from
from umakit.devices.execution import UnansweredError
from umakit.devices.run import run_library
from umakit.errors import DeviceError, UmakitError, short_path
from umakit.files.processes import TimeLimitError
from umakit.files.staging import temporary_folder
from umakit.machine.simulator_config import CXX_SUFFIXES
from umakit.pipeline import compile_model
from umakit.registration.backend import Backend
from umakit.registration.code import raised
from umakit.registration.sources.tree import source_tree
from umakit.testing.harness import compare, llvm_reference
from umakit.tools.doctor.backend_folder import load_checks, pass_checks
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
from umakit.tools.doctor.design import design_checks
from umakit.tools.doctor.driver import compile_checks, file_checks, stage, staging_fault
from umakit.tools.doctor.environment import (
    cxx_check,
    device_check,
    folder_check,
    optional_checks,
    other_device_checks,
    python_checks,
    tvm_check,
)
from umakit.tools.doctor.memories import memory_checks
from umakit.tools.doctor.probes import Probes, probe
from umakit.tools.doctor.simulator import not_returned, start_checks, time_limit
from umakit.tools.failed_layer import with_layer

Progress = Callable[[str], None]

PATTERNS, FIRST = "patterns", "first network"


def examine_machine(device: Device, tell: Progress = lambda stage: None) -> Diagnosis:
    """Check the machine: Python, packages, compilers, emulators, folders.

    Args:
        device: a device whose compiler and emulator are needed; `HOST` for the host alone.
        tell: callback with a description of each stage.
    """
    tell("looking at packages")
    checks = [*python_checks()]
    tell("importing TVM")
    checks += [tvm_check(), folder_check()]
    tell("compiling a first program")
    checks.append(device_check(HOST))
    if device is HOST:
        checks += [*optional_checks(), *other_device_checks(tell)]
    else:
        checks.append(device_check(device))
    return Diagnosis(tuple(checks))


def examine_backend(name: str, device: Device, tell: Progress = lambda stage: None) -> Diagnosis:
    """Check what a backend needs before its first run, up to a first network.

    Nothing is written into its folder.

    Args:
        name: name of the backend or path of its folder.
        device: the device that the first network runs on.
        tell: callback with a description of each stage.

    Raises:
        BackendError: there is no such backend, or there are two.
    """
    tell("looking at packages and compilers")
    located = locate_backend(name)
    checks = [*python_checks(), folder_check(), device_check(HOST)]
    if device is not HOST:
        tell(f"trying {device.name}")
        checks.append(device_check(device))
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
        checks.append(cxx_check(device, in_cxx[0]))
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
            return [*checks, staging_fault(error)]
        tell("compiling the driver")
        checks += compile_checks(staged)
        calls = CallCheck(staged, probes)
        checks += calls.declared()
        tell("linking the driver")
        checks += calls.linked()
        section = backend.configuration.simulator
        is_program = section is not None and bool(section.program)
        # A program has nothing to do with what is wrong with the driver.
        if device is HOST and (is_program or not any_error(checks)):
            tell("starting the simulator")
            checks += start_checks(staged)
        if any_error(checks):
            return [*checks, skipped(FIRST, "was not tried: see the errors above")]
        return [*checks, _first_network(backend, device, probes, folder / "library", tell)]


def _files_in_cxx(backend: Backend) -> list[str]:
    """Return the sources of a driver and of its own simulator that are C++."""
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
    """Return the results of checks, or the exception that the backend's own Python raised."""
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
    """Write no compiled Python next to a backend's files; what it prints goes to standard error."""
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        sys.dont_write_bytecode = before
