# SPDX-License-Identifier: Apache-2.0
"""Counts of the operations in calls of dot-product functions, by the terms of `CpuCosts`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from umakit.operators.kernels.dot_forms import FORMS, PREFIX

Terms = dict[str, Any]
"""Executions of each term by a call: a number, or one number per combination of values."""

Argument = Callable[[int], Any]
"""From the place of an argument to its value, an array of integers."""


@dataclass(frozen=True)
class Widths:
    """Elements per vector operation in the functions of a form, see `umakit/dot_products_FORM.h`.

    Attributes:
        predicated: whether instructions can mask elements, so that there are no remainders.
    """

    products: int
    results: int
    copies: int
    channels: int
    additions: int
    predicated: bool = False


PLAIN = Widths(1, 1, 1, 1, 1)
WIDTHS: Mapping[str, Widths] = {
    "smlad": Widths(products=4, results=1, copies=4, channels=4, additions=1),
    "mve": Widths(products=16, results=4, copies=16, channels=16, additions=4, predicated=True),
    "sdot": Widths(products=16, results=8, copies=16, channels=8, additions=8),
    "avx2": Widths(products=2, results=8, copies=16, channels=16, additions=8),
    "vnni": Widths(products=4, results=8, copies=16, channels=16, additions=8),
}


def _groups(count: Any, width: int) -> Any:
    return -(-count // width)


def terms_of_call(function: str, argument: Argument) -> Terms | None:
    """Return the executed terms of a call of a form's function.

    None for other functions, and for forms whose vectors have no fixed size.

    Args:
        function: C name, such as `umakit_smlad_products`.
    """
    form, _, name = function.removeprefix(PREFIX).partition("_")
    if not function.startswith(PREFIX) or form not in ("plain", *FORMS):
        return None
    widths = WIDTHS.get(form, PLAIN)
    if form != "plain" and form not in WIDTHS:
        return None
    if name == "products":
        return _products(form, widths, argument)
    kind, _, rest = name.partition("_")
    if kind == "results":
        prefix = "" if form != "plain" else "plain_"
        rounding = rest.split("_")[0]
        count = argument(2)
        return {
            f"{prefix}results_call": 1,
            f"{prefix}results_{rounding}": _groups(count, widths.results),
        }
    if kind == "copy":
        return _copy(form, widths, argument(2))
    if kind == "fill":
        is_wide = rest == "int16"
        return {"fill_call": 1, "filled_wide" if is_wide else "filled": argument(1)}
    if kind == "depthwise":
        return _depthwise(form, widths, rest, argument)
    if kind == "add":
        return {"addition_call": 1, "addition": _groups(argument(3), widths.additions)}
    return None


def _products(form: str, widths: Widths, argument: Argument) -> Terms:
    positions, elements, blocks = argument(4), argument(6), argument(7)
    groups = blocks * _groups(elements, widths.products)
    whole = np.equal(positions, FORMS[form].positions)
    singles = np.where(whole, 0, positions)
    return {
        "products_call": 1,
        "products_block": np.where(whole, blocks, 0),
        "products_group": np.where(whole, groups, 0),
        "products_single_block": singles * blocks,
        "products_single_group": singles * groups,
    }


def _copy(form: str, widths: Widths, count: Any) -> Terms:
    if form == "plain":
        return {"plain_copy_call": 1, "plain_copied": count}
    if widths.predicated:
        return {"copy_call": 1, "copied_group": _groups(count, widths.copies)}
    rest = count % widths.copies
    return {"copy_call": 1, "copied_group": count // widths.copies, "copied_rest": rest}


def _depthwise(form: str, widths: Widths, dtype: str, argument: Argument) -> Terms:
    rows, columns, channels = argument(5), argument(6), argument(7)
    narrow = 4 if form == "mve" else 1
    width = 4 if (form, dtype) == ("mve", "uint8") else widths.channels
    if form == "mve":
        whole = channels // width if width > narrow else 0 * channels
        rest = _groups(channels - whole * width, narrow)
    else:
        fits = np.greater_equal(channels, widths.channels)
        whole = np.where(fits, _groups(channels, widths.channels), 0)
        rest = np.where(fits, 0, channels)
    elements = rows * columns
    return {
        "depthwise_call": 1,
        "depthwise_group": whole,
        "depthwise_row": whole * rows,
        "depthwise_product": whole * elements,
        "depthwise_rest": rest,
        "depthwise_rest_product": rest * elements,
    }
