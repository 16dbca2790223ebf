# SPDX-License-Identifier: Apache-2.0
"""Locks of accelerators: a run locks its accelerators before its first driver call, or reports that
another run holds a lock. All libraries of a program share the locks."""

from __future__ import annotations

from collections.abc import Mapping

from umakit.program.program import Program
from umakit.registration.backend import Backend
from umakit.text.names import header_of
from umakit.text.rendering import render


def locked_backends(program: Program, backends: Mapping[str, Backend]) -> tuple[str, ...]:
    """Return the accelerators, sorted, whose kernels call a driver that is not reentrant."""
    calling = {
        kernel.target
        for kernel in program.kernels.values()
        if kernel.target in backends and not backends[kernel.target].is_reentrant
        if any(header_of(function) is None for function in kernel.called_functions())
    }
    return tuple(sorted(calling))


def lock_source(backend: str) -> str:
    """Return the name of the C file with a backend's lock; a program may replace the file."""
    return f"umakit_lock_{backend}.c"


def lock_header(backend: str) -> str:
    """Return the name of the header of a backend's lock."""
    return f"umakit_lock_{backend}.h"


def locks_view(backends: tuple[str, ...]) -> list[dict[str, str]]:
    """Return the template values for locks."""
    return [
        {"name": name, "header": lock_header(name), "source": lock_source(name)}
        for name in backends
    ]


def lock_files(backends: tuple[str, ...]) -> dict[str, str]:
    """Return sources and headers of locks, by path below `codegen/host`."""
    return {
        path: render(template, name=name)
        for name in backends
        for path, template in (
            (f"src/{lock_source(name)}", "library/lock.c.j2"),
            (f"src/{lock_header(name)}", "library/lock.h.j2"),
        )
    }
