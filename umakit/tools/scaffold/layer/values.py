# SPDX-License-Identifier: Apache-2.0
"""Values of the templates of the kind `layer`."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from umakit.errors import RegisterMapError, ScaffoldError
from umakit.machine.registers import texts
from umakit.machine.registers.register_map import Register, RegisterMap, read_register_map
from umakit.text.c_text import filled
from umakit.text.rendering import Code
from umakit.tools.scaffold.answers import Answers
from umakit.tools.scaffold.layer.default_map import default_map
from umakit.tools.scaffold.layer.functions import (
    CHANNELS_FIRST,
    IMAGES,
    TENSORS,
    WEIGHTED,
    DriverFunction,
    functions_of,
)
from umakit.tools.scaffold.layer.mock import MockJob, mock_of
from umakit.tools.scaffold.layer.settings import (
    MAP_FILE,
    Setting,
    check_operands,
    computed_limits,
    constraints_of,
    derived_of,
    limits_of,
    python_text,
    settings_of,
)

TABLE_FILE = "registers.md"

MOST_SIZES = 5
"""Bytes of an element and sizes along four axes."""

SPACE = "    "
LONGEST_LINE = 100

PER_GROUP = "input_channels / groups"

CHANNELS = {"conv2d": "output_channels", "depthwise": "output_channels", "dense": "outputs"}
"""The argument that counts output channels, of operators with scales."""

_WINDOWS = "(uint64_t)kernel_height * (uint64_t)kernel_width * (uint64_t)group_channels"
_MACS = f"(uint64_t)bytes_of(machine, sizes) *\n                       {_WINDOWS}"

MACS = {
    "conv2d": _MACS,
    "depthwise": _MACS,
    "dense": "(uint64_t)bytes_of(machine, sizes) * (uint64_t)inputs",
}
"""Multiply-accumulates as C text."""


@dataclass(frozen=True)
class _Limits:
    """The limits of a function's layers, which its pattern's predicate compares.

    Attributes:
        own: least and largest value of arguments.
        computed: C text, Python text, least and largest value of computed numbers.
        derived: names and Python texts of numbers that hardware computes itself.
    """

    own: Mapping[str, tuple[int, int]]
    computed: Sequence[tuple[str, str, int, int]]
    derived: Sequence[tuple[str, str]]

    @property
    def has_any(self) -> bool:
        return bool(self.own or self.computed or self.derived)


def layer_values(answers: Answers, name: str) -> dict[str, object]:
    functions, roundings = functions_of(answers, name), answers.roundings
    if answers.simulator == "none":
        if answers.registers:
            raise ScaffoldError(
                "--registers and --simulator none: nothing would answer the driver on this machine",
                fix="leave out one of them",
            )
        return {"functions": [_plain_values(f, roundings) for f in functions], **_limit_values({})}
    registers, text = map_of(answers, name, functions)
    every = functions_of(replace(answers, operators=tuple(TENSORS)), name)
    check_operands(registers, text, every)  # hardware may have more operators than are asked for
    settings = {each: settings_of(registers, text, each) for each in functions}
    jobs = mock_of(registers, settings, name.upper(), roundings[0])
    limits = {
        each: _Limits(
            limits_of(each, written),
            computed_limits(each, written),
            derived_of(each, written, registers),
        )
        for each, written in settings.items()
    }
    return {
        "functions": [
            _function_values(each, settings[each], limits[each].has_any, registers, answers)
            for each in functions
        ],
        "jobs": [_job_values(each) for each in jobs],
        **_limit_values(limits),
        **_traits(settings, jobs, registers),
        **_map_values(registers, name.upper()),
    }


def _function_values(
    function: DriverFunction,
    settings: list[Setting],
    has_limits: bool,
    registers: RegisterMap,
    answers: Answers,
) -> dict[str, object]:
    constraints = constraints_of(function, settings, answers.roundings, set(registers.mock))
    return {
        **_names(function),
        "registration": _registration(function, constraints, has_limits),
        "settings": Code(_settings(settings, function, registers)),
        "unused": [Code(name) for name in _unused(function, settings)],
    }


def _limit_values(limits: Mapping[DriverFunction, _Limits]) -> dict[str, object]:
    return {
        "limits": {
            each.pattern: {argument: list(ends) for argument, ends in found.own.items()}
            for each, found in limits.items()
            if found.own
        },
        "computed": {
            each.pattern: [
                (Code(label), Code(text), *ends) for label, text, *ends in found.computed
            ]
            for each, found in limits.items()
            if found.computed
        },
        "derived": {
            each.pattern: [(name, Code(_in_lines(name, text))) for name, text in found.derived]
            for each, found in limits.items()
            if found.derived
        },
        "has_limits": any(each.has_any for each in limits.values()),
    }


def _traits(
    settings: Mapping[DriverFunction, list[Setting]],
    jobs: Sequence[MockJob],
    registers: RegisterMap,
) -> dict[str, object]:
    """Return which helpers of a driver and its simulator are needed."""
    fields = [each for found in settings.values() for each in found if each.field is not None]
    return {
        "has_fields": bool(fields),
        "has_signed_fields": any(each.is_signed for each in fields),
        "has_windows": any(each.function.operator in IMAGES for each in jobs),
        "has_zero_points": any(not each.function.is_pool for each in jobs),
        "has_scales": any(each.function.operator in WEIGHTED for each in jobs),
        "most_tensors": max(len(each.pointers) for each in settings)
        + (registers.descriptor is not None),
    }


def _map_values(registers: RegisterMap, prefix: str) -> dict[str, object]:
    job = registers.job
    assert job is not None
    clear = registers.clear if registers.access.reports_errors else ""
    places = {
        "start": job.start, "error": job.error, "busy": job.busy, "stop": job.stop,
        "identity": job.identity, "reported": registers.error, "clear": clear,
    }  # fmt: skip
    return {
        "map": registers,
        "descriptor": registers.descriptor,
        "buffer_alignment": registers.buffer_alignment,
        **{key: _place(registers, text, prefix) for key, text in places.items()},
        "registers": [_register_values(each, prefix) for each in registers.registers],
        "answers": registers.access,
    }


def layer_files(answers: Answers, name: str) -> dict[str, str]:
    """Return the register map and the files made from it alone, by path; empty without a
    simulator."""
    if answers.simulator == "none":
        return {}
    registers, text = map_of(answers, name, functions_of(answers, name))
    notice = (f"Written from {MAP_FILE}: change that file, and run `uma new --update .`",)
    header = texts.register_header(registers, prefix=name.upper(), notice=notice)
    files = {
        MAP_FILE: text,
        f"{name}_registers.h": header,
        TABLE_FILE: f"# Registers of the {name}\n\n{notice[0]}. Offsets are in bytes.\n\n"
        f"{texts.register_table(registers)}",
    }
    if registers.systemverilog:
        package = texts.package_name(name)
        files[f"{registers.systemverilog}/{package}.sv"] = texts.register_package(
            registers, package=package, notice=notice, where=MAP_FILE
        )
    return files


def map_of(
    answers: Answers, name: str, functions: Sequence[DriverFunction]
) -> tuple[RegisterMap, str]:
    """Return the register map of a backend and its text: the team's, or one for its operators."""
    text = answers.registers or default_map(name, functions, answers.roundings)
    registers = read_register_map(text, MAP_FILE)
    if registers.job is None:
        raise RegisterMapError(
            "there is no section [job], which says how a job is started and how it ended",
            where=MAP_FILE,
            fix='add [job] with start = "REGISTER.FIELD" and error = "REGISTER"',
        )
    return registers, text


