# SPDX-License-Identifier: Apache-2.0
"""Composites with loops left over after the TIR passes of their backend."""

from __future__ import annotations

from umakit import tir
from umakit.errors import BackendError, short_path
from umakit.lower.kernels import Kernel
from umakit.registration.backend import Backend
from umakit.registration.code import texts_in
from umakit.registration.registered import RELAX_PHASES
from umakit.text.spelling import closest

DRIVER_CALLS = "driver_calls"
"""Name of the pass of `patterns.driver_calls`."""


def check_replaced(kernel: Kernel, composite: str, backend: Backend) -> None:
    """Refuse a kernel that calls no C function though its backend has a driver and TIR passes.

    The loops would run on the CPU, and be reported as offloaded.

    Args:
        kernel: the kernel after all passes.
        composite: the kernel's composite, `<target>.<pattern>`.
        backend: the backend. Without a driver or without TIR passes, loops may be intended.

    Raises:
        BackendError: a kernel calls no C function; names the composite, the passes with file and
            line, and a name in the backend's Python that may belong to the composite.
    """
    passes = [
        str(getattr(getattr(each, "info", each), "name", "a function that is no pass"))
        for phase, registered in backend.passes.items()
        if phase not in RELAX_PHASES
        for each in registered
    ]
    if set(passes) <= {DRIVER_CALLS}:
        return  # the arguments are the patterns with a driver; other patterns run as loops
    has_driver = bool(backend.driver.sources or backend.driver.compiled or backend.kernels)
    if not passes or not has_driver or kernel.called_functions():
        return
    pattern = composite.partition(".")[2]
    places = [place for name in passes if (place := tir.place_of_pass(name))]
    texts = texts_in(backend.folder)
    known = {f"{backend.target_name}.{each.name}" for each in backend.patterns}
    near = closest(composite, {text for text in texts if "." in text} - known)
    fix = f'let the pass replace it: tir.composite_name(function) is "{composite}" there'
    if pattern in backend.kernels:
        fix = f"register the call of {pattern} with _register_kernel"
    if near:
        fix = f'write "{composite}" instead of "{near}"'
    raise BackendError(
        f"no TIR pass replaced the loops of composite {composite} by a driver call; there are "
        f"{', '.join(dict.fromkeys(passes))}",
        where=texts[near] if near else (places or [short_path(backend.folder)])[0],
        fix=f"{fix}, or do not register the pattern {pattern}",
    )
