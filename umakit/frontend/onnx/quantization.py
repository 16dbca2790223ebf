# SPDX-License-Identifier: Apache-2.0
"""Scales and zero points of the inputs and outputs of an ONNX network."""

from __future__ import annotations

from collections.abc import Sequence

import onnx
import onnx.numpy_helper

from umakit.frontend.model import Quantization


def edge_quantizations(proto: onnx.ModelProto) -> dict[str, Quantization]:
    """Scale and zero point by name of graph input or output.

    An input says it by the DequantizeLinear that reads it, an output by the QuantizeLinear that
    writes it. What is quantized per channel, or read in two ways, is left out.
    """
    constants = {tensor.name: tensor for tensor in proto.graph.initializer}
    edges = {value.name for value in (*proto.graph.input, *proto.graph.output)}
    found: dict[str, set[Quantization]] = {}
    for node in proto.graph.node:
        if node.op_type == "DequantizeLinear":
            tensor = node.input[0]
        elif node.op_type == "QuantizeLinear":
            tensor = node.output[0]
        else:
            continue
        quantization = _quantization(node.input[1:], constants)
        if tensor in edges and quantization is not None:
            found.setdefault(tensor, set()).add(quantization)
    return {name: values.pop() for name, values in found.items() if len(values) == 1}


def _quantization(
    names: Sequence[str], constants: dict[str, onnx.TensorProto]
) -> Quantization | None:
    if any(name and name not in constants for name in names):
        return None
    arrays = [onnx.numpy_helper.to_array(constants[name]) for name in names if name]
    if not arrays or any(array.size != 1 for array in arrays):
        return None
    zero_point = int(arrays[1].item()) if len(arrays) > 1 else 0
    return Quantization(float(arrays[0].item()), zero_point)
