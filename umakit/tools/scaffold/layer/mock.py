# SPDX-License-Identifier: Apache-2.0
"""Recovery of a layer's sizes and tensors from registers, for the simulator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from umakit.errors import BackendError, RegisterMapError
from umakit.machine.registers.register_map import RegisterMap
from umakit.text.c_text import filled, read_expression
from umakit.tools.scaffold.layer.functions import CHANNELS_FIRST, WEIGHTED, DriverFunction
from umakit.tools.scaffold.layer.settings import MAP_FILE, Setting

MAY_BE_MISSING: Mapping[str, str] = {
    "batch": "1", "stride_y": "1", "stride_x": "1", "pad_top": "0", "pad_left": "0",
    "dilation_y": "1", "dilation_x": "1",
}  # fmt: skip
"""Value of an argument that no register holds; patterns accept no other layers."""

DENSE_NUMBERS: Mapping[str, int] = {
    **{name: int(text) for name, text in MAY_BE_MISSING.items()},
    "width": 1, "output_width": 1, "kernel_height": 1, "kernel_width": 1, "groups": 1,
    CHANNELS_FIRST: 0,
}  # fmt: skip
"""Arguments of a fully connected layer as a convolution of an image of one column."""

DENSE_ARGUMENTS: Mapping[str, str] = {
    "height": "rows", "output_height": "rows", "input_channels": "inputs",
    "output_channels": "outputs",
}  # fmt: skip
"""Arguments of a fully connected layer by the convolution's argument."""


@dataclass(frozen=True)
class MockJob:
    """A kind of job of the simulator.

    Attributes:
        condition: C text that distinguishes the kind from other jobs; empty if there is no other.
        numbers: C text of each argument, ordered so that a text may name earlier arguments.
        addresses: C text of each tensor's bus address.
    """

    function: DriverFunction
    condition: str
    numbers: Mapping[str, str]
    addresses: Mapping[str, str]


@dataclass(frozen=True)
class _Words:
    """C texts that read words of a job."""

    prefix: str
    in_descriptor: bool

    def word(self, name: str) -> str:
        if self.in_descriptor:
            return f"machine->words[{self.prefix}_DESCRIPTOR_{name}]"
        return f"get(machine, {self.prefix}_{name}_OFFSET)"

    def part(self, setting: Setting, signed: bool) -> str:
        word = self.word(setting.word.name)
        field = setting.field
        if field is None:
            return f"(int32_t){word}"
        function = "signed_bits" if signed else "bits"
        return f"{function}({word}, {field.lowest_bit}u, {field.width}u)"

    def address(self, setting: Setting) -> str:
        if setting.field is None:
            return self.word(setting.word.name)
        return f"(uint32_t){self.part(setting, False)}"


def mock_of(
    registers: RegisterMap,
    functions: Mapping[DriverFunction, list[Setting]],
    prefix: str,
    rounding: str,
) -> list[MockJob]:
    """Return the kinds of jobs of a simulator; `rounding` counts if no register holds one."""
    words = _Words(prefix, registers.descriptor is not None)
    groups = _groups(functions)
    found = []
    for constants, members in groups.items():
        condition = " && ".join(
            f"{words.part(setting, False)} == {setting.constant}"
            for setting in _differing(constants, groups, functions[members[0]])
        )
        found.append(_job(registers, members, functions, words, condition, rounding))
    return found


Constants = tuple[tuple[str, str], ...]


def _groups(
    functions: Mapping[DriverFunction, list[Setting]],
) -> dict[Constants, list[DriverFunction]]:
    """Return functions by their constants, for places that are constant in all functions."""
    constants = [
        {setting.place: setting.constant for setting in settings if setting.constant}
        for settings in functions.values()
    ]
    common = [place for place in constants[0] if all(place in each for each in constants)]
    groups: dict[Constants, list[DriverFunction]] = {}
    for function, each in zip(functions, constants, strict=True):
        key = tuple((place, each[place]) for place in common)
        groups.setdefault(key, []).append(function)
    return groups


def _differing(
    constants: Constants, groups: Mapping[Constants, object], settings: list[Setting]
) -> list[Setting]:
    places = [
        place
        for number, (place, _) in enumerate(constants)
        if len({each[number][1] for each in groups}) > 1
    ]
    return [each for each in settings if each.place in places]


