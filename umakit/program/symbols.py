# SPDX-License-Identifier: Apache-2.0
"""C names of a program's layers, kernels, constants and tensors.

A layer's name is derived from the user's model: `conv1`, with `conv1_weights` and `conv1_output`.
Names are unique in a program, ignoring case. With the model's prefix, a name has at most the number
of characters that C99 (5.2.4.1) distinguishes in internal names, unless the model's name is long;
see `room`. C99's limit of 31 characters for external names is ignored: the prefix alone may exceed
it, and no current linker has this limit.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from umakit.text.names import INTERFACE_PREFIX, OWN_START, SIGNIFICANT, cut

LEAST_ROOM = 33
"""Characters of a symbol behind the model's prefix that are there for every model."""

LONGEST_ENDING = len("_multipliers")
"""Characters reserved for suffixes of a layer's name."""

LONG_WORD = 6
"""Minimum number of letters of words that an abbreviation cuts."""

SHORT_WORDS = (4, 3, 2)
"""Lengths to which an abbreviation cuts long words; the greatest fitting length is used."""

LONGEST_RUN = 2 * SIGNIFICANT
"""Maximum length of a run of name parts."""

PLACE = "_offset"
"""Ending of the name of a tensor's place in its pool or in the weights blob."""


def room(model: str) -> int:
    """Return the maximum length of a symbol behind the prefix `tvmgen_MODEL_`."""
    return max(LEAST_ROOM, SIGNIFICANT - len(f"{INTERFACE_PREFIX}{model}_"))


class LayerSymbols:
    """Names of layers, unique in a program.

    Numbers in a name come from the layer's own name, except an eight-digit digest at the end, and
    `_no2`, `_no3`, ... for layers with equal names.
    """

    def __init__(self, model: str, names: Iterable[str] = ()) -> None:
        self._room = room(model)
        self._limit = self._room - LONGEST_ENDING
        different = {"/".join(_parts(name)).lower() for name in names}
        # Number of layers whose name has the part.
        self._owners = Counter(run for name in different for run in {*_runs(name.split("/"))})
        self._taken: set[str] = set()

    def layer(self, name: str) -> str:
        """Return a unique name for a layer from its name in the model, whose parts slashes
        separate.

        The name is the whole name if short enough, else the longest fitting part that no other
        layer has, else the shortest such part, abbreviated.
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
        """Return a layer's name, which may still be taken."""
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
        """Return a name of a layer's part behind the prefix; `taken` names are in lower case."""
        return _numbered(layer, part, self._room, taken)

    def tensor(self, layer: str, part: str, *taken: Collection[str]) -> str:
        """Return a name of a layer's tensor; see `symbol`."""
        return _numbered(layer, part, SIGNIFICANT - len(PLACE), taken)


def _plain(name: str) -> str:
    return "_".join(re.findall(r"[A-Za-z0-9]+", name))


def _parts(name: str) -> list[str]:
    return [part for part in map(_plain, name.split("/")) if part] or ["unnamed"]


def _runs(parts: Sequence[str]) -> list[str]:
    """Return the joined runs of consecutive name parts, up to a length, in order of their start."""
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
    """Return a text with long words cut but all numbers kept; empty if the text is still too long.

    `batch_normalization_4` becomes `batch_norm_4`.
    """
    for length in SHORT_WORDS:
        long_word = rf"([A-Za-z]{{{length}}})[A-Za-z]{{{LONG_WORD - length},}}"
        short = re.sub(long_word, r"\1", text)
        if len(short) <= most:
            return short
    return ""


def _start(text: str, most: int) -> str:
    """Return the first characters of a text, without splitting a number."""
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
