# SPDX-License-Identifier: Apache-2.0
"""The C files of one model: kernels, the run functions, constants and the public header."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from umakit.codegen import constants
from umakit.codegen.c_types import c_type
from umakit.codegen.constants import WeightsLayout, code_identity, weights_blob
from umakit.codegen.driver_names import exported_includes, is_simulated, library_headers
from umakit.codegen.helpers import helper_definition, helper_order
from umakit.codegen.interface_comments import (
    constants_of_backends,
    dma_constants,
    failure_comment,
    kernel_comment,
)
from umakit.codegen.kernel_source import KernelSource
from umakit.codegen.listing import constant_comment, table_of_layers, terms, uses_of_constants
from umakit.codegen.locks import lock_files, locked_backends, locks_view
from umakit.codegen.part_source import parts_function
from umakit.codegen.shared_kernels import KernelUse, kernel_name, kernel_use, print_kernels
from umakit.codegen.template_values import chosen_macro, common_values, interface_prefix
from umakit.cpu.several import CpuChoice
from umakit.memory.plan import MemoryPlan
from umakit.partition.report import CPU
from umakit.program.descriptions import KernelDescription, describe
from umakit.program.program import KernelCall, Program, Role, Tensor
from umakit.program.symbols import PLACE
from umakit.registration.backend import Backend
from umakit.registration.code import included_text
from umakit.text.names import INTERFACE_NAMES, MEMORY_HEADER, unique
from umakit.text.rendering import Code, render


@dataclass(frozen=True)
class KernelSymbol:
    """A kernel's C function."""

    name: str
    source: KernelSource


def _is_own(header: str) -> bool:
    """Whether a header is exported with the library."""
    return header.startswith("umakit/")


@dataclass(frozen=True)
class GeneratedCode:
    """The generated C code of a model.

    Attributes:
        sources: text by path relative to `codegen/host`.
        functions: name of the C function of each call, in order; empty for a copy.
        weights: content of the weights blob; None for constants in C.
        locked: accelerators that a run locks.
    """

    sources: dict[str, str]
    functions: tuple[str, ...]
    weights: bytes | None
    locked: tuple[str, ...] = ()


def generate_code(
    program: Program,
    plan: MemoryPlan,
    backends: Mapping[str, Backend],
    layout: WeightsLayout | None = None,
    choice: CpuChoice | None = None,
) -> GeneratedCode:
    """Print a program as C.

    Args:
        layout: layout of a weights blob; None puts constants into C.
        choice: the CPU of these files in an export for several CPUs: the files get its name, and
            the preprocessor chooses it. None in an export for one CPU.
    """
    locked = locked_backends(program, backends)
    values = {**common_values(program, plan, layout, backends), "locks": locks_view(locked)}
    prefix = str(values["prefix"])
    if choice is not None:
        values |= {"stem": f"{prefix}_{choice.suffix}", "guard": chosen_macro(prefix, choice)}
    text, functions, code = _model_file(program, plan, backends, layout, values)
    sources = {
        f"include/{prefix}.h": render(
            "library/model.h.j2", **values, failure_comment=failure_comment(values, backends)
        ),
        f"src/{values['stem']}.c": text,
        f"src/{prefix}_workspace.c": render("library/static_workspace.c.j2", **values),
        **lock_files(locked),
    }
    if layout is None:
        sources |= _constant_files(program, values, backends)
        return GeneratedCode(sources, functions, None, locked)
    identity = code_identity(layout, code)
    sources[f"src/{prefix}_weights.c"] = render(
        "library/weights.c.j2",
        **{**values, "blob": {**values["blob"], "identity": list(identity)}},
    )
    return GeneratedCode(sources, functions, weights_blob(program, layout, identity), locked)