def _names(function: DriverFunction) -> dict[str, object]:
    return {
        "operator": function.operator,
        "pattern": function.pattern,
        "function": function.name,
        "prototype": Code(function.prototype()),
        "channels_first": function.channels_first,
    }


def _plain_values(function: DriverFunction, roundings: tuple[str, ...]) -> dict[str, object]:
    """Return the values of a function that computes by itself, without further constraints."""
    settings: list[Setting] = []
    all_arguments = set(function.arguments)
    constraints = constraints_of(function, settings, roundings, all_arguments)
    return {
        **_names(function),
        "registration": _registration(function, constraints, False),
        "unused": [Code(each) for each in function.numbers if each in function.unneeded],
    }


def _registration(function: DriverFunction, constraints: Sequence[str], has_limits: bool) -> Code:
    more = [f'predicate=fits("{function.pattern}")'] if has_limits else []
    call = f"*patterns.q{function.operator}({', '.join([*constraints, *more])})"
    line = f"{SPACE * 2}self._register_pattern({call})"
    if len(line) <= LONGEST_LINE:
        return Code(line)
    start = f"{SPACE * 2}self._register_pattern(\n{SPACE * 3}"
    if len(call) + len(SPACE * 3) <= LONGEST_LINE:
        return Code(f"{start}{call}\n{SPACE * 2})")
    arguments = "".join(f"{SPACE * 4}{each},\n" for each in [*constraints, *more])
    opened = f"*patterns.q{function.operator}(\n{arguments}{SPACE * 3})"
    return Code(f"{start}{opened}\n{SPACE * 2})")


def _in_lines(name: str, text: str) -> str:
    """Return a Python expression of a tuple in the table `DERIVED`, in several lines if long."""
    if len(f'{SPACE * 2}("{name}", lambda n: {text}),') <= LONGEST_LINE:
        return text
    parts = textwrap.wrap(text, LONGEST_LINE - len(SPACE * 3))
    return "\n".join(["(", *(f"{SPACE * 3}{part}" for part in parts), f"{SPACE * 2})"])


