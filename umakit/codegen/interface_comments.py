# SPDX-License-Identifier: Apache-2.0
"""Comments of a model's public header for callers of its functions."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from umakit.codegen.driver_names import is_simulated
from umakit.codegen.kernel_source import KernelSource
from umakit.codegen.listing import WIDTH, comment
from umakit.frontend.model import Quantization, WeightsQuantization
from umakit.program.descriptions import KernelDescription, TensorDescription
from umakit.program.program import Program, Role
from umakit.registration.backend import Backend
from umakit.registration.buffer_alignment import buffer_alignment
from umakit.text.escaping import c_comment


def dma_alignments(backends: Mapping[str, Backend]) -> dict[str, int]:
    """Return the alignment in bytes of each accelerator's accesses to shared memory."""
    return {name: buffer_alignment(backend) for name, backend in sorted(backends.items())}


def interface_alignments(program: Program, backends: Mapping[str, Backend]) -> dict[str, int]:
    """Return the alignment in bytes of inputs and outputs of accelerators.

    The run function checks the alignments, so that a host refuses the same runs as a board. For a
    driver without a simulated device, only the configuration states the alignment.
    """
    found = dict.fromkeys([*program.inputs, *program.outputs], 1)
    for call in program.calls:
        backend = backends.get(call.target)
        if backend is None:
            continue
        alignment = backend.configuration.dma.alignment
        if is_simulated(backend):
            alignment = buffer_alignment(backend)
        for name in (*call.inputs, *call.outputs):
            if name in found:
                found[name] = max(found[name], alignment)
    return {name: alignment for name, alignment in found.items() if alignment > 1}


def dma_constants(program: Program, backends: Mapping[str, Backend]) -> dict[str, int]:
    """Return the alignment in bytes of each constant that an accelerator reads."""
    alignments = dma_alignments(backends)
    found: dict[str, int] = {}
    for call in program.calls:
        for name in call.inputs:
            if name in program.constants and call.target in alignments:
                found[name] = max(found.get(name, 1), alignments[call.target])
    return found


def constants_of_backends(
    program: Program, backends: Mapping[str, Backend]
) -> dict[str, list[str]]:
    """Return the constants that only one backend's layers read, by the backend's target name."""
    readers: dict[str, set[str]] = {}
    for call in program.calls:
        for name in call.inputs:
            if name in program.constants:
                readers.setdefault(name, set()).add(call.target)
    return {
        target: found
        for target in sorted(backends)
        if (found := [name for name, targets in readers.items() if targets == {target}])
    }


def failure_comment(values: Mapping[str, Any], backends: Mapping[str, Backend]) -> str:
    """Return a C comment on the state after a run with a status other than 0.

    Args:
        values: template values of the model, see `common_values`, with its `locks`.
    """
    prefix = values["prefix_upper"]
    first = [f"{prefix}_INVALID_ARGUMENT", f"{prefix}_WORKSPACE_TOO_SMALL"]
    first += [f"{prefix}_BUSY"] if values["locks"] else []
    text = f"After {', '.join(first[:-1])} or {first[-1]} nothing has been written."
    if backends or values["index_checks"]:
        kept = "inputs and weights" if values["blob"] else "inputs"
        text += (
            " After any other status than 0 the outputs and the working memory hold nothing of"
            f" use; the {kept} are unchanged. Another run may start"
            f"{', except as said next.' if any(map(is_simulated, backends.values())) else '.'}"
        )
    if any(map(is_simulated, backends.values())):
        text += (
            " Positive statuses are of enum umakit_status in umakit/status.h: the driver has told"
            " the accelerator to stop. After UMAKIT_STUCK_BUSY reset it first: it did not stop, and"
            " may still write to the memory of the run."
        )
    others = sorted(name for name, backend in backends.items() if not is_simulated(backend))
    if others:
        text += (
            f" What the driver of {' and '.join(others)} returns, and what state it then leaves the"
            " accelerator in, its header says."
        )
    return comment(text)


