# SPDX-License-Identifier: Apache-2.0
"""Advice for a network without any operator on an accelerator.

Each piece of advice is verified: the network is partitioned again with the changed options, and the
first change that offloads an operator is named.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from umakit import tvm_api
from umakit.errors import ModelError, UmakitError, short_path
from umakit.frontend.model import ROUNDINGS, Model, with_rounding
from umakit.library.options import ExportOptions
from umakit.machine.config_faults import line_of_value
from umakit.machine.space import OF_SUMS
from umakit.operators import registry
from umakit.operators.offload.pattern import OperatorPattern
from umakit.partition.partitioner import Partitioned, partition
from umakit.partition.report import check_offload
from umakit.quantized import quantize_to_integers
from umakit.registration.backend import Backend


def with_advice(
    partitioned: Partitioned, model: Model, backends: Sequence[Backend], options: ExportOptions
) -> Partitioned:
    """Return a partitioned network whose report has advice for each unused accelerator."""
    report = partitioned.report
    by_name = {backend.target_name: backend for backend in backends}
    unused = tuple(
        replace(each, fix=_advice(by_name[each.backend], each.reason, model, backends, options))
        for each in report.unused
    )
    if options.require_offload:
        check_offload(unused, bool(backends))
    return replace(partitioned, report=replace(report, unused=unused)) if unused else partitioned


def _advice(
    backend: Backend, reason: str, model: Model, backends: Sequence[Backend], options: ExportOptions
) -> str:
    tried = _ways(backend, model, backends, options)
    found = next(
        (fix for fix, module, order, keep in tried if _takes(backend, module, order, keep)), ""
    )
    return found or _larger(backend, reason) or _quantized(backend, model) or _patterns(backend)


def _ways(
    backend: Backend, model: Model, backends: Sequence[Backend], options: ExportOptions
) -> Iterator[tuple[str, tvm_api.IRModule, Sequence[Backend], bool]]:
    name, keep = backend.target_name, options.keep_layout
    others = [each for each in backends if each is not backend]
    if keep:
        yield "try without --keep-layout", model.module, backends, False
    if others:
        order = " --choose order, and" if options.choose != "order" else ""
        yield f"try{order} {name} before the others", model.module, [backend, *others], keep
    for rounding in ROUNDINGS:
        if model.origin is not None and rounding != model.arithmetic:
            try:
                rounded = quantize_to_integers(with_rounding(model.origin, rounding))
            except ModelError:  # of this format or network
                continue
            fix = f"try --rounding {rounding}, with which integers may differ from the model's"
            yield fix, rounded.module, backends, keep
    if model.origin is not None:
        fix = "try the float32 network that was quantized"
        yield fix, model.origin.module, backends, keep


def _takes(
    backend: Backend, module: tvm_api.IRModule, backends: Sequence[Backend], keep_layout: bool
) -> bool:
    try:
        placements = partition(module, backends, keep_layout=keep_layout).report.placements
    except UmakitError:  # a predicate that does not know the operators
        return False
    return any(row.where == backend.target_name for row in placements)


def _larger(backend: Backend, reason: str) -> str:
    """Return the advice to enlarge a memory that is too small for the smallest tiles of layers."""
    needs = rf"needs ([\d,]+) B(?:, (\w+) has| {OF_SUMS})"
    found = re.match(rf'"[^"]*{needs}', reason)
    if found is None or (config := backend.configuration).path is None:
        return ""
    names = [memory.name for memory in config.memory]
    section, key, number = "array", "accumulator_bytes", 0
    if found[2] in names:
        section, key, number = "memory", "size", names.index(found[2])
    elif config.machine is not None:
        section, key = "machine", "sum_bytes"
        if config.machine.sum_bytes in config.machine.figures:
            section, key = "machine.figures", str(config.machine.sum_bytes)
    place = short_path(line_of_value(config.path, section, key, number=number))
    of = f" of {found[2]}" if found[2] else ""
    sizes = [each[1] for each in re.finditer(needs, reason) if each[2] == found[2]]
    largest = max(sizes, key=lambda size: int(size.replace(",", "")))
    tile = "the smallest tile of the largest layer"
    return f"{tile} takes {largest} B: let {key}{of} be as large, or larger ({place})"


def _quantized(backend: Backend, model: Model) -> str:
    found = {
        tvm_api.operator_name(each.value) for each in tvm_api.bindings_of(model.module["main"])
    }
    for pattern in backend.patterns:
        predicate = pattern.predicate
        if not isinstance(predicate, OperatorPattern):
            continue
        for operator in registry.operators():
            names = {name for each in operator.recognitions for name in each.relax}
            if operator.name == predicate.OPERATOR.operator and found & names:
                dtypes = predicate.dtypes
                name = backend.target_name
                dtype = dtypes if isinstance(dtypes, str) else next(iter(dtypes or ("int8",)))
                return f"try the network quantized to {dtype}, as {pattern.name} of {name} takes it"
    return ""


def _patterns(backend: Backend) -> str:
    places = [each.place for each in backend.patterns if each.place]
    place = places[0] if places else short_path(backend.folder)
    return f"`uma partition` lists the reason of each operator, which the patterns decide ({place})"