def _model_file(
    program: Program,
    plan: MemoryPlan,
    backends: Mapping[str, Backend],
    layout: WeightsLayout | None,
    values: Mapping[str, Any],
) -> tuple[str, tuple[str, ...], list[str]]:
    """Print the kernels and steps of a program; `values` are those of `common_values`.

    Returns:
        The C file, the functions of `GeneratedCode`, and the parts of the file that decide how
        constants are read.
    """
    prefix = str(values["prefix"])
    definitions, symbols = _print_kernels(program, plan, backends, layout is None)
    comments = _kernel_comments(program, plan, backends, symbols)
    definitions = _with_parts(definitions, symbols, prefix)
    helpers = {name for symbol in symbols.values() for name in symbol.source.helpers}
    headers = {name for symbol in symbols.values() for name in symbol.source.headers}
    functions = tuple(symbols[kernel_use(c, plan)].name if c.kernel else "" for c in program.calls)
    printer = _StepPrinter(program, plan, layout, symbols)
    steps = [printer.step(call) for call in program.calls]
    _add_completions(steps, program)
    if not all(call.kernel for call in program.calls):
        headers.add(MEMORY_HEADER)
    pointers = [t["name"] for t in (*values["inputs"], *values["outputs"])]
    pointers += [pool["name"] for pool in values["pools"] if pool["size"]]
    text = render(
        "library/model.c.j2",
        **values,
        headers=sorted(each for each in {"stddef.h", *headers} if not _is_own(each)),
        own_headers=sorted(filter(_is_own, headers)),
        includes=_includes(backends),
        helpers=[helper_definition(helper) for helper in sorted(helpers, key=helper_order)],
        kernels=[
            {"comment": comment, "definition": definition}
            for comment, definition in zip(comments, definitions, strict=True)
        ],
        steps=steps,
        places=printer.places,
        layers=table_of_layers(program, functions, prefix),
        terms=terms(functions, *_memories(printer.places, plan)),
        pointers=pointers + (["weights"] if layout else []),
        uses_status=any(step["checked"] for step in steps),
        has_parts=any(symbol.source.parts for symbol in symbols.values()),
        has_device_status=any(is_simulated(backend) for backend in backends.values()),
    )
    return text, functions, [*definitions, *(step["call"] for step in steps)]


def _memories(places: Iterable[str], plan: MemoryPlan) -> tuple[list[str], list[str]]:
    """Return the names of memories that the caller supplies, and of scratchpads."""
    scratchpads = {each.pool.name for each in plan.pools if each.pool.by_offset}
    supplied = [name for name in places if name not in scratchpads]
    return supplied, [name for name in places if name in scratchpads]


def _add_completions(steps: Sequence[dict[str, Any]], program: Program) -> None:
    """Add to the template values the steps that return early, and the steps after which they
    complete."""
    for step in steps:
        step |= {"completed_by": "", "completions": []}
    for number, call in enumerate(program.calls):
        if call.completion is not None:
            function = call.completion.node.function
            steps[number]["completed_by"] = function
            steps[number + call.completion.after]["completions"].append(function)


def _constant_files(
    program: Program, values: Mapping[str, Any], backends: Mapping[str, Backend]
) -> dict[str, str]:
    prefix, stem = str(values["prefix"]), str(values["stem"])
    uses = uses_of_constants(program)
    arrays = {f"{prefix}_{name}": array for name, array in program.constants.items()}
    comments = [constant_comment(program.tensors[name], uses[name]) for name in program.constants]
    aligned = dma_constants(program, backends)
    sections = {
        name: f"{values['prefix_upper']}_{target.upper()}"
        for target, names in constants_of_backends(program, backends).items()
        for name in names
    }
    floats = [a for a in arrays.values() if a.dtype.kind == "f" and not constants.is_large(a)]
    return {
        f"src/{stem}_constants.h": render(
            "library/constants.h.j2",
            **values,
            declarations=[constants.declaration(name, array) for name, array in arrays.items()],
        ),
        f"src/{stem}_constants.c": render(
            "library/constants.c.j2",
            **values,
            definitions=[
                (
                    text,
                    Code(constants.definition(f"{prefix}_{name}", array)),
                    aligned.get(name),
                    sections.get(name, values["prefix_upper"]),
                )
                for text, (name, array) in zip(comments, program.constants.items(), strict=True)
            ],
            sections=dict.fromkeys(sections.values()),
            has_aligned=bool(aligned),
            has_infinities=not all(np.isfinite(array).all() for array in floats),
            little_endian_only=any(constants.is_large(array) for array in arrays.values()),
        ),
    }


def _includes(backends: Mapping[str, Backend]) -> list[str]:
    found = []
    for _, backend in sorted(backends.items()):
        found += [f'#include "{path}"' for path in library_headers(backend)]
        if backend.codegen.includes is not None:
            text = included_text(backend, backend.codegen.includes)
            found.append(exported_includes(backend, text).rstrip("\n"))
    return found


def _print_kernels(
    program: Program, plan: MemoryPlan, backends: Mapping[str, Backend], constants_are_known: bool
) -> tuple[list[str], dict[KernelUse, KernelSymbol]]:
    """Print all kernels in order of use; kernels of equal text share one C function."""
    prefix = interface_prefix(program.name)
    taken = {*INTERFACE_NAMES, *(name.lower() for name in program.constants)}
    definitions: list[str] = []
    symbols: dict[KernelUse, KernelSymbol] = {}
    users: dict[KernelUse, list[int]] = {}
    for step, call in enumerate(program.calls):
        if call.kernel:
            users.setdefault(kernel_use(call, plan), []).append(step)
    for source, uses in print_kernels(program, plan, backends, constants_are_known):
        calls = [program.calls[step] for step in sorted(s for use in uses for s in users[use])]
        name = unique(f"{kernel_name(program, calls)}_kernel", taken)
        symbol = KernelSymbol(f"{prefix}_{name}", source)
        definitions.append(source.definition(symbol.name))
        symbols |= dict.fromkeys(uses, symbol)
    return definitions, symbols


