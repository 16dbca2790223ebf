# SPDX-License-Identifier: Apache-2.0
"""Comments of a generated model that list its layers, constants and tensors."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from umakit.lower import Kernel
from umakit.program.program import KernelCall, Program, Role, Tensor
from umakit.text.escaping import c_comment, shortened, shortened_apart

WIDTH = 100
BREAK = re.compile(r"(?<=[,;=]) (?=\S)| (?=[-+*/%?:<>&|]{1,2} )")
"""Possible breaks: after a comma, a semicolon or an assignment, and before an operator."""

EARLY = 0.4
"""Fraction of the available width in which breaks are a last resort."""


def wrapped(line: str) -> str:
    """Break a line of C without comments into lines that fit."""
    if len(line) <= WIDTH or '"' in line or "\n" in line:
        return line
    indent = len(line) - len(line.lstrip())
    # Lines after a condition are indented once, so its own lines are indented further.
    indentation = " " * (indent + (8 if line.endswith("{") else 4))
    lines = []
    _, assignment, value = line.partition(" = ")
    if assignment and len(indentation) + len(value) <= WIDTH and not line.endswith("{"):
        return line[: -len(value) - 1] + f"\n{indentation}{value}"
    while len(line) > WIDTH:
        place = _best_break(line, len(line) - len(line.lstrip()))
        if place is None:
            break
        lines.append(line[:place])
        line = indentation + line[place:].lstrip()
    return "\n".join([*lines, line])


def wrapped_call(start: str, arguments: Sequence[str], end: str = ");") -> str:
    """Return a call of a C function, with as many whole arguments in a line as fit.

    Args:
        start: indented text up to the opening parenthesis.
        end: text after the last argument.
    """
    pieces = [f"{argument}," for argument in arguments[:-1]]
    pieces.append(f"{arguments[-1] if arguments else ''}{end}")
    indentation = " " * (len(start) - len(start.lstrip()) + 4)
    lines = [start + pieces[0]]
    for piece in pieces[1:]:
        if len(lines[-1]) + 1 + len(piece) <= WIDTH:
            lines[-1] += f" {piece}"
        else:
            lines.append(indentation + piece)
    return "\n".join(wrapped(line) for line in lines)


def _best_break(line: str, indent: int) -> int | None:
    """Return the end of the first part: at the least nesting, preferably at sums instead of
    products, and as late as possible."""
    depths, depth = [], 0
    for character in line:
        depth += (character in "([") - (character in ")]")
        depths.append(depth)
    places = [found.start() for found in BREAK.finditer(line, indent) if found.start() <= WIDTH]
    late = [place for place in places if place > indent + EARLY * (WIDTH - indent)]

    def cost(place: int) -> tuple[int, bool, int]:
        return depths[place], line[place + 1] in "*/%", -place

    return min(late or places, key=cost, default=None)


LONGEST_CELL = 32
"""Maximum length of a name in the table of layers; the comment of each step has the whole name."""


@dataclass(frozen=True)
class Use:
    """A constant as a parameter of a layer.

    Attributes:
        part: name of the parameter, for example `weights`.
        kernel: the layer's kernel; None for a copy.
        operators: names of the layer's operators in Relax.
        layout: axes of the weights of a float layer, for example `OIHW`.
    """

    label: str
    part: str
    kernel: Kernel | None
    operators: tuple[str, ...] = ()
    layout: str = ""


def uses_of_constants(program: Program) -> dict[str, list[Use]]:
    """Return the uses of each constant, by name, in order of execution."""
    uses: dict[str, list[Use]] = {name: [] for name in program.constants}
    for call in program.calls:
        kernel = program.kernels.get(call.kernel)
        for number, name in enumerate(call.inputs):
            if name in uses:
                keeps = kernel is not None and kernel.keeps_names
                part = kernel.inputs[number].own_name if kernel is not None and keeps else ""
                layout = str(call.attributes.get("weights_layout", ""))
                uses[name].append(Use(call.label, part, kernel, call.operators, layout))
    return uses


def constant_comment(tensor: Tensor, uses: Sequence[Use]) -> str:
    """Return a C comment about a constant: its role in layers, type, layout and size."""
    shape = ", ".join(map(str, tensor.shape))
    facts = [f"{c_comment(tensor.label)}: {tensor.dtype}[{shape}]", *_facts(tensor, uses)]
    facts.append(f"{tensor.size:,} bytes")
    text = ", ".join(facts)
    others = [_also(tensor, use) for use in uses[1:]]
    if others:
        text += f"; also {', '.join(dict.fromkeys(others))}"
    return comment(text)


def _also(tensor: Tensor, use: Use) -> str:
    same = not use.part or tensor.label.startswith(f"{use.part} of ")
    return c_comment(use.label if same else f"{use.part} of {use.label}")


def _facts(tensor: Tensor, uses: Iterable[Use]) -> list[str]:
    """Return the layout of weights, and the number of channels per scale."""
    use = next(iter(uses), None)
    if use is None or use.kernel is None:
        return []
    if use.part == "weights" and use.kernel.weights_layout:
        return [f"layout {use.kernel.weights_layout}"]
    of_float = not use.part and tensor.label.startswith("weights of ")
    if of_float and len(tensor.shape) == len(use.layout):
        return [f"layout {use.layout}"]
    if of_float and "matmul" in use.operators and len(tensor.shape) == 2:
        return ["layout IO"]
    if use.part in ("multipliers", "shifts"):
        return ["one for all channels" if tensor.elements == 1 else "one for each output channel"]
    if use.part == "bias" and use.kernel.bias_has_zero_point:
        return ["with -zero point of the data x sum of the weights folded in"]
    if use.part == "table" and use.operators == ("quantized.softmax",):
        return ["table[d] = exp(-d * scale of the data) in 1/2^31"]
    return []


def comment(text: str) -> str:
    """Return a C comment of short lines, as far as words allow; names in the text are escaped."""
    lines = textwrap.wrap(text, WIDTH - 6, break_long_words=False, break_on_hyphens=False)
    return f"/* {(chr(10) + ' * ').join(lines)} */"


def table_of_layers(program: Program, functions: Sequence[str], prefix: str) -> list[str]:
    """Return the lines of the table of layers: a head, and one line for each layer.

    Args:
        functions: name of the C function of each call; empty for a copy.
        prefix: prefix of all functions, left out in the table.
    """
    rows = [HEAD]
    labels = shortened_apart([c_comment(call.label) for call in program.calls], LONGEST_CELL)
    for number, (call, function) in enumerate(zip(program.calls, functions, strict=True)):
        operators = ", ".join(name.rpartition(".")[2] for name in call.operators)
        rows.append(
            (
                str(number),
                labels[number],
                call.target,
                shortened(c_comment(operators or "copy"), LONGEST_CELL),
                _shapes(program, call),
                function.removeprefix(f"{prefix}_") or "memcpy",
                f"{call.macs:,}",
                f"{_constants_size(program, call):,}",
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    forms = [f"{side}{width}" for side, width in zip(SIDES, widths, strict=True)]
    return ["  ".join(map(format, row, forms)).rstrip() for row in rows]


HEAD = ("no.", "layer", "target", "operators", "shapes", "function", "MACs", "constants")
SIDES = "><<<<<>>"
"""The sides of the columns on which their cells stand."""


def terms(
    functions: Sequence[str], memories: Sequence[str], scratchpads: Sequence[str]
) -> list[str]:
    """Return lines that define the terms for functions and offsets in the table and the code.

    Args:
        functions: name of the C function of each call; empty for a copy.
        memories: names of the pools and the weights blob behind the caller's pointers.
    """
    sentences = []
    named = [function for function in functions if function]
    if len(set(named)) < len(named):
        sentences.append("A function of several layers is named after operators and result.")
    offsets = []
    if memories:
        offsets.append(f"NAME_OFFSET from the start of {' or '.join(memories)}")
    if scratchpads:
        offsets.append(
            f"NAME_LOCAL_OFFSET and a parameter NAME_offset from the start of "
            f"{' or '.join(scratchpads)}, which only the accelerator reaches"
        )
    if offsets:
        sentences.append(f"Offsets of tensors are in bytes: {'; '.join(offsets)}.")
    return [line for text in sentences for line in textwrap.wrap(text, WIDTH - len(" * "))]


def _shapes(program: Program, call: KernelCall) -> str:
    """Return the shapes of operands and results, for example `1x8x8x3 -> 1x8x8x16`."""
    tensors = [tensor for tensor, _ in program.operands_of(call)]
    given = [tensor for tensor in tensors if tensor.role is not Role.CONSTANT] or tensors
    result = [tensor for tensor, _ in program.results_of(call)]
    ends = (", ".join(map(_shape, dict.fromkeys(t.shape for t in end))) for end in (given, result))
    return " -> ".join(ends)


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "1"


def _constants_size(program: Program, call: KernelCall) -> int:
    tensors = [program.tensors[name] for name in dict.fromkeys(call.inputs)]
    return sum(tensor.size for tensor in tensors if tensor.role is Role.CONSTANT)