def _job(
    registers: RegisterMap,
    members: list[DriverFunction],
    functions: Mapping[DriverFunction, list[Setting]],
    words: _Words,
    condition: str,
    rounding: str,
) -> MockJob:
    first = members[0]
    settings = functions[first]
    said = {each.argument[0]: each for each in settings if each.argument is not None}
    for other in members[1:]:
        _check_alike(first, other, settings, functions[other])
    if len({each.channels_first for each in members}) > 1 and CHANNELS_FIRST not in said:
        raise _missing(CHANNELS_FIRST, first)
    numbers: dict[str, str] = {}
    for name in [*first.numbers, *([CHANNELS_FIRST] if CHANNELS_FIRST in first.operands else [])]:
        if name not in first.unneeded and name not in registers.mock:
            numbers[name] = _number(name, first, said, words, rounding)
    for name, text in registers.mock.items():
        if name in first.numbers:
            numbers[name] = _given(name, text, numbers, registers, words)
    addresses = {}
    for name in first.pointers:
        if name not in said:
            raise _missing(name, first)
        addresses[name] = words.address(said[name])
    for name in ("groups", "scales"):  # may be computed from the others
        if name in numbers:
            numbers[name] = numbers.pop(name)
    return MockJob(first, condition, numbers, addresses)


def _number(
    name: str, function: DriverFunction, said: Mapping[str, Setting], words: _Words, rounding: str
) -> str:
    """Return C text of an argument from registers, or of its constant value."""
    if name in said:
        setting = said[name]
        assert setting.argument is not None
        _, sign, added = setting.argument
        text = words.part(setting, setting.is_signed)
        text = f"{text} - {added}" if added > 0 else f"{text} + {-added}" if added < 0 else text
        return f"-({text})" if sign < 0 else text
    if name == CHANNELS_FIRST:
        return str(function.channels_first)
    if name == "rounding":
        return f"UMAKIT_ROUNDING_{rounding.upper()}"
    if name == "groups":
        return "input_channels" if function.operator == "depthwise" else "1"
    if name == "scales" and function.operator in WEIGHTED:
        return "outputs" if function.operator == "dense" else "output_channels"
    if name in MAY_BE_MISSING:
        return MAY_BE_MISSING[name]
    raise _missing(name, function)


def _missing(name: str, function: DriverFunction) -> RegisterMapError:
    return RegisterMapError(
        f"no register says ${name} of {function.operator} as it is",
        where=MAP_FILE,
        fix=f'give one operand = "${name}", or say in [mock] how the hardware gets it, '
        f'such as {name} = "C text of other arguments"',
    )


def _given(
    name: str, text: str, numbers: Mapping[str, str], registers: RegisterMap, words: _Words
) -> str:
    try:
        read = read_expression(text, f"mock.{name}")
    except BackendError as error:
        raise RegisterMapError(error.what, where=MAP_FILE, fix=error.fix) from None
    names = {each: each for each in numbers}
    every = registers.descriptor.word if registers.descriptor else registers.registers
    names |= {each.name: f"(int32_t){words.word(each.name)}" for each in every}
    wrong = next((each for each in read.names if each not in names), None)
    if wrong is not None:
        raise RegisterMapError(
            f"mock.{name}: ${wrong} is no register, and no argument that stands above it",
            where=MAP_FILE,
            fix="name arguments that registers say, or registers",
        )
    return f"(int32_t)({filled(read.text, names)})"


def _check_alike(
    first: DriverFunction, other: DriverFunction, mine: list[Setting], its: list[Setting]
) -> None:
    """Refuse indistinguishable jobs of two functions, unless they have one form."""
    says_groups = any(each.argument and each.argument[0] == "groups" for each in mine)
    is_one_form = first.is_convolution and other.is_convolution and says_groups
    if first.operator == other.operator or is_one_form:
        return
    if first.is_convolution and other.operator == "dense":
        _check_dense(mine, its, first)
        return
    raise RegisterMapError(
        f"no register tells {other.operator} from {first.operator}",
        where=MAP_FILE,
        fix=f'give one, such as operand = {{ {first.operator} = "0", {other.operator} = "1" }}',
    )


def _check_dense(mine: list[Setting], its: list[Setting], convolution: DriverFunction) -> None:
    """Refuse a map whose fully connected layers are not written as convolutions of one column."""
    written = {each.place: each for each in its}
    for each in mine:
        other = written.get(each.place)
        if each.argument is None or each.argument[0] in convolution.pointers:
            continue
        name, sign, added = each.argument
        argument, number = DENSE_ARGUMENTS.get(name, name), DENSE_NUMBERS.get(name)
        if number is not None:
            wanted = str(sign * number + added)
            fits = other is not None and other.constant == wanted
        else:
            wanted = each.text.text.replace(f"${name}", f"${argument}")
            fits = other is not None and other.argument == (argument, sign, added)
        if not fits:
            raise RegisterMapError(
                f"{each.place}: no register tells dense from {convolution.operator}, so a fully "
                "connected layer is a convolution of one column",
                where=MAP_FILE,
                fix=f'write dense = "{wanted}", or let a register tell the operators',
            )
