# SPDX-License-Identifier: Apache-2.0
"""Sections of the documentation that list what is refused, and why."""

from __future__ import annotations

import traceback

from umakit.errors import ModelError

PAGE, ROOM = "docs/refusals.md", "umakit."


def page_of(error: ModelError) -> str:
    """Return where the documentation lists a refusal: by the module that raised it first."""
    first: BaseException = error
    while isinstance(first.__context__, ModelError):
        first = first.__context__
    modules = [
        str(frame.f_globals.get("__name__", ""))
        for frame, _ in traceback.walk_tb(first.__traceback__)
    ]
    own = [name for name in modules if name.startswith(ROOM)]
    return f"{PAGE}#{section_of(own[-1])}" if own else PAGE


def on_page(error: ModelError, module: str) -> ModelError:
    """Return a refusal with the section of the page for a module."""
    error.page = f"{PAGE}#{section_of(module)}"
    return error


def section_of(module: str) -> str:
    """Return the section of the page that lists what a module refuses, `onnx-resize`."""
    parts = module.removeprefix(ROOM).removeprefix("frontend").strip(".").split(".")
    return "-".join(part for part in parts if part) or "files"
