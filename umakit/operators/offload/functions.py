# SPDX-License-Identifier: Apache-2.0
"""Checks of functions in a backend's registrations, at the time of the registration."""

from __future__ import annotations

import inspect

from umakit.errors import BackendError


def check_function(function: object, what: str, arguments: int) -> None:
    """Refuse an object that cannot be called with a number of arguments.

    Args:
        function: a function, or None for none.
        what: purpose of the function, for messages.
        arguments: number of arguments of the call.

    Raises:
        BackendError: the object is no function, or takes another number of arguments.
    """
    if function is None:
        return
    if not callable(function):
        raise BackendError(
            f"{what} is {function!r}, which is no function",
            fix="write the name of a function, without quotes and without calling it",
        )
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # functions in C may have none
        return
    try:
        signature.bind(*range(arguments))
    except TypeError:
        counted = f"{arguments} argument{'' if arguments == 1 else 's'}"
        raise BackendError(
            f"{what} takes {signature}, and is called with {counted}",
            fix=f"let the function take {counted}",
        ) from None
