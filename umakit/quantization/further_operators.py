# SPDX-License-Identifier: Apache-2.0
"""More integer operators, in the style of `operators`.

conv2d_transpose  (data, weights int8[O, KH, KW, I], bias int32[O], multipliers, shifts)
lookup            (data of 8 bits, table[256] of the result's dtype)
mean              (data)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from umakit.quantization.operators import Pair, Parameters, WindowParameters, register


@dataclass(frozen=True)
class Conv2dTranspose(WindowParameters):
    """A transposed convolution: each element of the data is spread over a window of the result.

    Attributes:
        input_zero_point: the integer that stands for 0 in the data.
        dilation: rows, columns.
        groups: of channels.
    """

    operator: ClassVar[str] = "conv2d_transpose"

    input_zero_point: int
    dilation: Pair = field(default=(1, 1), kw_only=True)
    groups: int = field(default=1, kw_only=True)


@dataclass(frozen=True)
class Lookup(Parameters):
    """A function of each element, as a table that starts with the least integer.

    The table's values are clipped already.

    Attributes:
        function: its name, for example `logistic`; empty where it has none.
    """

    operator: ClassVar[str] = "lookup"

    function: str = ""


@dataclass(frozen=True)
class Mean(Parameters):
    """The mean over some axes, with another scale.

    Attributes:
        axes: over which, ascending.
        input_zero_point: the integer that stands for 0 in the data.
        multiplier, shift: of the sum; the number of its terms is in them.
    """

    operator: ClassVar[str] = "mean"

    axes: tuple[int, ...]
    input_zero_point: int
    multiplier: int
    shift: int


FURTHER_OPERATORS: tuple[type[Parameters], ...] = (Conv2dTranspose, Lookup, Mean)

register(FURTHER_OPERATORS)
