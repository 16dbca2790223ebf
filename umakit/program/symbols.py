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
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from umakit.text.names import INTERFACE_PREFIX, OWN_START, SIGNIFICANT, cut

LEAST_ROOM = 33
"""Characters of a symbol behind the model's prefix that are there for every model."""

LONGEST_ENDING = len("_multipliers")
"""Characters that are left for what is appended to a layer's name."""

LONG_WORD = 6
"""Minimum number of letters of words that an abbreviation cuts."""

SHORT_WORDS = (4, 3, 2)
"""Characters that an abbreviation leaves of long words: the most with which it fits."""

LONGEST_RUN = 2 * SIGNIFICANT
"""Characters behind which a part of a layer's name does not go on."""

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

    A number in a name is one of that layer's own name, except for a digest of eight digits at the
    end, and for `_no2`, `_no3`, ... of layers with equal names.

    Args:
        model: name of the model in C.
        names: of all layers, as in the user's model; others may follow.
    """

    def __init__(self, model: str, names: Iterable[str] = ()) -> None:
        self._room = room(model)
        self._limit = self._room - LONGEST_ENDING
        different = {"/".join(_parts(name)).lower() for name in names}
        # The number of layers that have a part in their name.
        self._owners = Counter(run for name in different for run in {*_runs(name.split("/"))})
        self._taken: set[str] = set()

    def layer(self, name: str) -> str:
        """Return a name for a layer, by which no other layer is called.

        It is the whole name if that is short enough; or else the longest part that is and that no
        other layer has; or else the shortest part that no other layer has, abbreviated.

        Args:
            name: in the user's model, any text; parts are separated by slashes, such as
                `model/conv2d_1/Relu`.
        """
        chosen = self._chosen(name)
        if chosen[0].isdigit() or OWN_START.match(f"{chosen}_"):
            chosen = f"n{chosen}"
        candidate, number = chosen, 1
        while candidate.lower() in self._taken:
            number += 1
            ending = f"_no{number}"
            candidate = _start(chosen, self._limit - len(ending)) + ending
        self._taken.add(candidate.lower())
        return candidate

    def _chosen(self, name: str) -> str:
        """Return a layer's name, which may be taken."""
        most = self._limit - len("n_2")
        parts = _parts(name)
        whole = "_".join(parts)
        if len(whole) <= most:
            return whole
        own = [run for run in _runs(parts) if self._owners[run.lower()] <= 1] or [whole]
        fitting = [run for run in own if len(run) <= most]
        if fitting:
            return max(fitting, key=len)
        for run in sorted(own, key=len):
            short = _abbreviated(run, most)
            if short and not self._owners[short.lower()] and short.lower() not in self._taken:
                return short
        digest = cut(whole, name, most).rpartition("_")[2]
        return f"{_start(whole, most - len(digest) - 1)}_{digest}"

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


def _parts(name: str) -> list[str]:
    return [part for part in map(_plain, name.split("/")) if part] or ["unnamed"]


def _runs(parts: Sequence[str]) -> list[str]:
    """Return what consecutive parts of a name make, up to a length, in order of their start."""
    runs = []
    for start in range(len(parts)):
        run = ""
        for part in parts[start:]:
            run = f"{run}_{part}" if run else part
            runs.append(run)
            if len(run) > LONGEST_RUN:
                break
    return runs


def _abbreviated(text: str, most: int) -> str:
    """Return a text with its long words cut but all its numbers; an empty text if it is too long.

    `batch_normalization_4` becomes `batch_norm_4`.
    """
    for length in SHORT_WORDS:
        long_word = rf"([A-Za-z]{{{length}}})[A-Za-z]{{{LONG_WORD - length},}}"
        short = re.sub(long_word, r"\1", text)
        if len(short) <= most:
            return short
    return ""


def _start(text: str, most: int) -> str:
    """Return the first characters of a text, without a part of a number."""
    start = text[:most]
    if text[most : most + 1].isdigit():
        start = start.rstrip("0123456789")
    return start.rstrip("_") or "n"


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
