# SPDX-License-Identifier: Apache-2.0
"""Normalizations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from umakit import tvm_api
from umakit.frontend.torch.registry import (
    Arguments,
    Expr,
    Graph,
    Node,
    constant,
    converts,
    moments,
    op,
)
from umakit.tvm_api import relax


def _standardized(value: Expr, axes: Sequence[int], epsilon: float, graph: Graph) -> Expr:
    centred, variance = moments(value, axes, graph.block_builder)
    dtype = tvm_api.dtype_of(value)
    deviation = op.sqrt(op.add(variance, constant(epsilon, dtype)))
    return op.divide(centred, deviation)


def _scaled(value: Expr, graph: Graph, given: Arguments, shape: Sequence[int]) -> Expr:
    """Return value * weight + bias; `shape` makes both broadcast."""
    for name, function in (("weight", op.multiply), ("bias", op.add)):
        if given.get(name) is not None:
            value = function(value, op.reshape(graph.value(given[name]), list(shape)))
    return value


@converts("native_layer_norm.default", "input normalized_shape weight bias eps")
def _layer_norm(graph: Graph, node: Node, given: Arguments) -> Expr:
    inner = list(given["normalized_shape"])
    value = graph.value(given["input"])
    value = _standardized(value, range(-len(inner), 0), given["eps"], graph)
    return _scaled(value, graph, given, inner)


@converts("native_group_norm.default", "input weight bias N C HxW group eps")
def _group_norm(graph: Graph, node: Node, given: Arguments) -> Expr:
    shape = graph.type_of(given["input"])[0]
    grouped = op.reshape(graph.value(given["input"]), [given["N"], given["group"], -1])
    value = op.reshape(_standardized(grouped, [2], given["eps"], graph), list(shape))
    return _scaled(value, graph, given, [-1, *[1] * (len(shape) - 2)])


@converts("_native_batch_norm_legit.no_stats", "input weight bias training momentum eps")
def _statistics_norm(graph: Graph, node: Node, given: Arguments) -> Expr:
    if not given["training"]:
        raise graph.refuse(node, "has no statistics")
    rank = len(graph.type_of(given["input"])[0])
    axes = [0, *range(2, rank)]
    value = _standardized(graph.value(given["input"]), axes, given["eps"], graph)
    return _scaled(value, graph, given, [-1, *[1] * (rank - 2)])


@converts(
    "_native_batch_norm_legit_no_training.default",
    "input weight bias running_mean running_var momentum eps",
)
def _batch_norm(graph: Graph, node: Node, given: Arguments) -> Expr:
    """input * alpha + beta with per-channel constants, as in torch."""
    shape, dtype = graph.type_of(given["input"])
    statistics: dict[str, Any] = {"weight": np.float64(1), "bias": np.float64(0)}
    for name in ("weight", "bias", "running_mean", "running_var"):
        if given[name] is not None:
            value = graph.fake(given[name])
            if graph.depends_on_inputs(given[name]):
                raise graph.refuse(node, f"has a {name} that is computed from the inputs")
            statistics[name] = value.detach().double().numpy()
    alpha = statistics["weight"] / np.sqrt(statistics["running_var"] + given["eps"])
    beta = statistics["bias"] - statistics["running_mean"] * alpha
    per_channel = [shape[1], *[1] * (len(shape) - 2)]
    factor, offset = (relax.const(v.reshape(per_channel).astype(dtype), dtype)
                      for v in (alpha, beta))  # fmt: skip
    return op.add(op.multiply(graph.value(given["input"]), factor), offset)
