# SPDX-License-Identifier: Apache-2.0
"""The packages of a wheel, found: those of umakit/, and four folders beside it that are in it too.

Everything else about the wheel is in pyproject.toml, where these four have their places.
"""

from setuptools import find_packages, setup

BESIDE = ("backends", "cli", "sim", "templates")

inside = find_packages(include=["umakit", "umakit.*"])
beside = find_packages(include=[*BESIDE, *(f"{name}.*" for name in BESIDE)])
setup(packages=[*inside, *(f"umakit.{name}" for name in beside)])
