# SPDX-License-Identifier: Apache-2.0
"""Checks of the machine: Python, packages, compilers, emulators and folders."""

from __future__ import annotations

import importlib
import os
import platform
import shutil
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, metadata, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from umakit.devices import DEVICES, HOST, Device
from umakit.devices.build import compile_c
from umakit.devices.execution import execute
from umakit.devices.machine_names import version_line
from umakit.errors import UmakitError
from umakit.files.staging import temporary_folder
from umakit.library.layout import RUNTIME, user_cache
from umakit.tools.doctor.checks import Check, doubtful, failed, ok, refused
from umakit.version import TVM, untested_tvm

Progress = Callable[[str], None]

PACKAGE = "umakit"

FIRST_PROGRAM = """\
#include <math.h>
#include <stdint.h>

int main(void)
{
    volatile float zero = 0.0f;
    return expf(zero) == 1.0f && sizeof(int32_t) == 4 ? 0 : 1;
}
"""

FIRST_CXX_PROGRAM = """\
#include <vector>

int main()
{
    return static_cast<int>(std::vector<int>(1).front());
}
"""

SECONDS = 120.0
"""Time limit of the first program; an emulator may be slow."""

PURPOSES = {
    "tflite": "reading TensorFlow Lite files",
    "torch": "reading PyTorch files and programs",
    "onnxruntime": "`uma diff` with ONNX Runtime as reference",
    "tflite_micro": "`uma diff` with TensorFlow Lite Micro as reference",
    "distributed": "tuning on several machines",
}

EXTRAS = {
    "tflite": "tflite", "tflite_micro": "tflite", "torch": "torch", "onnxruntime": "bench",
    "distributed": "cluster",
}  # fmt: skip
"""The extra of umakit that installs an optional package."""


def python_checks() -> list[Check]:
    """Compare Python and packages with the versions that umakit needs."""
    try:
        described = metadata(PACKAGE)
    except PackageNotFoundError:
        mend = "install it: pip install umakit"
        return [failed("Python", "umakit is imported from a folder, not installed", mend=mend)]
    wanted, found = described["Requires-Python"] or "", platform.python_version()
    if not SpecifierSet(wanted).contains(found, prereleases=True):
        mend = f"make a virtual environment with Python {wanted} and install umakit in it"
        checks = [failed("Python", f"is {found}, umakit needs {wanted}", mend=mend)]
    else:
        checks = [ok("Python", found)]
    needed = [Requirement(text) for text in described.get_all("Requires-Dist") or []]
    faults = [fault for each in needed if (fault := _package_fault(each)) is not None]
    tvm = _version(TVM) or f"without {TVM}"
    return [*checks, *(faults or [ok("packages", f"{TVM} {tvm}, all others as needed")])]


def _package_fault(needed: Requirement) -> Check | None:
    if needed.marker is not None and not needed.marker.evaluate({"extra": ""}):
        return None
    found = _version(needed.name)
    mend = f"pip install '{needed.name}{needed.specifier}'"
    if found is None:
        return failed("packages", f"{needed.name} is not installed", mend=mend)
    if needed.name == TVM:
        untested = untested_tvm(found)
        message = f"{TVM} is {found}: {untested}"
        return doubtful("packages", message, mend=mend) if untested else None
    if not needed.specifier.contains(found, prereleases=True):
        message = f"{needed.name} is {found}, umakit needs {needed.specifier}"
        return failed("packages", message, mend=mend)
    return None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def tvm_check() -> Check:
    """Import TVM; its shared libraries may not fit the machine."""
    try:
        importlib.import_module("umakit.tvm_api")
    except Exception as error:  # any exception of its shared libraries
        mend = "pip install --force-reinstall umakit"
        return failed("TVM", f"cannot be imported: {type(error).__name__}: {error}", mend=mend)
    return ok("TVM", "can be imported")


def optional_checks() -> Iterator[Check]:
    """Look for packages that some commands need."""
    for package, purpose in PURPOSES.items():
        found = _version(package)
        if found is None:
            wanted = f"'umakit[{EXTRAS[package]}]'" if package in EXTRAS else package
            mend = f"pip install {wanted.replace('_', '-')}"
            yield doubtful(package, f"is not installed, which {purpose} needs", mend=mend)
        else:
            yield ok(package, found)


