# SPDX-License-Identifier: Apache-2.0
"""Flags of the C compiler in tests; conftest.py chooses for each test."""

from __future__ import annotations

from umakit.devices import build

OPTIMIZED = build.FLAGS
"""Flags with which users' programs are compiled: of `make soak`, and of tests marked `optimized`,
those of the README's commands and of networks of many layers."""

QUICK = tuple(flag.replace("-O3", "-O0") for flag in OPTIMIZED)
"""Flags of other tests, which would spend most of their time in the optimizer."""

SETTING = "UMAKIT_TEST_C"
"""Environment variable that tells commands which tests start whether to compile `quick`."""
