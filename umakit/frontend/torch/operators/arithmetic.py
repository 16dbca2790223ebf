# SPDX-License-Identifier: Apache-2.0
"""Arithmetic, comparisons, logic and bits of two tensors, or of a tensor and a number."""

from __future__ import annotations

from collections.abc import Callable

import torch

from umakit.frontend.torch.registry import (
    Arguments,
    Conversion,
    Expr,
    Graph,
    Node,
    cast,
    constant,
    converts,
    op,
    operand,
)


def _common_dtype(graph: Graph, node: Node, *operands: torch.fx.Node | float) -> str:
    values = [graph.fake(o) if isinstance(o, torch.fx.Node) else o for o in operands]
    return str(graph.dtype(torch.result_type(*values), node))


def _binary(function: Callable[[Expr, Expr], Expr], *, floating: bool = False) -> Conversion:
    def convert(graph: Graph, node: Node, given: Arguments) -> Expr:
        left, right = given["self"], given.get("other", given.get("exponent"))
        dtype = _common_dtype(graph, node, left, right)
        if floating:
            dtype = graph.type_of(node)[1]
        right = operand(graph, right, dtype)
        if given.get("alpha", 1) != 1:
            right = op.multiply(right, constant(given["alpha"], dtype))
        return function(operand(graph, left, dtype), right)

    return convert


converts("add.Tensor add.Scalar", "self other alpha")(_binary(op.add))
converts("sub.Tensor sub.Scalar", "self other alpha")(_binary(op.subtract))
converts("mul.Tensor mul.Scalar", "self other")(_binary(op.multiply))
converts("div.Tensor div.Scalar", "self other")(_binary(op.divide, floating=True))
converts("maximum.default", "self other")(_binary(op.maximum))
converts("minimum.default", "self other")(_binary(op.minimum))
converts("eq.Tensor eq.Scalar", "self other")(_binary(op.equal))
converts("ne.Tensor ne.Scalar", "self other")(_binary(op.not_equal))
converts("lt.Tensor lt.Scalar", "self other")(_binary(op.less))
converts("le.Tensor le.Scalar", "self other")(_binary(op.less_equal))
converts("gt.Tensor gt.Scalar", "self other")(_binary(op.greater))
converts("ge.Tensor ge.Scalar", "self other")(_binary(op.greater_equal))


@converts("pow.Tensor_Scalar", "self exponent")
def _power(graph: Graph, node: Node, given: Arguments) -> Expr:
    """Power. Exponents 2 and 3 become products, as in torch; other exponents use the C library."""
    dtype = graph.type_of(node)[1]
    base, exponent = operand(graph, given["self"], dtype), given["exponent"]
    if exponent in (2, 3):
        square = op.multiply(base, base)
        return square if exponent == 2 else op.multiply(square, base)
    if not dtype.startswith("float"):
        raise graph.refuse(node, f"of integers has exponent={exponent}, not supported")
    if exponent == 0.5:
        return op.sqrt(base)
    return op.power(base, constant(exponent, dtype))


@converts("pow.Tensor_Tensor pow.Scalar", "self exponent")
def _general_power(graph: Graph, node: Node, given: Arguments) -> Expr:
    dtype = graph.type_of(node)[1]
    if not dtype.startswith("float"):
        raise graph.refuse(node, "of integers is not supported")
    return op.power(operand(graph, given["self"], dtype), operand(graph, given["exponent"], dtype))


def _logical(function: Callable[..., Expr]) -> Conversion:
    def convert(graph: Graph, node: Node, given: Arguments) -> Expr:
        operands = [given[name] for name in ("self", "other") if name in given]
        return function(*(cast(graph.value(operand), "bool") for operand in operands))

    return convert


converts("logical_and.default", "self other")(_logical(op.logical_and))
converts("logical_or.default", "self other")(_logical(op.logical_or))
converts("logical_not.default", "self")(_logical(op.logical_not))


def _bitwise(bits: Callable[..., Expr], truths: Callable[..., Expr]) -> Conversion:
    def convert(graph: Graph, node: Node, given: Arguments) -> Expr:
        dtype = graph.type_of(node)[1]
        operands = [operand(graph, given[n], dtype) for n in ("self", "other") if n in given]
        return (truths if dtype == "bool" else bits)(*operands)

    return convert


for _suffix in ("Tensor", "Scalar"):
    converts(f"bitwise_and.{_suffix}", "self other")(_bitwise(op.bitwise_and, op.logical_and))
    converts(f"bitwise_or.{_suffix}", "self other")(_bitwise(op.bitwise_or, op.logical_or))
    converts(f"bitwise_xor.{_suffix}", "self other")(_bitwise(op.bitwise_xor, op.logical_xor))
converts("bitwise_not.default", "self")(_bitwise(op.bitwise_not, op.logical_not))


@converts("remainder.Scalar remainder.Tensor", "self other")
def _remainder(graph: Graph, node: Node, given: Arguments) -> Expr:
    dtype = graph.type_of(node)[1]
    if "int" not in dtype:
        raise graph.refuse(node, f"of {dtype} is not supported", "take remainders of integers")
    return op.floor_mod(operand(graph, given["self"], dtype), operand(graph, given["other"], dtype))
