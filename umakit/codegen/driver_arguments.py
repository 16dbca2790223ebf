# SPDX-License-Identifier: Apache-2.0
"""C text of the arguments of driver calls, named as the driver's header names them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from umakit.codegen.driver_headers import DeclaredParameter

FEW = 4
"""Maximum number of arguments of a call in which only numbers need their names."""


@dataclass(frozen=True)
class Argument:
    """An argument as it is printed without a header.

    Attributes:
        text: C text.
        value: its value if it is a constant integer.
        is_integer: whether it has an integer type; pointers have not.
        is_compound: whether a cast needs parentheses around it.
    """

    text: str
    value: int | None = None
    is_integer: bool = False
    is_compound: bool = False


def named_arguments(
    arguments: Sequence[Argument], parameters: Sequence[DeclaredParameter]
) -> list[str]:
    """Return C text of arguments: enumerators, and names in comments where a value says nothing.

    A comment has the form `/*name=*/`, which clang-tidy compares with the prototype
    (`bugprone-argument-comment`).

    Args:
        arguments: arguments of a call.
        parameters: as many parameters of the prototype.
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
