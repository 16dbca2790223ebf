# SPDX-License-Identifier: Apache-2.0
"""Gelu, and ONNX Runtime's Gelu, BiasGelu, FastGelu and QuickGelu."""

from __future__ import annotations

import numpy as np

from umakit import tvm_api
from umakit.frontend.onnx.node import Node
from umakit.frontend.onnx.registry import converts
from umakit.frontend.onnx.rewriting import MICROSOFT, Rewriter, rewrites


@converts("Gelu", "approximate")
def approximate_gelu(node: Node) -> tvm_api.Expr:
    """Gelu in exact or tanh form. Older opsets get this operator from the rewrites below."""
    functions = {"none": tvm_api.relax.op.nn.gelu, "tanh": tvm_api.relax.op.nn.gelu_tanh}
    form = node.attribute("approximate", "none")
    if form not in functions:
        raise node.refuse(f"has approximate={form}, which is not supported")
    return functions[form](node.inputs[0])


@rewrites("Gelu BiasGelu", MICROSOFT)
def gelu(node: Rewriter) -> None:
    """x / 2 * (1 + erf(x / sqrt(2))) of the input plus the optional bias."""
    node.finish("Gelu", _with_bias(node), approximate="none")


@rewrites("FastGelu", MICROSOFT)
def fast_gelu(node: Rewriter) -> None:
    """x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))."""
    node.finish("Gelu", _with_bias(node), approximate="tanh")


@rewrites("QuickGelu", MICROSOFT)
def quick_gelu(node: Rewriter) -> None:
    """x * sigmoid(alpha * x) of float32."""
    alpha = float(node.attribute("alpha", 1.702))
    scaled = node.add("Mul", node.input(0), node.constant(np.float32(alpha)))
    node.finish("Mul", node.input(0), node.add("Sigmoid", scaled))


def _with_bias(node: Rewriter) -> str:
    bias = node.input(1)
    return node.add("Add", node.input(0), bias) if bias else node.input(0)
