# SPDX-License-Identifier: Apache-2.0
"""Versions of all programs and packages behind a compile and a run, for bug reports."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution, version

from packaging.requirements import Requirement

from umakit.cpu.description import NATIVE, find_cpu
from umakit.devices import DEVICES, HOST
from umakit.devices.machine_names import processor_name, version_line
from umakit.errors import UmakitError
from umakit.version import TVM, __version__, untested_tvm

PACKAGE = "umakit"

OPTIONAL = (
    "torch",
    "torchao",
    "tflite",
    "onnxruntime",
    "tflite-micro",
    "ai-edge-litert",
    "distributed",
)


def versions() -> dict[str, str]:
    """Return versions of umakit, Python, this machine, and installed packages and programs."""
    found = {
        PACKAGE: __version__,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": platform.platform(),
        "processor": f"{processor_name()} (--cpu native: {find_cpu(NATIVE).name})",
    }
    return found | dict(_packages()) | dict(_programs())


def _packages() -> Iterator[tuple[str, str]]:
    try:
        needed = distribution(PACKAGE).requires or []
    except PackageNotFoundError:
        needed = []
    names = [each.name for each in map(Requirement, needed) if each.marker is None]
    for name in [*names, *OPTIONAL]:
        try:
            found = version(name)
        except PackageNotFoundError:
            continue
        untested = untested_tvm(found) if name == TVM else ""
        yield name, f"{found} ({untested})" if untested else found


def _programs() -> Iterator[tuple[str, str]]:
    try:
        compiler = HOST.compiler()[0]
        yield compiler, version_line(compiler)
    except UmakitError:
        pass
    names = [name for device in DEVICES for name in (device.command, *device.run[:1])]
    for name in dict.fromkeys([*names, "clang", "cmake", "verilator"]):
        if name and shutil.which(name):
            yield name, version_line(name)
