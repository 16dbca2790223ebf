# SPDX-License-Identifier: Apache-2.0
"""Tests of what only newer versions of TVM can import, for runs with `make test TVM=VERSION`."""

from __future__ import annotations

import pytest
from packaging.version import Version

from umakit import tvm_api


def needs_tvm(version: str, reason: str) -> pytest.MarkDecorator:
    """Skip a test with a TVM that is older than a version.

    Args:
        version: the first in which TVM can do it.
        reason: what older versions cannot do; docs/tvm-versions.md lists it.
    """
    older = Version(tvm_api.VERSION) < Version(version)
    return pytest.mark.skipif(older, reason=f"TVM {tvm_api.VERSION}: {reason}")
