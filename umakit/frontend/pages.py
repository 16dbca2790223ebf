# SPDX-License-Identifier: Apache-2.0
"""Sections of the documentation that list what is refused, and why."""

from __future__ import annotations

import traceback

from umakit.errors import ModelError

PAGE, ROOM = "docs/refusals.md", "umakit."

USUAL = "export the model again, perhaps with other shapes, attributes or operators"
"""Advice of a refusal without advice of its own."""


def listed(error: ModelError) -> None:
    """Add to a refusal the default fix and the link to its section of the page.

    The module that raised the first error of the chain determines the section.
    """
    first: BaseException = error
    while isinstance(first.__context__, ModelError):
        first = first.__context__
    frames = (frame for frame, _ in traceback.walk_tb(first.__traceback__))
    modules = [str(frame.f_globals.get("__name__", "")) for frame in frames]
    own = [name for name in modules if name.startswith(ROOM)]
    on_page(error, own[-1] if own else ROOM)


def on_page(error: ModelError, module: str) -> ModelError:
    """Return a refusal with the default fix and the link to a module's section of the page."""
    error.fix = error.fix or USUAL
    error.page = f"{PAGE}#{section_of(module)}"
    return error


def section_of(module: str) -> str:
    """Return the section of the page for a module, for example `onnx-resize`."""
    parts = module.removeprefix(ROOM).removeprefix("frontend").strip(".").split(".")
    return "-".join(part for part in parts if part) or "files"
