# SPDX-License-Identifier: Apache-2.0
"""C text of the arguments of driver calls, with names from the driver's header."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from umakit.codegen.driver_headers import DeclaredParameter

FEW = 4
"""Maximum number of arguments of a call that names only numbers."""


@dataclass(frozen=True)
class Argument:
    """An argument without names from a header.

    Attributes:
        text: C text.
        value: value of a constant integer; None for other arguments.
        is_integer: whether the type is an integer, and no pointer.
        is_compound: whether a cast needs parentheses around the text.
    """

    text: str
    value: int | None = None
    is_integer: bool = False
    is_compound: bool = False


def named_arguments(
    arguments: Sequence[Argument], parameters: Sequence[DeclaredParameter]
) -> list[str]:
    """Return C text of arguments, with enumerators, or with names in comments for plain values.

    Comments have the form `/*name=*/`; clang-tidy compares the names with the prototype
    (`bugprone-argument-comment`).

    Args:
        arguments: arguments of a call.
        parameters: the same number of parameters of the prototype.
    """
    return [
        _named(argument, parameter, len(arguments) > FEW)
        for argument, parameter in zip(arguments, parameters, strict=True)
    ]


def _named(argument: Argument, parameter: DeclaredParameter, is_long: bool) -> str:
    text, enumeration = argument.text, parameter.enumeration
    if enumeration is not None and argument.value is not None:
        enumerator = enumeration.text(argument.value)
        if enumerator is not None:
            return enumerator
    elif enumeration is not None and argument.is_integer:
        text = f"({enumeration.type}){f'({text})' if argument.is_compound else text}"
    needs_name = argument.value is not None or (is_long and text != parameter.name)
    return f"/*{parameter.name}=*/{text}" if parameter.name and needs_name else text
