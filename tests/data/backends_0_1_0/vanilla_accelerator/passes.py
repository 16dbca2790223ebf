# SPDX-License-Identifier: Apache-2.0
"""TIR passes of the vanilla_accelerator: loops out, driver call in."""

from typing import Any

from umakit import tir
from umakit.errors import LoweringError

from .strategies import same_padded_conv2d

DRIVER = "vanilla_accelerator_conv2dnchw"


def VanillaConv2DPass() -> Any:
    """A pass that replaces the loops of a convolution, padding included, by one driver call."""
    return tir.prim_func_pass("VanillaConv2DPass", replace_convolution)


def replace_convolution(function: Any) -> Any:
    """The prim func of a convolution with a driver call as its body; others as they are."""
    if tir.composite_name(function) != "vanilla_accelerator.conv2d":
        return function
    ifmap, weights, result = function.params
    _, ic, ih, iw = tir.buffer_shape(ifmap)
    oc, _, kh, kw = tir.buffer_shape(weights)

    # The driver is told sizes only, so the loops must be exactly the convolution that these
    # sizes stand for: stride 1, same padding, nothing else in between.
    if not tir.same_computation(function, same_padded_conv2d(oc, ic, ih, iw, kh, kw)):
        raise LoweringError(
            "the loops are not the convolution that the array computes",
            where=f"{DRIVER}(oc={oc}, iw={iw}, ih={ih}, ic={ic}, kh={kh}, kw={kw})",
            fix="let conv2d_predicate in patterns.py refuse this case",
        )
    pointers = [tir.pointer(ifmap), tir.pointer(weights), tir.pointer(result)]
    return tir.with_body(function, tir.driver_call(DRIVER, [*pointers, oc, iw, ih, ic, kh, kw]))
