# SPDX-License-Identifier: Apache-2.0
"""The version, in this one place, and those of TVM that it is tested with."""

__version__ = "0.3.0.dev0"

TVM = "apache-tvm"
"""The package of TVM."""

TESTED_TVM = ("0.27.0.post1",)
"""Versions of apache-tvm with which all tests pass (docs/tvm-versions.md); the last is the one that
requirements.lock names."""


def untested_tvm(found: str) -> str:
    """Say that umakit's tests were not run with a version of apache-tvm; empty if they were."""
    if found in TESTED_TVM:
        return ""
    return f"umakit is tested with {' and '.join(TESTED_TVM)}, not with this version"
