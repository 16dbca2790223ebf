# SPDX-License-Identifier: Apache-2.0
"""C names of a program's layers, and of what belongs to a layer: kernels, constants, tensors.

A layer's name is derived from the user's model: `conv1`, and `conv1_weights`, `conv1_output`. Names
are unique in a program without regard to case. Those that get the model's prefix have at most as
many characters as C99 (5.2.4.1) wants distinguished, unless the model's name is long; see `room`.
C99 asks for only 31 characters of external names, which the prefix alone may use up: that limit is
not kept, as no linker of today has it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from umakit.text.names import INTERFACE_PREFIX, OWN_START, SIGNIFICANT, cut, unique

LEAST_ROOM = 33
"""Characters of a symbol behind the model's prefix that are there for every model."""

LONGEST_ENDING = len("_multipliers")
"""Characters that are left for what is appended to a layer's name."""

PLACE = "_offset"
"""Ending of the name of a tensor's place in its pool or in the weights blob."""


def room(model: str) -> int:
    """Return the maximum length of a symbol behind the prefix `tvmgen_MODEL_`.

    Args:
        model: name of the model in C. Up to 22 characters the whole symbol has at most 63.
    """
    return max(LEAST_ROOM, SIGNIFICANT - len(f"{INTERFACE_PREFIX}{model}_"))


class LayerSymbols:
    """Makes names of layers that are unique in a program.

    Args:
        model: name of the model in C.
    """

    def __init__(self, model: str) -> None:
        self._room = room(model)
        self._layers: set[str] = set()

    def layer(self, name: str) -> str:
        """Return a name for a layer: the longest part of its name that is short enough.

        Args:
            name: in the user's model, any text; parts are separated by slashes, such as
                `model/conv2d_1/Relu`.
        """
        most = self._room - LONGEST_ENDING
        parts = [part for part in map(_plain, name.split("/")) if part] or ["unnamed"]
        runs = [
            "_".join(parts[start:end])
            for start in range(len(parts))
            for end in range(start + 1, len(parts) + 1)
        ]
        fitting = [run for run in runs if len(run) <= most - 3]
        whole = "_".join(parts)
        chosen = max(fitting, key=len) if fitting else cut(whole, name, most - 3)
        if chosen[0].isdigit() or OWN_START.match(f"{chosen}_"):
            chosen = f"n{chosen}"
        return unique(chosen, self._layers)

    def symbol(self, layer: str, part: str, *taken: Collection[str]) -> str:
        """Return a name of a layer's part for a symbol behind the prefix.

        Args:
            layer: name from `layer`.
            part: for example `weights`.
            taken: names in lower case that are in use.
        """
        return _numbered(layer, part, self._room, taken)

    def tensor(self, layer: str, part: str, *taken: Collection[str]) -> str:
        """Return a name of a layer's tensor; see `symbol`."""
        return _numbered(layer, part, SIGNIFICANT - len(PLACE), taken)


def _plain(name: str) -> str:
    return "_".join(re.findall(r"[A-Za-z0-9]+", name))


def _numbered(layer: str, part: str, most: int, taken: Sequence[Collection[str]]) -> str:
    number = 1
    while True:
        ending = f"_{number}" if number > 1 else ""
        text = f"{layer}_{part}"
        candidate = cut(text, text, most - len(ending)) + ending
        forms = (candidate.lower(), f"{candidate}{PLACE}".lower())
        if not any(form in names for names in taken for form in forms):
            return candidate
        number += 1
