# SPDX-License-Identifier: Apache-2.0
"""Loop schedules for CPUs with vector registers: tiles of sums that stay in registers.

A convolution in NHWC, depthwise or not, and a matrix product are computed in tiles of some
positions by some channels, see `umakit.cpu.convolution_schedule` and
`umakit.cpu.register_tiles`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from umakit import tvm_api
from umakit.cpu.choice_candidates import key_of_product, names_of_elementwise, product_candidates
from umakit.cpu.convolution_schedule import tile_convolution
from umakit.cpu.description import Cpu
from umakit.cpu.kernel_choices import KEY, KernelKey, choose
from umakit.cpu.register_tiles import vector_lanes
from umakit.cpu.schedule import (
    inline_elementwise,
    is_last_sum,
    loops_by_kind,
    reductions_of,
    schedule_of,
    scheduled,
)
from umakit.cpu.vector_loops import (
    extent,
    result_of,
    tiles_of,
    use_registers,
    vectorize_result,
)
from umakit.cpu.vector_rules import schedule_vector_loops
from umakit.cpu.weight_tiles import FACTS, Facts, Packing


def schedule_with_vectors(
    function: tvm_api.PrimFunc, cpu: Cpu, constants: Collection[int] = ()
) -> tvm_api.PrimFunc:
    """Schedule a prim func of fused operators for a CPU with vector registers.

    Kernels without a rule here are scheduled by `umakit.cpu.vector_rules`.

    Args:
        constants: parameters that are constants in all calls. Constant weights may be read tile by
            tile, see `Facts.packed`.
    """
    schedule = schedule_of(function)
    if schedule is None:
        return function
    follows = names_of_elementwise(schedule)
    inline_elementwise(schedule)
    reductions = reductions_of(schedule)
    packing = Packing(function, constants)
    key = None
    if len(reductions) == 1:
        key = _tile_reduction(schedule, reductions[0], cpu, packing, follows)
    if key is None:
        return schedule_vector_loops(function, cpu)
    facts = Facts(cpu.register_bytes, packing.packed)
    return scheduled(schedule, function).with_attr(FACTS, facts.text).with_attr(KEY, key.text)


def _tile_reduction(
    schedule: tvm_api.Schedule, block: Any, cpu: Cpu, packing: Packing, follows: tuple[str, ...]
) -> KernelKey | None:
    """Tile a convolution or matrix product and return its key; None for other blocks."""
    name = str(schedule.get(block).name_hint)
    if "float32" not in str(tvm_api.buffer_dtype(schedule.get(block).writes[0].source)):
        return None
    axes, kinds = schedule.get(block).iter_vars, loops_by_kind(schedule, block)
    if kinds is None or not is_last_sum(schedule, block):
        return None
    outer, inner = kinds
    if not outer or not _is_contiguous(schedule, block, axes[len(outer) - 1].var):
        return None
    if "conv2d_nhwc" in name and len(outer) == 4:
        return tile_convolution(schedule, block, outer, inner, cpu, packing, follows)
    if "matmul" in name and len(inner) == 1:
        return _tile_product(schedule, block, outer, inner, cpu, follows)
    return None


def _is_contiguous(schedule: tvm_api.Schedule, block: Any, channel: Any) -> bool:
    """Whether the operands of a sum for several channels are contiguous.

    Data of groups and transposed matrices are not. Sums that also read a tensor without axes, as in
    dynamic quantization, are no products of two tensors.
    """
    for load in tvm_api.collect(schedule.get(block).body, tvm_api.TensorLoad):
        if not load.indices:
            return False
        *others, last = list(load.indices)
        if any(channel in tvm_api.collect(index, tvm_api.Var) for index in others):
            return False
        terms = [last.a, last.b] if isinstance(last, tvm_api.tirx.Add) else [last]
        of_channel = [term for term in terms if channel in tvm_api.collect(term, tvm_api.Var)]
        if of_channel and not (len(of_channel) == 1 and of_channel[0].same_as(channel)):
            return False
    return True


def _tile_product(
    schedule: tvm_api.Schedule,
    block: Any,
    outer: list[Any],
    inner: list[Any],
    cpu: Cpu,
    follows: tuple[str, ...],
) -> KernelKey | None:
    *around, channel = outer
    channels_count = extent(schedule, channel)
    positions = extent(schedule, around[-1]) if around else 1
    candidates = product_candidates(positions, channels_count, cpu)
    if not candidates:
        return None
    key = key_of_product(schedule, block, follows)
    choice = choose(key, candidates)
    lanes = vector_lanes(cpu, channels_count)
    result = result_of(schedule, block)
    position = None
    if positions > 1:
        last, position = tiles_of(schedule, around[-1], choice.positions)
        around = [*around[:-1], last]
    channels, lane = schedule.split(channel, [None, choice.channels])
    order = [*around, channels]
    between = [] if position is None else [position]
    schedule.reorder(*order, *inner, *between, lane)
    schedule.reverse_compute_at(result, order[-1])
    vectorize_result(schedule, result, lanes)
    use_registers(schedule, position, lane, lanes)
    schedule.decompose_reduction(block, inner[0])
    return key
