# SPDX-License-Identifier: Apache-2.0
"""C text of kernels that the caller's threads compute in parts.

The kernel has one more parameter, the number of the part. Around the kernel are a structure with
the other arguments, a function for each part, called by the caller's callback, and a function that
the run function calls instead of the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from umakit.lower.kernels import Kernel
from umakit.lower.parts import Parts, scratch_step
from umakit.text.names import SIGNIFICANT, cut

PART = "part"


@dataclass(frozen=True)
class RangeOfPart:
    """The declarations of a kernel for one part.

    Attributes:
        parts: all parts.
        part, first, end: names of the part's number, its first turn and the turn after its last.
    """

    parts: Parts
    part: str
    first: str
    end: str

    @classmethod
    def of(cls, parts: Parts | None, own_name: Callable[[str], str]) -> RangeOfPart | None:
        """Return the range of a kernel; None if it has no parts."""
        if parts is None:
            return None
        return cls(parts, own_name(PART), own_name("first_turn"), own_name("end_turn"))

    @property
    def parameter(self) -> str:
        """The declaration of the part's number."""
        return f"int32_t {self.part}"

    @property
    def lines(self) -> list[str]:
        """Declarations of the range."""
        size, more = divmod(self.parts.turns - self.parts.together + 1, self.parts.count)
        part, last = self.part, self.parts.count - 1
        start = part if size == 1 else f"{part} * {size}"
        end = [self.first, str(size)]
        if more:
            start += f" + ({part} < {more} ? {part} : {more})"
            end.append(f"({part} < {more} ? 1 : 0)")
        if self.parts.together > 1:
            end.append(f"({part} == {last} ? {self.parts.together - 1} : 0)")
        return [
            f"const int32_t {self.first} = {start};",
            f"const int32_t {self.end} = {' + '.join(end)};",
        ]


@dataclass(frozen=True)
class PrintedParts:
    """The functions around a kernel in parts.

    Attributes:
        count: the number of parts.
        steps: distance between the scratch arrays of parts, in elements, by scratch parameter.
    """

    count: int
    steps: tuple[int, ...]

    @classmethod
    def of(cls, kernel: Kernel, parts: Parts) -> PrintedParts:
        steps = (scratch_step(each.elements, each.dtype) for each in kernel.scratch)
        return cls(parts.count, tuple(steps))

    def functions(self, name: str, prefix: str, parameters: Sequence[str]) -> str:
        """Return the C text after the kernel's definition.

        Args:
            parameters: C declarations of the kernel's parameters, the part's number last.
        """
        pointers = [each.replace("restrict ", "") for each in parameters[:-1]]
        names = [each.rsplit("*", 1)[1] for each in pointers]
        steps = dict(zip(names[len(names) - len(self.steps) :], self.steps, strict=True))
        given = [
            f"given->{each}" + (f" + (size_t){PART} * {steps[each]}u" if each in steps else "")
            for each in names
        ]
        structure, body = (_name(name, ending) for ending in ("_arguments", "_part"))
        fields = "".join(f"    {each};\n" for each in pointers)
        arguments = ",\n        ".join([*given, PART])
        stored = "".join(f"    given.{each} = {each};\n" for each in names)
        declared = "".join(f",\n    {each}" for each in pointers)
        return (
            f"\nstruct {structure} {{\n{fields}}};\n\n"
            f"static void {body}(void *argument, int32_t {PART})\n{{\n"
            f"    const struct {structure} *given =\n"
            f"        (const struct {structure} *)argument;\n\n"
            f"    {name}(\n        {arguments});\n}}\n\n"
            f"static int32_t {parts_function(name)}(\n"
            f"    const struct {prefix}_parallel *parallel{declared})\n{{\n"
            f"    struct {structure} given;\n\n{stored}"
            f"    return run_parts(parallel, {body}, &given, {self.count});\n}}\n"
        )


def parts_function(name: str) -> str:
    """Return the name of the function that computes all parts of a kernel."""
    return _name(name, "_parts")


def _name(name: str, ending: str) -> str:
    """Return a name with an ending, within the characters that C99 distinguishes."""
    return cut(f"{name}{ending}", f"{name}{ending}", SIGNIFICANT)
