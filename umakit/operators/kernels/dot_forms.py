# SPDX-License-Identifier: Apache-2.0
"""Sets of dot-product instructions for integers, with their orders of weights.

The C of a form is `umakit/dot_products_FORM.h`, with the same functions for all forms.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from umakit.operators.numeric.fixed_point import Arithmetic, Rounding
from umakit.operators.tensors import Array

PREFIX = "umakit_"


@dataclass(frozen=True)
class DotForm:
    """The properties of a set of dot-product instructions.

    Attributes:
        window: dtype of the copies of windows.
        positions: most windows multiplied at once.
        channels: output channels of a block of weights.
        group: contiguous weights of a channel; 0 for all.
        elements: unit of a window's number of elements; windows are padded to a multiple.
        order: order of the weights of a group; empty for no change.
        depthwise_group: contiguous weights of a channel of a depthwise window.
        others: form with the functions for depthwise windows, results and additions; empty for the
            form itself.
        least_depthwise_weight: least weight of a depthwise convolution that the form can sum.
    """

    name: str
    window: str
    positions: int
    channels: int
    group: int
    elements: int
    order: tuple[int, ...] = ()
    depthwise_group: int = 1
    roundings: tuple[Arithmetic, ...] = ()
    others: str = ""
    adds: bool = False
    least_depthwise_weight: int = -128

    def filled(self, elements: int) -> int:
        """Return the number of elements of a padded window."""
        return -(-elements // self.elements) * self.elements

    def blocks(self, channels: int) -> int:
        """Return the number of blocks of weights for some output channels."""
        return -(-channels // self.channels)

    def packed(self, weights: Array) -> Array:
        """Return weights in the order of the products.

        Args:
            weights: int8[O, elements].

        Returns:
            int8[blocks, elements / group, channels, group], padded with zeros.
        """
        outputs, elements = weights.shape
        filled = self.filled(elements)
        rows = self.blocks(outputs) * self.channels
        whole = np.zeros((rows, filled), weights.dtype)
        whole[:outputs, :elements] = weights
        group = self.group or filled
        grouped = whole.reshape(-1, self.channels, filled // group, group).transpose(0, 2, 1, 3)
        return np.ascontiguousarray(grouped[..., list(self.order)] if self.order else grouped)

    def packed_depthwise(self, weights: Array) -> Array:
        """Return weights of a depthwise convolution in the order of the products.

        Args:
            weights: int8[C, elements].

        Returns:
            int8[elements / group, C, group], padded with zeros.
        """
        channels, elements = weights.shape
        group = self.depthwise_group
        filled = -(-elements // group) * group
        whole = np.zeros((channels, filled), weights.dtype)
        whole[:, :elements] = weights
        grouped = whole.reshape(channels, filled // group, group).transpose(1, 0, 2)
        return np.ascontiguousarray(grouped)

    def layout(self, window: str) -> str:
        """Return the layout of packed weights for readers, such as `OHWI16o2i`."""
        group = f"{self.group}i" if self.group else ""
        return f"O{window}{self.channels}o{group}"

    def function(self, name: str) -> str:
        """Return the C name of a function of the form, such as `products`."""
        own = not self.others or name.startswith(("products", "copy"))
        return f"{PREFIX}{self.name if own else self.others}_{name}"

    def results(self, rounding: Arithmetic, dtype: str) -> str:
        """Return the C name of the function that rescales sums."""
        name = f"results_{rounding.value}_{dtype}"
        return self.function(name) if rounding in self.roundings else f"{PREFIX}plain_{name}"


FORMS = {
    form.name: form
    for form in (
        DotForm(
            "smlad", "int16", positions=2, channels=2, group=4, elements=4, order=(0, 2, 1, 3)
        ),
        DotForm(
            "avx2", "int16", positions=4, channels=16, group=2, elements=2, depthwise_group=2,
            roundings=(Arithmetic.TFLM, Arithmetic.ORT), adds=True,
        ),
        DotForm(
            "vnni", "uint8", positions=4, channels=32, group=4, elements=4, depthwise_group=2,
            roundings=(Arithmetic.TFLM, Arithmetic.ORT), others="avx2", adds=True,
        ),
        DotForm(
            "rvv", "int8", positions=4, channels=16, group=1, elements=1,
            roundings=(Arithmetic.TFLM,), adds=True,
        ),
        DotForm(
            "sdot", "int8", positions=4, channels=8, group=4, elements=16,
            roundings=(Arithmetic.TFLM, Arithmetic.ORT), adds=True,
        ),
        DotForm(
            "mve", "int8", positions=2, channels=2, group=0, elements=1,
            roundings=(Arithmetic.TFLM,), adds=True, least_depthwise_weight=-127,
        ),
    )
}  # fmt: skip
"""Forms by their names."""


def form_of(name: str) -> DotForm | None:
    """Return the form of a name of `umakit.cpu.description.DotProducts`; None for none."""
    return FORMS.get(name)


def header_of_form(function: str) -> str | None:
    """Return the C header of a function of a form; None for other functions."""
    if not function.startswith(PREFIX):
        return None
    form, _, rest = function.removeprefix(PREFIX).partition("_")
    if form == "plain" and rest:
        return "umakit/dot_products.h"
    return f"umakit/dot_products_{form}.h" if form in FORMS else None


def rounds(rounding: Rounding) -> bool:
    """Whether results can be rescaled with a rounding."""
    return rounding in (Arithmetic.TFLM, Arithmetic.ORT)
