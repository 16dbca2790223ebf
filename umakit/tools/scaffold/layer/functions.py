# SPDX-License-Identifier: Apache-2.0
"""The C functions of a driver, one for each operator and layout."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from umakit.tools.scaffold.answers import Answers

IMAGES = ("conv2d", "depthwise", "avg_pool2d", "max_pool2d")
"""Operators of images, which have a layout."""

WEIGHTED = ("conv2d", "depthwise", "dense")

CHANNELS_FIRST = "channels_first"
"""Name that a register map may use besides a driver's arguments: 1 for NCHW, else 0."""

SIGNED = frozenset(
    "input_zero_point output_zero_point lowest highest left_zero_point right_zero_point shift "
    "left_multiplier_shift right_multiplier_shift".split()
)

ARGUMENT = re.compile(r"(?P<type>[\w ]*?\w) ?(?P<pointer>\*?)(?P<name>\w+)$")

_CONVOLUTION = {
    "data": "1, batch, height, width, input_channels",
    "weights": "1, output_channels, kernel_height, kernel_width, input_channels / groups",
    "bias": "4, output_channels",
    "multipliers": "4, scales",
    "shifts": "1, scales",
    "result": "1, batch, output_height, output_width, output_channels",
}
_DENSE = {
    "data": "1, rows, inputs",
    "weights": "1, outputs, inputs",
    "bias": "4, outputs",
    "multipliers": "4, scales",
    "shifts": "1, scales",
    "result": "1, rows, outputs",
}
_ELEMENTS = dict.fromkeys(("left", "right", "result"), "1, elements")
_POOL = {
    "data": "1, batch, height, width, channels",
    "result": "1, batch, output_height, output_width, channels",
}

TENSORS: Mapping[str, Mapping[str, str]] = {
    "conv2d": _CONVOLUTION,
    "depthwise": _CONVOLUTION,
    "dense": _DENSE,
    "add": _ELEMENTS,
    "multiply": _ELEMENTS,
    "avg_pool2d": _POOL,
    "max_pool2d": _POOL,
}
"""Bytes of an element and sizes of each tensor, as C expressions of the arguments."""


@dataclass(frozen=True)
class DriverFunction:
    """A C function of a driver.

    Attributes:
        operator: name in the flag `--operators`.
        pattern: name of the pattern, which differs for the second layout.
        declaration: prototype, as `patterns.c_declaration` prints it, without a semicolon.
    """

    operator: str
    pattern: str
    name: str
    layout: str
    declaration: str

    @cached_property
    def arguments(self) -> dict[str, str]:
        """Types in C by name, with `*` for pointers."""
        inside = self.declaration.partition("(")[2].rpartition(")")[0]
        found = [ARGUMENT.fullmatch(each.strip()) for each in inside.split(",")]
        return {each["name"]: each["type"].strip() + each["pointer"] for each in found if each}

    @property
    def prefix(self) -> str:
        """Prefix of names in the header of the registers."""
        return self.name.removesuffix(f"_{self.pattern}").upper()

    @property
    def pointers(self) -> list[str]:
        return [name for name, kind in self.arguments.items() if kind.endswith("*")]

    @property
    def numbers(self) -> list[str]:
        return [name for name, kind in self.arguments.items() if not kind.endswith("*")]

    @property
    def operands(self) -> list[str]:
        """Names that a register map may use."""
        return [*self.arguments, *([CHANNELS_FIRST] if self.operator in IMAGES else [])]

    @property
    def is_convolution(self) -> bool:
        return self.operator in ("conv2d", "depthwise")

    @property
    def is_pool(self) -> bool:
        return self.operator.endswith("pool2d")

    @property
    def unneeded(self) -> frozenset[str]:
        """Arguments that the reference loops do not need for the layer."""
        pools = ("output_zero_point", "rounding") if self.is_pool else ()
        return frozenset({"pad_bottom", "pad_right", *pools})

    @property
    def channels_first(self) -> int:
        """Value of `$channels_first`."""
        return int(self.layout == "NCHW")

    def sizes(self, tensor: str) -> str:
        """Bytes of an element and sizes of a tensor, separated by commas."""
        return TENSORS[self.operator][tensor]

    def prototype(self, name: str = "", more: Sequence[str] = ()) -> str:
        """Return the prototype in lines of at most 90 characters, with `more` arguments."""
        start, _, rest = self.declaration.partition("(")
        head = start.replace(self.name, name or self.name) + "("
        arguments = [*rest.rpartition(")")[0].split(", "), *more]
        joined = ", ".join(each.replace(" ", "\xa0") for each in arguments) + ")"
        lines = textwrap.wrap(joined, 90 - len(head), break_long_words=False)
        return (head + f"\n{' ' * len(head)}".join(lines)).replace("\xa0", " ")


def functions_of(answers: Answers, name: str) -> list[DriverFunction]:
    """Return a driver's functions, one per operator; for image operators, one per layout."""
    from umakit import patterns

    found = []
    for operator in answers.operators:
        declared = patterns.c_declaration
        for number, layout in enumerate(answers.layouts if operator in IMAGES else ("",)):
            pattern = f"q{operator}" + (f"_{layout.lower()}" if number else "")
            function = f"{name}_{pattern}"
            text = declared(function, getattr(patterns, f"q{operator}")()).removesuffix(";")
            found.append(DriverFunction(operator, pattern, function, layout, text))
    return found