def device_check(device: Device) -> Check:
    """Compile, link and run a program for a device."""
    name = "C compiler" if device is HOST else device.name
    try:
        compiler = device.compiler()
        device.check_emulator()
    except UmakitError as error:
        return refused(name, error, _package_mend(device))
    try:
        with temporary_folder("umakit-doctor-") as folder:
            source, program = folder / "first.c", folder / "first"
            source.write_text(FIRST_PROGRAM, encoding="utf-8")
            platform_files = [] if device is HOST else device.platform_sources(RUNTIME)
            compile_c([source, *platform_files], program, device.program_flags(), device)
            ended = execute(device, program, [], folder, SECONDS)
    except UmakitError as error:  # the error's own advice is about programs of users
        return failed(name, error.what, where=error.where, mend=_package_mend(device))
    if ended.returncode:
        message = f"a first program that {compiler[0]} compiled ends with {ended.returncode}"
        return failed(name, message, mend=_package_mend(device))
    text = f"{version_line(compiler[0])} compiles, links and runs a program"
    return ok(name, f"{text} on {device.run[0]}" if device.run else text)


def cxx_check(device: Device, what: str) -> Check:
    """Compile, link and run a C++ program on the host; for other devices, find the compiler."""
    name, mend = "C++ compiler", _compiler_mend("CXX", ("g++",))
    try:
        compiler = device.cxx_compiler(what)
        if device is not HOST:
            return ok(name, f"{compiler[0]} is installed")
        with temporary_folder("umakit-doctor-") as folder:
            source, program = folder / "first.cc", folder / "first"
            source.write_text(FIRST_CXX_PROGRAM, encoding="utf-8")
            compile_c([source], program, [], device)
            ended = execute(device, program, [], folder, SECONDS)
    except UmakitError as error:
        return failed(name, error.what, where=error.where, mend=mend)
    if ended.returncode:
        return failed(name, f"a first program ends with {ended.returncode}", mend=mend)
    return ok(name, f"{version_line(compiler[0])} compiles, links and runs a program")


def _package_mend(device: Device) -> str:
    if not device.packages:
        return f"install its programs, or correct {device.own_file}"
    if device is HOST:
        return _compiler_mend("CC", device.packages)
    return f"on Debian: apt-get install {' '.join(device.packages)}"


def _compiler_mend(variable: str, packages: Sequence[str]) -> str:
    if os.environ.get(variable):
        return f"let {variable} be a compiler that works, or unset it"
    return f"on Debian: apt-get install {' '.join(packages)}"


def other_device_checks(tell: Progress) -> Iterator[Check]:
    """Try all devices but the host; missing devices are warnings."""
    for device in DEVICES:
        if device is HOST:
            continue
        tell(f"trying {device.name}")
        missing = [p for p in (device.command, *device.run[:1]) if shutil.which(p) is None]
        if missing:
            message = f"{' and '.join(missing)}: not installed, --device {device.name} needs it"
            yield doubtful(device.name, message, mend=_package_mend(device))
        else:
            yield device_check(device)


def folder_check() -> Check:
    """Check that temporary files and the cache of compiled programs can be written."""
    try:
        with temporary_folder("umakit-doctor-") as folder:
            (folder / "file").write_bytes(b"")
    except (UmakitError, OSError) as error:
        mend = "set TMPDIR to a folder that can be written"
        return failed("folders", f"temporary files cannot be written: {error}", mend=mend)
    try:
        place = user_cache()
    except RuntimeError:
        return doubtful("folders", "you have no home folder for a cache", mend="set XDG_CACHE_HOME")
    existing = next(path for path in (place, *place.parents) if path.exists())
    if not os.access(existing, os.W_OK | os.X_OK):
        mend = "set XDG_CACHE_HOME to a folder that can be written"
        return doubtful(
            "folders", f"{place} cannot be written: programs are compiled each time", mend=mend
        )
    return ok("folders", f"temporary files and {_short(place)} can be written")


def _short(place: Path) -> str:
    try:
        home = Path.home()
    except RuntimeError:
        return str(place)
    return f"~/{place.relative_to(home)}" if place.is_relative_to(home) else str(place)
