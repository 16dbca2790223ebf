# SPDX-License-Identifier: Apache-2.0
"""Checks of what a backend registers, when it registers it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from umakit import tvm_api
from umakit.errors import BackendError
from umakit.machine.simulator_config import C_SUFFIXES, CXX_SUFFIXES, HEADER_SUFFIXES


def check_pattern(name: object, pattern: object) -> None:
    """Refuse a pattern of another type than TVM's, or a name that is no text.

    Raises:
        BackendError: says what was given.
    """
    if not isinstance(name, str):
        raise BackendError(
            f"the name of a pattern is {name!r}, which is no text",
            fix="a pattern of umakit.patterns is registered with a star: "
            "_register_pattern(*pattern)",
        )
    several = pattern if isinstance(pattern, (tuple, list)) else [pattern]
    for each in several:
        if not isinstance(each, tvm_api.DFPattern):
            raise BackendError(
                f"pattern {name} is {each!r}, which is no pattern of tvm.relax.dpl",
                fix="give what its functions return, such as is_op(...)(...)",
            )


def check_driver_names(sources: Sequence[str], headers: Sequence[str]) -> None:
    """Refuse a driver whose sources and headers are in each other's place.

    Raises:
        BackendError: names a header among the sources.
    """
    suffixes = [PurePath(name).suffix for name in sources]
    others = [PurePath(name).suffix for name in headers]
    in_c = (*C_SUFFIXES, *CXX_SUFFIXES)
    if (
        any(each in in_c for each in others)
        and suffixes
        and all(each in HEADER_SUFFIXES for each in suffixes)
    ):
        named = f"sources={[*headers]!r}, headers={[*sources]!r}"
        raise BackendError(
            f"_register_driver got headers as sources ({', '.join(sources)}) and sources "
            f"as headers ({', '.join(headers)})",
            fix=f"write {named}",
        )
