# SPDX-License-Identifier: Apache-2.0
"""Attributes of convolutions and pools of Relax, which legalization drops, for readers of C."""

from __future__ import annotations

from typing import Any

from umakit import tvm_api

NAMES = {
    "pool_size": "window",
    "strides": "strides",
    "padding": "padding",
    "output_padding": "output_padding",
    "dilation": "dilation",
    "groups": "groups",
    "data_layout": "layout",
    "layout": "layout",
    "kernel_layout": "weights_layout",
}
"""Names for readers, those of integer operators, by name in Relax."""


def window_attributes(call: tvm_api.Call) -> dict[str, Any]:
    """Return strides, padding, dilation, groups and layouts of a convolution or pool.

    Args:
        call: any call.

    Returns:
        Integers, strings and tuples of integers by name; empty for other operators.
    """
    attributes = call.attrs
    if not tvm_api.operator_name(call).startswith("nn.") or not hasattr(attributes, "strides"):
        return {}
    found = {
        name: getattr(attributes, relax) for relax, name in NAMES.items()
        if hasattr(attributes, relax)
    }  # fmt: skip
    return {
        name: str(value) if name.endswith("layout") else _integers(value)
        for name, value in found.items()
    }


def _integers(value: Any) -> int | tuple[int, ...]:
    return int(value) if isinstance(value, int) else tuple(int(item) for item in value)
