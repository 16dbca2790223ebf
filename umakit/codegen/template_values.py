# SPDX-License-Identifier: Apache-2.0
"""Values that the templates of all C files of a model share: interface, memory, CPU, statuses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from umakit.codegen.c_types import c_type, float_literal
from umakit.codegen.constants import CONSTANT_ALIGNMENT, HEADER_SIZE, MAGIC, VERSION, WeightsLayout
from umakit.codegen.interface_comments import dma_alignments, interface_alignments
from umakit.codegen.statuses import (
    LEAST,
    MOST,
    SCRATCH_TOO_SMALL,
    SCRATCH_TOO_SMALL_STATUS,
    called_by_text,
    checks_scratch,
    own_statuses,
)
from umakit.cpu.several import CpuChoice
from umakit.lower.check_statements import INDEX_OUT_OF_RANGE
from umakit.memory.plan import MemoryPlan, PoolPlan
from umakit.program.program import KernelCall, Program, Role, Tensor
from umakit.registration.backend import Backend
from umakit.text.names import INTERFACE_PREFIX
from umakit.version import __version__

MOST_OF_32_BITS = 2**31 - 1
"""Maximum size in bytes of an object on a 32-bit target, `PTRDIFF_MAX`."""


def interface_prefix(name: str) -> str:
    """Return `tvmgen_NAME`, the prefix of all symbols of a model."""
    return f"{INTERFACE_PREFIX}{name}"


def chosen_macro(prefix: str, choice: CpuChoice) -> str:
    """Return the macro that a header defines for the CPU chosen by the preprocessor."""
    return f"{prefix}_for_{choice.suffix}".upper()


def tensor_view(tensor: Tensor) -> dict[str, Any]:
    """Return the template values for a tensor."""
    quantization = tensor.quantization
    return {
        "name": tensor.name,
        "label": tensor.label,
        "c_type": c_type(tensor.dtype),
        "dtype": tensor.dtype,
        "shape": tensor.shape,
        "size": tensor.size,
        "count": tensor.elements,
        "elements": max(1, tensor.elements),
        # Decimal: C++ had no hexadecimal floats before 2017.
        "scale": float_literal(quantization.scale, "float32") if quantization else "",
        "zero_point": quantization.zero_point if quantization else 0,
        "next_state": tensor.next_state,
    }


def common_values(
    program: Program,
    plan: MemoryPlan,
    layout: WeightsLayout | None,
    backends: Mapping[str, Backend],
) -> dict[str, Any]:
    """Return the template values common to all files of a model.

    Args:
        layout: layout of the weights blob; None for constants in C.
    """
    prefix = interface_prefix(program.name)
    inputs = [tensor_view(program.tensors[name]) for name in program.inputs]
    outputs = [tensor_view(program.tensors[name]) for name in program.outputs]
    alignments = interface_alignments(program, backends)
    for tensor in inputs + outputs:
        tensor["alignment"] = alignments.get(tensor["name"], 1)
    c_names = {tensor["label"]: tensor["name"] for tensor in outputs}
    for tensor in inputs:
        tensor["next_name"] = c_names.get(tensor["next_state"], "")
    states = [tensor for tensor in inputs if tensor["next_state"]]
    return {
        "umakit_version": __version__,
        "name": program.name,
        "prefix": prefix,
        "prefix_upper": prefix.upper(),
        "stem": prefix,
        "guard": "",
        "cpus": [],
        "inputs": inputs,
        "outputs": outputs,
        "states": states,
        "stateful": bool(states),
        "quantized": any(tensor["scale"] for tensor in inputs + outputs),
        "pools": [_pool_view(prefix, pool) for pool in plan.supplied],
        "large_object": _large_object(program, plan, layout),
        "workspace_size": plan.arena_size,
        "blob": _blob_view(layout) if layout else None,
        "backends_used": bool(backends),
        "has_drivers": bool(backends.keys() - called_by_text(program)),
        "dma_alignments": dma_alignments(backends),
        "aligned_tensors": {
            alignment: [name for name, each in alignments.items() if each == alignment]
            for alignment in sorted(set(alignments.values()))
        },
        "index_checks": _index_checks(program),
        "has_index_checks": program.index_checks,
        "cpu": _cpu_view(program),
        "most_parts": program.parts,
        "index_out_of_range": INDEX_OUT_OF_RANGE,
        "own_statuses": own_statuses(program, backends),
        "least_status": LEAST,
        "most_status": MOST,
        "checks_scratch": checks_scratch(program),
        "scratch_too_small": SCRATCH_TOO_SMALL_STATUS,
        "scratch_too_small_macro": SCRATCH_TOO_SMALL,
    }


def _large_object(program: Program, plan: MemoryPlan, layout: WeightsLayout | None) -> int:
    """Return the size of the largest tensor or pool if it exceeds 32 bits, else 0."""
    kept_apart = {Role.INPUT, Role.OUTPUT, Role.CONSTANT}
    sizes = [t.size for t in program.tensors.values() if t.role in kept_apart]
    sizes += [pool.size for pool in plan.supplied] + ([layout.size] if layout else [])
    largest = max(sizes, default=0)
    return largest if largest > MOST_OF_32_BITS else 0


def _cpu_view(program: Program) -> dict[str, str] | None:
    """Return the description of the CPU for the C; None for any CPU."""
    cpu = program.cpu
    if cpu is None:
        return None
    missing = " || ".join(f"!defined({macro})" for macro in cpu.macros) or "0"
    vectors = ", with vectors of gcc and clang" if cpu.has_vectors else ""
    flags = " ".join(cpu.flags)
    return {"name": cpu.name, "is_missing": missing, "flags": flags, "vectors": vectors}


def _index_checks(program: Program) -> list[dict[str, Any]]:
    """Return numbers and status names of the layers that check indices."""
    return [
        {"layer": number, "text": f"layer {number}, {_title(call)}: an index is out of range"}
        for number, call in enumerate(program.calls)
        if call.kernel and program.kernels[call.kernel].checks_indices
    ]


def _title(call: KernelCall) -> str:
    return f"{call.label} ({' + '.join(call.operators)})" if call.operators else call.label


def _pool_view(prefix: str, plan: PoolPlan) -> dict[str, Any]:
    return {
        "name": plan.pool.name,
        "macro": f"{prefix}_{plan.pool.name}".upper(),
        "size": plan.size,
        "alignment": plan.pool.alignment,
    }


def _blob_view(layout: WeightsLayout) -> dict[str, Any]:
    return {
        "magic": MAGIC.decode(),
        "magic_bytes": list(MAGIC),
        "version": VERSION,
        "header_size": HEADER_SIZE,
        "alignment": CONSTANT_ALIGNMENT,
        "data_size": layout.size,
    }
