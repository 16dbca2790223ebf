# SPDX-License-Identifier: Apache-2.0
"""The version of umakit, and the tested versions of TVM."""

__version__ = "0.3.0.dev0"

TVM = "apache-tvm"
"""The package of TVM."""

TESTED_TVM = ("0.27.0.post1",)
"""Versions of apache-tvm with which all tests pass (docs/tvm-versions.md). The last version is in
requirements.lock."""


def untested_tvm(found: str) -> str:
    """Return a warning about an untested version of apache-tvm; empty for tested versions."""
    if found in TESTED_TVM:
        return ""
    return f"umakit is tested with {' and '.join(TESTED_TVM)}, not with this version"
