# SPDX-License-Identifier: Apache-2.0
"""The C files of one model: kernels, the run functions, constants and the public header."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from umakit.backend import UMABackend
from umakit.codegen import constants
from umakit.codegen.c_types import c_type
from umakit.codegen.driver_names import exported_includes
from umakit.codegen.expressions import helper_definition
from umakit.codegen.kernel_source import KernelSource, print_kernel
from umakit.memory import MemoryPlan, taken_over
from umakit.program import KernelCall, Program, Role, Tensor
from umakit.rendering import render
from umakit.version import __version__


@dataclass(frozen=True)
class KernelUse:
    """A kernel and the input that its output overwrites, if any: one C function each."""

    kernel: str
    overwritten: int | None


@dataclass(frozen=True)
class KernelSymbol:
    """A kernel's C function."""

    name: str
    source: KernelSource


def interface_prefix(name: str) -> str:
    """`tvmgen_NAME`, what every symbol of a model starts with."""
    return f"tvmgen_{name}"


def tensor_view(tensor: Tensor) -> dict[str, Any]:
    """What templates need to know about a tensor."""
    return {
        "name": tensor.name,
        "label": tensor.label,
        "c_type": c_type(tensor.dtype),
        "dtype": tensor.dtype,
        "shape": tensor.shape,
        "size": tensor.size,
        "count": tensor.elements,
        "elements": max(1, tensor.elements),
    }


def common_values(program: Program, plan: MemoryPlan) -> dict[str, Any]:
    """Template values that all files of a model share."""
    prefix = interface_prefix(program.name)
    return {
        "umakit_version": __version__,
        "name": program.name,
        "prefix": prefix,
        "prefix_upper": prefix.upper(),
        "inputs": [tensor_view(program.tensors[name]) for name in program.inputs],
        "outputs": [tensor_view(program.tensors[name]) for name in program.outputs],
        "workspace_size": plan.arena_size,
        "alignment": plan.alignment,
    }


def generate_sources(
    program: Program, plan: MemoryPlan, backends: Mapping[str, UMABackend]
) -> dict[str, str]:
    """Print a program.

    Args:
        program: the straight-line program.
        plan: its memory plan.
        backends: by target name, those that the program's kernels run on.

    Returns:
        Text by path relative to `codegen/host`.

    Raises:
        LoweringError: a kernel holds a construct without a C form.
    """
    values = common_values(program, plan)
    prefix = str(values["prefix"])
    definitions, symbols, helpers = _print_kernels(program, plan, backends)
    steps = [_step(call, program, plan, symbols) for call in program.calls]
    model = render(
        "library/model.c.j2",
        **values,
        includes=_includes(backends),
        helpers=[helper_definition(helper) for helper in sorted(helpers)],
        kernels=definitions,
        steps=steps,
        uses_arena=any(name in plan.offsets for c in program.calls for name in c.arguments),
        uses_status=any(step["checked"] for step in steps),
        has_device_status=any(is_simulated(backend) for backend in backends.values()),
    )
    arrays = {f"{prefix}_{name}": array for name, array in sorted(program.constants.items())}
    return {
        f"include/{prefix}.h": render("library/model.h.j2", **values),
        f"src/{prefix}.c": model,
        f"src/{prefix}_workspace.c": render("library/static_workspace.c.j2", **values),
        f"src/{prefix}_constants.h": render(
            "library/constants.h.j2",
            **values,
            declarations=[constants.declaration(name, array) for name, array in arrays.items()],
        ),
        f"src/{prefix}_constants.c": render(
            "library/constants.c.j2",
            **values,
            definitions=[constants.definition(name, array) for name, array in arrays.items()],
            little_endian_only=any(constants.is_large(array) for array in arrays.values()),
        ),
    }


def kernel_functions(
    program: Program, plan: MemoryPlan, backends: Mapping[str, UMABackend]
) -> list[str]:
    """The C function of each call of a program; empty for a plain copy."""
    _, symbols, _ = _print_kernels(program, plan, backends)
    return [symbols[_use(call, plan)].name if call.kernel else "" for call in program.calls]


def is_simulated(backend: UMABackend) -> bool:
    """Whether umakit's simulator answers for a backend on the host."""
    return backend.configuration.device.simulator != "none"


def _includes(backends: Mapping[str, UMABackend]) -> list[str]:
    return [
        exported_includes(backend, backend.codegen.includes()).rstrip("\n")
        for _, backend in sorted(backends.items())
        if backend.codegen.includes is not None
    ]


def _print_kernels(
    program: Program, plan: MemoryPlan, backends: Mapping[str, UMABackend]
) -> tuple[list[str], dict[KernelUse, KernelSymbol], set[str]]:
    """C functions of all kernels, as they are used; those of equal text share one function."""
    prefix = interface_prefix(program.name)
    definitions: list[str] = []
    shared: dict[object, KernelSymbol] = {}
    symbols: dict[KernelUse, KernelSymbol] = {}
    helpers: set[str] = set()
    for use in dict.fromkeys(_use(call, plan) for call in program.calls if call.kernel):
        kernel = program.kernels[use.kernel]
        backend = backends.get(kernel.target)
        hook = backend.codegen.replace_call_extern if backend else None
        source = print_kernel(kernel, hook, use.overwritten)
        key = (source.parameters, source.body)
        if key not in shared:
            suffix = "" if use.overwritten is None else "_in_place"
            symbol = KernelSymbol(f"{prefix}_{use.kernel}{suffix}", source)
            shared[key] = symbol
            definitions.append(source.definition(symbol.name))
            helpers |= source.helpers
        symbols[use] = shared[key]
    return definitions, symbols, helpers


def _use(call: KernelCall, plan: MemoryPlan) -> KernelUse:
    return KernelUse(call.kernel, taken_over(call, plan.shared))


def _step(
    call: KernelCall,
    program: Program,
    plan: MemoryPlan,
    symbols: dict[KernelUse, KernelSymbol],
) -> dict[str, Any]:
    comment = comment_text(f"{call.label} ({call.target})")
    if not call.kernel:
        target, source = (_argument(n, program, plan) for n in (*call.outputs, *call.inputs))
        size = program.tensors[call.outputs[0]].size
        return {"call": f"memcpy({target}, {source}, {size})", "checked": False, "comment": comment}
    use = _use(call, plan)
    names = [name for number, name in enumerate(call.arguments) if number != use.overwritten]
    arguments = ",\n        ".join(_argument(name, program, plan) for name in names)
    symbol = symbols[use]
    return {
        "call": f"{symbol.name}(\n        {arguments})",
        "checked": symbol.source.returns_status,
        "comment": comment,
    }


def comment_text(text: str) -> str:
    """Text that can stand in a C comment: one line, no comment marks of its own."""
    printable = "".join(c if c.isprintable() else "?" for c in text)
    return printable.replace("*/", "* /").replace("/*", "/ *").replace("\\", "/")


def _argument(name: str, program: Program, plan: MemoryPlan) -> str:
    tensor = program.tensors[name]
    if tensor.role is Role.CONSTANT:
        array = program.constants[name]
        return constants.reference(f"{interface_prefix(program.name)}_{name}", array)
    if tensor.role in (Role.INPUT, Role.OUTPUT):
        return name
    offset = plan.offsets[name]
    # Through void: the arena is aligned for every type, which a cast cannot tell the compiler.
    return f"({c_type(tensor.dtype)} *)(void *)(arena + {offset})"