def _with_parts(
    definitions: Sequence[str], symbols: Mapping[KernelUse, KernelSymbol], prefix: str
) -> list[str]:
    """Return the definitions of kernels, with the functions that compute their parts."""
    sources = {symbol.name: symbol.source for symbol in symbols.values()}
    return [
        text
        if source.parts is None
        else text + source.parts.functions(name, prefix, source.parameters)
        for text, (name, source) in zip(definitions, sources.items(), strict=True)
    ]


def _kernel_comments(
    program: Program,
    plan: MemoryPlan,
    backends: Mapping[str, Backend],
    symbols: Mapping[KernelUse, KernelSymbol],
) -> list[str]:
    """Return the comment in front of each kernel, in the order of the definitions."""
    layers: dict[str, list[tuple[KernelDescription, int | None]]] = {}
    sources = {symbol.name: symbol.source for symbol in symbols.values()}
    for call, description in zip(program.calls, describe(program, backends), strict=True):
        if description is not None:
            use = kernel_use(call, plan)
            layers.setdefault(symbols[use].name, []).append((description, use.overwritten))
    return [kernel_comment(sources[name], layers[name]) for name in sources]


class _StepPrinter:
    """Prints the calls of the run function.

    Attributes:
        places: macros of offsets in calls, with value and comment, by memory: a pool or the blob of
            `weights`.
    """

    def __init__(
        self,
        program: Program,
        plan: MemoryPlan,
        layout: WeightsLayout | None,
        symbols: Mapping[KernelUse, KernelSymbol],
    ) -> None:
        self._program = program
        self._plan = plan
        self._layout = layout
        self._symbols = symbols
        self._uses = uses_of_constants(program)
        self.places: dict[str, dict[str, tuple[int, str]]] = {}

    def step(self, call: KernelCall) -> dict[str, Any]:
        comment = f"{call.label} ({call.target})"
        if not call.kernel:
            target, source = (self._argument(name) for name in (*call.outputs, *call.inputs))
            size = self._program.tensors[call.outputs[0]].size
            copy = f"memcpy({target}, {source}, {size})"
            return {"call": copy, "checked": False, "indexed": False, "comment": comment}
        use = kernel_use(call, self._plan)
        names = [name for number, name in enumerate(call.arguments) if number != use.overwritten]
        arguments = ",\n        ".join(self._argument(name) for name in names)
        symbol = self._symbols[use]
        function, parts = symbol.name, symbol.source.parts
        if parts is not None:
            function, arguments = parts_function(function), f"parallel,\n        {arguments}"
        return {
            "call": f"{function}(\n        {arguments})",
            "checked": symbol.source.returns_status or parts is not None,
            "indexed": self._program.kernels[call.kernel].checks_indices,
            "on_cpu": call.target == CPU,
            "comment": comment,
        }

    def _argument(self, name: str) -> str:
        tensor = self._program.tensors[name]
        if tensor.role is Role.CONSTANT:
            return self._constant(tensor)
        home = self._plan.pool_of(name)
        if home is None:
            return name
        place = self._place(home.pool.name, name, home.offsets[name])
        if home.pool.by_offset:
            return place
        # Through void: pools are aligned for every type, but a cast cannot tell the compiler.
        return f"({c_type(tensor.dtype)} *)(void *)((uint8_t *){home.pool.name} + {place})"

    def _place(self, memory: str, name: str, offset: int, text: str = "") -> str:
        """Return the name of the macro with a tensor's offset."""
        macro = f"{name}{PLACE}".upper()
        self.places.setdefault(memory, {})[macro] = (offset, text)
        return macro

    def _constant(self, tensor: Tensor) -> str:
        if self._layout is None:
            symbol = f"{interface_prefix(self._program.name)}_{tensor.name}"
            return constants.reference(symbol, self._program.constants[tensor.name])
        text = constant_comment(tensor, self._uses[tensor.name])
        place = self._place("weights", tensor.name, self._layout.offsets[tensor.name], text)
        start = f"(const uint8_t *)weights + {place}"
        return f"(const {c_type(tensor.dtype)} *)(const void *)({start})"
