# SPDX-License-Identifier: Apache-2.0
"""The compilers of this machine."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Sequence

from umakit.errors import BuildError

HOST_COMPILERS = ("cc", "gcc", "clang")
HOST_CXX_COMPILERS = ("c++", "g++", "clang++")


def host_compiler(
    variable: str = "CC", names: Sequence[str] = HOST_COMPILERS, language: str = "C"
) -> list[str]:
    """Return the command of this machine's compiler, as program and first arguments.

    Args:
        variable: environment variable that overrides the choice.
        names: programs to look for.
        language: language of the compiler, for messages.

    Raises:
        BuildError: no compiler was found, or the variable cannot be parsed.
    """
    chosen = os.environ.get(variable, "")
    try:
        command = shlex.split(chosen)
    except ValueError as error:
        raise BuildError(f"{variable}={chosen!r} cannot be read: {error}") from None
    if command:
        return command
    for name in names:
        found = shutil.which(name)
        if found:
            return [found]
    tools = "gcc or clang" if language == "C" else "g++ or clang++"
    raise BuildError(f"there is no {language} compiler", fix=f"install {tools}, or set {variable}")
