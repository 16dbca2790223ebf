# SPDX-License-Identifier: Apache-2.0
"""CMake as tests call it."""

from __future__ import annotations

import os
import shutil
import sysconfig
from pathlib import Path

PACKAGED = Path(sysconfig.get_path("purelib")) / "cmake" / "data" / "bin" / "cmake"
"""The program of the package `cmake`; the one in the folder of scripts starts Python first."""

QUICK = {
    "CMAKE_BUILD_TYPE": "Quick",
    **({"CMAKE_GENERATOR": "Ninja"} if shutil.which("ninja") else {}),
}
"""Environment in which nothing is optimized, by a build type that has no flags."""


def program() -> str:
    """Return the CMake of the test tools; the machine's may be another."""
    return str(PACKAGED) if PACKAGED.exists() else "cmake"


def environment(*, quick: bool) -> dict[str, str]:
    """Return the environment for builds as users have them, or for quick ones."""
    return {**os.environ, **(QUICK if quick else {})}
