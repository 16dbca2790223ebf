# SPDX-License-Identifier: Apache-2.0
"""How this machine runs code for the CPUs that umakit describes.

Tests name a described CPU, and no test depends on which CPU this machine has. The functions below
say how code for the CPU runs here; the summary of pytest counts the tests of each CPU and way.
"""

from __future__ import annotations

import atexit
import functools
import os
import platform
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from umakit.cpu import description as cpus
from umakit.cpu.description import GENERIC, MACHINES, Cpu, features_in, find_cpu

VECTOR_CPUS = ("x86-64-v3", "x86-64-v4", "cortex-a76")
"""CPUs with 16 registers of 8 floats, 32 of 16, and 32 of 4."""

PROCESSOR = "this processor"
QEMU = "QEMU"
PLAIN = "this processor without instructions of the CPU"
"""The compiler splits vectors into what this processor has; sums of products are in plain C."""

SHIM = "emulated instructions"
"""C functions of the tests, for instructions that no version of QEMU has."""

EMULATED_FEATURES = {"avx2", "fma", "bmi2", "f16c"}
"""Features that `qemu-x86_64 -cpu max` has since QEMU 7.2. No version of QEMU emulates AVX-512."""

MASK = "UMAKIT_TEST_FEATURES"
"""Environment variable with the features of this machine that tests may see; all by default."""

RUNS: list[tuple[str, str]] = []
"""CPUs whose code ran in this process, and how."""


def mask_features() -> None:
    """Let umakit see the features that MASK names, of those that this machine has."""
    allowed = os.environ.get(MASK)
    if allowed is None:
        return
    text = cpus.CPU_INFORMATION.read_text(encoding="ascii", errors="replace")
    kept = [feature for feature in features_in(text) or () if feature in allowed.split()]
    path = _folder() / "cpuinfo"
    path.write_text(f"flags\t\t: {' '.join(kept)}\n", encoding="ascii")
    cpus.CPU_INFORMATION = path


@functools.cache
def _folder() -> Path:
    folder = tempfile.TemporaryDirectory(prefix="umakit-cpus-")
    atexit.register(folder.cleanup)
    return Path(folder.name)


def need(program: str) -> str:
    """Skip a test that needs a program; never on CI, which installs the program."""
    if shutil.which(program) is None:
        assert not os.environ.get("UMAKIT_CI"), f"CI lacks {program}: see .ci/run"
        pytest.skip(f"{program} is not installed")
    return program


def x86_compiler() -> str:
    """Return gcc for x86-64, which also compiles where another processor runs the tests."""
    is_x86 = MACHINES.get(platform.machine().lower()) == "x86-64"
    return need("gcc" if is_x86 else "x86_64-linux-gnu-gcc")


def cpu_here(name: str) -> str:
    """Return what `--cpu` takes so that kernels for a CPU run on this machine, whichever it is.

    Without the features this is a file with the same schedules and no instructions of the CPU.
    """
    if name == GENERIC:
        return name
    if not find_cpu(name).missing_here():
        RUNS.append((name, PROCESSOR))
        return name
    RUNS.append((name, PLAIN))
    path = _folder() / f"{name}.toml"
    path.write_text(
        f'base = "{name}"\narchitecture = ""\nfeatures = []\nmacros = []\n'
        'flags = ["-ffp-contract=fast"]\n',
        encoding="utf-8",
    )
    return str(path)


def is_emulated(cpu: Cpu) -> bool:
    """Return whether QEMU has the features of a CPU of x86-64."""
    return cpu.architecture == "x86-64" and EMULATED_FEATURES.issuperset(cpu.features)


def emulator(features: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the command that runs programs for x86-64 in QEMU.

    Args:
        features: features that the emulated processor lacks.
    """
    return (need("qemu-x86_64"), "-cpu", ",".join(["max", *(f"-{each}" for each in features)]))


def device_here(name: str) -> str:
    """Return the device that runs libraries for a CPU of x86-64, with its instructions.

    This machine, or a board file with QEMU. A test of other features is skipped.
    """
    cpu = find_cpu(name)
    lacks = cpu.missing_here()
    if not lacks:
        RUNS.append((name, PROCESSOR))
        return "host"
    if not is_emulated(cpu):
        pytest.skip(f"{lacks}, and QEMU does not emulate {name}")
    RUNS.append((name, QEMU))
    path = _folder() / "qemu-x86-64.toml"
    path.write_text(
        f'name = "qemu-x86-64"\ndescription = "x86-64, emulated"\ncompiler = "{x86_compiler()}"\n'
        f'linking = ["-static"]\nrun = {[*emulator(), "{program}", "{arguments}"]!r}\n'
        f'output = "files"\nprocessors = ["x86-64"]\nfeatures = {sorted(EMULATED_FEATURES)!r}\n',
        encoding="utf-8",
    )
    return str(path)
