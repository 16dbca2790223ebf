# SPDX-License-Identifier: Apache-2.0
"""Kernels of a library: a pattern with the C text of its call, and the scratch of the call."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from umakit import tir, tvm_api
from umakit.errors import BackendError, short_path
from umakit.operators.offload.composite import Composite
from umakit.operators.offload.pattern import OperatorPattern
from umakit.patterns.driver import declared
from umakit.text.c_text import CText, read_expression
from umakit.text.spelling import closest

SCRATCH, SCRATCH_BYTES = "scratch", "scratch_bytes"
"""Names of the working memory of a call: its address and its size."""

NEEDED = ("data", "left", "right", "addend", "result")
"""Pointers that every call has; constants may be of no use to a library's function."""

Scratch = str | Callable[[Any], int] | None
"""C expression with the layer's numbers as `$name`s, or a function of the layer's parameters."""


@dataclass(frozen=True)
class RegisteredKernel:
    """A pattern with the C text of its call.

    Attributes:
        call: the call; names are from `c_declaration`, `$scratch` and `$scratch_bytes`.
        scratch: size of the working memory in bytes: C text, a function of the layer, or None.
        place: file and line of the registration.
    """

    pattern: str
    call: CText
    scratch: CText | Callable[[Any], int] | None
    place: str

    @property
    def checked_size(self) -> str:
        """C text of the size, compared with the planned size in the export; may be empty."""
        return self.scratch.text if isinstance(self.scratch, CText) else ""


def read_kernel(pattern: object, call: object, scratch: object) -> RegisteredKernel:
    place = _place()
    try:
        if not isinstance(pattern, OperatorPattern):
            raise BackendError(
                "_register_kernel got no pattern of umakit.patterns",
                fix="register patterns of your own with _register_pattern and _register_tir_pass",
            )
        what = f"the call of pattern {pattern.name}"
        if not isinstance(call, str):
            raise BackendError(f"{what} is no text", fix="write C, such as 'f($data, $result)'")
        pointers, numbers = declared(pattern)
        text = read_expression(call, what)
        if not text.function:
            raise BackendError(
                f"{what} calls no function by its name", fix="write C, such as 'f($data, $result)'"
            )
        size = _read_scratch(pattern.name, scratch, numbers)
        own = (SCRATCH, SCRATCH_BYTES) if size is not None else ()
        _check_names(text, what, (*pointers, *numbers, *own), scratch is None)
        needed = [each for each in pointers if each in NEEDED] + list(own[:1])
        missing = [f"${name}" for name in needed if name not in text.names]
        if missing:
            raise BackendError(
                f"{what} has no {' and no '.join(missing)}", fix="give it to the function"
            )
    except BackendError as error:
        raise BackendError(error.what, where=place, fix=error.fix) from None
    return RegisteredKernel(pattern.name, text, size, place)


def _read_scratch(
    pattern: str, scratch: object, numbers: Sequence[str]
) -> CText | Callable[[Any], int] | None:
    what = f"the scratch of pattern {pattern}"
    if isinstance(scratch, str):
        text = read_expression(scratch, what)
        if not text.returns_status:
            raise BackendError(f"{what} has no value", fix="remove the cast to void")
        _check_names(text, what, numbers, False)
        return text
    if scratch is None or callable(scratch):
        return scratch
    raise BackendError(
        f"{what} is {scratch!r}, which is neither C nor a function of the layer",
        fix="write C, such as 'f_scratch_size($height, $width)', or lambda layer: 64",
    )


def _check_names(text: CText, what: str, known: Sequence[str], is_without_scratch: bool) -> None:
    unknown = next((name for name in text.names if name not in known), None)
    if unknown is None:
        return
    if is_without_scratch and unknown in (SCRATCH, SCRATCH_BYTES):
        raise BackendError(
            f"{what} has ${unknown}, and its size is not given", fix="give it as scratch=..."
        )
    close = closest(unknown, known)
    fix = f"there are {', '.join(f'${name}' for name in known)}"
    raise BackendError(
        f"{what} has ${unknown}, which is no name of the layer",
        fix=f"write ${close}; {fix}" if close else fix,
    )


def _place() -> str:
    frame = sys._getframe()
    own = frame.f_code.co_filename
    while frame.f_back is not None and (
        frame.f_code.co_filename == own or frame.f_code.co_name == "_register_kernel"
    ):
        frame = frame.f_back
    return f"{short_path(frame.f_code.co_filename)}:{frame.f_lineno}"


def kernel_call(
    kernel: RegisteredKernel, layer: Composite, function: tvm_api.PrimFunc, size: int
) -> tvm_api.Stmt:
    """Return the call of a kernel for a layer, with `size` bytes of scratch."""
    pointers = zip(layer.pointer_types, map(tir.pointer, function.params), strict=True)
    operands: dict[str, Any] = dict(pointers) | layer.scalars | {SCRATCH_BYTES: size}
    call, check, buffers = kernel.call, kernel.scratch, []
    if size > 0:
        buffers = [tvm_api.tirx.decl_buffer([size], "uint8", SCRATCH)]
        operands[SCRATCH] = tir.pointer(buffers[0])
    elif SCRATCH in call.names:
        same = {name: f"${name}" for name in call.names}
        call = read_expression(call.filled(same | {SCRATCH: "NULL"}))
    names = dict.fromkeys(call.names)
    if isinstance(check, CText):
        names |= dict.fromkeys((*check.names, SCRATCH_BYTES))
    used = {name: operands[name] for name in names}
    return tir.allocate(buffers, tir.text_call(call.text, kernel.checked_size, used))
