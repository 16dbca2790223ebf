# SPDX-License-Identifier: Apache-2.0
"""Which parts of a network the strawberry_accelerator takes.

umakit has rewritten a quantized network to integer operators before it asks here: bias, activation
and change of scale are inside of each. Every argument of a pattern is a constraint; one that fails
is shown to the user in the offload table, with what was found and what is needed.
"""

from collections.abc import Callable
from typing import Any

from umakit import patterns
from umakit.backend import AcceleratorConfig, MemorySection


def layers(configuration: AcceleratorConfig) -> list[patterns.OperatorPattern]:
    """The layers that the array computes, for what `accel.toml` says about it."""
    columns = configuration.array.columns
    (scratchpad,) = configuration.memory
    common: dict[str, Any] = {
        "rounding": ("tflm", "ort"),
        "predicate": fits(scratchpad),
    }
    windows: dict[str, Any] = {
        "strides": [1, 2],
        "layouts": ("NHWC", "NCHW"),
        **common,
    }
    # Weights are arranged at compile time: the output channels of one fold of the array lie side
    # by side, and the last block is filled up with zeros.
    found: list[patterns.OperatorPattern] = [
        patterns.qconv2d(weight_layout=f"O/{columns} HWI {columns}o", **windows),
        patterns.qdense(weight_layout=f"O/{columns} I {columns}o", **common),
    ]
    if configuration.array.depthwise:
        found.append(patterns.qdepthwise(weight_layout="HWIO", multipliers=None, **windows))
    return found


def fits(scratchpad: MemorySection) -> Callable[[patterns.Composite], bool | str]:
    """A predicate: all operands and the result of a layer lie in the scratchpad at once."""

    def predicate(layer: patterns.Composite) -> bool | str:
        unit, room = scratchpad.alignment, scratchpad.size or 0
        needed = sum(-(-size // unit) * unit for size in layer.operand_bytes.values())
        if needed > room:
            return f"needs {needed:,} B, {scratchpad.name} has {room:,} B"
        return True

    return predicate
