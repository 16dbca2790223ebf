# SPDX-License-Identifier: Apache-2.0
"""The packages of a wheel, found: those of umakit/, and four folders beside it that are in it too.

Everything else about the wheel is in pyproject.toml, where these four have their places.
"""

import shutil
from pathlib import Path

from setuptools import find_packages, setup

BESIDE = ("backends", "cli", "sim", "templates")

# An earlier build may have copied modules there that are gone; they would be in the wheel.
shutil.rmtree(Path(__file__).resolve().parent / "build" / "lib", ignore_errors=True)

inside = find_packages(include=["umakit", "umakit.*"])
beside = find_packages(include=[*BESIDE, *(f"{name}.*" for name in BESIDE)])
setup(packages=[*inside, *(f"umakit.{name}" for name in beside)])