def kernel_comment(
    source: KernelSource, layers: Sequence[tuple[KernelDescription, int | None]]
) -> str:
    """Return the comment in front of a kernel's C function.

    Args:
        layers: descriptions of the calling steps, each with the index of the input that the output
            overwrites, if any.
    """
    names = [declaration.rsplit(" ", 1)[1] for declaration in source.parameters]
    first, overwritten = layers[0]
    tensors = _named_tensors(first, overwritten, names)
    width = max((len(name) for name, _ in tensors), default=0)
    common = dict(
        item for item in first.parameters.items()
        if all(layer.parameters.get(item[0]) == item[1] for layer, _ in layers)
    )  # fmt: skip
    lines = []
    for layer, place in layers:
        named = _named_tensors(layer, place, names)
        if place is not None:
            on_entry = [each for each in layer.inputs if each.place is None][place]
            named.insert(-1, (f"{named[-1][0]} on entry", on_entry))
        lines += _layer_lines(layer, named)
        own = [f"{n} {value}" for n, value in layer.parameters.items() if n not in common]
        lines += _filled("; ".join(own), "    ") if own else []
    lines.append("")
    for name, tensor in tensors:
        where = "" if tensor.place is None else f", in the scratchpad at {names[tensor.place]}"
        shape = ", ".join(map(str, tensor.shape))
        lines.append(f"    {name:<{width}}  {tensor.dtype}[{shape}]{where}")
    if common:
        parameters = [f"{name} {value}" for name, value in common.items()]
        lines += ["", *_filled(f"{'; '.join(parameters)}.")]
    if first.tiling:
        lines += ["", *(line for sentence in first.tiling for line in _filled(f"{sentence}."))]
    return "\n".join(["/*", *(f" * {line}".rstrip() for line in lines), " */"])


def _named_tensors(
    layer: KernelDescription, overwritten: int | None, names: Sequence[str]
) -> list[tuple[str, TensorDescription]]:
    """Return the tensors with the names of the function's parameters.

    A tensor in a scratchpad has the name of its parameter `NAME_offset`.
    """
    names_of_pointers = iter(names)
    number = 0
    named = []
    for tensor in (*layer.inputs, *layer.outputs):
        if tensor.place is not None:
            named.append((names[tensor.place].removesuffix("_offset"), tensor))
            continue
        if number != overwritten:
            named.append((next(names_of_pointers), tensor))
        number += 1
    return named


def _layer_lines(
    layer: KernelDescription, tensors: Sequence[tuple[str, TensorDescription]]
) -> list[str]:
    """Return lines on a layer: its name, and the origins of its tensors."""
    macs = f", {layer.macs:,} multiply-accumulates" if layer.macs else ""
    operators = f" ({', '.join(layer.operators)})" if layer.operators else ""
    lines = _filled(c_comment(f"Layer {layer.number}: {layer.label}{operators}{macs}"))
    for name, tensor in tensors:
        facts = [] if tensor.role is Role.CONSTANT else [c_comment(tensor.label)]
        if tensor.quantization is not None:
            facts.append(_quantization_text(tensor.quantization))
        if facts:
            lines += _filled(f"{name}: {', '.join(facts)}", "    ")
    for name, quantization in layer.inner.items():
        text = f"result of {c_comment(name)}: {_quantization_text(quantization)}, not stored"
        lines += _filled(text, "    ")
    for name, weights in layer.weights.items():
        owner = c_comment(f" of {name}") if len(layer.weights) > 1 else ""
        lines += _filled(f"weights{owner}: {_weights_text(weights)}", "    ")
    return lines


def _quantization_text(quantization: Quantization) -> str:
    return f"scale {quantization.scale:.9g}, zero point {quantization.zero_point}"


def _weights_text(weights: WeightsQuantization) -> str:
    """Return scales and zero points of weights as in the model."""
    least, greatest = (f"{scale:.9g}" for scale in weights.scales)
    scale = f"scale {least}"
    if least != greatest:
        scale = f"scales {least} .. {greatest} ({weights.count}, by output channel)"
    low, high = weights.zero_points
    zero_point = f"zero point {low}" if low == high else f"zero points {low} .. {high}"
    subtracted = " (subtracted from the constants)" if low or high else ""
    return f"{scale}, {zero_point}{subtracted}"


def _filled(text: str, indentation: str = "") -> list[str]:
    """Return lines of the comment; continuation lines are indented once more."""
    return textwrap.wrap(
        text,
        WIDTH - len(" * "),
        initial_indent=indentation,
        subsequent_indent=f"{indentation}    ",
        break_on_hyphens=False,
    )
