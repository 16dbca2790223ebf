# SPDX-License-Identifier: Apache-2.0
"""`metadata.json` of an exported library: keys of TVM's Model Library Format and of umakit.

The keys under `modules` follow TVM's Model Library Format 7
(`python/tvm/micro/model_library_format.py` of TVM 0.18), without the date of the export.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from umakit.codegen.driver_names import is_simulated
from umakit.codegen.interface_comments import interface_alignments
from umakit.codegen.model_source import GeneratedCode
from umakit.codegen.statuses import own_statuses
from umakit.codegen.template_values import interface_prefix
from umakit.files.npz import npz_bytes
from umakit.library.cpu_sections import KEYS
from umakit.library.schema import MODEL_LIBRARY_FORMAT_VERSION
from umakit.lower.executed import executed_operations
from umakit.machine.planner import prediction_of
from umakit.memory.plan import MemoryPlan, PlannedProgram, PoolPlan
from umakit.memory.scratch_limit import alive_bytes, scratch_bytes
from umakit.partition.report import CPU, OffloadReport
from umakit.program.descriptions import tiles_of
from umakit.program.live_sets import Lifetime, live_set_bound
from umakit.program.program import KernelCall, Program, Role, Tensor, tensor_lifetimes
from umakit.registration.backend import Backend
from umakit.text.identities import LayerIdentity, NamedLayer, layer_identities
from umakit.version import __version__

CPU_DEVICE_TYPE = 1
"""`kDLCPU`."""


def describe(
    network: PlannedProgram, backends: Mapping[str, Backend], code: GeneratedCode
) -> dict[str, Any]:
    program, plan, report = network.program, network.memory, network.report
    cpu = {} if program.cpu is None else {"cpu": program.cpu.model_dump(mode="json")}
    alignments = interface_alignments(program, backends)
    bases = {each.backend: each.base for each in own_statuses(program, backends)}
    return {
        "version": MODEL_LIBRARY_FORMAT_VERSION,
        "modules": {program.name: _module(program, plan, backends, code)},
        "umakit": {
            "version": __version__,
            "name": program.name,
            "interface": interface_prefix(program.name),
            "model_sha256": program.fingerprint or _content_hash(program, code),
            "weights": "blob" if code.weights is not None else "c",
            "inputs": [_tensor(program.tensors[name], alignments) for name in program.inputs],
            "outputs": [_tensor(program.tensors[name], alignments) for name in program.outputs],
            "backends": [
                backend_view(backend, bases.get(name)) for name, backend in sorted(backends.items())
            ],
            "memory": _memory(program, plan),
            "tilings": _tilings(program),
            "layers": _layers(program, plan, report, backends, code),
            "operators": report.as_json(),
            "notices": list(program.notices),
            "unused_backends": [each.as_json() for each in report.unused],
            "index_checks": program.index_checks,
            **({"most_parts": program.parts} if program.parts else {}),
            **cpu,
            **_choices(program),
        },
    }


def _tilings(program: Program) -> dict[str, int] | None:
    """Return the number of all cut layers and of tuned layers; None without given tilings."""
    given = [planned for planned in program.planned.values() if planned.tilings]
    if not given:
        return None
    return {
        "layers": sum(len(planned.layers) for planned in given),
        "tuned": sum(len(planned.tuned) for planned in given),
    }


def _choices(program: Program) -> dict[str, dict[str, int]]:
    """Return the number of kernels on the CPU with a tuned choice; empty without given choices."""
    choices = program.choices
    if not choices.given:
        return {}
    return {"choices": {"kernels": len(choices.made), "tuned": len(choices.tuned)}}


def constants_size(program: Program) -> int:
    return sum(array.nbytes for array in program.constants.values())


def backend_view(backend: Backend, status_base: int | None = None) -> dict[str, Any]:
    """Return the metadata of an accelerator; `status_base` is added to its statuses, if any."""
    base = {} if status_base is None else {"status_base": status_base}
    view: dict[str, Any] = {"name": backend.target_name, "simulated": is_simulated(backend), **base}
    computing, energy = _computing(backend), backend.configuration.energy
    if computing:
        view["computing"] = computing
    if energy is not None:
        view["energy"] = energy.model_dump(exclude_none=True)
    if backend.configuration.accelerator.clock_mhz is not None:
        view["clock_mhz"] = backend.configuration.accelerator.clock_mhz
    return view


def _computing(backend: Backend) -> list[str]:
    if backend.tiling is None:
        return []
    return [
        engine.name
        for engine in backend.tiling.described.machine.engines
        if any(stream.does == "compute" for stream in engine.streams)
    ]


def _content_hash(program: Program, code: GeneratedCode) -> str:
    """Return a digest that identifies a model that was not read from a file."""
    digest = hashlib.sha256(npz_bytes(program.constants))
    for path, text in sorted(code.sources.items()):
        digest.update(f"{path}\0{text}\0".encode())
    return digest.hexdigest()


def _tensor(tensor: Tensor, alignments: Mapping[str, int]) -> dict[str, Any]:
    view: dict[str, Any] = {
        "name": tensor.label,
        "c_name": tensor.name,
        "shape": list(tensor.shape),
        "dtype": tensor.dtype,
        "size_bytes": tensor.size,
    }
    if tensor.name in alignments:
        view["alignment_bytes"] = alignments[tensor.name]
    if tensor.quantization:
        view["scale"] = tensor.quantization.scale
        view["zero_point"] = tensor.quantization.zero_point
    if tensor.next_state:
        view["next_state"] = tensor.next_state
    return view


def _module(
    program: Program, plan: MemoryPlan, backends: Mapping[str, Backend], code: GeneratedCode
) -> dict[str, Any]:
    inputs = [program.tensors[name] for name in program.inputs]
    outputs = [program.tensors[name] for name in program.outputs]
    main = {
        "device": CPU_DEVICE_TYPE,
        "workspace_size_bytes": plan.arena_size,
        "constants_size_bytes": constants_size(program),
        "io_size_bytes": sum(tensor.size for tensor in inputs + outputs),
        "inputs": {t.label: {"size": t.size, "dtype": t.dtype} for t in inputs},
        "outputs": {t.label: {"size": t.size, "dtype": t.dtype} for t in outputs},
        "workspace_pools": {pool.pool.name: pool.size for pool in plan.supplied},
    }
    operators: dict[str, dict[str, Any]] = {}
    for call, function in zip(program.calls, code.functions, strict=True):
        if function:
            size = scratch_bytes(program, call)
            entry = {"device": CPU_DEVICE_TYPE, "workspace_size_bytes": size}
            operators[function] = {"function_name": function, "workspace": [entry]}
    return {
        "model_name": program.name,
        "style": "full-model",
        "executors": ["aot"],
        "target": ["c", *sorted(backends)],
        "external_dependencies": [],
        "memory": {"functions": {"main": [main], "operator_functions": list(operators.values())}},
    }


def _memory(program: Program, plan: MemoryPlan) -> dict[str, Any]:
    alive = {item.name: item for item in tensor_lifetimes(program)}
    scratch = {} if plan.scratch is None else {"scratch": asdict(plan.scratch)}
    return {
        "arena_bytes": plan.arena_size,
        "live_set_bound_bytes": plan.live_set_bound,
        "constants_bytes": constants_size(program),
        "planner": plan.planner,
        "traffic": None if program.traffic is None else asdict(program.traffic),
        "pools": [_pool(program, plan, pool, alive) for pool in plan.supplied],
        "scratchpads": [
            _pool(program, plan, pool, alive) for pool in plan.pools if pool.pool.by_offset
        ],
        **scratch,
    }


def _pool(
    program: Program, plan: MemoryPlan, pool: PoolPlan, alive: Mapping[str, Lifetime]
) -> dict[str, Any]:
    return {
        "name": pool.pool.name,
        "used_bytes": pool.size,
        "size_bytes": pool.pool.size,
        "alignment_bytes": pool.pool.alignment,
        "reachable_by": (
            None if pool.pool.reachable_by is None else sorted(pool.pool.reachable_by)
        ),
        "live_set_bound_bytes": live_set_bound([alive[name] for name in pool.offsets]),
        "tensors": [
            {
                "name": program.tensors[name].label,
                "c_name": name,
                "role": program.tensors[name].role.value,
                "offset_bytes": offset,
                "size_bytes": program.tensors[name].size,
                "first_layer": alive[name].first,
                "last_layer": alive[name].last,
                "takes_over": plan.shared.get(name),
            }
            for name, offset in pool.offsets.items()
        ],
    }


def _layers(
    program: Program,
    plan: MemoryPlan,
    report: OffloadReport,
    backends: Mapping[str, Backend],
    code: GeneratedCode,
) -> list[dict[str, Any]]:
    identities = program_identities(program, report)
    alive = alive_bytes(program, plan)
    return [
        {
            "name": call.label,
            "where": call.target,
            "macs": call.macs,
            "kernel": call.kernel,
            "function": function,
            "operators": list(call.rows),
            "inputs": [n for n in call.inputs if program.tensors[n].role is not Role.CONSTANT],
            "outputs": list(call.outputs),
            "arena_bytes": alive[step],
            "scratch_bytes": scratch_bytes(program, call),
            "constants_bytes": sum(
                program.tensors[name].size
                for name in dict.fromkeys(call.inputs)
                if program.tensors[name].role is Role.CONSTANT
            ),
            "predicted_cycles": _predicted_cycles(program, call, backends.get(call.target)),
            "identity": identities[step].as_json(),
            **_parts(program, call),
            **_cpu_prediction(program, call),
        }
        for step, (call, function) in enumerate(zip(program.calls, code.functions, strict=True))
    ]


def _parts(program: Program, call: KernelCall) -> dict[str, int]:
    """Return the number of parts of a step; empty for a step in one part."""
    parts = program.kernels[call.kernel].parts if call.kernel else None
    return {} if parts is None else {"parts": parts.count}


def program_identities(program: Program, report: OffloadReport) -> list[LayerIdentity]:
    named = (_named_layer(call, report) for call in program.calls)
    return layer_identities(named, program.sources)


def _named_layer(call: KernelCall, report: OffloadReport) -> NamedLayer:
    """Return the kind of a step, and the names of its operators in the model."""
    rows = [report.placements[row] for row in call.rows]
    if not rows:
        return NamedLayer(call.label, "unknown" if call.kernel else "copy", ())
    if all(row.changes_layout for row in rows):
        return NamedLayer(call.label, "layout change", tuple(row.name for row in rows))
    own = [row for row in rows if not row.changes_layout]
    names = tuple(name for row in own for name in dict.fromkeys((row.name, row.yields)))
    return NamedLayer(call.label, "operators", names)


def _predicted_cycles(program: Program, call: KernelCall, backend: Backend | None) -> int | None:
    """Return a layer's cycles by its backend's cost model; None without a prediction."""
    composite = program.kernels[call.kernel].composite if call.kernel else None
    tiles = tiles_of(program, composite, backend)
    if backend is None or backend.tiling is None or tiles is None:
        return None
    return prediction_of(backend.tiling, tiles).cycles


def _cpu_prediction(program: Program, call: KernelCall) -> dict[str, int | None]:
    """Return a step's cost by the costs of the CPU; empty without costs."""
    costs = None if program.cpu is None else program.cpu.costs
    if costs is None or call.target != CPU or not call.kernel:
        return {}
    found = costs.of(executed_operations(program.kernels[call.kernel]))
    return {"cpu_instructions": found.instructions, "cpu_cycles": found.cycles}


def sections_of(
    networks: Sequence[PlannedProgram],
    backends: Mapping[str, Backend],
    codes: Sequence[GeneratedCode],
) -> list[dict[str, Any]]:
    """Return the section of each CPU, in the order of the compiler's choice."""
    sections = []
    for each, code in zip(networks, codes, strict=True):
        described = describe(each, backends, code)["umakit"]
        sections.append(
            {
                "cpu": each.of_several.cpu.model_dump(mode="json"),
                "suffix": each.of_several.suffix,
                **{key: described[key] for key in KEYS if key in described},
            }
        )
    return sections
