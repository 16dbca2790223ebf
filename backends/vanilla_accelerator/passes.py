# SPDX-License-Identifier: Apache-2.0
"""TIR passes of the vanilla_accelerator: loops out, driver call in."""

from typing import Any

from umakit.errors import LoweringError
from umakit.tir import buffer_shape, composite_name, driver_call, pointer, same_computation
from umakit.tir import with_body
from umakit.tvm_api import tirx_transform

from .strategies import same_padded_conv2d

DRIVER = "vanilla_accelerator_conv2dnchw"


def VanillaConv2DPass() -> Any:
    """A pass that replaces the loops of a convolution, padding included, by one driver call."""

    @tirx_transform.prim_func_pass(opt_level=0, name="VanillaConv2DPass")
    def transform(function: Any, module: Any, context: Any) -> Any:
        if composite_name(function) != "vanilla_accelerator.conv2d":
            return function
        ifmap, weights, result = function.params
        _, ic, ih, iw = buffer_shape(ifmap)
        oc, _, kh, kw = buffer_shape(weights)

        # The driver is told sizes only, so the loops must be exactly the convolution that these
        # sizes stand for: stride 1, same padding, nothing else in between.
        if not same_computation(function, same_padded_conv2d(oc, ic, ih, iw, kh, kw)):
            raise LoweringError(
                "the loops are not the convolution that the array computes",
                where=f"{DRIVER}(oc={oc}, iw={iw}, ih={ih}, ic={ic}, kh={kh}, kw={kw})",
                fix="let conv2d_predicate in patterns.py refuse this case",
            )
        arguments = [pointer(ifmap), pointer(weights), pointer(result), oc, iw, ih, ic, kh, kw]
        return with_body(function, driver_call(DRIVER, arguments))

    return transform
