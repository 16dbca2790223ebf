# SPDX-License-Identifier: Apache-2.0
"""Names close to a misspelt name in a backend's Python."""

from __future__ import annotations

import builtins
import inspect
import re
import sys
from collections.abc import Iterable
from types import FrameType

from umakit.text.spelling import closest

KEYWORD = re.compile(r"([\w.]+)\(\) got an unexpected keyword argument '(\w+)'")
ATTRIBUTE = re.compile(r"'([\w.]+)'(?: object)? has no attribute '(\w+)'")
OPERATOR = re.compile(r"Operator ([\w.]+) is not registered")
PLACES = ("umakit.patterns", "umakit.tir", "umakit.machine", "umakit.backend")
"""Modules whose functions backends call."""


def meant(error: BaseException) -> str:
    """Return the name close to an exception's misspelt name; empty if none is close."""
    name = getattr(error, "name", None)
    if isinstance(error, AttributeError):
        return _attribute(error)
    if isinstance(error, NameError) and name:
        frame = _innermost(error)
        known = {**frame.f_globals, **frame.f_locals} if frame is not None else {}
        return _close(name, [*known, *dir(builtins)])
    if isinstance(error, ImportError) and not isinstance(error, ModuleNotFoundError):
        found = re.search(r"cannot import name '(\w+)' from '([\w.]+)'", str(error))
        return _close(found[1], dir(sys.modules.get(found[2]))) if found else ""
    keyword = KEYWORD.search(str(error)) if isinstance(error, TypeError) else None
    if keyword:
        return _close(keyword[2], _parameters(keyword[1], _innermost(error)))
    return ""


def _attribute(error: AttributeError) -> str:
    """Return the close attribute; TVM keeps only the text of an exception."""
    if error.name and error.obj is not None:
        return _close(error.name, _attributes_of(error.obj))
    found = ATTRIBUTE.search(str(error))
    if found is None:
        operator = OPERATOR.search(str(error))
        return _operator(operator[1]) if operator else ""
    module = sys.modules.get(found[1])
    for owner in (module, *(_member(place, found[1]) for place in PLACES)):
        if owner is not None:
            return _close(found[2], _attributes_of(owner))
    return ""


def _operator(name: str) -> str:
    """Return the close name of an operator; imports TVM, the origin of the exception."""
    from umakit import tvm_api

    return closest(name, tvm_api.operator_names())


def _attributes_of(owner: object) -> set[str]:
    fields = getattr(owner, "__dataclass_fields__", ())
    return {*dir(owner), *getattr(owner, "__all__", ()), *fields}


def _member(module: str, name: str) -> object:
    return getattr(sys.modules.get(module), name, None) if name.isidentifier() else None


def _close(name: str, others: Iterable[str]) -> str:
    """Return the closest name that is public if the given name is."""
    return closest(name, [n for n in others if n.startswith("_") == name.startswith("_")])


def _innermost(error: BaseException) -> FrameType | None:
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return None if traceback is None else traceback.tb_frame


def _parameters(function: str, frame: FrameType | None) -> list[str]:
    """Return the names of the parameters of a function by its qualified name."""
    first, *rest = function.split(".")
    own = None if frame is None else frame.f_globals.get(first)
    for start in (own, *(_member(place, first) for place in PLACES)):
        found = start
        for part in rest:
            found = getattr(found, part, None)
        if start is not None and callable(found):
            try:
                return list(inspect.signature(found).parameters)
            except (TypeError, ValueError):
                continue
    return []
