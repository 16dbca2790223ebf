# SPDX-License-Identifier: Apache-2.0
"""The layers of a network that a backend cuts into tiles."""

from __future__ import annotations

from umakit import patterns, tvm_api
from umakit.backend.base import UMABackend
from umakit.lower import accelerator_kernels
from umakit.machine import Layer
from umakit.partition.partitioner import partition
from umakit.patterns.driver import ARRAYS_ATTRIBUTE
from umakit.pipeline import Network


def tiled_layers(
    network: Network, backend: UMABackend, *, keep_layout: bool = False
) -> dict[Layer, tuple[str, ...]]:
    """Return by layer the names of its operators, in the order of the network.

    Layers of equal sizes are one entry with the operators of each occurrence.

    Args:
        network: a network of `umakit.pipeline.import_network`.
        backend: backend that cuts layers into tiles.
        keep_layout: as in `ExportOptions`.

    Raises:
        UmakitError: the network cannot be partitioned or lowered.
    """
    partitioned = partition(network.model.module, [backend], keep_layout=keep_layout)
    module = accelerator_kernels(partitioned, [backend])
    found: dict[Layer, tuple[str, ...]] = {}
    for binding in tvm_api.bindings_of(module["main"]):
        call = binding.value
        if tvm_api.operator_name(call) != "call_tir":
            continue
        function = module[call.args[0]].without_attr(ARRAYS_ATTRIBUTE)
        composite = patterns.parameters_of(function)
        if composite is None:
            continue
        try:
            layer = Layer.of(composite)
        except TypeError:  # the backend computes it without tiles
            continue
        label = partitioned.report.label(tvm_api.rows_of(call))
        found[layer] = (*found.get(layer, ()), label)
    return found
