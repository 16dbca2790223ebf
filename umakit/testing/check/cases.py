# SPDX-License-Identifier: Apache-2.0
"""A case of a check: the settings of a layer or a chain of layers, and their text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from umakit.errors import InputError
from umakit.operators.drawing import Drawing, Setting
from umakit.text.spelling import closest_or_all

THEN, FOLLOWED = " then ", " followed by "
"""Separators of the layers of a chain, and of consecutive cases."""

SEED = "seed"
"""The setting that weights, scales and inputs are drawn from."""

MEANINGS = {"scales=0": "one scale for each output channel"}
"""Meanings of settings in the text of a case that do not explain themselves."""

WORD = re.compile(r"(\w+)=(-?\w+)")


@dataclass(frozen=True)
class LayerSettings:
    """One layer of a case: settings that differ from the operator's first ones, and the seed."""

    pattern: str
    settings: Mapping[str, Setting] = field(default_factory=dict)

    @property
    def seed(self) -> int:
        """Seed of weights, scales and inputs."""
        return int(self.settings.get(SEED, 0))

    def complete(self, drawing: Drawing) -> dict[str, Setting]:
        """Return all settings of the operator."""
        first = {name: values[0] for name, values in drawing.settings.items()}
        given = {name: value for name, value in self.settings.items() if name != SEED}
        for name, value in given.items():
            if name not in first:
                raise InputError(
                    f"{self.pattern} has no setting {name!r}",
                    fix=closest_or_all(name, sorted(first), "settings"),
                )
            if isinstance(value, str) != isinstance(first[name], str) or (
                isinstance(value, str) and value not in drawing.settings[name]
            ):
                few = ", ".join(str(each) for each in drawing.settings[name])
                which = "one of" if isinstance(first[name], str) else "an integer, such as"
                raise InputError(
                    f"{name}={value} of {self.pattern} is not possible", fix=f"say {which} {few}"
                )
        return first | given

    def reduced(self, drawing: Drawing) -> LayerSettings:
        """Return the same layer without settings equal to the operator's first ones."""
        kept = {
            name: value
            for name, value in self.settings.items()
            if name == SEED or drawing.settings[name][0] != value
        }
        return LayerSettings(self.pattern, kept)

    def __str__(self) -> str:
        words = (f"{name}={value}" for name, value in self.settings.items())
        return " ".join([self.pattern, *words])


@dataclass(frozen=True)
class Case:
    """A layer, or a chain of layers; directly before it run cases that share no data with it."""

    layers: tuple[LayerSettings, ...]
    before: tuple[Case, ...] = ()

    def __str__(self) -> str:
        own = THEN.join(str(layer) for layer in self.layers)
        return FOLLOWED.join([*(str(case) for case in self.before), own])

    @property
    def pattern(self) -> str:
        """The pattern of the last layer."""
        return self.layers[-1].pattern


def read_case(text: str) -> Case:
    """Return the case of a text, as printed in reports."""
    *before, last = text.strip().split(FOLLOWED)
    return replace(_read(last), before=tuple(_read(each) for each in before))


def _read(text: str) -> Case:
    layers = []
    for part in text.split(THEN):
        if not part.split():
            raise InputError("the case names no pattern", fix="copy it from the report")
        name, *words = part.split()
        settings: dict[str, Setting] = {}
        for word in words:
            found = WORD.fullmatch(word)
            if found is None:
                raise InputError(
                    f"{word!r} in the case is not of the form NAME=VALUE",
                    fix="copy the case from the report",
                )
            value = found[2]
            number = value.lstrip("-").isdecimal()
            settings[found[1]] = int(value) if number else value
        layers.append(LayerSettings(name, settings))
    return Case(tuple(layers))