def _settings(settings: Sequence[Setting], function: DriverFunction, registers: RegisterMap) -> str:
    by_word: dict[str, list[Setting]] = {}
    for each in settings:
        by_word.setdefault(each.word.name, []).append(each)
    lines = []
    words = registers.words
    for word in words:
        value = f" |\n{SPACE * 3}".join(
            _value(each, function) for each in by_word.get(word.name, [])
        )
        if registers.descriptor is not None:
            lines.append(f"/* {word.name} */ {value or '0u'},")
        elif value:
            opening = f"{{{function.prefix}_{word.name}_OFFSET,"
            apart = f"\n{SPACE * 3}" if len(opening) + len(value.split("\n")[0]) > 84 else " "
            lines.append(f"{opening}{apart}{value}}},")
    return "\n".join(f"{SPACE * 2}{line}" for line in lines)


def _value(setting: Setting, function: DriverFunction) -> str:
    pointer = next((each for each in setting.text.names if each in function.pointers), None)
    if pointer is not None:
        direction = "UMAKIT_FROM_DEVICE" if pointer == "result" else "UMAKIT_TO_DEVICE"
        sizes = function.sizes(pointer)
        apart = f",\n{SPACE * 4}" if len(sizes) > 20 else ", "
        if len(sizes) > 65:
            sizes = sizes.replace(PER_GROUP, f"\n{SPACE * 8}{PER_GROUP}")
        return f"map(&job, {pointer}, {direction}{apart}(const int32_t[5]){{{sizes}}})"
    is_computed = len(setting.text.names) > 1 and python_text(setting.text, "") is not None
    wide = "(int64_t)" if is_computed else ""  # products of sizes may need more than 32 bits
    names = {name: f"{wide}{name}" for name in setting.text.names}
    names[CHANNELS_FIRST] = str(function.channels_first)
    value = filled(setting.text.text, names)
    if setting.field is None:
        return (
            f"(uint32_t){value}"
            if value.isalnum() or value.isidentifier()
            else (f"(uint32_t)({value})")
        )
    lowest, highest = setting.range
    symbol = f"{function.prefix}_{setting.word.name}_{setting.field.name}"
    return f"field(&job, {value}, {_int64(lowest)}, {_int64(highest)}, {symbol}_SHIFT)"


def _int64(value: int) -> str:
    return str(value) if abs(value) < 1 << 31 else f"INT64_C({value})"


def _unused(function: DriverFunction, settings: Sequence[Setting]) -> list[str]:
    used = {name for each in settings for name in each.text.names}
    sizes = " ".join(function.sizes(each) for each in function.pointers if each in used)
    return [
        name
        for name in function.arguments
        if name not in used and not re.search(rf"\b{name}\b", sizes)
    ]


def _job_values(job: MockJob) -> dict[str, object]:
    function = job.function
    return {
        **_names(function),
        "condition": Code(job.condition),
        "is_convolution": function.is_convolution,
        "is_pool": function.is_pool,
        "channels": CHANNELS.get(function.operator, ""),
        "macs": Code(MACS.get(function.operator, "0u")),
        "numbers": {name: Code(text) for name, text in job.numbers.items()},
        "tensors": [
            {
                "name": each,
                "type": "int32_t" if each in ("bias", "multipliers") else "int8_t",
                "address": Code(job.addresses[each]),
                "sizes": Code(_padded(function.sizes(each)).replace(PER_GROUP, "group_channels")),
            }
            for each in function.pointers
            if each != "result"
        ],
        "result": {
            "address": Code(job.addresses["result"]),
            "sizes": Code(_padded(function.sizes("result"))),
        },
    }


def _padded(sizes: str) -> str:
    """Return sizes of a tensor as `MOST_SIZES` C expressions; missing sizes are 1."""
    return sizes + ", 1" * (MOST_SIZES - len(sizes.split(",")))


def _place(registers: RegisterMap, text: str, prefix: str) -> Mapping[str, object] | None:
    """Return offset and mask in C of a register or field of `[job]`; None if there is none."""
    if not text:
        return None
    register, field = registers.place(text)
    symbol = f"{prefix}_{register.name}"
    return {
        "name": register.name,
        "offset": f"{symbol}_OFFSET",
        "reset": f"{symbol}_RESET",
        "mask": Code("0xFFFFFFFFu" if field is None else f"{symbol}_{field.name}_MASK"),
        "shift": Code("0u" if field is None else f"{symbol}_{field.name}_SHIFT"),
        "one": Code("1u" if field is None else f"1u << {symbol}_{field.name}_SHIFT"),
        "is_whole": field is None,
    }


def _register_values(register: Register, prefix: str) -> dict[str, object]:
    symbol = f"{prefix}_{register.name}"
    return {
        "name": register.name,
        "offset": f"{symbol}_OFFSET",
        "reset": f"{symbol}_RESET",
        "mask": texts.hexadecimal(register.writable_mask, 8),
        "cleared": int(register.write == "one_to_clear"),
        "readable": int(register.access != "wo"),
        "writable": int(register.access != "ro"),
    }
