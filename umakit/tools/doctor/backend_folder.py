# SPDX-License-Identifier: Apache-2.0
"""Checks of a backend's Python and of its `accel.toml`."""

from __future__ import annotations

import re
from pathlib import Path

from umakit import tvm_api
from umakit.backend.registry import LocatedBackend
from umakit.errors import AcceleratorConfigError, UmakitError, short_path
from umakit.machine.accelerator_config import load_accelerator_config
from umakit.registration.backend import Backend
from umakit.registration.registered import RELAX_PHASES, PassPhase
from umakit.tools.doctor.checks import Check, any_error, failed, ok, refused, skipped

BACKEND, CONFIGURATION, PASSES = "backend", "accel.toml", "passes"


def load_checks(located: LocatedBackend) -> tuple[Backend | None, list[Check]]:
    """Load a backend and its `accel.toml`.

    Returns:
        The backend, None if it cannot be loaded; and the checks.
    """
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
    """Return what to do about an exception that loading a backend raised."""
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
    if "reads accel.toml" in _hint_of_memories(cause, folder):
        return _hint_of_memories(cause, folder)
    return "correct the line that is named"


def _hint_of_memories(cause: BaseException | None, folder: Path) -> str:
    """Return a mend for code that expects other memories than `accel.toml` describes."""
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
    """Check that what is registered as passes are passes."""
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
