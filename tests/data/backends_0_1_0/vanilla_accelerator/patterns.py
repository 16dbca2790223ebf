# SPDX-License-Identifier: Apache-2.0
"""Which parts of a network the vanilla_accelerator takes."""

from typing import Any

from umakit.tvm_api import DFPattern, dtype_of, is_op, static_shape, wildcard


def conv2d_pattern() -> DFPattern:
    """A single 2-D convolution; bias and activation stay on the CPU."""
    return is_op("relax.nn.conv2d")(wildcard(), wildcard())


def conv2d_predicate(context: Any) -> bool | str:
    """True if the array can compute this convolution, else the reason why it cannot.

    The array computes stride 1, same-padded, ungrouped float32 convolutions of one image in NCHW.
    The reason is shown to the user in the offload table, so it says what was found and what is
    needed.
    """
    convolution = context.matched_expr
    attributes = convolution.attrs
    ifmap, weights = convolution.args

    ifmap_shape, weights_shape = static_shape(ifmap), static_shape(weights)
    if ifmap_shape is None or weights_shape is None:
        return "a symbolic shape: the driver needs every size at compile time"
    if {dtype_of(ifmap), dtype_of(weights), dtype_of(convolution)} != {"float32"}:
        return f"dtype {dtype_of(ifmap)} x {dtype_of(weights)}: the array computes float32"
    layouts = (str(attributes.data_layout), str(attributes.kernel_layout))
    out_layout = str(attributes.out_layout or attributes.data_layout)
    if layouts != ("NCHW", "OIHW") or out_layout != "NCHW":
        return f"layout {layouts[0]}/{layouts[1]}: the driver reads NCHW/OIHW"
    if ifmap_shape[0] != 1:
        return f"batch {ifmap_shape[0]}: the array computes one image at a time"
    if int(attributes.groups) != 1:
        return f"groups={int(attributes.groups)}: the array has no grouped or depthwise mode"
    strides = [int(stride) for stride in attributes.strides]
    if strides != [1, 1]:
        return f"stride {strides[0]}x{strides[1]}: the array steps by 1x1"
    dilation = [int(step) for step in attributes.dilation]
    if dilation != [1, 1]:
        return f"dilation {dilation[0]}x{dilation[1]}: the array has no dilation"
    kernel_height, kernel_width = weights_shape[2:]
    needed = list(same_padding(kernel_height, kernel_width))
    padding = [int(pad) for pad in attributes.padding]
    if padding != needed:
        return f"padding {padding}: same padding of {kernel_height}x{kernel_width} is {needed}"
    return True


def same_padding(kernel_height: int, kernel_width: int) -> tuple[int, int, int, int]:
    """Rows and columns of zeros (top, left, bottom, right) that keep the image's size.

    Of an even kernel's odd padding the larger half comes after the image (ONNX: SAME_UPPER).
    """
    top, left = (kernel_height - 1) // 2, (kernel_width - 1) // 2
    return top, left, kernel_height - 1 - top, kernel_width - 1 - left
